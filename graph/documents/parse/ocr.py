"""Text of scanned pages: a page of a PDF as an image (pdftoppm of Poppler), and the text on the image (tesseract).

Both programs get bytes on standard input and write to standard output: no name that they are called with comes from a document, and the
kernel lets them write no file. Nothing heavy is imported here: the process that reads foreign files starts with it."""

import math
import resource
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from graph.errors import UserError

TESSERACT = "tesseract"


@dataclass(frozen=True)
class Ocr:
    """Reading pages without text by tesseract: in these languages, at most so many of a file, each in so many seconds of work."""

    languages: str = "eng"
    """Its names for them, joined by +."""
    pages: int = 500
    page_seconds: float = 30.0


def ocr_by(program: str | None, languages: str, pages: int, page_seconds: float) -> Ocr | None:
    """The settings of a program by its name, None without one; UserError for any but tesseract.

    >>> ocr_by("tesseract", "eng+deu", 20, 30.0), ocr_by(None, "eng", 20, 30.0)
    (Ocr(languages='eng+deu', pages=20, page_seconds=30.0), None)
    """
    if program is None:
        return None
    if program != TESSERACT:
        raise UserError(f"ocr: {program!r}", TESSERACT, "name it, or leave it out")
    return Ocr(languages, pages, page_seconds)


RENDERER = "pdftoppm"
PROGRAMS = 2
"""That read a page, one after the other."""
DPI = "300"
"""Dots an inch that pages are drawn with: tesseract wants letters some 30 dots high."""
PACKAGES = "install both, such as: apt-get install tesseract-ocr poppler-utils"
MAX_REASON_CHARS = 200
LOOK_S = 20.0


@dataclass(frozen=True)
class PageLimits:
    """What each program may take for a page: seconds of work, seconds on the clock, bytes of address space."""

    seconds: float
    patience_s: float
    memory: int


@cache
def check_programs(ocr: Ocr) -> None:
    """UserError when a program or a language is not installed."""
    for program in (RENDERER, TESSERACT):
        if shutil.which(program) is None:
            raise UserError(f"OCR: the program {program} is not installed", "", PACKAGES)
    listed = subprocess.run([TESSERACT, "--list-langs"], capture_output=True, timeout=LOOK_S, check=False)
    installed = listed.stdout.decode("utf-8", "replace").splitlines()[1:]
    for language in ocr.languages.split("+"):
        if language not in installed:
            raise UserError(
                f"OCR: tesseract has no language {language!r}",
                f"one of {', '.join(installed)}, or several joined by +",
                "name another, or install it, such as: apt-get install tesseract-ocr-deu",
            )


def page_text(data: bytes, page: int, languages: str, file: str, limits: PageLimits) -> str:
    """The text on a page of a PDF, counted from 1; "" for an empty page.

    UserError naming `file` and the page when a program fails or takes too much. To be called in a process of one thread.
    """
    told_as = f"{file}: page {page}"
    number = str(page)
    drawn = [RENDERER, "-r", DPI, "-gray", "-f", number, "-l", number, "-"]
    image = _output(drawn, data, told_as, limits)
    read = [TESSERACT, "stdin", "stdout", "--dpi", DPI, "-l", languages]
    return _output(read, image, told_as, limits).decode("utf-8", "replace").strip()


def _output(command: Sequence[str], given: bytes, told_as: str, limits: PageLimits) -> bytes:
    """What a program makes of its input within the limits."""
    program = command[0]
    late = UserError(
        f"{told_as}: {program} was not done in {limits.seconds:g} s of work",
        "",
        "raise the limit (--ocr-page-seconds, or ocr_page_seconds of a server), or remove the page",
    )
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=limits.patience_s,
            check=False,
            preexec_fn=lambda: _limit(limits),
        )
    except subprocess.TimeoutExpired:
        raise late from None
    if -done.returncode in (signal.SIGXCPU, signal.SIGKILL):
        raise late
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {done.returncode}"]
        raise UserError(
            f"{told_as}: {program} failed ({lines[-1][:MAX_REASON_CHARS]})",
            f"a page that it can read within {limits.memory >> 20:,} MiB",
            "raise the limit (--file-memory-mb, or file_memory_mb of a server), or repair the file",
        )
    return done.stdout


def _limit(limits: PageLimits) -> None:
    """Have the kernel end this process after so much work, and refuse it more memory and any file to write."""
    seconds = math.ceil(limits.seconds)
    for what, soft, hard in (
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_AS, limits.memory, limits.memory),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        with suppress(ValueError, OSError):  # Not every platform has every limit.
            resource.setrlimit(what, (soft, hard))
