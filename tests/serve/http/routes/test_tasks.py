"""Open WebUI's requests for a title, tags or follow-ups are passed on without a search; only special tokens change, and only long histories are cut."""

from collections.abc import Callable

import pytest

from serve.conversation.prompt import MIN_HISTORY_CHARS, Task, fit_task, read_task
from tests.fakes import ScriptedModel, word_count
from tests.growth import assert_linear
from tests.serve.conftest import Stack
from tests.serve.http.routes.test_window import refuses_more_than

KINDS = {
    "title": '### Task:\nFind a title of two words.\n### Output:\nJSON: { "title": "…" }\n### Chat History:\n',
    "tags": "### Task:\nFind up to three tags.\n\n### Guidelines:\n- Broad ones first\n\n### Chat History:\n",
    "follow-ups": "### Task:\nSuggest three questions that the user may ask next.\n### Chat History:\n",
}


def task(kind: str, conversation: str) -> str:
    return f"{KINDS[kind]}<chat_history>\n{conversation}\n</chat_history>"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_reaches_the_model_without_a_search_and_with_only_special_tokens_changed(
    stack: Stack, kind: str, stream: bool
) -> None:
    running, upstream = stack('{"title": "###Reason: Ferries [7]"}')
    text = task(kind, "USER: Who built the Lantern?\nASSISTANT: The Marlow Yard [2] <|im_end|>." + " So it was." * 900)
    assert len(text) > 8_000
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "stream": stream, "max_tokens": 50}
    response = running.post("/v1/chat/completions", json=body)
    assert response.status_code == 200 and "citations" not in response.text and "retrieval" not in response.text
    (request,) = upstream.requests
    assert request["messages"] == [{"role": "user", "content": text.replace("<|im_end|>", "< |im_end|>")}]
    assert request["max_tokens"] == 50 and running.metric('modegraph_retrieval_cache_total{outcome="miss"}') == 0
    if not stream:
        assert response.json()["choices"][0]["message"]["content"] == '{"title": "###Reason: Ferries [7]"}'


@pytest.mark.parametrize("window", [400, None])
def test_the_oldest_part_of_a_history_that_is_too_long_is_dropped(stack: Stack, window: int | None) -> None:
    running, upstream = stack(refuses_more_than(300), window=window)
    words = " ".join(f"word{n}" for n in range(900))
    body = {"model": "tiny", "messages": [{"role": "user", "content": task("title", words)}], "max_tokens": 90}
    assert running.post("/v1/chat/completions", json=body).status_code == 200
    request = upstream.requests[-1]
    assert word_count(request) <= 300 and "word899\n</chat_history>" in request["messages"][0]["content"]
    assert (
        request["messages"][0]["content"].startswith(KINDS["title"])
        and "word1 " not in request["messages"][0]["content"]
    )
    assert len(upstream.requests) == (1 if window else 3)


@pytest.mark.parametrize(
    "text",
    [
        "What does ### Task: mean?",
        "### Task:\nWho built the Lantern?",
        "### Task:\nAnswer.\n</chat_history><chat_history>",
        "See <chat_history>a</chat_history>",
    ],
)
def test_text_that_is_not_a_task_is_used_as_the_search_query(stack: Stack, text: str) -> None:
    running, _ = stack()
    response = running.post(
        "/v1/chat/completions", json={"model": "tiny", "messages": [{"role": "user", "content": text}]}
    )
    assert response.json()["retrieval"]["question"] == text


def test_a_turn_after_a_task_is_not_part_of_a_task() -> None:
    assert read_task([task("tags", "a")], "") is not None and read_task([task("tags", "a"), "b"], "") is None


def test_a_task_is_cut_no_further_than_necessary() -> None:
    whole = Task("", "a b <chat_history>", " ".join(["c"] * 400), "</chat_history>")
    model = ScriptedModel(lambda request: "", window=100)
    fits, tokens = fit_task(whole, model, 512)
    assert 40 < model.prompt_tokens(fits.messages()) <= 75 and tokens == 100 - model.prompt_tokens(fits.messages())
    short = Task("", "a", "c " * (MIN_HISTORY_CHARS // 2 - 1), "d")
    assert short.halved() is None
    assert fit_task(whole, ScriptedModel(lambda request: ""), 512) == (whole, 512)


def test_a_task_is_recognised_in_linear_time() -> None:
    def prepare(pieces: int) -> Callable[[], object]:
        text = "### Task:\n" + "<chat_history>" * pieces
        assert read_task([text], "") is None
        return lambda: read_task([text], "")

    assert_linear(prepare, 8_750)
