"""A command's messages go to standard error; within `quiet` they are logged instead, and other threads continue to print."""

import itertools
import logging
import threading
from pathlib import Path

import pytest

from graph.shared.console import quiet, recorded_in, say, track


def say_lines() -> list[int]:
    say("a line")
    return list(track([1, 2], "items", 2))


def test_within_quiet_lines_are_logged_and_nothing_is_shown(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "modegraph")
    with quiet():
        assert say_lines() == [1, 2]
    assert capfd.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records] == ["a line", "items: 2 done"]
    assert say_lines() == [1, 2]
    assert capfd.readouterr() == ("", "a line\nitems: 2 done\n")


def test_the_time_left_follows_the_pace_after_a_slow_first_item(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.chain([0.0, 100.0], itertools.count(110.0, 10.0))
    monkeypatch.setattr("graph.shared.console.time.monotonic", lambda: next(seconds))
    assert list(track("abcd", "items", 4)) == ["a", "b", "c", "d"]
    lines = ["items: 2 of 4, about 20 s left", "items: 3 of 4, about 10 s left", "items: 4 done"]
    assert capfd.readouterr().err.splitlines() == lines


def test_the_time_left_is_not_underestimated_when_items_come_in_batches(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three batches of two, 50 seconds each."""
    seconds = iter([0.0, 50.0, 50.1, 100.0, 100.1, 150.0, 150.1])
    monkeypatch.setattr("graph.shared.console.time.monotonic", lambda: next(seconds))
    assert list(track("abcdef", "items", 6)) == list("abcdef")
    lines = ["items: 3 of 6, about 1 min left", "items: 5 of 6, about 25 s left", "items: 6 done"]
    assert capfd.readouterr().err.splitlines() == lines


def test_quiet_applies_to_one_thread_only(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        thread = threading.Thread(target=say_lines)
        thread.start()
        thread.join()
    assert capfd.readouterr().err.startswith("a line\n")


def test_lines_are_recorded_with_their_time_and_without_secrets_whether_shown_or_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with recorded_in(tmp_path / "log.txt"):
        say("one")
        with quiet():
            say("--set api_key=abc")
    say("after")
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line[20:] for line in lines] == ["one", "--set api_key=***"] and lines[0][:2] == "20"
    assert capfd.readouterr().err == "one\nafter\n"
