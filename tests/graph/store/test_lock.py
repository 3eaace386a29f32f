"""Writers take turns in order of arrival, whichever process they belong to; a writer that dies blocks no other."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from graph.errors import UserError
from graph.store.lock import IndexBusy, writer_lock
from tests.disks import mounted_disk
from tests.processes import until

wait_for = partial(until, seconds=60)
WRITER = """
import sys, time
from pathlib import Path
from graph.store.lock import writer_lock
folder, name = Path(sys.argv[1]), sys.argv[2]
with writer_lock(folder):
    log = folder / "log"
    log.write_text((log.read_text() if log.exists() else "") + name + " ")
    time.sleep(float(sys.argv[3]))
"""


def writer(folder: Path, name: str, seconds: float = 0.0) -> "subprocess.Popen[bytes]":
    """A process that has taken its ticket and writes its name when its turn comes."""
    tickets = len(list(folder.glob("*.ticket")))
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(seconds)], stderr=subprocess.DEVNULL
    )
    wait_for(lambda: len(list(folder.glob("*.ticket"))) > tickets)
    return process


def test_writers_of_several_processes_write_in_order_of_arrival(tmp_path: Path) -> None:
    with writer_lock(tmp_path):
        waiting = [writer(tmp_path, str(number)) for number in range(5)]
        assert not (tmp_path / "log").exists()
    assert [process.wait() for process in waiting] == [0] * 5
    assert (tmp_path / "log").read_text() == "0 1 2 3 4 "
    assert [file.name for file in tmp_path.iterdir() if file.name != "log"] == ["writer.lock"]


def test_a_writer_that_dies_while_writing_or_waiting_blocks_no_other(tmp_path: Path) -> None:
    first, second = writer(tmp_path, "first", 600), writer(tmp_path, "second")
    third = writer(tmp_path, "third")
    wait_for((tmp_path / "log").exists)
    second.kill()
    second.wait()
    first.kill()
    first.wait()
    assert third.wait(60) == 0 and (tmp_path / "log").read_text() == "first third "
    assert not list(tmp_path.glob("*.ticket"))


def test_threads_of_one_process_write_one_at_a_time(tmp_path: Path) -> None:
    inside, counts = list[int](), list[int]()

    def write(number: int) -> None:
        with writer_lock(tmp_path):
            inside.append(number)
            counts.append(len(inside))
            time.sleep(0.01)
            inside.remove(number)

    threads = [Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counts == [1] * 8


def test_giving_up_names_the_current_writer_and_leaves_the_queue(tmp_path: Path) -> None:
    with writer_lock(tmp_path):
        with (
            pytest.raises(IndexBusy, match=f"being written by process {os.getpid()}. Expected one writer"),
            writer_lock(tmp_path, give_up=lambda: True),
        ):
            pass
        assert len(list(tmp_path.glob("*.ticket"))) == 1
    assert issubclass(IndexBusy, UserError)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        disk.make_read_only()
        with (
            pytest.raises(
                UserError, match=r"disk: cannot be written \(Read-only file system\)\. Expected a writable folder"
            ),
            writer_lock(disk.folder),
        ):
            pass
