"""deploy/open-webui/modegraph.py as Open WebUI runs it, against a real server: the events that it emits and the text that it yields."""

import asyncio
import importlib.util
from types import ModuleType
from typing import Any

import pytest

from tests.fakes import chat_server
from tests.places import ROOT
from tests.serve.conftest import Stack

REQUEST = {
    "model": "modegraph.tiny",
    "messages": [{"role": "user", "content": "Who built the Lantern?"}],
    "stream": True,
}


@pytest.fixture(scope="module")
def pipe_module() -> ModuleType:
    """The pipe, loaded as a module."""
    spec = importlib.util.spec_from_file_location("open_webui_modegraph", ROOT / "deploy/open-webui/modegraph.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(pipe_module: ModuleType, url: str, key: str = "", **options: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text that the pipe yields for REQUEST, and the events that it emits."""
    events: list[dict[str, Any]] = []

    async def emit(event: dict[str, Any]) -> None:
        events.append(event)

    async def collect_text() -> str:
        pipe = pipe_module.Pipe()
        pipe.valves = pipe.Valves(url=f"{url}/v1", key=key)
        return "".join([piece async for piece in pipe.pipe(REQUEST, __event_emitter__=emit, **options)])

    return asyncio.run(collect_text()), events


def test_sources_are_numbered_as_in_the_text(pipe_module: ModuleType, stack: Stack) -> None:
    running, _ = stack("###Reason: so. ###Answer: 😀 It was [3][1], in `a[3]`, in 1911 [3] [9] and [2].")
    text, events = run(pipe_module, running.url)
    assert text == "😀 It was [1][2], in `a[3]`, in 1911 [1] and [3]."
    assert [event["type"] for event in events] == ["source"] * 3
    request_body = {"model": "tiny", "messages": REQUEST["messages"]}
    citations = running.post("/v1/chat/completions", json=request_body).json()["choices"][0]["message"]["citations"]
    by_number = {each["number"]: each for each in citations}
    for event, number in zip(events, (3, 1, 2), strict=True):
        data = event["data"]
        assert set(data) == {"source", "document", "metadata"}
        assert data["document"] == [by_number[number]["text"]] and data["source"]["name"] == by_number[number]["title"]
        assert data["metadata"] == [{"source": data["source"]["url"], "name": data["source"]["name"]}]
        assert data["source"]["url"].startswith(f"{running.url}/#read/{by_number[number]['source']}/")


def test_a_task_of_open_webui_triggers_no_search(pipe_module: ModuleType, stack: Stack) -> None:
    running, upstream = stack('{"title": "The Lantern [1]"}')
    text, events = run(pipe_module, running.url, __task__="title_generation")
    assert text == '{"title": "The Lantern [1]"}' and events == []
    assert upstream.requests[0]["messages"] == REQUEST["messages"]


def test_models_are_listed_and_a_wrong_key_raises_an_error_with_the_servers_message(
    pipe_module: ModuleType, stack: Stack
) -> None:
    running, _ = stack("1911 [1]", api_key="k", adapters=("ms",))
    pipe = pipe_module.Pipe()
    pipe.valves = pipe.Valves(url=f"{running.url}/v1", key="k")
    assert asyncio.run(pipe.pipes()) == [{"id": name, "name": name} for name in ("tiny", "ms")]
    assert run(pipe_module, running.url, "k")[0] == "1911 [1]"
    with pytest.raises(RuntimeError, match="requires a key"):
        run(pipe_module, running.url, "other")


def test_a_server_without_a_visible_collection_and_an_answer_that_is_not_json_raise_clear_errors(
    pipe_module: ModuleType,
) -> None:
    with chat_server(lambda body, number: "") as empty, pytest.raises(RuntimeError, match="shows no collection"):
        run(pipe_module, empty.url.removesuffix("/v1"))
    with (
        chat_server(lambda body, number: (502, "<html>Bad Gateway</html>"), window=9) as proxy,
        pytest.raises(RuntimeError, match="responses answers with status 502"),
    ):
        run(pipe_module, proxy.url.removesuffix("/v1"))
