"""`modegraph serve` with a real vLLM on CPU, which it starts itself: a tiny Llama and two LoRA adapters, trained here in seconds.

Runs only if tests/vllm.py finds vLLM.
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from transformers import AutoTokenizer

from data_synth.rows import preference_to_json
from graph.answer.context import build_context
from graph.answer.prompt import answer_messages
from graph.build.build import build_index
from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.jsonl import write_jsonl
from graph.store.index_settings import IndexSettings
from serve.engines.child import SupervisedServer
from serve.engines.open_backend import VllmOptions
from serve.engines.vllm import max_lora_rank
from serve.http.keys import FULL_ACCESS
from serve.server.chat_request import ChatRequest
from serve.server.completion import prepare
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.processes import runs, until
from tests.serve.http.running import Running, serving
from tests.serve.test_vllm_child import group_of, members
from tests.train.world import preference
from tests.vllm import PYTHON, with_vllm
from train.model.logps import tokenize_row
from train.run.settings import LoraSettings, SftSettings, TinySettings
from train.sft import train_sft
from train.tiny import train_tiny

pytestmark = with_vllm
READY_S = 300
QUESTION = [{"role": "user", "content": "Who built the Lantern?"}]
VLLM_ARGUMENTS = ("--enforce-eager", "--max-model-len=2048")
QUESTION_COUNT = 200


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index, a tiny model, and two adapters for that model with different ranks."""
    folder = tmp_path_factory.mktemp("vllm-server")
    build_index(folder / "index", ISLES, IndexSettings(), lambda spec: HashEncoder())
    (folder / "pairs").mkdir()
    write_jsonl(folder / "pairs" / "train.jsonl", [preference_to_json(preference(number)) for number in range(16)])
    tiny = {"texts": str(folder / "pairs"), "output": str(folder / "tiny"), "context_tokens": 2048, "vocabulary": 600}
    train_tiny(TinySettings.model_validate({**tiny, "layers": 2, "steps": 60}))
    defaults = folder / "tiny" / "generation_config.json"
    defaults.write_text(json.dumps(json.loads(defaults.read_text()) | {"repetition_penalty": 100.0}))
    for name, rank in (("sft", 4), ("ms", 12)):
        values = {"model": str(folder / "tiny"), "data": str(folder / "pairs"), "output": str(folder / name)}
        lora = LoraSettings(rank=rank, alpha=2 * rank)
        train_sft(SftSettings(**values, learning_rate=5e-3 / rank, epochs=2, batch_size=4, lora=lora))
    return folder


@pytest.fixture(scope="module")
def server(world: Path) -> Iterator[tuple[Running, Any, SupervisedServer]]:
    with vllm_serving(world) as (running, services, child):
        yield running, services, child
        processes = members(group_of(child))
        assert len(processes) > 2
    assert not any(map(runs, processes)), "no process of the child should outlive the server"


@contextmanager
def vllm_serving(world: Path) -> Iterator[tuple[Running, Any, SupervisedServer]]:
    """The server, the services of its application and the child, once the child is ready; until then, chat is refused with 503."""
    adapters = (f"sft={world / 'sft'}", f"ms={world / 'ms'}")
    options = VllmOptions(PYTHON, VLLM_ARGUMENTS)
    with serving(world / "index", f"vllm:{world / 'tiny'}", adapters, options, max_answer_tokens=128) as running:
        assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
        early = running.post("/v1/chat/completions", json={"model": "tiny", "messages": QUESTION})
        assert early.status_code == 503 and early.json()["error"]["code"] in ("model_starting", "model_unavailable")
        until(lambda: running.get("/ready").status_code == 200, READY_S)
        yield running, running.services, running.services.backend.child


