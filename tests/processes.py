"""Processes on this machine that tests look for."""

import subprocess
from collections.abc import Collection
from pathlib import Path


def parsers_below(parent: int) -> set[int]:
    """The children of a process that parse documents."""
    found = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return {int(line.split()[0]) for line in found.stdout.splitlines() if "graph.documents.parse.child" in line}


def programs_below(parent: int, names: Collection[str]) -> set[int]:
    """The children of a process that run programs with these names."""
    found = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return {int(line.split()[0]) for line in found.stdout.splitlines() if line.split()[1] in names}


def runs(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
