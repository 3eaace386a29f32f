"""The child process that reads untrusted files. Requests come one by one on standard input; each is handled in a fork with limits.

A request is a line of JSON ({"file", "suffix", "bytes", "seconds", "memory", "whole"}) and the bytes of the file; the reply is a line of JSON (a
ChildReport) and the JSON of a ParsedFile or an error message ({"refused"}). A format's reader is loaded before the fork: in the fork, the
kernel refuses to open any file or connection. Nothing is unpickled or executed. The kernel ends a fork at its time limit; this process ends
when its parent does. A request with a "page" and "languages" starts no fork: the reply is the text on that page by OCR (ocr.py),
whose programs have their own limits.
"""

import codecs
import encodings
import json
import os
import pkgutil
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, partial
from importlib import import_module
from typing import Any

from graph.documents.parse.formats import FRONT_MATTER, MIB, READERS, ChildReport, ParsedFile, missing_package
from graph.documents.parse.ocr import MAX_REASON_CHARS, PageLimits, limit_resources, page_text
from graph.documents.parse.plain import clean
from graph.errors import UserError

MAX_TEXT_CHARS, MAX_METADATA_CHARS, MAX_TITLE_CHARS = 32 * MIB, MIB, 1000
LATE_PACKAGES = {"email", "fontTools.ttLib", "pypdf"}
"""Packages that import some of their modules only while they read a file. In a fork, such imports fail, so these modules are imported before the fork."""
WALL_CLOCK_FACTOR = 6
"""The limit on wall-clock time, as a multiple of the limit on processor time, because the machine may be busy."""
NO_MEMORY = 3
"""Exit code of a fork that ran out of memory."""
Read = Callable[[bytes, str], ParsedFile]
"""(bytes of a file, its name for errors) -> its contents."""
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
            report, body = _read_page(request, data)
        else:
            report, body = _read_in_a_fork(request, _reader(request["suffix"], request["whole"]), data)
        replies.write(json.dumps(asdict(report)).encode() + b"\n" + body)
        replies.flush()


def _read_in_a_fork(request: dict[str, Any], read: Read, data: bytes) -> tuple[ChildReport, bytes]:
    reading_end, writing_end = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(_fork(request, read, data, writing_end))
    os.close(writing_end)
    with os.fdopen(reading_end, "rb") as pipe:
        body = pipe.read()
    _, status, usage = os.wait4(child, 0)
    exit_status = os.waitstatus_to_exitcode(status)
    ended_by, code = max(0, -exit_status), max(0, exit_status)
    body = body if exit_status == 0 else b""
    peak_mb = usage.ru_maxrss * _MAXRSS_UNIT / MIB
    return ChildReport(len(body), ended_by, code, usage.ru_utime + usage.ru_stime, peak_mb), body


def _read_page(request: dict[str, Any], data: bytes) -> tuple[ChildReport, bytes]:
    """The text on a page by OCR, {"text"}, or the error message, {"refused"}."""
    limits = PageLimits(request["seconds"], WALL_CLOCK_FACTOR * request["seconds"], request["memory"])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        answer = {"text": page_text(data, request["page"], request["languages"], request["file"], limits)}
    except UserError as problem:
        answer = {"refused": str(problem)}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    body = json.dumps(clean(answer), ensure_ascii=False).encode()
    return ChildReport(len(body), 0, 0, cpu_s, after.ru_maxrss * _MAXRSS_UNIT / MIB), body


def _fork(request: dict[str, Any], read: Read, data: bytes, pipe: int) -> int:
    """Read the file within the limits, write the answer to `pipe` and return the exit code."""
    try:
        _limit(request["seconds"], request["memory"])
        with os.fdopen(pipe, "wb") as out:
            out.write(json.dumps(_answer(request, read, data), ensure_ascii=False).encode())
    except MemoryError:
        return NO_MEMORY
    return 0


def _limit(seconds: float, memory: int) -> None:
    """Limit this process's processor time, wall-clock time and memory; deny it files and connections."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WALL_CLOCK_FACTOR * seconds)
    limit_resources({resource.RLIMIT_AS: (memory, memory), resource.RLIMIT_NOFILE: (0, 0)})


def _prepare() -> None:
    """Load all encodings, because a fork cannot; block numpy, which openpyxl would load needlessly."""
    sys.modules["numpy"] = None  # type: ignore[assignment]
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(LookupError, ImportError):
            codecs.lookup(module.name)


@cache
def _reader(suffix: str, whole: bool) -> Read:
    """The function that reads a format, with all of its imports loaded; if a library is missing, a function that refuses every file.

    `whole` selects `read_whole`, if the format has it, which reads more than the main text.
    """
    try:
        reader = import_module(f"graph.documents.parse.{READERS.get(suffix, FRONT_MATTER)}")
    except ModuleNotFoundError as missing:
        return partial(_refuse, package=str(missing.name))
    for name in LATE_PACKAGES & sys.modules.keys():
        for module in pkgutil.walk_packages(sys.modules[name].__path__, f"{name}."):
            with suppress(ImportError):
                import_module(module.name)
    return getattr(reader, "read_whole", reader.read) if whole else reader.read  # type: ignore[no-any-return]


def _refuse(data: bytes, file: str, package: str) -> ParsedFile:
    del data
    raise missing_package(file, package)


def _answer(request: dict[str, Any], read: Read, data: bytes) -> dict[str, Any]:
    """The fields of a ParsedFile, or the error message."""
    file = request["file"]
    try:
        return clean(asdict(_checked(read(data, file), file)))  # type: ignore[no-any-return]
    except MemoryError:
        raise
    except RecursionError:
        expected = f"at most about {sys.getrecursionlimit():,} levels"
        problem = UserError(f"{file}: nested too deeply to be read", expected, "simplify or remove it")
    except UserError as refused:
        problem = refused
    except Exception as failure:  # noqa: BLE001  (a library may fail in any way on a broken file)
        reason = " ".join(str(failure).split())[:MAX_REASON_CHARS] or type(failure).__name__
        found = f"{file}: not a readable {request['suffix'][1:].upper()} ({reason})"
        problem = UserError(found, "an unencrypted, undamaged file", "repair or remove it")
    return {"refused": clean(str(problem))}


def _checked(parsed: ParsedFile, file: str) -> ParsedFile:
    """The file with its title truncated; UserError for too much text or metadata."""
    metadata_chars = len(json.dumps(dict(parsed.metadata), ensure_ascii=False))
    for size, part, limit in (
        (len(parsed.text), "text", MAX_TEXT_CHARS),
        (metadata_chars, "metadata", MAX_METADATA_CHARS),
    ):
        if size > limit:
            raise UserError(f"{file}: {size:,} characters of {part}", f"at most {limit:,}", "split the file")
    return replace(parsed, title=parsed.title[:MAX_TITLE_CHARS])


if __name__ == "__main__":
    main()
