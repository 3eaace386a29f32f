"""Engines by name, and addresses where no Ray is."""

import socket

import pytest

from graph.shared.errors import UserError
from graph.workers.here import THIS_PROCESS
from graph.workers.open import open_workers


def test_local_is_this_process_and_takes_a_batch_when_its_result_is_wanted() -> None:
    with open_workers("local") as workers:
        assert workers is THIS_PROCESS
        given = iter(range(3))
        found = workers.map(str, given)
        assert next(found) == "0" and next(given) == 1


@pytest.mark.parametrize(
    ("engine", "address", "told"),
    [
        ("spark", None, "--engine spark; local or ray"),
        ("local", "head:6379", "--ray-address head:6379, and the engine is local; --engine ray; add it"),
    ],
)
def test_what_is_no_engine_is_refused(engine: str, address: str | None, told: str) -> None:
    with pytest.raises(UserError) as raised, open_workers(engine, address):
        pass
    assert str(raised.value) == told


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "auto", "127.0.0.1:", ":6379", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match=f"^--ray-address {address}"), open_workers("ray", address):
        pass


def test_an_address_where_nothing_is_and_one_where_something_else_is() -> None:
    pytest.importorskip("ray")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match=r"cannot be reached \(.*refused\)"), open_workers("ray", address):
            pass
        silent.listen()
        with pytest.raises(UserError, match="what answers there is not Ray"), open_workers("ray", address):
            pass
