"""The process that reads foreign files for another: one request after the other on standard input, each in a fork with limits.

A request is a line of JSON ({"file", "suffix", "bytes", "seconds", "memory", "whole"}) and the bytes of the file; the reply a line of JSON (an
Ended) and JSON of either a Parsed or what to tell the user ({"refused"}). What reads a format is loaded before the fork, in which the
kernel lets nothing open a file or a connection; nothing is unpickled or run. The kernel ends a fork whose time is over; when the other
process goes, this one goes. A request with a "page" and "languages" is answered with the text that other programs see on it (ocr/).
"""

import codecs
import encodings
import json
import os
import pkgutil
import re
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, partial
from importlib import import_module
from typing import Any

from graph.documents.parse.formats import FRONT_MATTER, MIB, READERS, ChildReport, ParsedFile
from graph.documents.parse.ocr import PageLimits, page_text
from graph.errors import UserError

MAX_TEXT_CHARS, MAX_METADATA_CHARS, MAX_TITLE_CHARS, MAX_REASON_CHARS = 32 * MIB, MIB, 1000, 200
LATE_PACKAGES = {"email", "fontTools.ttLib", "pypdf"}
"""They import parts of themselves when a file asks for them, which a fork cannot."""
PATIENCE = 6
"""How many times a file's seconds of work may pass on the clock: a busy machine is no fault of a file."""
NO_MEMORY = 3
"""Exit code of a fork that was refused memory."""
Read = Callable[[bytes, str], ParsedFile]
"""The bytes of a file, and its name for errors, to what it holds."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Serve requests until standard input ends."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    _prepare()
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        if "page" in request:
            ended, body = _read_page(request, data)
        else:
            ended, body = _read_in_a_fork(request, _reader(request["suffix"], request["whole"]), data)
        replies.write(json.dumps(asdict(ended)).encode() + b"\n" + body)
        replies.flush()


def _read_in_a_fork(request: dict[str, Any], read: Read, data: bytes) -> tuple[ChildReport, bytes]:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(_fork(request, read, data, theirs))
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        body = answer.read()
    _, status, used = os.wait4(child, 0)
    ended_by, code = os.waitstatus_to_exitcode(status), 0
    if ended_by >= 0:
        ended_by, code = 0, ended_by
    body = body if ended_by == code == 0 else b""
    peak_mb = used.ru_maxrss * _MAXRSS_UNIT / MIB
    return ChildReport(len(body), -ended_by, code, used.ru_utime + used.ru_stime, peak_mb), body


def _read_page(request: dict[str, Any], data: bytes) -> tuple[ChildReport, bytes]:
    """The text on a page as an image, {"text"}, or why there is none."""
    limits = PageLimits(request["seconds"], PATIENCE * request["seconds"], request["memory"])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        answer = {"text": page_text(data, request["page"], request["languages"], request["file"], limits)}
    except UserError as problem:
        answer = {"refused": str(problem)}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    body = json.dumps(_clean(answer), ensure_ascii=False).encode()
    return ChildReport(len(body), 0, 0, cpu_s, used.ru_maxrss * _MAXRSS_UNIT / MIB), body


def _fork(request: dict[str, Any], read: Read, data: bytes, answer: int) -> int:
    """Read the file within the limits, write what came of it, return the exit code."""
    try:
        _limit(request["seconds"], request["memory"])
        with os.fdopen(answer, "wb") as out:
            out.write(json.dumps(_answer(request, read, data), ensure_ascii=False).encode())
    except MemoryError:
        return NO_MEMORY
    return 0


def _limit(seconds: float, memory: int) -> None:
    """Have the kernel end this process after so much work, or waiting, and refuse it more memory, files and connections."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    limits = {resource.RLIMIT_AS: memory, resource.RLIMIT_NOFILE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    for what, limit in limits.items():
        with suppress(ValueError, OSError):  # Not every platform has every limit.
            resource.setrlimit(what, (limit, limit))


def _prepare() -> None:
    """Load the encodings that a file may name, which no fork could; and do without numpy, which openpyxl would load for nothing."""
    sys.modules["numpy"] = None  # type: ignore[assignment]
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(LookupError, ImportError):
            codecs.lookup(module.name)


@cache
def _reader(suffix: str, whole: bool) -> Read:
    """The function that reads a format, with all that it will import; one that refuses all files where a library is not there.

    A format that has more than a main text has another function for the `whole`.
    """
    try:
        found = import_module(f"graph.documents.parse.{READERS.get(suffix, FRONT_MATTER)}")
    except ModuleNotFoundError as missing:
        return partial(_refuse, package=str(missing.name))
    for name in LATE_PACKAGES & sys.modules.keys():
        for module in pkgutil.walk_packages(sys.modules[name].__path__, f"{name}."):
            with suppress(ImportError):
                import_module(module.name)
    return getattr(found, "read_whole", found.read) if whole else found.read  # type: ignore[no-any-return]


def _refuse(data: bytes, file: str, package: str) -> ParsedFile:
    del data
    found = f"{file}: the package {package} is not installed"
    raise UserError(found, "the extra documents", "pip install 'modegraph[documents]'")


def _answer(request: dict[str, Any], read: Read, data: bytes) -> dict[str, Any]:
    """A Parsed, or why there is none."""
    file = request["file"]
    try:
        return _clean(asdict(_checked(read(data, file), file)))  # type: ignore[no-any-return]
    except MemoryError:
        raise
    except RecursionError:
        levels = f"at most about {sys.getrecursionlimit():,} levels"
        problem = UserError(f"{file}: nested too deep to be read", levels, "simplify or remove it")
    except UserError as refused:
        problem = refused
    except Exception as failure:  # noqa: BLE001  (a broken file makes a library fail in any way there is)
        why = " ".join(str(failure).split())[:MAX_REASON_CHARS] or type(failure).__name__
        found = f"{file}: not a readable {request['suffix'][1:].upper()} ({why})"
        problem = UserError(found, "an unencrypted, undamaged file", "repair or remove it")
    return {"refused": _clean(str(problem))}


def _checked(parsed: ParsedFile, file: str) -> ParsedFile:
    """What was read, its title cut; UserError when it is more than an index takes."""
    told = len(json.dumps(dict(parsed.metadata)))
    for size, what, most in (
        (len(parsed.text), "text", MAX_TEXT_CHARS),
        (told, "metadata", MAX_METADATA_CHARS),
    ):
        if size > most:
            raise UserError(f"{file}: {size:,} characters of {what}", f"at most {most:,}", "split the file")
    return replace(parsed, title=parsed.title[:MAX_TITLE_CHARS])


def _clean(value: Any) -> Any:
    """A text, or all texts of a value, without what no text file could hold: NUL and halves of surrogate pairs."""
    if isinstance(value, str):
        return _NO_TEXT.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
