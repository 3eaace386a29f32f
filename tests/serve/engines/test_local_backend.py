"""The server with a transformers model in its own process: whole, streamed, stopped and sampled replies; adapters by name."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from serve.engines.hf_open import open_hf
from serve.engines.local import LocalModel
from serve.engines.local_backend import LocalBackend
from tests.serve.http.running import Running, serving
from tests.tiny_models import TEMPLATE

ASK = {"model": "model", "messages": [{"role": "user", "content": "Who built the Lantern?"}], "retrieval": {"k": 1}}


@pytest.fixture(scope="module")
def running(shared_isles: Path, tiny_llama: Path, tiny_adapter: Path) -> Iterator[Running]:
    with serving(shared_isles, f"hf:{tiny_llama}", (f"tuned={tiny_adapter}",), max_answer_tokens=12) as on:
        yield on


def reply_of(running: Running, **changes: object) -> tuple[str, str]:
    """The text and the finish reason of a reply, which must be the same with and without streaming."""
    response = running.post("/v1/chat/completions", json={**ASK, "retrieval": {"enabled": False}, **changes})
    assert response.status_code == 200, response.text
    chunks = list(
        running.client().chat.completions.create(  # type: ignore[call-overload]
            **{k: v for k, v in ASK.items() if k != "retrieval"},
            stream=True,
            extra_body={"retrieval": {"enabled": False}, **changes},
        )
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = response.json()["choices"][0]
    assert whole["message"]["content"] == streamed
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == whole["finish_reason"] and set(reasons[:-1]) == {None}
    return streamed, whole["finish_reason"]


def long_text(running: Running) -> tuple[int, str]:
    """A seed with which the reply reaches the token limit, and the text of this reply."""
    for seed in range(20):
        text, reason = reply_of(running, temperature=1.0, seed=seed)
        if reason == "length":
            return seed, text
    raise AssertionError("none of 20 seeds gives a reply that reaches the token limit; expected at least one")


def test_a_stream_adds_up_to_the_whole_reply(running: Running) -> None:
    assert reply_of(running, temperature=0)[0]
    assert long_text(running)
    sampled = {reply_of(running, temperature=1.5, seed=seed)[0] for seed in (1, 2)}
    assert len(sampled) == 2 and reply_of(running, temperature=1.5, seed=1)[0] in sampled


def test_a_stop_string_ends_the_reply_before_it(running: Running) -> None:
    seed, text = long_text(running)
    middle = text[len(text) // 2]
    cut, reason = reply_of(running, temperature=1.0, seed=seed, stop=middle)
    assert cut == text[: text.index(middle)] and reason == "stop"
    request = {**ASK, "retrieval": {"enabled": False}, "temperature": 1.0, "seed": seed}
    whole, stopped = (
        running.post("/v1/chat/completions", json=request | more).json()["usage"]["completion_tokens"]
        for more in ({}, {"stop": middle})
    )
    assert stopped < whole, "the generation should end at the stop string"


def test_a_stop_string_is_not_sought_in_the_opening_of_the_reply(
    shared_isles: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    """The prompt ends with "<think>", so the reply begins with it."""
    folder = shutil.copytree(tiny_llama, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("assistant\n", "assistant\n<think>\n"))
    with serving(shared_isles, f"hf:{folder}", max_answer_tokens=12) as running:
        text, reason = reply_of(running, temperature=0)
        generated = text.removeprefix("<think>\n")
        assert text != generated != ""
        assert reply_of(running, temperature=0, stop=["think", ">\n"]) == (text, reason)
        assert reply_of(running, temperature=0, stop=generated[0]) == ("<think>\n", "stop")


def test_the_text_of_a_stop_token_is_not_streamed_even_if_the_token_is_not_special(
    shared_isles: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "model")
    letter = AutoTokenizer.from_pretrained(folder)("q")["input_ids"][0]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": letter}))
    with serving(shared_isles, f"hf:{folder}", max_answer_tokens=12) as running:
        assert reply_of(running, temperature=0, logit_bias={str(letter): 100}) == ("", "stop")


def test_generations_that_wait_for_the_model_delay_no_other_work(tiny_llama: Path) -> None:
    model = open_hf(str(tiny_llama))
    backend = LocalBackend({"model": model})
    body = {"model": "model", "messages": ASK["messages"], "max_tokens": 1}

    async def work_beside_generations() -> None:
        with model._lock:
            replies = [asyncio.ensure_future(backend.complete(body)) for _ in range(40)]
            await asyncio.sleep(0)
            await asyncio.wait_for(asyncio.to_thread(int), 10)
        assert len(await asyncio.gather(*replies)) == 40

    asyncio.run(work_beside_generations())


def test_an_adapter_is_selected_by_name_and_a_reply_has_n_choices(running: Running) -> None:
    texts = {}
    for name in ("model", "tuned"):
        completion = running.post(
            "/v1/chat/completions", json={**ASK, "model": name, "n": 2, "temperature": 1.5, "seed": 3}
        ).json()
        texts[name] = [choice["message"]["content"] for choice in completion["choices"]]
        assert [choice["index"] for choice in completion["choices"]] == [0, 1] and texts[name][0] != texts[name][1]
        assert completion["usage"]["completion_tokens"] <= 24 and "citations" in completion["choices"][0]["message"]
    assert texts["model"] != texts["tuned"]


def test_log_probabilities_are_returned_only_without_streaming_or_stop_strings(running: Running) -> None:
    request_body = {**ASK, "retrieval": {"enabled": False}, "temperature": 0, "logprobs": True}
    response = running.post(
        "/v1/chat/completions", json={**request_body, "top_logprobs": 2, "return_tokens_as_token_ids": True}
    )
    entries = response.json()["choices"][0]["logprobs"]["content"]
    assert len(entries) == response.json()["usage"]["completion_tokens"] > 0
    for entry in entries:
        assert entry["token"].startswith("token_id:") and len(entry["top_logprobs"]) == 2
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] >= entry["top_logprobs"][1]["logprob"]
    plain = running.post("/v1/chat/completions", json=request_body).json()["choices"][0]
    assert "".join(entry["token"] for entry in plain["logprobs"]["content"]).strip() == plain["message"]["content"]
    for more in ({"stream": True}, {"stop": "x"}):
        refusal = running.post("/v1/chat/completions", json={**request_body, **more})
        assert refusal.status_code == 400 and refusal.json()["error"]["param"] == "logprobs"


REFUSED = {
    "tools": [{"type": "function"}],
    "response_format": {"type": "json_object"},
    "structured_outputs": {"choice": ["a"]},
    "chat_template_kwargs": {"enable_thinking": False},
    "reasoning_effort": "low",
    "min_tokens": 5,
    "ignore_eos": True,
    "bad_words": ["a"],
    "prompt_logprobs": 1,
}


@pytest.mark.parametrize("field", REFUSED)
def test_the_error_for_a_field_that_the_engine_cannot_honour_names_it(running: Running, field: str) -> None:
    response = running.post("/v1/chat/completions", json={**ASK, field: REFUSED[field]})
    assert (
        response.status_code == 400
        and response.json()["error"]["param"] == field
        and field in response.json()["error"]["message"]
    )


def test_tool_calls_and_tokens_outside_the_vocabulary_are_refused(running: Running) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "user", "content": "b"},
    ]
    off = {"enabled": False}
    response = running.post("/v1/chat/completions", json={**ASK, "messages": turns, "retrieval": off})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages.1")
    for biases in ({"a": 1}, {"99999": 1}, {"-1": 1}):
        for stream in (False, True):
            body = {**ASK, "logit_bias": biases, "retrieval": off, "stream": stream}
            response = running.post("/v1/chat/completions", json=body)
            assert response.status_code == 400 and "logit_bias" in response.json()["error"]["message"]


def test_sampling_fields_are_respected(running: Running, tiny_llama: Path) -> None:
    """At temperature 0, top_p, top_k and min_p change nothing; above 0, values that leave a single token give the greedy text."""
    greedy, _ = reply_of(running, temperature=0)
    assert reply_of(running, temperature=0, top_p=0.5, top_k=2, min_p=0.5)[0] == greedy
    hot = {"temperature": 1.5, "seed": 3}
    free, _ = reply_of(running, **hot)
    assert free != greedy and reply_of(running, **hot, top_p=1.0, top_k=-1, min_p=0.0, user="a")[0] == free
    for one in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert reply_of(running, **hot, **one)[0] == greedy, one
    letter = AutoTokenizer.from_pretrained(tiny_llama)("q")["input_ids"][0]
    assert reply_of(running, temperature=0, logit_bias={str(letter): 100})[0] == "q" * 12
    for penalty in ("frequency_penalty", "presence_penalty"):
        text, _ = reply_of(running, temperature=0, logit_bias={str(letter): 1.0}, **{penalty: 2.0})
        assert text.count("q") < reply_of(running, temperature=0, logit_bias={str(letter): 1.0})[0].count("q"), penalty


def test_the_text_parts_of_a_message_are_joined(running: Running) -> None:
    parts = [
        {"role": "user", "content": [{"type": "text", "text": "Who built"}, {"type": "text", "text": "the Lantern?"}]}
    ]
    whole = [{"role": "user", "content": "Who built\nthe Lantern?"}]
    requests = [
        running.post(
            "/v1/chat/completions", json={**ASK, "messages": each, "temperature": 0, "retrieval": {"enabled": False}}
        ).json()
        for each in (parts, whole)
    ]
    assert requests[0]["choices"] == requests[1]["choices"] and requests[0]["usage"] == requests[1]["usage"]


def test_a_prompt_that_is_too_long_is_refused(running: Running) -> None:
    body = {**ASK, "messages": [{"role": "user", "content": "Who built the Lantern? " * 60}]}
    for stream in (False, True):
        response = running.post("/v1/chat/completions", json={**body, "stream": stream})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "prompt_too_long")
        assert "of the model's window of 512" in response.text
        whole = running.post("/v1/chat/completions", json={**body, "stream": stream, "retrieval": {"enabled": False}})
        assert whole.status_code == 400 and "fewer than its context window of 512" in whole.text


def test_a_responses_request_without_file_search_is_refused(running: Running) -> None:
    assert running.post("/v1/responses", json={"model": "model", "input": "a"}).status_code == 404


def test_a_client_that_disconnects_ends_the_generation(
    running: Running, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bias on one letter keeps the reply from ending before its token limit."""
    letter = AutoTokenizer.from_pretrained(tiny_llama)("q")["input_ids"][0]
    text_of, steps = LocalModel.text_of, []

    def slow_text_of(model: LocalModel, ids: Sequence[int]) -> str:
        steps.append(len(ids))
        time.sleep(0.01)
        return text_of(model, ids)

    monkeypatch.setattr(LocalModel, "text_of", slow_text_of)
    with running.client().chat.completions.create(  # type: ignore[call-overload]
        **{k: v for k, v in ASK.items() if k != "retrieval"},
        stream=True,
        max_tokens=400,
        logit_bias={str(letter): 100},
        extra_body={"retrieval": {"enabled": False}},
    ) as stream:
        next(iter(stream))
    reply_of(running, temperature=0)  # begins when the generation has ended
    assert max(steps) < 400
