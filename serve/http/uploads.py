"""Files from clients: an upload's name becomes a document's source, never a path.

Its bytes lie in a fresh folder under a name of ours while they are read. Names that would lead elsewhere are refused all the same,
since others may make files of sources.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

from fastapi import UploadFile

from graph.errors import UserError
from graph.read import SUFFIXES, read_file
from graph.types import Document
from serve.http.errors import ApiError

MAX_SOURCE_CHARS = 500


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


async def read_upload(file: UploadFile) -> Document:
    """An uploaded file as a document; ApiError 400 for a name that leads elsewhere, an ending or bytes that cannot be read."""
    name = file.filename or ""
    problem = source_problem(name) if name else "the file has no name"
    suffix = Path(name).suffix.lower()
    if problem or len(name) > MAX_SOURCE_CHARS:
        raise ApiError(400, "bad_name", problem or f"the name is longer than {MAX_SOURCE_CHARS} characters", "files")
    if suffix not in SUFFIXES:
        raise ApiError(400, "bad_ending", f"{name}: its ending is not one of {', '.join(SUFFIXES)}", "files")
    data = await file.read()
    return await asyncio.to_thread(_read_bytes, data, name, suffix)


def _read_bytes(data: bytes, name: str, suffix: str) -> Document:
    with TemporaryDirectory(prefix="modegraph-upload-") as folder:
        held = Path(folder) / f"upload{suffix}"
        held.write_bytes(data)
        try:
            document = read_file(held, name)
        except UserError as problem:
            raise ApiError(400, "unreadable", str(problem).replace(str(held), name), "files") from None
    if not document.text.strip():
        raise ApiError(400, "empty_document", f"{name} has no text", "files")
    return document