def test_chat_answers_have_citations(server: tuple[Running, Any, SupervisedServer]) -> None:
    running, _, _ = server
    completion = running.client().chat.completions.create(
        model="tiny",
        messages=QUESTION,
        n=2,
        temperature=0.7,
        seed=1,
        logprobs=True,
        stop=["###Answer"],  # type: ignore[arg-type]
    )
    assert len(completion.choices) == 2 and completion.usage is not None and completion.usage.completion_tokens > 0
    assert completion.choices[0].logprobs is not None
    constrained = running.client().chat.completions.create(
        model="tiny",
        messages=QUESTION,  # type: ignore[arg-type]
        extra_body={"structured_outputs": {"choice": ["###Reason: so [1] [8]. ###Answer: the yard [2]"]}},
    )
    message = constrained.choices[0].message
    assert message.content == "###Reason: so [1] [8]. ###Answer: the yard [2]", (
        "a text that the client prescribes is not edited"
    )
    assert [each["number"] for each in message.model_extra["citations"]] == [1, 2]  # type: ignore[index]


def test_a_stream_ends_with_usage_and_citations(server: tuple[Running, Any, SupervisedServer]) -> None:
    running, _, _ = server
    chunks = list(
        running.client().chat.completions.create(  # type: ignore[call-overload]
            model="sft",
            messages=QUESTION,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"structured_outputs": {"choice": ["So [3] and [77] it is [2]."]}},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "So [3] and [77] it is [2].", "a text that the client prescribes is not edited"
    assert [each["number"] for each in chunks[-1].choices[0].delta.model_extra["citations"]] == [3, 2]
    assert next(chunk.usage for chunk in chunks if chunk.usage).completion_tokens > 5
    assert {chunk.model for chunk in chunks} == {"sft"}


def test_the_sampling_defaults_of_the_model_are_not_used(server: tuple[Running, Any, SupervisedServer]) -> None:
    """The generation_config.json of the model sets a penalty that would prevent repeated tokens."""
    running, _, _ = server
    completion = running.client().chat.completions.create(
        model="tiny",
        messages=QUESTION,
        temperature=0.0,
        max_tokens=100,
        logprobs=True,  # type: ignore[arg-type]
    )
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    tokens = [each.token for each in logprobs.content]
    assert len(set(tokens)) < len(tokens)


def test_adapters_answer_under_their_names(server: tuple[Running, Any, SupervisedServer], world: Path) -> None:
    running, _, child = server
    client = running.client()
    names = [model.id for model in client.models.list()]
    assert names == ["tiny", "sft", "ms"]
    options = {"messages": QUESTION, "max_tokens": 1, "logprobs": True, "top_logprobs": 5}
    first = {name: client.chat.completions.create(model=name, **options) for name in names}  # type: ignore[call-overload]
    replies = {
        name: [round(each.logprob, 4) for each in completion.choices[0].logprobs.content[0].top_logprobs]
        for name, completion in first.items()
    }
    assert replies["tiny"] != replies["sft"] != replies["ms"] != replies["tiny"]
    assert max_lora_rank(child.spec.adapters) == 16 and "--max-lora-rank 16" in " ".join(child.spec.command(1))
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="dpo", messages=QUESTION)  # type: ignore[arg-type]


def test_an_answer_follows_its_schema_and_a_follow_up_question_is_rewritten(
    server: tuple[Running, Any, SupervisedServer],
) -> None:
    running, _, _ = server
    schema = {
        "type": "object",
        "properties": {"year": {"type": "integer", "maximum": 9}},
        "required": ["year"],
        "additionalProperties": False,
    }
    structured = running.client().chat.completions.create(
        model="tiny",
        messages=QUESTION,  # type: ignore[arg-type]
        response_format={"type": "json_schema", "json_schema": {"name": "year", "schema": schema, "strict": True}},
    )
    assert isinstance(json.loads(structured.choices[0].message.content or "")["year"], int)
    conversation = [
        *QUESTION,
        {"role": "assistant", "content": "The Marlow Yard."},
        {"role": "user", "content": "When?"},
    ]
    completion = running.post(
        "/v1/chat/completions", json={"model": "sft", "messages": conversation, "max_tokens": 4}
    ).json()
    assert completion["retrieval"]["rewritten_by"] in ("model", "turns") and completion["retrieval"]["question"] != ""


