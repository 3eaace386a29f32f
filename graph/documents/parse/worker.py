"""Foreign files are read in a process of their own (child.py), which may take only so much time and memory and can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from threading import Lock, Timer
from typing import Self

from graph.documents.parse.child import NO_MEMORY, PATIENCE
from graph.documents.parse.types import MIB, Ended, Limits, Parsed
from graph.shared.errors import UserError
from graph.shared.home import HOME

GRACE_S = 5.0
"""The kernel ends the reading of a file when its time is over; when no word of that comes for this long, all is killed."""
LATE = Ended(0, signal.SIGALRM, 0, 0.0, 0.0)


class ParseWorker:
    """Reads files that are not plain text one at a time; its process starts with the first, and again after it was lost.

    To be used in a `with`, whose end kills the process, also while another thread waits for it in `parse`.
    """

    def __init__(self, limits: Limits) -> None:
        self.last = LATE
        """How the reading of the last file ended."""
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

    def parse(self, data: bytes, suffix: str, file: str) -> Parsed:
        """Title, text and metadata of a file's bytes; UserError naming `file`, what was too much, and the remedy."""
        seconds, memory = self._limits.seconds_for(len(data)), self._limits.memory_for(len(data))
        request = {"file": file, "suffix": suffix, "bytes": len(data), "seconds": seconds, "memory": memory}
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
        answer = json.loads(body)
        if "refused" in answer:
            raise UserError(answer["refused"], "", "")
        return Parsed(**answer)

    def _ask(self, head: bytes, data: bytes, patience_s: float) -> tuple[Ended, bytes]:
        """The reply of child.py; nothing, and LATE or its own exit code, when there is none."""
        process, began = self._started(), time.monotonic()
        assert process.stdin is not None and process.stdout is not None
        watchdog = Timer(patience_s, _kill, [process])
        watchdog.daemon = True
        watchdog.start()
        try:
            process.stdin.write(head + data)
            process.stdin.flush()
            ended = Ended(**json.loads(process.stdout.readline()))
            return ended, process.stdout.read(ended.bytes)
        except (OSError, ValueError):
            late = time.monotonic() - began >= patience_s
            return LATE if late else Ended(0, 0, process.wait(), 0.0, 0.0), b""
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


def _start() -> "subprocess.Popen[bytes]":
    """A process that finds the modules that this one finds, and gets nothing else of its environment: no keys."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "graph.documents.parse.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**kept, "PYTHONPATH": os.pathsep.join([str(HOME), *sys.path])},
        start_new_session=True,
    )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process with the fork that may be reading for it, and wait for it."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
