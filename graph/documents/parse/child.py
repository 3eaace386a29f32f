"""The process that reads foreign files for another: one request after the other on standard input, each in a fork with limits.

A request is a line of JSON ({"file", "suffix", "bytes", "seconds", "memory"}) and the bytes of the file; the reply a line of JSON (an
Ended) and JSON of either a Parsed or what to tell the user ({"refused"}). No file is opened, nothing is unpickled. The kernel ends a
fork whose time is over; when the other process goes, this one goes.
"""

import json
import os
import re
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from graph.documents.parse.html_text import html_text
from graph.documents.parse.pdf_text import pdf_text
from graph.documents.parse.plain import decode_text
from graph.documents.parse.types import MIB, Ended, Parsed
from graph.shared.errors import UserError

MAX_TEXT_CHARS, MAX_TITLE_CHARS = 32 * MIB, 1000
PATIENCE = 6
"""How many times a file's seconds of work may pass on the clock: a busy machine is no fault of a file."""
NO_MEMORY = 3
"""Exit code of a fork that was refused memory."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Serve requests until standard input ends."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        if request["suffix"] == ".pdf":
            import pypdf  # noqa: F401  (once, so that the forks need not)
        ended, body = _read_in_a_fork(request, data)
        replies.write(json.dumps(asdict(ended)).encode() + b"\n" + body)
        replies.flush()


def _read_in_a_fork(request: dict[str, Any], data: bytes) -> tuple[Ended, bytes]:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(_fork(request, data, theirs))
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        body = answer.read()
    _, status, used = os.wait4(child, 0)
    ended_by, code = os.waitstatus_to_exitcode(status), 0
    if ended_by >= 0:
        ended_by, code = 0, ended_by
    body = body if ended_by == code == 0 else b""
    peak_mb = used.ru_maxrss * _MAXRSS_UNIT / MIB
    return Ended(len(body), -ended_by, code, used.ru_utime + used.ru_stime, peak_mb), body


def _fork(request: dict[str, Any], data: bytes, answer: int) -> int:
    """Read the file within the limits, write what came of it, return the exit code."""
    try:
        _limit(request["seconds"], request["memory"])
        with os.fdopen(answer, "wb") as out:
            out.write(json.dumps(_answer(request, data), ensure_ascii=False).encode())
    except MemoryError:
        return NO_MEMORY
    return 0


def _limit(seconds: float, memory: int) -> None:
    """Have the kernel end this process after so much work, or waiting, and refuse it more memory, and all writing to files."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    for what, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # Not every platform has every limit.
            resource.setrlimit(what, (limit, limit))


def _answer(request: dict[str, Any], data: bytes) -> dict[str, str]:
    file, read = request["file"], pdf_text if request["suffix"] == ".pdf" else _html
    try:
        parsed = read(data, file)
        if len(parsed.text) > MAX_TEXT_CHARS:
            found = f"{file}: {len(parsed.text):,} characters of text"
            raise UserError(found, f"at most {MAX_TEXT_CHARS:,}", "split the file")
    except RecursionError:
        levels = f"at most about {sys.getrecursionlimit():,} levels"
        return {"refused": str(UserError(f"{file}: nested too deep to be read", levels, "simplify or remove it"))}
    except UserError as problem:
        return {"refused": _clean(str(problem))}
    return asdict(Parsed(_clean(parsed.title[:MAX_TITLE_CHARS]), _clean(parsed.text)))


def _html(data: bytes, file: str) -> Parsed:
    return html_text(decode_text(data, file))


def _clean(text: str) -> str:
    """Without what no text file could hold: NUL and halves of surrogate pairs."""
    return _NO_TEXT.sub("\ufffd", text)


if __name__ == "__main__":
    main()
