"""A folder records which run writes to it, and the run's progress; after a kill, the run counts as stopped."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pytest

from graph.errors import UserError
from graph.shared.progress import PROGRESS, note_progress, read_progress, report_progress
from tests.places import ROOT

PROGRAM_TO_KILL = """
import os, signal, sys
from pathlib import Path
from graph.shared.progress import note_progress, report_progress
folder = Path(sys.argv[1])
with report_progress(folder, {"stage": "ms"}):
    note_progress(folder, 3, 9, {"loss": 0.5})
    with (folder / "progress.jsonl").open("ab") as file:
        file.write('{"at": 1, "é'.encode()[:-1])
    print("noted", flush=True)
    sys.stdin.read()
"""


def test_progress_is_readable_during_the_run_and_removed_at_its_end(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    note_progress(tmp_path, 1, 2)
    assert not (tmp_path / PROGRESS).exists()
    with report_progress(tmp_path, {"stage": "ms", "settings": {"beta": 0.1}}):
        at_start = read_progress(tmp_path)
        assert at_start is not None and (at_start.alive, at_start.last, at_start.seconds_left) == (True, {}, None)
        note_progress(tmp_path, 1, 4, {"loss": 2.0})
        note_progress(tmp_path, 2, 4, {"loss": 1.0})
        found = read_progress(tmp_path)
        assert found is not None and found.about == {"stage": "ms", "settings": {"beta": 0.1}}
        assert (found.last["step"], found.last["of"], found.last["loss"]) == (2, 4, 1.0)
        assert found.alive and found.seconds_left is not None and found.seconds_left >= 0
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_counts_as_stopped_and_its_time_estimate_restarts_when_resumed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), report_progress(tmp_path, {"stage": "sft"}):
        note_progress(tmp_path, 1, 9)
        note_progress(tmp_path, 2, 9)
        raise ValueError("broken")
    stopped = read_progress(tmp_path)
    assert stopped is not None and not stopped.alive and stopped.last["step"] == 2
    with report_progress(tmp_path, {"stage": "sft", "again": True}):
        note_progress(tmp_path, 3, 9)
        again = read_progress(tmp_path)
        assert again is not None and again.alive and again.about["again"] and again.last["step"] == 3
        assert again.seconds_left is None


def test_of_many_threads_that_start_work_in_a_folder_one_works_and_the_others_are_refused(tmp_path: Path) -> None:
    working, refused = Lock(), list[str]()

    def start(_: int) -> None:
        try:
            with report_progress(tmp_path, {"stage": "eval"}):
                assert working.acquire(blocking=False), "another thread is working"
                found = read_progress(tmp_path)
                working.release()
                assert found is not None and found.alive, "the lock should be that of the file in the folder"
        except UserError as problem:
            refused.append(str(problem))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(start, range(2000)))
    assert set(refused) == {
        f"{tmp_path}: another process is working on it. Expected one process at a time. Wait until it is done"
    }


def test_readers_of_a_stopped_run_do_not_mistake_each_other_for_its_process(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), report_progress(tmp_path, {"stage": "sft"}):
        raise ValueError("broken")
    with ThreadPoolExecutor(8) as readers:
        found = list(readers.map(lambda _: read_progress(tmp_path), range(2000)))
    assert not any(each is None or each.alive for each in found)


def test_the_run_of_a_killed_process_counts_as_stopped_even_with_a_partly_written_line(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM_TO_KILL, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "noted\n"
        running = read_progress(tmp_path)
        assert running is not None and running.alive and running.last["step"] == 3
        assert read_progress(tmp_path) == running, (
            "a second read should find the same: reading should not affect the lock of the run"
        )
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    stopped = read_progress(tmp_path)
    assert stopped is not None and not stopped.alive and stopped.last == running.last
