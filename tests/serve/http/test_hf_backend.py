"""The server over a transformers model in its own process: whole, streamed, stopped, sampled; adapters by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.http.running import Running, serving

ASK = {"model": "model", "messages": [{"role": "user", "content": "Who built the Lantern?"}], "retrieval": {"k": 1}}


@pytest.fixture(scope="module")
def running(isles_kept: Path, tiny_llama: Path, tiny_adapter: Path) -> Iterator[Running]:
    with serving(isles_kept, f"hf:{tiny_llama}", (f"tuned={tiny_adapter}",), max_answer_tokens=12) as on:
        yield on


def written(running: Running, **changes: object) -> tuple[str, str]:
    """The text and the reason of its end, streamed and whole, which must be the same."""
    made = running.post("/v1/chat/completions", json={**ASK, "retrieval": {"enabled": False}, **changes})
    assert made.status_code == 200, made.text
    chunks = list(
        running.client().chat.completions.create(  # type: ignore[call-overload]
            **{k: v for k, v in ASK.items() if k != "retrieval"},
            stream=True,
            extra_body={"retrieval": {"enabled": False}, **changes},
        )
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = made.json()["choices"][0]
    assert whole["message"]["content"] == streamed
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == whole["finish_reason"] and set(reasons[:-1]) == {None}
    return streamed, whole["finish_reason"]


def long_text(running: Running) -> tuple[int, str]:
    """A seed under which the model writes until the limit, and what it writes."""
    for seed in range(20):
        text, reason = written(running, temperature=1.0, seed=seed)
        if reason == "length":
            return seed, text
    raise AssertionError("no seed gives a long text")


def test_a_stream_says_what_the_whole_says(running: Running) -> None:
    assert written(running, temperature=0)[0]
    assert long_text(running)
    sampled = {written(running, temperature=1.5, seed=seed)[0] for seed in (1, 2)}
    assert len(sampled) == 2 and written(running, temperature=1.5, seed=1)[0] in sampled


def test_a_stop_ends_the_text_before_it(running: Running) -> None:
    seed, text = long_text(running)
    middle = text[len(text) // 2]
    cut, reason = written(running, temperature=1.0, seed=seed, stop=middle)
    assert cut == text[: text.index(middle)].rstrip() and reason == "stop"


def test_adapters_and_choices(running: Running) -> None:
    texts = {}
    for name in ("model", "tuned"):
        made = running.post(
            "/v1/chat/completions", json={**ASK, "model": name, "n": 2, "temperature": 1.5, "seed": 3}
        ).json()
        texts[name] = [choice["message"]["content"] for choice in made["choices"]]
        assert [choice["index"] for choice in made["choices"]] == [0, 1] and texts[name][0] != texts[name][1]
        assert made["usage"]["completion_tokens"] <= 24 and "citations" in made["choices"][0]["message"]
    assert texts["model"] != texts["tuned"]


@pytest.mark.parametrize("field", ["logprobs", "top_p", "tools", "response_format"])
def test_what_it_cannot_follow_is_refused(running: Running, field: str) -> None:
    value = {"logprobs": True, "top_p": 0.5, "tools": [{}], "response_format": {"type": "json_object"}}[field]
    made = running.post("/v1/chat/completions", json={**ASK, field: value})
    assert made.status_code == 400 and made.json()["error"]["param"] == field


def test_a_prompt_that_is_too_long_is_refused(running: Running) -> None:
    body = {**ASK, "messages": [{"role": "user", "content": "word " * 300}]}
    for stream in (False, True):
        made = running.post("/v1/chat/completions", json={**body, "stream": stream})
        assert "fewer than its context window of 512" in made.text
        assert made.status_code == (200 if stream else 400)
    assert running.post("/v1/responses", json={"model": "model"}).status_code == 404


def test_a_client_that_leaves_ends_the_generation(running: Running) -> None:
    import time

    with running.client().chat.completions.create(  # type: ignore[call-overload]
        **{k: v for k, v in ASK.items() if k != "retrieval"},
        stream=True,
        max_tokens=400,
        extra_body={"retrieval": {"enabled": False}},
    ) as stream:
        next(iter(stream))
    started = time.perf_counter()
    written(running, temperature=0)
    assert time.perf_counter() - started < 2
