"""The cost of a replayed call: its original time, marked as replayed."""

import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.types import Completion, CompletionRequest, Message
from serve.ledger import Ledger, parallel_seconds
from tests.fakes import ScriptedModel

FILE = "ledger.sqlite"


def request_of(text: str) -> CompletionRequest:
    return CompletionRequest((Message("user", text),), max_tokens=9)


class SlowModel(ScriptedModel):
    """Sleeps for the number of seconds in a request; the requests of a batch run one after another."""

    def complete(self, requests):  # type: ignore[no-untyped-def]
        time.sleep(sum(float(request.messages[0].content) for request in requests))
        return super().complete(requests)


def slow_model(batch_size: int = 1) -> SlowModel:
    return SlowModel(lambda request: "done", batch_size=batch_size)


def replayed_seconds(completions: list[Completion]) -> float:
    """The seconds that the replayed calls originally took."""
    return sum(each.replayed_seconds for each in completions if each.replayed_seconds is not None)


def stored_seconds(file: Path) -> list[float]:
    """The seconds of all calls, in no particular order."""
    rows = sqlite3.connect(file).execute("SELECT microseconds FROM calls").fetchall()
    return [microseconds / 1e6 for (microseconds,) in rows]


def test_a_replayed_call_reports_its_original_time(tmp_path: Path) -> None:
    Ledger(slow_model(), tmp_path / FILE).complete([request_of("0.2")])
    (again,) = Ledger(slow_model(), tmp_path / FILE).complete([request_of("0.2")])
    assert stored_seconds(tmp_path / FILE) == [pytest.approx(replayed_seconds([again]))]
    assert replayed_seconds([again]) >= 0.2
    assert again == Completion("done", "stop", 10, 1)


def test_a_call_that_is_made_is_not_reported_as_replayed(tmp_path: Path) -> None:
    ledger = Ledger(slow_model(), tmp_path / FILE)
    assert [one.replayed_seconds for one in ledger.complete([request_of("0"), request_of("0.0")])] == [None, None]
    twice = ledger.complete([request_of("0.1"), request_of("0.1")])
    assert twice[0].replayed_seconds is None and twice[1].replayed_seconds is not None


@pytest.mark.long
def test_the_time_of_replayed_calls_is_the_time_that_the_original_calls_took_together(tmp_path: Path) -> None:
    """Calls to a server ran concurrently, so the longest counts; calls to a local model ran in one batch, so their times are added."""
    requests = [request_of(text) for text in ("0.1", "0.10", "0.100", "0.1000")]
    for size, together in ((1, max), (4, sum)):
        file = tmp_path / str(size) / FILE
        Ledger(slow_model(size), file).complete(requests)
        assert replayed_seconds(Ledger(slow_model(size), file).complete(requests)) == pytest.approx(
            together(stored_seconds(file)), abs=1e-5
        )
        assert len(stored_seconds(file)) == 4 and sum(stored_seconds(file)) >= 0.4


@pytest.mark.long
def test_a_replay_during_a_longer_call_adds_no_time(tmp_path: Path) -> None:
    ledger = Ledger(slow_model(), tmp_path / FILE)
    ledger.complete([request_of("0.01")])
    assert replayed_seconds(ledger.complete([request_of("0.01"), request_of("0.5")])) == pytest.approx(0, abs=1e-5)


def test_a_call_with_a_changed_time_is_repeated(tmp_path: Path) -> None:
    model = slow_model()
    Ledger(model, tmp_path / FILE).complete([request_of("0")])
    for change in ("microseconds + 1", "'soon'"):
        with sqlite3.connect(tmp_path / FILE) as database:
            database.execute(f"UPDATE calls SET microseconds = {change}")
        assert Ledger(model, tmp_path / FILE).complete([request_of("0")])[0].replayed_seconds is None
    assert len(model.requests) == 3


@given(st.lists(st.floats(0, 100)), st.integers(1, 9))
def test_calls_in_parallel_take_at_least_their_sum_divided_by_the_parallelism_and_at_most_their_sum(
    seconds: list[float], parallel: int
) -> None:
    total = parallel_seconds(seconds, parallel)
    assert max([*seconds, sum(seconds) / parallel]) <= total * (1 + 1e-9) + 1e-9 and total <= sum(seconds) * (1 + 1e-9)
    assert parallel_seconds(seconds[1:], parallel) <= total * (1 + 1e-9)
