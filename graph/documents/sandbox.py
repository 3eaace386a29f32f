"""Foreign files are read in a process of their own (parse/child.py), which may take only so much time and memory and can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from threading import Lock, Timer
from typing import Any, Self

from graph.documents.parse.child import MAX_TITLE_CHARS, NO_MEMORY, PATIENCE
from graph.documents.parse.formats import MIB, ChildReport, Limits, ParsedFile
from graph.documents.parse.ocr import PROGRAMS, TESSERACT, Ocr, check_programs
from graph.documents.parse.plain import GAP, pages_of, title_of, with_headings, with_pages
from graph.errors import UserError
from graph.shared.home import HOME
from graph.shared.pages import PAGE_STARTS

GRACE_S = 5.0
"""The kernel ends the reading of a file when its time is over; when no word of that comes for this long, all is killed."""
LATE = ChildReport(0, signal.SIGALRM, 0, 0.0, 0.0)


class ParseWorker:
    """Reads files that are not plain text one at a time; its process starts with the first, and again after it was lost.

    To be used in a `with`, whose end kills the process, also while another thread waits for it in `parse`.
    """

    def __init__(self, limits: Limits) -> None:
        self.last = LATE
        """How the reading of the last file ended."""
        if limits.ocr is not None:
            check_programs(limits.ocr)
        self._limits = limits
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            self._kill()

    def parse(self, data: bytes, suffix: str, file: str) -> ParsedFile:
        """Title, text and metadata of a file's bytes; UserError naming `file`, what was too much, and the remedy."""
        parsed = self._parsed(data, suffix, file)
        if not parsed.textless:
            return parsed
        if self._limits.ocr is not None:
            return self._with_scans(parsed, data, file, self._limits.ocr)
        if len(parsed.textless) == len(parsed.metadata[PAGE_STARTS]):
            found = f"{file}: {len(parsed.textless)} pages without text (a scan?)"
            raise UserError(found, "a PDF with a text layer", "run OCR on it (--ocr tesseract) or remove it")
        return parsed

    def _parsed(self, data: bytes, suffix: str, file: str) -> ParsedFile:
        """The same, scans left as they are."""
        seconds, memory = self._limits.seconds_for(len(data)), self._limits.memory_for(len(data))
        request = {"file": file, "suffix": suffix, "bytes": len(data), "seconds": seconds, "memory": memory}
        request["whole"] = self._limits.whole_pages
        self.last, body = self._ask(json.dumps(request).encode() + b"\n", data, PATIENCE * seconds + GRACE_S)
        remedy = "split or simplify it, or raise the limit"
        if self.last.signal in (signal.SIGPROF, signal.SIGALRM):
            raise UserError(
                f"{file}: not read in {seconds:g} s of work",
                "",
                f"{remedy} (--file-seconds, or file_seconds of a server)",
            )
        if self.last.code == NO_MEMORY:
            raise UserError(
                f"{file}: more than {memory // MIB:,} MiB of memory",
                "",
                f"{remedy} (--file-memory-mb, or file_memory_mb of a server)",
            )
        if not body:
            ended = f"signal {self.last.signal}" if self.last.signal else f"status {self.last.code}"
            raise UserError(f"{file}: what read it ended with {ended}", "a readable file", "repair or remove it")
        return ParsedFile(**_accepted(body))

    def _with_scans(self, parsed: ParsedFile, data: bytes, file: str, ocr: Ocr) -> ParsedFile:
        """A document with the text that OCR sees on its pages without text."""
        if len(parsed.textless) > ocr.pages:
            found = f"{file}: {len(parsed.textless):,} pages without text (a scan?)"
            raise UserError(
                found,
                f"at most {ocr.pages:,} for OCR",
                "split the file, or raise the limit (--ocr-pages, or ocr_pages of a server)",
            )
        seen = {page: self._on_page(page, data, file, ocr) for page in parsed.textless}
        pages = pages_of(parsed)
        if not any(seen.values()):
            if len(seen) < len(pages):
                return parsed
            found = f"{file}: tesseract sees no text on its {len(pages)} pages"
            raise UserError(found, f"letters of {ocr.languages}", "name its languages (--ocr-languages), or remove it")
        for page, text in seen.items():
            pages[page - 1] = with_headings(text, list(filter(None, pages[page - 1].split(GAP))))
        text, starts = with_pages(pages)
        metadata = {**parsed.metadata, **starts, "ocr": TESSERACT}
        return ParsedFile(parsed.title or title_of(text)[:MAX_TITLE_CHARS], text, metadata)

    def _on_page(self, page: int, data: bytes, file: str, ocr: Ocr) -> str:
        """The text that OCR sees on a page; UserError as that of the programs."""
        memory = self._limits.memory_for(len(data))
        request = {"file": file, "page": page, "languages": ocr.languages, "bytes": len(data)}
        request |= {"seconds": ocr.page_seconds, "memory": memory}
        patience_s = PROGRAMS * PATIENCE * ocr.page_seconds + GRACE_S
        self.last, body = self._ask(json.dumps(request).encode() + b"\n", data, patience_s)
        if not body:
            raise UserError(f"{file}: page {page}: what read it was ended", "a readable page", "repair or remove it")
        return str(_accepted(body)["text"])

    def _ask(self, head: bytes, data: bytes, patience_s: float) -> tuple[ChildReport, bytes]:
        """The reply of child.py; nothing, and LATE or its own exit code, when there is none."""
        process, began = self._started(), time.monotonic()
        assert process.stdin is not None and process.stdout is not None
        watchdog = Timer(patience_s, _kill, [process])
        watchdog.daemon = True
        watchdog.start()
        try:
            process.stdin.write(head + data)
            process.stdin.flush()
            ended = ChildReport(**json.loads(process.stdout.readline()))
            return ended, process.stdout.read(ended.bytes)
        except (OSError, ValueError):
            late = time.monotonic() - began >= patience_s
            return LATE if late else ChildReport(0, 0, process.wait(), 0.0, 0.0), b""
        finally:
            watchdog.cancel()

    def _started(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._closed:
                raise UserError("the reading was called off", "", "")
            if self._process is None or self._process.poll() is not None:
                self._process = _start()
            return self._process

    def _kill(self) -> None:
        if self._process is not None:
            _kill(self._process)


def _accepted(body: bytes) -> dict[str, Any]:
    """What came of a request; UserError for what was refused."""
    answer: dict[str, Any] = json.loads(body)
    if "refused" in answer:
        raise UserError(answer["refused"], "", "")
    return answer


def _start() -> "subprocess.Popen[bytes]":
    """A process that finds the modules that this one finds, and gets nothing else of its environment: no keys."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TESSDATA_PREFIX") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "graph.documents.parse.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**kept, "OMP_THREAD_LIMIT": "1", "PYTHONPATH": os.pathsep.join([str(HOME), *sys.path])},
        start_new_session=True,
    )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process with the fork that may be reading for it, and wait for it."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
