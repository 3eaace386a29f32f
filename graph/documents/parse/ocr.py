"""OCR of scanned pages: Poppler's pdftoppm renders a page of a PDF, and tesseract reads the image.

Both programs read standard input and write to standard output: none of their arguments comes from a document, and the kernel stops
them from writing files. Nothing heavy is imported here, because the child process imports this file when it starts."""

import math
import resource
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from graph.errors import UserError

TESSERACT = "tesseract"


@dataclass(frozen=True)
class Ocr:
    """Settings of OCR by tesseract for pages without text: languages, the maximum number of pages per file, processor seconds per page and program."""

    languages: str = "eng"
    """Tesseract's names of the languages, joined by +."""
    pages: int = 500
    page_seconds: float = 30.0


def ocr_settings(program: str | None, languages: str, pages: int, page_seconds: float) -> Ocr | None:
    """The settings of an OCR program by its name; None if there is no name, UserError for any name except tesseract.

    >>> ocr_settings("tesseract", "eng+deu", 20, 30.0), ocr_settings(None, "eng", 20, 30.0)
    (Ocr(languages='eng+deu', pages=20, page_seconds=30.0), None)
    """
    if program is None:
        return None
    if program != TESSERACT:
        raise UserError(f"ocr: {program!r}", TESSERACT, "set ocr to tesseract, or leave it out")
    return Ocr(languages, pages, page_seconds)


RENDERER = "pdftoppm"
PROGRAMS = 2
"""The number of programs that process a page, one after the other."""
DPI = "300"
"""Resolution of the rendered page in dots per inch: tesseract expects letters about 30 dots high."""
PACKAGES = "install tesseract and Poppler, for example: apt-get install tesseract-ocr poppler-utils"
MAX_REASON_CHARS = 200
LIST_SECONDS = 20.0


@dataclass(frozen=True)
class PageLimits:
    """The limits of each program for a page: processor seconds, wall-clock seconds, bytes of address space."""

    seconds: float
    wall_seconds: float
    memory: int


@cache
def check_programs(ocr: Ocr) -> None:
    """UserError if a program or a language is not installed."""
    for program in (RENDERER, TESSERACT):
        if shutil.which(program) is None:
            raise UserError(f"OCR: the program {program} is not installed", "", PACKAGES)
    try:
        result = subprocess.run([TESSERACT, "--list-langs"], capture_output=True, timeout=LIST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        found = f"OCR: {TESSERACT} --list-langs did not end within {LIST_SECONDS:g} s"
        raise UserError(found, "a list of languages", "try again when the machine is less busy") from None
    installed = result.stdout.decode("utf-8", "replace").splitlines()[1:]
    for language in ocr.languages.split("+"):
        if language not in installed:
            expected = f"one of {', '.join(installed)}, or several joined by +"
            remedy = "name another, or install it, for example: apt-get install tesseract-ocr-deu"
            raise UserError(f"OCR: tesseract has no language {language!r}", expected, remedy)


def page_text(data: bytes, page: int, languages: str, file: str, limits: PageLimits) -> str:
    """The text on a page of a PDF, counted from 1; "" for an empty page.

    UserError naming `file` and the page if a program fails or exceeds a limit. Call it in a single-threaded process.
    """
    name, number = f"{file}: page {page}", str(page)
    render = [RENDERER, "-r", DPI, "-gray", "-f", number, "-l", number, "-"]
    image = _output(render, data, name, limits)
    recognise = [TESSERACT, "stdin", "stdout", "--dpi", DPI, "-l", languages]
    return _output(recognise, image, name, limits).decode("utf-8", "replace").strip()


def _output(command: Sequence[str], stdin: bytes, name: str, limits: PageLimits) -> bytes:
    program = command[0]
    timeout_error = UserError(
        f"{name}: {program} did not finish within {limits.seconds:g} s of processor time or {limits.wall_seconds:g} s of elapsed time",
        "",
        "raise the limit (--ocr-page-seconds, or ocr_page_seconds on a server), or remove the page",
    )
    try:
        result = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            timeout=limits.wall_seconds,
            check=False,
            preexec_fn=lambda: _limit(limits),
        )
    except subprocess.TimeoutExpired:
        raise timeout_error from None
    if -result.returncode in (signal.SIGXCPU, signal.SIGKILL):
        raise timeout_error
    if result.returncode:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {result.returncode}"]
        found = f"{name}: {program} failed ({lines[-1][:MAX_REASON_CHARS]})"
        expected = f"a page that it can read within {limits.memory >> 20:,} MiB"
        remedy = "raise the limit (--file-memory-mb, or file_memory_mb on a server), or repair the file"
        raise UserError(found, expected, remedy)
    return result.stdout


def _limit(limits: PageLimits) -> None:
    """Limit this process's processor time and memory; forbid it to write files."""
    seconds = math.ceil(limits.seconds)
    memory = {resource.RLIMIT_AS: (limits.memory, limits.memory)}
    limit_resources({resource.RLIMIT_CPU: (seconds, seconds + 1), **memory})


def limit_resources(limits: Mapping[int, tuple[int, int]]) -> None:
    """Set limits of this process, {resource: (soft, hard)}, and forbid it to write files."""
    for resource_id, limit in {**limits, resource.RLIMIT_FSIZE: (0, 0), resource.RLIMIT_CORE: (0, 0)}.items():
        with suppress(ValueError, OSError):  # Not every platform has every limit.
            resource.setrlimit(resource_id, limit)