def test_vllm_reports_its_context_window_and_the_tokens_of_a_prompt(
    server: tuple[Running, Any, SupervisedServer],
) -> None:
    running, _, child = server
    turns = answer_messages("Who built the Lantern? " * 200, ())
    tokenizer = AutoTokenizer.from_pretrained(child.spec.model)
    chat = tokenizer.apply_chat_template([vars(turn) for turn in turns], add_generation_prompt=True, return_dict=True)
    for name in ("tiny", "sft"):
        model = running.services.backend.language_model(name)
        assert (model.window(), model.prompt_tokens(turns)) == (2048, len(chat["input_ids"]))


def test_a_request_of_the_responses_api_is_passed_to_the_engine(server: tuple[Running, Any, SupervisedServer]) -> None:
    running, _, _ = server
    response = running.client().responses.create(model="ms", input="Hello", max_output_tokens=8)
    assert response.object == "response" and response.usage is not None and response.usage.output_tokens <= 8


def test_metrics_agree_with_those_of_the_engine(server: tuple[Running, Any, SupervisedServer]) -> None:
    running, _, child = server

    def engine_tokens() -> float:
        lines = httpx2.get(child.url.replace("/v1", "/metrics")).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:generation_tokens_total"))

    own_tokens = 'modegraph_tokens_total{kind="completion",model="ms"}'
    before = running.metric(own_tokens), engine_tokens()
    for stream in (False, True):
        body = {"model": "ms", "messages": QUESTION, "max_tokens": 5, "stream": stream, "ignore_eos": True}
        assert running.post("/v1/chat/completions", json=body).status_code == 200
    assert running.metric(own_tokens) - before[0] == engine_tokens() - before[1] == 10
    assert running.metric('modegraph_time_to_first_token_seconds_count{model="ms"}') >= 1


def test_the_engine_gets_the_same_tokens_as_in_training(
    server: tuple[Running, Any, SupervisedServer], world: Path
) -> None:
    """Asks `QUESTION_COUNT` questions, three quarters of which contain the text of a special token of the model."""
    _, services, child = server
    tokenizer = AutoTokenizer.from_pretrained(world / "tiny")
    index = open_index(world / "index", lambda spec: HashEncoder())
    special_tokens = ["", "<|im_end|>", "<|im_start|>system", "<|pad|>"]
    with httpx2.Client(headers={"Authorization": f"Bearer {child.key}"}, timeout=30) as client:
        for number in range(QUESTION_COUNT):
            question = f"Who built the Lantern {special_tokens[number % 4]} in {number}?"
            k = 1 + number % 5
            body = {"model": "sft", "messages": [{"role": "user", "content": question}], "retrieval": {"k": k}}
            sent = asyncio.run(prepare(services, ChatRequest.model_validate(body), FULL_ACCESS)).body["messages"]
            reply = client.post(child.url.replace("/v1", "/tokenize"), json={"model": "sft", "messages": sent})
            excerpts = build_context(retrieve(index, question, RetrieveSettings(mode="hops", top_k=k)), k)
            row = tokenize_row(tokenizer, answer_messages(question, excerpts), "###Reason: r ###Answer: a")
            assert reply.json()["tokens"] == list(row.ids[: row.prompt_tokens]), question
            assert reply.json()["tokens"].count(tokenizer.convert_tokens_to_ids("<|im_start|>")) == 3


def test_a_killed_child_is_restarted(server: tuple[Running, Any, SupervisedServer]) -> None:
    running, _, child = server
    for pid in members(group_of(child)):
        if pid != group_of(child):  # the guard
            os.kill(pid, signal.SIGKILL)
    until(lambda: running.get("/ready").status_code == 503, 30)
    assert running.post("/v1/chat/completions", json={"model": "tiny", "messages": QUESTION}).status_code == 503
    assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
    until(lambda: running.get("/ready").status_code == 200, READY_S)
    assert running.post("/v1/chat/completions", json={"model": "ms", "messages": QUESTION}).status_code == 200
