import json
import time
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from graph.errors import UserError
from graph.types import CompletionRequest, Message
from serve.engines import openai_api
from serve.engines.child import free_port
from serve.engines.open_backend import VllmOptions, open_backend
from serve.engines.openai_api import ATTEMPTS, IN_FLIGHT, TIMEOUT_S, OpenAIModel, open_openai
from serve.engines.openai_backend import OpenAIBackend
from serve.engines.vllm import REPLY_TIMEOUT_S, VllmModel
from tests.fakes import chat_server

pytestmark = pytest.mark.usefixtures("no_waiting")


def request_of(text: str, **options: object) -> CompletionRequest:
    return CompletionRequest((Message("system", "Be brief."), Message("user", text)), **{"max_tokens": 9, **options})  # type: ignore[arg-type]


@pytest.mark.long
def test_answers_are_in_the_order_of_requests_and_simultaneous_requests_are_limited() -> None:
    def slow_first(body: dict[str, object], number: int) -> str:
        time.sleep(0.15 if number == 1 else 0.03)
        return "echo " + body["messages"][-1]["content"]  # type: ignore[index]

    with chat_server(slow_first) as server:
        model = open_openai(f"org/name@{server.url}")
        completions = model.complete([request_of(str(number)) for number in range(3 * IN_FLIGHT)])
    assert [one.text for one in completions] == [f"echo {number}" for number in range(3 * IN_FLIGHT)]
    assert 1 < server.max_running <= IN_FLIGHT
    assert model.name == "org/name"


def test_a_server_on_this_machine_is_reached_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with chat_server(lambda body, number: "one") as server:
        assert open_openai(f"m@{server.url}").complete([request_of("1")])[0].text == "one"
        backend = OpenAIBackend(server.url, "", {"m": "m"}, str)
        request = httpx2.Request("GET", server.url)
        assert backend._http._transport_for_url(request.url) is backend._http._transport


