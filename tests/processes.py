"""Processes on this machine that tests start, wait for and look for."""

import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import httpx2

MODEGRAPH = """
import sys
import graph.cli, graph.models.encoder, modegraph.cli
from tests.fakes import HashEncoder
graph.models.encoder.open_encoder = lambda spec: HashEncoder()
graph.cli.POLL_S = 0.1
sys.argv[0] = "modegraph"
modegraph.cli.main()
"""


def modegraph(*words: object) -> list[str]:
    """The command `modegraph` with the stand-in encoder: loading the real one takes longer than everything else in such a test."""
    return [sys.executable, "-P", "-c", MODEGRAPH, *map(str, words)]


def until(
    condition: Callable[[], object], seconds: float = 30.0, process: "subprocess.Popen[Any] | None" = None
) -> None:
    """Wait until `condition()` is true; fail if it is still false after `seconds`, or if `process` ends first."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, f"the process ended with status {process.poll()}"
        assert time.monotonic() < end, f"the condition is still false after {seconds} s"
        time.sleep(0.02)


def answers(url: str) -> bool:
    """Whether a server answers at the URL with status 200."""
    try:
        return bool(httpx2.get(url, timeout=5, verify=False, trust_env=False).status_code == 200)
    except httpx2.TransportError:
        return False


def parsers_below(parent: int) -> set[int]:
    """The children of a process that parse documents."""
    return programs_below(parent, ["graph.documents.parse.child"])


def programs_below(parent: int, names: Collection[str]) -> set[int]:
    """The children of a process that have one of these names on their command line."""
    lines = _ps("-o", "pid=,args=", "--ppid", parent)
    return {int(line.split()[0]) for line in lines if any(name in line for name in names)}


def command_lines() -> list[str]:
    """The command lines of all processes."""
    return _ps("-eww", "-o", "args=")


def _ps(*options: object) -> list[str]:
    """The lines that `ps` prints; none if it finds no process."""
    command = ["ps", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout.splitlines()


def runs(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
