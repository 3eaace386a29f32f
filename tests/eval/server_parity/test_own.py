"""`serve check` of `modegraph serve` with an hf: model, with and without a fault, and of a server that returns no tokens."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graph.types import Message
from tests.eval.conftest import NO_LOGPS, World, check_server
from tests.fakes import chat_server
from tests.serve.http.running import Running, serving
from tests.train.adapters import random_adapter
from train.export.server import Reply, Server


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named sft, whose adapter has enough effect to be distinguished from no adapter and from the adapter applied twice."""
    return random_adapter(str(world.base), world.data, tmp_path_factory.mktemp("own") / "sft", size=0.1)


@pytest.fixture(scope="module")
def own_server(run: Path, world: World, hashed_isles: Path) -> Iterator[Running]:
    with serving(hashed_isles, f"hf:{world.base}", (f"sft={run}",), capacity=16) as server:
        yield server


def test_a_correct_server_has_no_faults(own_server: Running, run: Path, world: World) -> None:
    status, result = check_server(f"{own_server.url}/v1", run, "--base-name", world.base.name, conversations=2)
    assert (status, result["faults"]) == (0, [])
    assert result["unchecked"] == [f"sft: {NO_LOGPS}", f"{world.base.name}: {NO_LOGPS}"]
    lines = [(line["model"], line["adapter"], line["answers"], line["batch"]) for line in result["measured"]]
    assert lines == [
        (name, adapter, "greedy", batch)
        for name, adapter in (("sft", True), (world.base.name, False))
        for batch in (1, 16)
    ]


def test_an_adapter_that_is_not_loaded_is_reported(own_server: Running, run: Path, world: World) -> None:
    status, result = check_server(f"openai:{world.base.name}@{own_server.url}/v1", run, conversations=2)
    assert status == 1 and result["faults"][0].startswith(f"{world.base.name}: the adapter is not loaded")


def test_a_check_that_could_compare_nothing_fails(run: Path) -> None:
    def reply(body: dict[str, Any], number: int) -> tuple[int, str]:
        return 200, json.dumps({"choices": [{"message": {"content": "Saltmere"}}]})

    with chat_server(reply, window=4096) as server:
        status, result = check_server(f"openai:tiny@{server.url}", run, conversations=2)
    assert (status, result["faults"], result["measured"]) == (1, [], [])


def test_if_a_server_does_not_name_tokens_by_their_ids_log_probabilities_are_still_compared() -> None:
    """`modegraph serve` with a gguf: model refuses the field that asks for such names."""

    def reply(body: dict[str, Any], number: int) -> tuple[int, str]:
        if "return_tokens_as_token_ids" in body:
            return 400, json.dumps({"error": {"message": "return_tokens_as_token_ids: leave it out"}})
        logprobs = {"content": [{"token": "a", "id": 5, "logprob": -0.5}]} if body.get("logprobs") else None
        choice = {"message": {"content": "a"}, "logprobs": logprobs}
        return 200, json.dumps({"choices": [choice], "usage": {"prompt_tokens": 7}})

    with chat_server(reply) as server:
        found = Server(server.url).greedy("tiny", [Message("user", "Who?")], 4, None)
    assert found == Reply((5,), [-0.5], 7)


def test_if_a_server_refuses_to_return_tokens_the_lengths_of_its_prompts_are_checked(run: Path) -> None:
    def reply(body: dict[str, Any], number: int) -> str | tuple[int, str]:
        refused = (400, json.dumps({"error": {"message": "return_tokens_as_token_ids: leave it out"}}))
        return refused if "logprobs" in body else "Saltmere"

    with chat_server(reply, window=4096) as server:
        status, result = check_server(f"openai:tiny@{server.url}", run, conversations=2)
    assert status == 1 and result["faults"][0].startswith("tiny: another chat template: the server reads ")
