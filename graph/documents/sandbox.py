"""Reads untrusted files in a child process (parse/child.py), which has limits on time and memory and can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Timer
from typing import Any, Self

from graph.documents.parse.child import MAX_TITLE_CHARS, NO_MEMORY, WALL_CLOCK_FACTOR
from graph.documents.parse.formats import MIB, ChildReport, Limits, ParsedFile
from graph.documents.parse.ocr import PROGRAMS, TESSERACT, Ocr, check_programs
from graph.documents.parse.plain import GAP, pages_of, title_of, with_headings, with_pages
from graph.errors import UserError
from graph.shared.home import HOME
from graph.shared.pages import PAGE_STARTS

PAGES_SHOWN = 8
GRACE_S = 5.0
"""Seconds to wait for the child's report after the kernel's time limit, before the child is killed."""
LATE_REPORT = ChildReport(0, signal.SIGALRM, 0, 0.0, 0.0)
"""The report for a child that was killed because it did not reply in time."""


class ParseWorker:
    """Reads files that are not plain text, one at a time; starts its process for the first file, and restarts it whenever it has exited.

    Use it in a `with` statement: leaving the block kills the process, even while another thread waits in `parse`.
    """

    def __init__(self, limits: Limits, note: Callable[[str], None] = lambda line: None) -> None:
        self.last = LATE_REPORT
        """The report on the last request; LATE_REPORT before the first."""
        if limits.ocr is not None:
            check_programs(limits.ocr)
        self._limits = limits
        self._note = note
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            if self._process is not None:
                _kill(self._process)

    def parse(self, data: bytes, suffix: str, file: str) -> ParsedFile:
        """Title, text and metadata of a file's bytes; UserError with `file`, the problem (such as an exceeded limit), and the remedy."""
        parsed = self._parse_text(data, suffix, file)
        if not parsed.textless_pages:
            return parsed
        if self._limits.ocr is not None:
            return self._add_scans(parsed, data, file, self._limits.ocr)
        if len(parsed.textless_pages) == len(parsed.metadata[PAGE_STARTS]):
            found = f"{file}: no page has text (a scan?)"
            raise UserError(found, "a PDF with a text layer", "run OCR on it (--ocr tesseract) or remove it")
        if parsed.image_pages:
            more = ", …" if len(parsed.image_pages) > PAGES_SHOWN else ""
            pages = ", ".join(map(str, parsed.image_pages[:PAGES_SHOWN])) + more
            found = f"{file}: pages with images but no text (scans?) were not read: {pages}"
            self._note(f"{found}. Run OCR on the file (--ocr tesseract)")
        return parsed

    def _parse_text(self, data: bytes, suffix: str, file: str) -> ParsedFile:
        """As `parse`, without OCR."""
        seconds, memory = self._limits.seconds_for(len(data)), self._limits.memory_for(len(data))
        request = {"file": file, "suffix": suffix, "seconds": seconds, "memory": memory}
        request["whole"] = self._limits.whole_pages
        wall_seconds = WALL_CLOCK_FACTOR * seconds
        self.last, body = self._ask(request, data, wall_seconds + GRACE_S)
        remedy = "split or simplify it, or raise the limit"
        if self.last.signal in (signal.SIGPROF, signal.SIGALRM):
            found = f"{file}: not read in {seconds:g} s of processor time or {wall_seconds:g} s of elapsed time"
            raise UserError(found, "", f"{remedy} (--file-seconds, or file_seconds on a server)")
        if self.last.code == NO_MEMORY:
            found = f"{file}: needs more than {memory // MIB:,} MiB of memory"
            raise UserError(found, "", f"{remedy} (--file-memory-mb, or file_memory_mb on a server)")
        if not body:
            ending = f"signal {self.last.signal}" if self.last.signal else f"status {self.last.code}"
            raise UserError(f"{file}: its reader ended with {ending}", "a readable file", "repair or remove it")
        return ParsedFile(**_parse_reply(body))

    def _add_scans(self, parsed: ParsedFile, data: bytes, file: str, ocr: Ocr) -> ParsedFile:
        """The file with the text that OCR finds on pages without text; UserError if there are too many such pages, or if no page has text even then."""
        if len(parsed.textless_pages) > ocr.pages:
            found = f"{file}: pages without text (a scan?): {len(parsed.textless_pages):,}"
            remedy = "split the file, or raise the limit (--ocr-pages, or ocr_pages on a server)"
            raise UserError(found, f"at most {ocr.pages:,} for OCR", remedy)
        text_of_page = {page: self._scan_page(page, data, file, ocr) for page in parsed.textless_pages}
        pages = pages_of(parsed)
        if not any(text_of_page.values()):
            if len(text_of_page) < len(pages):
                return parsed
            found = f"{file}: tesseract finds no text on any page ({len(pages)} in all)"
            remedy = "name its languages (--ocr-languages), or remove it"
            raise UserError(found, f"text in the language {ocr.languages}", remedy)
        for page, text in text_of_page.items():
            pages[page - 1] = with_headings(text, list(filter(None, pages[page - 1].split(GAP))))
        text, starts = with_pages(pages)
        metadata = {**parsed.metadata, **starts, "ocr": TESSERACT}
        return ParsedFile(parsed.title or title_of(text)[:MAX_TITLE_CHARS], text, metadata)

    def _scan_page(self, page: int, data: bytes, file: str, ocr: Ocr) -> str:
        """The text that OCR finds on a page; UserError if a program fails."""
        memory = self._limits.memory_for(len(data))
        request = {"file": file, "page": page, "languages": ocr.languages}
        request |= {"seconds": ocr.page_seconds, "memory": memory}
        self.last, body = self._ask(request, data, PROGRAMS * WALL_CLOCK_FACTOR * ocr.page_seconds + GRACE_S)
        if not body:
            raise UserError(f"{file}: page {page}: its reader stopped", "a readable page", "repair or remove the page")
        return str(_parse_reply(body)["text"])

    def _ask(self, request: dict[str, Any], data: bytes, wall_seconds: float) -> tuple[ChildReport, bytes]:
        """The reply of the child process; if there is none, LATE_REPORT or a report of its exit code, and an empty body."""
        process, started = self._running_process(), time.monotonic()
        assert process.stdin is not None and process.stdout is not None
        watchdog = Timer(wall_seconds, _kill, [process])
        watchdog.daemon = True
        watchdog.start()
        try:
            with suppress(OSError, ValueError):
                process.stdin.write(json.dumps({**request, "bytes": len(data)}).encode() + b"\n" + data)
                process.stdin.flush()
                report = ChildReport(**json.loads(process.stdout.readline()))
                body = process.stdout.read(report.bytes)
                if len(body) == report.bytes:
                    return report, body
            if time.monotonic() - started >= wall_seconds:
                return LATE_REPORT, b""
            status = process.wait()
            return ChildReport(0, max(0, -status), max(0, status), 0.0, 0.0), b""
        finally:
            watchdog.cancel()

    def _running_process(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._closed:
                raise UserError("reading was cancelled", "", "")
            if self._process is None or self._process.poll() is not None:
                self._process = _start()
            return self._process


def _parse_reply(body: bytes) -> dict[str, Any]:
    """The reply's JSON; UserError if the request was refused."""
    answer: dict[str, Any] = json.loads(body)
    if "refused" in answer:
        raise UserError(answer["refused"], "", "")
    return answer


def _start() -> "subprocess.Popen[bytes]":
    """A child process with the search paths of this process, but nothing else from its environment, such as API keys."""
    passed_on = ("PATH", "LD_LIBRARY_PATH", "TESSDATA_PREFIX")
    environment = {name: os.environ[name] for name in passed_on if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "graph.documents.parse.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment, "OMP_THREAD_LIMIT": "1", "PYTHONPATH": os.pathsep.join([str(HOME), *sys.path])},
        start_new_session=True,
    )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and the processes that it started, and wait for it to end."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
