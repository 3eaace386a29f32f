"""How long a refusal takes does not tell whether what it names is there: a foreign thing is refused by the same calls as an absent one.

Every function of ours that the server runs for a request is counted; benchmarks/refusals.py measures the time.
"""

import inspect
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from serve import live_index
from tests.places import ROOT
from tests.serve.http.house import House, living_in, refusals

OURS = tuple(f"{ROOT / folder}/" for folder in ("serve", "graph"))
BESIDE = {str(ROOT / "serve/http" / file) for file in ("guard/connections.py", "telemetry/otlp.py")}
"""What comes and goes with a connection, before anything of a request is read, and the thread that sends traces now and then."""
RESUMED = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR
"""Code whose calls are counted once: it goes on whenever a piece of a request comes in."""


LOGGED_S = 0.02
"""How long the server may go on behind an answer, which it logs."""


class Calls:
    """Counts, once `recording`, the calls of our functions in the threads that start after it was made."""

    def __init__(self) -> None:
        self.recording = False
        self._counted: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(OURS) and code.co_filename not in BESIDE
        if self.recording and event == "call" and ours:
            name = f"{code.co_filename}:{code.co_qualname}"
            self._counted[name] = 1 if code.co_flags & RESUMED else self._counted[name] + 1

    def of(self, ask: Callable[[], object]) -> Counter[str]:
        """The functions that the server calls while `ask` runs, and how often."""
        self._counted = Counter()
        self.recording = True
        try:
            ask()
            time.sleep(LOGGED_S)
        finally:
            self.recording = False
        return self._counted


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, Calls]]:
    """The house, none of whose threads looks for a changed index while calls are counted."""
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_index, "POLL_S", 3600.0)
        threading.setprofile(calls)
        try:
            with living_in(tmp_path_factory.mktemp("watched")) as house:
                yield house, calls
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["label", "writer", "collection"])
def test_what_is_foreign_is_refused_by_the_same_calls_as_what_is_absent(
    watched: tuple[House, Calls], name: str
) -> None:
    house, calls = watched
    holder = house.holders[name]
    collection, source = holder.hidden[0]
    where = collection if collection != holder.collection else ({"isles", "moors"} - {collection}).pop()
    foreign = refusals(house, holder, where, source)
    absent = refusals(house, holder, "zz9zz", f"{source.partition('/')[0]}/nix")
    for number, (one, other) in enumerate(zip(foreign, absent, strict=True)):
        one(), other()
        counted = calls.of(one), calls.of(other)
        assert counted[0] == counted[1], (name, number, counted[0] - counted[1], counted[1] - counted[0])
        assert sum(counted[0].values()) > 10, "the server's threads are watched"


def test_a_check_that_only_what_is_there_meets_is_seen(
    watched: tuple[House, Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the test: a server that opens what is there before it refuses it."""
    from serve.http.routes.collections import Collections

    house, calls = watched
    holder = house.holders["collection"]
    named = Collections.named

    def slower(self: Collections, access: object, asked: str | None, place: str = "collection") -> str:
        if asked in self.live:
            self.live[asked].current.metadata("sea/ada")
        return named(self, access, asked, place)  # type: ignore[arg-type]

    monkeypatch.setattr(Collections, "named", slower)
    foreign, absent = (refusals(house, holder, name, "sea/ada")[0] for name in ("isles", "zz9zz"))
    foreign(), absent()
    assert calls.of(foreign) != calls.of(absent)
    assert sys.getprofile() is None
