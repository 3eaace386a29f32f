"""Several servers of one model: how calls are distributed, what happens to the calls of a server that fails, and which lists of servers are refused."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph.errors import UserError
from graph.types import CompletionRequest, Message
from serve.engines import open_model
from serve.engines.child import free_port
from serve.engines.openai_api import ATTEMPTS, IN_FLIGHT, OpenAIModel, ServerPool
from serve.ledger import Ledger
from tests.fakes import ChatServer, chat_server

pytestmark = pytest.mark.usefixtures("no_waiting")


def request_of(number: int) -> CompletionRequest:
    return CompletionRequest((Message("user", str(number)),), max_tokens=9)


def echo(seconds: float = 0.0) -> Callable[[dict[str, Any], int], str]:
    def reply(body: dict[str, Any], number: int) -> str:
        time.sleep(seconds)
        return "echo " + body["messages"][-1]["content"]

    return reply


def pool_of(*servers: ChatServer, in_flight: int = 2) -> ServerPool:
    return ServerPool([OpenAIModel("m", server.url, in_flight=in_flight) for server in servers])


def texts_of(*servers: ChatServer) -> list[str]:
    return sorted(body["messages"][-1]["content"] for server in servers for body in server.requests)


@pytest.mark.long
def test_the_faster_server_gets_more_calls_and_the_answers_stay_in_order() -> None:
    with chat_server(echo(0.3)) as slow, chat_server(echo(0.02)) as quick:
        pool = pool_of(slow, quick)
        completions = pool.complete([request_of(number) for number in range(40)])
    assert [one.text for one in completions] == [f"echo {number}" for number in range(40)]
    assert len(slow.requests) + len(quick.requests) == 40
    assert 2 <= len(slow.requests) < len(quick.requests) / 2
    assert slow.max_running <= 2 and quick.max_running <= 2 < pool.in_flight == 4


@pytest.mark.long
def test_no_server_is_idle_while_a_call_waits() -> None:
    """Eight calls of equal length for two servers with two slots each: each server gets four."""
    with chat_server(echo(0.2)) as one, chat_server(echo(0.2)) as other:
        pool_of(one, other).complete([request_of(number) for number in range(8)])
    assert (len(one.requests), len(other.requests)) == (4, 4)


@pytest.mark.long
def test_few_calls_are_distributed_evenly() -> None:
    """Four calls for two servers with four slots each: one server could take them all."""
    with chat_server(echo(0.3)) as one, chat_server(echo(0.3)) as other:
        pool_of(one, other, in_flight=4).complete([request_of(number) for number in range(4)])
    assert (len(one.requests), len(other.requests)) == (2, 2)


@pytest.mark.long
def test_a_server_that_fails_leaves_its_calls_to_the_others_and_one_line_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail_after_three(body: dict[str, Any], number: int) -> str | tuple[int, str]:
        return "echo " + body["messages"][-1]["content"] if number <= 3 else (503, "gone")

    with chat_server(fail_after_three) as dying, chat_server(echo(0.01)) as living:
        pool = pool_of(dying, living)
        completions = pool.complete([request_of(number) for number in range(30)])
        before = len(dying.requests)
        pool.complete([request_of(number) for number in range(30, 40)])
    assert [one.text for one in completions] == [f"echo {number}" for number in range(30)]
    assert 3 + ATTEMPTS <= len(dying.requests) == before <= 3 + 2 * ATTEMPTS, (
        "a server that failed should get no more requests"
    )
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) == 1
        and f"m@{dying.url}: status 503" in lines[0]
        and lines[0].endswith(f"continuing with {living.url}")
    )
    assert pool.in_flight == 2


def test_a_ledger_replays_its_calls_when_every_server_of_the_pool_has_failed(tmp_path: Path) -> None:
    with chat_server(lambda body, number: "hello" if number == 1 else (503, "gone")) as server:
        ledger = Ledger(pool_of(server), tmp_path / "calls.sqlite")
        ledger.complete([request_of(1)])
        with pytest.raises(UserError):
            ledger.complete([request_of(2)])
    assert ledger.complete([request_of(1)])[0].text == "hello"


@pytest.mark.long
def test_an_unreachable_server_is_left_out() -> None:
    unreachable = OpenAIModel("m", f"http://127.0.0.1:{free_port()}/v1", in_flight=2)
    with chat_server(echo()) as server:
        pool = ServerPool([unreachable, OpenAIModel("m", server.url, in_flight=2)])
        assert [one.text for one in pool.complete([request_of(1), request_of(2), request_of(3)])] == [
            "echo 1",
            "echo 2",
            "echo 3",
        ]


def test_a_server_that_is_left_out_counts_no_tokens() -> None:
    unreachable = OpenAIModel("tiny", f"http://127.0.0.1:{free_port()}/v1")
    with chat_server(echo(), window=16) as server:
        pool = ServerPool([unreachable, OpenAIModel("tiny", server.url)])
        pool.complete([request_of(1)])
        assert pool.prompt_tokens([Message("user", "one two three four")]) == 4


@pytest.mark.long
def test_if_every_server_fails_the_run_ends_with_the_error_of_a_server() -> None:
    def gone(body: dict[str, Any], number: int) -> tuple[int, str]:
        return 500, "gone"

    with chat_server(gone) as one, chat_server(gone) as other:
        with pytest.raises(UserError, match=r"openai:m@http://127.0.0.1:\d+/v1: status 500"):
            pool_of(one, other).complete([request_of(number) for number in range(12)])
        assert len(one.requests) + len(other.requests) <= 4 * ATTEMPTS, "waiting calls should not be tried"


def test_a_server_that_refuses_the_model_ends_the_run() -> None:
    """Such a server runs, but is set up differently from the others: the operator has to check it."""
    refuses = chat_server(lambda body, number: (404, "no model m"))
    with chat_server(echo()) as good, refuses as other, pytest.raises(UserError, match=r"/v1: status 404"):
        pool_of(good, other).complete([request_of(number) for number in range(12)])


@pytest.mark.long
def test_several_threads_share_the_slots() -> None:
    with chat_server(echo(0.02)) as one, chat_server(echo(0.02)) as other:
        pool = pool_of(one, other)
        threads = [
            threading.Thread(target=pool.complete, args=([request_of(10 * n + k) for k in range(10)],))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts_of(one, other) == sorted(map(str, range(40)))
    assert one.max_running <= 2 and other.max_running <= 2


@pytest.mark.long
def test_the_smallest_window_applies() -> None:
    with chat_server(echo(), window=512) as one, chat_server(echo(), window=256) as other:
        assert ServerPool([OpenAIModel("tiny", server.url) for server in (one, other)]).window() == 256
    with chat_server(echo()) as silent:
        assert pool_of(silent).window() is None


@pytest.mark.long
def test_a_ledger_replays_a_call_whichever_server_answered_it(tmp_path: Path) -> None:
    """The calls are sent first to two servers, then to one of them, to the other and a third, and to the third only."""
    with chat_server(echo()) as one, chat_server(echo()) as other, chat_server(echo()) as third:
        specs = [f"openai:m@{server.url}" for server in (one, other, third)]
        first = open_model(specs[:2], tmp_path / "ledger.sqlite").complete([request_of(number) for number in range(20)])
        assert texts_of(one, other) == sorted(map(str, range(20)))
        for later in (specs[0], specs[1:], specs[2]):
            assert open_model(later, tmp_path / "ledger.sqlite").complete([request_of(n) for n in range(20)]) == first
        assert len(one.requests) + len(other.requests) == 20 and not third.requests
    assert open_model(specs[:2]).in_flight == 2 * IN_FLIGHT  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["openai:m@http://a/v1", "openai:n@http://b/v1"], "servers of 'm' and 'n'. Expected servers of one model"),
        (["openai:m@http://a/v1", "hf:m"], "model 'hf:m' together with 1 more. Expected several servers of one model"),
        (["openai:m@http://a/v1"] * 2, "openai:m@http://a/v1: given twice"),
        (["openai:m@http://a/v1", "openai:m@http://a/v1/"], "openai:m@http://a/v1: given twice"),
        (["openai:m@http://a/v1", "openai:m"], "openai:m. Expected openai:NAME@URL"),
    ],
)
def test_invalid_lists_of_servers_are_refused(specs: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_model(specs)
