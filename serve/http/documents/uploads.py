"""Files from clients: an upload's name becomes a document's source, never a path.

Its bytes lie in no file of ours: plain text is read here, all else in a process that is killed when the client goes away. Names
that would lead elsewhere are refused all the same, since others may make files of sources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from fastapi import UploadFile

from graph.documents.ocr.tesseract import check_programs
from graph.documents.parse.formats import SUFFIXES, TOLD
from graph.documents.parse.types import Limits
from graph.documents.parse.worker import ParseWorker
from graph.documents.read import read_bytes
from graph.shared.errors import UserError
from graph.shared.types import Document
from serve.http.shared.errors import ApiError

MAX_SOURCE_CHARS = 500
AT_ONCE = 2


def source_problem(source: str) -> str:
    """Why a name cannot be a document's source, or "".

    >>> source_problem("reports/2024.md"), source_problem("%2e%2e/passwd")
    ('', 'source: no name may lead out of its folder')
    """
    plain = unquote(unquote(source)).replace("\\", "/")
    if any(not character.isprintable() for character in plain):
        return "source: a control character (or NUL)"
    if plain.startswith(("/", "~")) or ".." in plain.split("/") or (len(plain) > 1 and plain[1] == ":"):
        return "source: no name may lead out of its folder"
    return ""


class Uploads:
    """Reads uploaded files: those of AT_ONCE requests at a time, in threads that nothing else waits for.

    UserError when scans are to be read and no program is there that does.
    """

    def __init__(self, limits: Limits) -> None:
        if limits.ocr is not None:
            check_programs(limits.ocr)
        self._limits = limits
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE, "uploads")

    async def read(self, files: Sequence[UploadFile]) -> list[Document]:
        """The files as documents; ApiError 400 for a name that leads elsewhere, an ending or bytes that cannot be read.

        When it is cancelled, the process that reads is killed.
        """
        for file in files:
            _check_name(file.filename or "")
        async with self._turns:
            named = [(file.filename or "", await file.read()) for file in files]
            with ParseWorker(self._limits) as worker:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, _read_all, named, worker)


def _check_name(name: str) -> None:
    problem = source_problem(name) if name else "the file has no name"
    if problem or len(name) > MAX_SOURCE_CHARS:
        raise ApiError(400, "bad_name", problem or f"the name is longer than {MAX_SOURCE_CHARS} characters", "files")
    if Path(name).suffix.lower() not in SUFFIXES:
        raise ApiError(400, "bad_ending", f"{name}: its ending is not one of {TOLD}", "files")


def _read_all(named: Sequence[tuple[str, bytes]], worker: ParseWorker) -> list[Document]:
    documents = []
    for name, data in named:
        try:
            documents.append(read_bytes(data, name, name, worker))
        except UserError as problem:
            raise ApiError(400, "unreadable", str(problem), "files") from None
        if not documents[-1].text.strip():
            raise ApiError(400, "empty_document", f"{name} has no text", "files")
    return documents
