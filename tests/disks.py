"""A small disk that fills up like a real one: a file system in memory. Only root may mount it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

AMPLE_BYTES = 64 << 20


@dataclass(frozen=True)
class SmallDisk:
    """A separate file system, mounted at `folder`."""

    folder: Path

    def leave_free(self, free_bytes: float) -> None:
        """Resize the disk so that this many bytes are free, rounded up to a page."""
        found = os.statvfs(self.folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        pages = max(1, -(-int(used + free_bytes) // found.f_frsize))
        _run("mount", "-o", f"remount,size={pages * found.f_frsize}", str(self.folder))

    def make_read_only(self) -> None:
        _run("mount", "-o", "remount,ro", str(self.folder))


@contextmanager
def mounted_disk(folder: Path) -> Iterator[SmallDisk]:
    """A disk with ample free space, mounted until the block ends; the test is skipped if no disk can be mounted."""
    folder.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={AMPLE_BYTES}", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a system on which the tests may mount a disk")
    try:
        yield SmallDisk(folder)
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