@pytest.mark.long
def test_every_parameter_reaches_the_server() -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    with chat_server(lambda body, number: "one two three") as server:
        model = open_openai(f"m@{server.url}")
        reply = model.complete([request_of("hi", temperature=0.5, seed=7, schema=schema, max_tokens=2)])[0]
        model.complete([request_of("hi")])
    full, bare = server.requests
    assert full["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert (full["model"], full["max_tokens"], full["temperature"], full["seed"]) == ("m", 2, 0.5, 7)
    assert full["response_format"]["json_schema"]["schema"] == schema
    assert "response_format" not in bare and "seed" not in bare
    assert (reply.text, reply.finish_reason, reply.prompt_tokens, reply.completion_tokens) == (
        "one two",
        "length",
        7,
        3,
    )


@pytest.mark.long
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_brief_failure_is_retried(status: int) -> None:
    with chat_server(lambda body, number: (status, "{}") if number < ATTEMPTS else "there") as server:
        assert open_openai(f"m@{server.url}").complete([request_of("hi")])[0].text == "there"
    assert len(server.requests) == ATTEMPTS


@pytest.mark.long
def test_a_call_to_a_vllm_server_that_modegraph_started_waits_longer_instead_of_retrying() -> None:
    """A busy server continues to generate a reply after the client has given up on it, so a retry would double its work."""

    def slow(body: dict[str, object], number: int) -> str:
        time.sleep(0.5)
        return "there"

    with chat_server(slow) as server:
        with pytest.raises(UserError, match="timed out"):
            OpenAIModel("m", server.url, timeout_s=0.1).complete([request_of("hi")])
        assert len(server.requests) == ATTEMPTS
        assert OpenAIModel("m", server.url, timeout_s=REPLY_TIMEOUT_S).complete([request_of("hi")])[0].text == "there"
        assert len(server.requests) == ATTEMPTS + 1
        child = VllmModel("m", SimpleNamespace(url=server.url, key="k", close=lambda: None), "m")  # type: ignore[arg-type]
    assert child._client.timeout == REPLY_TIMEOUT_S > 10 * TIMEOUT_S


@pytest.mark.long
@pytest.mark.parametrize(("status", "calls"), [(503, ATTEMPTS), (401, 1), (404, 1)])
def test_retries_are_bounded_and_a_refusing_server_is_reported(status: int, calls: int) -> None:
    with chat_server(lambda body, number: (status, json.dumps({"error": {"message": "no model m"}}))) as server:
        with pytest.raises(UserError, match=f"status {status}.*no model m"):
            open_openai(f"m@{server.url}").complete([request_of("hi")])
        assert len(server.requests) == calls


@pytest.mark.long
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_request_does_not_fail_the_others(status: int) -> None:
    def say(body: dict[str, Any], number: int) -> Any:
        return (status, json.dumps({"error": {"message": "too long"}})) if "long" in str(body["messages"]) else "there"

    with chat_server(say) as server:
        short, refused = open_openai(f"m@{server.url}").complete([request_of("hi"), request_of("long")])
    assert (short.text, short.finish_reason) == ("there", "stop")
    assert refused.finish_reason == "refused" and refused.text.endswith("too long)")
    assert len(server.requests) == 2


@pytest.mark.long
@pytest.mark.parametrize("body", ["<html>hello</html>", "{}", '{"choices": []}', '{"choices": [{"index": 0}]}', "[]"])
def test_a_malformed_answer_is_reported(body: str) -> None:
    with chat_server(lambda request, number: (200, body)) as server, pytest.raises(UserError, match="not a chat comp"):
        open_openai(f"m@{server.url}").complete([request_of("hi")])


def test_an_unreachable_server_is_reported_with_a_remedy() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(UserError, match=f"{url}: no answer after {ATTEMPTS} tries.*Start the server"):
        open_openai(f"m@{url}").complete([request_of("hi")])


@pytest.mark.parametrize("target", ["name", "name@", "@http://x/v1", "name@localhost"])
def test_a_malformed_spec_is_refused(target: str) -> None:
    with pytest.raises(UserError, match="openai:NAME@URL"):
        open_openai(target)


ADDRESSES = [
    *("m@file:///etc/passwd", "m@ftp://host/v1", "m@http:///v1", "m@http://[::1/v1"),
    *("m@http://host:port/v1", "m@http://host:99999/v1", "m@http://host:0/v1"),
]


@pytest.mark.parametrize("target", ADDRESSES)
def test_only_http_and_https_addresses_are_accepted(target: str) -> None:
    with pytest.raises(UserError, match="an http:// or https:// address"):
        open_openai(target)


@pytest.mark.parametrize("key", ["sk-schlüssel", "sk-123\r"])
def test_a_key_that_http_cannot_send_is_refused_but_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    for open_one in (open_openai, lambda target: open_backend(f"openai:{target}", [], VllmOptions())):
        with pytest.raises(UserError, match=r"^OPENAI_API_KEY: a character that HTTP cannot send\. Exp.*Copy the key"):
            open_one("m@http://localhost/v1")


def test_the_estimated_number_of_tokens_is_rounded_up() -> None:
    model = open_openai("m@http://localhost/v1")
    assert [model.count_tokens(text) for text in ("", "abc", "abcd", "€€")] == [0, 1, 2, 2]


@pytest.mark.parametrize(("status", "counts"), [(503, [24, 5]), (429, [24, 5]), (404, [24, 24]), (501, [24, 24])])
def test_after_a_failed_token_count_the_server_is_called_again_unless_it_lacks_the_route(
    monkeypatch: pytest.MonkeyPatch, status: int, counts: list[int]
) -> None:
    monkeypatch.setattr(openai_api, "UNREACHABLE_RETRY_S", 0.0)
    messages = [Message("system", "Be brief."), Message("user", "Who built it?")]
    with chat_server(lambda body, number: "", window=40, tokenize_statuses=[status]) as server:
        model = open_openai(f"tiny@{server.url}")
        assert [model.prompt_tokens(messages) for _ in counts] == counts
