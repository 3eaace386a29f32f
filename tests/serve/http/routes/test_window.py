"""A prompt that exceeds the model's window is sent with fewer passages, and the reply reports how many were left out; if none fits, the request fails."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from graph.answer.prompt import NOT_FOUND
from graph.build.build import build_index
from graph.documents.questions import read_questions
from graph.documents.read import read_documents
from graph.store.index_settings import IndexSettings
from tests.fakes import HashEncoder, word_count
from tests.places import EXAMPLES
from tests.serve.conftest import Stack
from tests.serve.http.running import serving

ASK = [{"role": "user", "content": "Who built the Lantern?"}]


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained Llama with a window of 1,024 tokens and a tokenizer trained on the example documents."""
    from train.run.settings import TinySettings
    from train.tiny import new_llama, read_texts, train_tokenizer

    folder = tmp_path_factory.mktemp("small") / "model"
    settings = TinySettings(texts=str(EXAMPLES / "documents"), output=str(folder), hidden_size=16, layers=1, heads=2)
    tokenizer = train_tokenizer(read_texts(Path(settings.texts)), settings.vocabulary, settings.context_tokens)
    new_llama(settings, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def example_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the example documents, built with the stand-in encoder, with passages of the usual length."""
    folder = tmp_path_factory.mktemp("examples") / "index"
    build_index(folder, read_documents(EXAMPLES / "documents", print), IndexSettings(), lambda spec: HashEncoder())
    return folder


@pytest.mark.slow
def test_the_example_questions_are_answered_in_a_window_of_1024_tokens(small_model: Path, example_index: Path) -> None:
    """Only every third question, unless MODEGRAPH_ALL_CASES is set."""
    shortened = 0
    stride = 1 if os.environ.get("MODEGRAPH_ALL_CASES") else 3
    with (
        serving(example_index, f"hf:{small_model}") as running,
        httpx2.Client(base_url=running.url, timeout=30) as client,
    ):
        for question in read_questions(EXAMPLES / "questions.jsonl")[::stride]:
            body = {"model": "model", "messages": [{"role": "user", "content": question.text}], "max_tokens": 2}
            response = client.post("/v1/chat/completions", json=body | {"retrieval": {"mode": "lexical", "abstain": 1}})
            assert response.status_code == 200, response.text
            retrieval = response.json()["retrieval"]
            assert 1 <= retrieval["excerpts"] and retrieval["excerpts"] + retrieval["left_out"] == 5
            shortened += retrieval["left_out"] > 0
    assert shortened >= 1


def test_a_quarter_of_the_window_is_reserved_for_the_answer_and_a_longer_question_is_refused(
    small_model: Path, example_index: Path
) -> None:
    with serving(example_index, f"hf:{small_model}") as running:
        conversation = [
            {"role": "user", "content": "Who built the Lantern? " * 40},
            {"role": "assistant", "content": "The yard did. " * 60},
        ]
        for messages in (
            ASK,
            [*conversation, *ASK],
            [*conversation * 9, {"role": "user", "content": "When was that?"}],
        ):
            response = running.post(
                "/v1/chat/completions",
                json={"model": "model", "messages": messages, "max_tokens": 300, "stop": ["e", "a", " "]},
            )
            assert response.status_code == 200, response.text
            retrieval, prompt_tokens = response.json()["retrieval"], response.json()["usage"]["prompt_tokens"]
            assert prompt_tokens <= 1024 - 256 and retrieval["excerpts"] >= 2
        long = running.post(
            "/v1/chat/completions", json={"model": "model", "messages": [{"role": "user", "content": "why " * 1500}]}
        )
        assert long.status_code == 400 and long.json()["error"]["code"] == "prompt_too_long"
        assert "Ask in fewer words" in long.json()["error"]["message"] and "--top-k" not in long.text


def refuses_more_than(words: int) -> Any:
    """An engine that refuses a prompt of more than `words` words, with vLLM's message."""

    def reply(body: dict[str, Any], number: int) -> Any:
        if word_count(body) > words:
            message = (
                f"This model's maximum context length is {words} tokens. Please reduce the length of the messages."
            )
            return 400, json.dumps({"error": {"message": message}})
        return "###Reason: so [1]. ###Answer: 1911 [5]"

    return reply


def test_a_window_that_the_engine_reports_is_respected(stack: Stack) -> None:
    running, upstream = stack(refuses_more_than(130), window=170)
    completion = running.post("/v1/chat/completions", json={"model": "tiny", "messages": ASK}).json()
    assert len(upstream.requests) == 1 and word_count(upstream.requests[0]) <= 170 - 170 // 4
    assert completion["retrieval"]["left_out"] >= 1 and completion["choices"][0]["message"]["removed"] == [5]
    assert upstream.requests[0]["max_tokens"] == 170 - word_count(upstream.requests[0])


@pytest.mark.parametrize("stream", [False, True])
def test_if_the_window_is_unknown_a_refused_prompt_is_retried_with_fewer_passages(stack: Stack, stream: bool) -> None:
    running, upstream = stack(refuses_more_than(110))
    response = running.post("/v1/chat/completions", json={"model": "tiny", "messages": ASK, "stream": stream})
    assert response.status_code == 200
    assert [len(body["messages"][1]["content"].split("\n")) - 3 for body in upstream.requests] == [5, 3]
    assert '"left_out":2' in response.text.replace(" ", "") and '"excerpts":3' in response.text.replace(" ", "")


def test_a_long_question_without_evidence_is_answered_without_the_model(stack: Stack) -> None:
    running, upstream = stack(window=40)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "why " * 100}], "retrieval": {"abstain": 0}}
    response = running.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == NOT_FOUND and upstream.requests == []


def test_tokens_of_excerpts_are_counted_in_a_thread(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A llama.cpp server counts them, one request for each excerpt, which would block the event loop."""
    running, _ = stack()
    threads = []

    def count(text: str) -> int:
        threads.append(threading.current_thread().name)
        return len(text.split())

    monkeypatch.setattr(running.services.backend.language_model("tiny"), "count_tokens", count)
    body = {"model": "tiny", "messages": ASK, "retrieval": {"max_context_tokens": 100}}
    assert running.post("/v1/chat/completions", json=body).json()["retrieval"]["excerpts"] > 0
    assert len(threads) >= 3 and all(name.startswith("retrieve") for name in threads), threads


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_always_refused_is_reported_with_a_remedy(stack: Stack, stream: bool) -> None:
    running, upstream = stack(refuses_more_than(10))
    response = running.post("/v1/chat/completions", json={"model": "tiny", "messages": ASK, "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["code"], len(upstream.requests)) == (400, "prompt_too_long", 4)
    assert "maximum context length is 10" in error["message"] and "larger window" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_for_another_reason_is_reported_and_not_retried(stack: Stack, stream: bool) -> None:
    running, upstream = stack(lambda body, number: (400, json.dumps({"error": {"message": "n must be 1"}})))
    response = running.post("/v1/chat/completions", json={"model": "tiny", "messages": ASK, "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["code"], len(upstream.requests)) == (400, "refused_by_model", 1)
    assert "n must be 1" in error["message"]
