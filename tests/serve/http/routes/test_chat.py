"""Chat completions through the openai client: answers with citations, streams, adapters, and fields that are passed on to the engine."""

import json
from typing import Any

import pytest

from graph.answer.context import build_context
from graph.answer.prompt import NOT_FOUND, answer_messages
from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.types import Excerpt
from serve.stream import NO_ANSWER, QUOTED_CHARS, fallback_answer
from tests.fakes import ChatServer, HashEncoder
from tests.serve.conftest import Stack
from tests.serve.http.running import Running, events_of

QUESTION = "Who built the Lantern?"
MESSAGES = [{"role": "user", "content": QUESTION}]
UNRELATED_QUESTION = [{"role": "user", "content": "Do statins lower mortality after strokes?"}]


def test_a_completion_contains_the_answer_its_reasoning_citations_and_usage(stack: Stack) -> None:
    running, upstream = stack("###Reason: The yard did [1], says [9]. ###Answer: the Marlow Yard [2]")
    completion = running.client().chat.completions.create(model="tiny", messages=MESSAGES)  # type: ignore[arg-type]
    message = completion.choices[0].message
    assert message.content == "the Marlow Yard [2]"
    extra = message.model_extra
    assert extra is not None and [each["number"] for each in extra["citations"]] == [1, 2] and extra["removed"] == [9]
    assert extra["reasoning_content"] == "The yard did [1], says." and not {"answer", "reason"} & set(extra)
    first = extra["citations"][0]
    found = running.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"][0]
    assert {key: first[key] for key in ("title", "source", "start", "end", "text")} == {
        key: found[key] for key in ("title", "source", "start", "end", "text")
    }
    assert completion.usage is not None and completion.usage.total_tokens == 10
    retrieval = completion.model_extra["retrieval"]  # type: ignore[index]
    assert (retrieval["question"], retrieval["rewritten_by"], retrieval["mode"]) == (QUESTION, "itself", "auto")
    assert upstream.requests[0]["temperature"] == 0.0 and upstream.requests[0]["max_tokens"] == 512


def test_the_prompt_is_the_training_prompt(stack: Stack, shared_isles) -> None:  # type: ignore[no-untyped-def]
    running, upstream = stack()
    running.client().chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        extra_body={"retrieval": {"mode": "dense", "k": 2}},  # type: ignore[arg-type]
    )
    index = open_index(shared_isles, lambda spec: HashEncoder())
    evidence = retrieve(index, QUESTION, RetrieveSettings(mode="dense", top_k=2))
    expected = [vars(turn) for turn in answer_messages(QUESTION, build_context(evidence, 2))]
    assert upstream.requests[0]["messages"] == expected


def test_a_stream_shows_the_checked_text_and_ends_with_the_citations(stack: Stack) -> None:
    text = "###Reason: It was [1][7] built [12] there. ###Answer: 1911 [2]"
    running, upstream = stack(text)
    options = {"include_usage": True}
    chunks = list(
        running.client().chat.completions.create(model="tiny", messages=MESSAGES, stream=True, stream_options=options)  # type: ignore[arg-type, call-overload]
    )
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    deltas = [chunk.choices[0].delta.model_extra or {} for chunk in chunks if chunk.choices]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "It was [1] built there."
    assert content == "1911 [2]"
    delta = deltas[-1]
    assert (
        set(delta) == {"citations", "annotations", "removed", "unsupported", "not_checked", "checked", "answered"}
        and delta["answered"] is True
        and [each["number"] for each in delta["citations"]] == [1, 2]
        and delta["removed"] == [7, 12]
    )
    assert chunks[-1].model_extra["retrieval"]["mode"] == "auto"
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [10]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices].count("stop") == 1
    assert upstream.requests[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("stream", [False, True])
def test_unsupported_sentences_are_listed_unless_the_server_ignores_them(stack: Stack, stream: bool) -> None:
    reply = "###Reason: Casimir Thole never built ships in 1742 [1]. ###Answer: Nobody built anything in 1742."
    running, _ = stack(reply)
    found = last_message(running, stream)["unsupported"]
    assert [(each["part"], each["cited"]) for each in found] == [("reasoning_content", [1]), ("content", [])]
    assert "1742" in found[0]["missing"] and found[0]["text"].startswith("Casimir") and found[0]["probability"] >= 0.5
    quiet, _ = stack(reply, unsupported="ignore")
    assert last_message(quiet, False)["unsupported"] == []


def last_message(running: Running, stream: bool, **fields: object) -> dict[str, Any]:
    """The message of an answer to MESSAGES; for a stream, the delta of its last chunk."""
    body = {"model": "tiny", "messages": MESSAGES, "stream": stream, **fields}
    response = running.post("/v1/chat/completions", json=body)
    if not stream:
        return dict(response.json()["choices"][0]["message"])
    return dict(events_of(response)[-1]["choices"][0]["delta"])


@pytest.mark.parametrize("unsupported", ["mark", "drop", "ignore"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_citations_gets_the_passages_that_support_it(
    stack: Stack, stream: bool, unsupported: str
) -> None:
    retrieval = {"retrieval": {"unsupported": unsupported}}
    running, _ = stack("###Reason: It is known. ###Answer: the Marlow Yard")
    message = last_message(running, stream, **retrieval)
    [citation] = message["citations"]
    assert (citation["attributed"], citation["source"], message["annotations"]) == (True, "lantern", [])
    [quote] = citation["quotes"]
    sentence = "She was built in 1911 by the Marlow Yard."
    assert quote == {"statement": "the Marlow Yard", "text": sentence, "start": quote["start"], "end": quote["end"]}
    assert citation["text"][quote["start"] : quote["end"]] == sentence
    assert message["not_checked"] == []
    for reply in (NOT_FOUND, "Florian Achterberg sold it to Zanzibar."):
        assert last_message(stack(reply)[0], stream, **retrieval)["citations"] == []


@pytest.mark.parametrize("stream", [False, True])
def test_citations_by_the_model_have_quotes_and_unchecked_sentences_are_reported(stack: Stack, stream: bool) -> None:
    running, _ = stack("The Lantern was built in 1911 by the Marlow Yard [1]. Да, это так.")
    message = last_message(running, stream)
    [citation] = message["citations"]
    assert citation["attributed"] is False and citation["number"] == 1
    assert [citation["text"][each["start"] : each["end"]] for each in citation["quotes"]] == [
        each["text"] for each in citation["quotes"]
    ]
    assert [(each["part"], each["text"], each["because"]) for each in message["not_checked"]] == [
        ("content", "Да, это так.", "is in another language")
    ]
    assert (
        message["unsupported"] == []
        and last_message(running, stream, retrieval={"unsupported": "ignore"})["not_checked"] == []
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_question_that_no_document_covers_is_declined_without_calling_the_model(stack: Stack, stream: bool) -> None:
    running, upstream = stack(abstain=0.5)
    assert [each[:4] for each in answers_of(running, stream, messages=UNRELATED_QUESTION)] == [
        (NOT_FOUND, "", "stop", [])
    ]
    assert upstream.requests == []
    whole = running.post("/v1/chat/completions", json={"model": "tiny", "messages": UNRELATED_QUESTION}).json()
    absence, context_ids = whole["retrieval"]["absence"], whole["retrieval"]["context_ids"]
    assert absence["abstained"] and absence["probability"] > 0.7 and context_ids == []
    answers_of(running, stream)
    answers_of(running, stream, messages=UNRELATED_QUESTION, retrieval={"abstain": 1})
    assert len(upstream.requests) == 2


def test_by_default_a_question_is_answered_if_absence_is_less_than_90_percent_probable(stack: Stack) -> None:
    running, upstream = stack()
    body = {"model": "tiny", "messages": UNRELATED_QUESTION}
    absence = running.post("/v1/chat/completions", json=body).json()["retrieval"]["absence"]
    assert 0.7 < absence["probability"] < 0.9 and not absence["abstained"] and len(upstream.requests) == 1
    completion = running.post("/v1/chat/completions", json={**body, "retrieval": {"abstain": 0.5}}).json()
    assert completion["retrieval"]["absence"]["abstained"] and len(upstream.requests) == 1


def test_annotations_have_the_sdks_form_and_the_positions_of_their_marks(stack: Stack) -> None:
    text = "###Reason: so [1]. ###Answer: 😀 The yard [2, 9] did, in `a[1]` [1][2]."
    running, _ = stack(text, public_url="https://isles.example/ask/")
    for base, server in (("https://isles.example/ask", running), (None, stack(text)[0])):
        completion = server.client().chat.completions.create(model="tiny", messages=MESSAGES)  # type: ignore[arg-type]
        message = completion.choices[0].message
        content, annotations = message.content, message.annotations
        assert content == "😀 The yard [2] did, in `a[1]` [1][2]." and annotations is not None
        citations = [each.url_citation for each in annotations]
        assert [content[each.start_index : each.end_index] for each in citations] == ["[2]", "[1]", "[2]"]
        assert content[: citations[1].start_index].endswith("`a[1]` ")
        by_number = {each["number"]: each for each in message.model_extra["citations"]}  # type: ignore[index]
        place = by_number[2]
        assert citations[0].title == place["title"] == citations[2].title
        assert citations[0].url == f"{base or server.url}/#read/{place['source']}/{place['start']}-{place['end']}"
        chunks = list(server.client().chat.completions.create(model="tiny", messages=MESSAGES, stream=True))  # type: ignore[arg-type]
        streamed = chunks[-1].choices[0].delta.model_extra["annotations"]  # type: ignore[index]
        assert streamed == [each.model_dump() for each in annotations]


@pytest.mark.parametrize("unsupported", ["mark", "drop"])
@pytest.mark.parametrize(
    ("text", "content", "cited"), [("the Marlow Yard [1] [", "the Marlow Yard [1] [", [1]), ("", NO_ANSWER, [1])]
)
def test_a_stream_without_a_finish_reason_is_shown_to_its_end(
    stack: Stack, text: str, content: str, cited: list[int], unsupported: str
) -> None:
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
    running, _ = stack(lambda body, number: (200, f"data: {chunk}\n\ndata: [DONE]\n\n"))
    retrieval = {"unsupported": unsupported}
    assert answers_of(running, True, retrieval=retrieval) == [(content, "", None, cited, [])]


def test_without_include_usage_no_chunk_reports_usage(stack: Stack) -> None:
    running, _ = stack()
    chunks = list(running.client().chat.completions.create(model="tiny", messages=MESSAGES, stream=True))  # type: ignore[arg-type]
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert running.metric('modegraph_tokens_total{kind="completion",model="tiny"}') == 3


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_have_their_own_citations(stack: Stack, stream: bool) -> None:
    running, _ = stack("Built [2] and [8].")
    response = running.client().chat.completions.create(model="tiny", messages=MESSAGES, n=2, stream=stream)  # type: ignore[call-overload]
    if stream:
        last = list(response)[-1]
        fields = [choice.delta.model_extra for choice in last.choices]
    else:
        fields = [choice.message.model_extra for choice in response.choices]
    assert len(fields) == 2
    assert all([each["number"] for each in field["citations"]] == [2] and field["removed"] == [8] for field in fields)


def answers_of(
    running: Running, stream: bool, **fields: object
) -> list[tuple[str, str, str | None, list[int], list[int]]]:
    """For each choice: content, reasoning, finish reason, cited and removed numbers; from the whole reply or assembled from its stream.

    If the answer is missing, the content is only the first sentence of its replacement.
    """
    body = {"model": "tiny", "messages": MESSAGES, "stream": stream, **fields}
    response = running.post("/v1/chat/completions", json=body)
    assert response.status_code == 200
    if not stream:
        messages = [(choice["message"], choice["finish_reason"]) for choice in response.json()["choices"]]
    else:
        sums: dict[int, list[Any]] = {}
        for event in events_of(response):
            for choice in event["choices"]:
                message, ended = sums.setdefault(choice["index"], [{}, None])
                for name, value in choice["delta"].items():
                    message[name] = message.get(name, "") + value if isinstance(value, str) else value
                sums[choice["index"]][1] = ended or choice["finish_reason"]
        messages = [tuple(sums[index]) for index in sorted(sums)]
    return [
        (
            message.get("content", "") if message["answered"] else message["content"][: len(NO_ANSWER)],
            message.get("reasoning_content", ""),
            ended,
            [each["number"] for each in message["citations"]],
            message["removed"],
        )
        for message, ended in messages
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "content", "reasoning", "cited", "removed"),
    [
        ("It was 1911 [1].", "It was 1911 [1].", "", [1], []),
        ("###Reason: so [2] and [9] [1]", NO_ANSWER, "so [2] and [1]", [2, 1], [9]),
        ("", NO_ANSWER, "", [1], []),
        ("###Reason: so [2]. ###Answer: [9]", NO_ANSWER, "so [2].", [2, 1], [9]),
        (
            "<think>\nIs it [3] or [7]?\n</think>\n\n###Reason: so [2]. ###Answer: 1911 [1] [8]",
            "1911 [1]",
            "Is it [3] or?\n\nso [2].",
            [2, 1],
            [7, 8],
        ),
        ("<think> still [1] thinking", NO_ANSWER, "still [1] thinking", [1], []),
        ("###Reason: a [1 ###Answer: 9] b", "9] b", "a [1", [], []),
        ("Sure. ###Reason: a ###Answer: b ###Answer: c", "Sure.\n\nb", "a\n\nc", [], []),
    ],
)
def test_the_format_of_the_models_reply_is_hidden_from_the_client(
    stack: Stack, stream: bool, text: str, content: str, reasoning: str, cited: list[int], removed: list[int]
) -> None:
    running, _ = stack(text)
    assert answers_of(running, stream, n=2) == [(content, reasoning, "stop", cited, removed)] * 2


def test_a_reply_cut_off_in_its_reasoning_counts_as_unanswered(stack: Stack) -> None:
    running, _ = stack("###Reason: It was built [1] there. ###Answer: 1911")
    assert answers_of(running, False, max_tokens=4) == [(NO_ANSWER, "It was built", "length", [1], [])]
    assert answers_of(running, False, max_tokens=6) == [(NO_ANSWER, "It was built [1] there.", "length", [1], [])]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["", " \n", "###Reason: so", "###Answer: "])
@pytest.mark.parametrize("unsupported", ["mark", "drop"])
def test_the_nearest_passage_replaces_an_empty_answer(stack: Stack, stream: bool, text: str, unsupported: str) -> None:
    running, _ = stack(text)
    found = running.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"][0]
    body = {"model": "tiny", "messages": MESSAGES, "retrieval": {"unsupported": unsupported}}
    if stream:
        chunks = list(
            running.client().chat.completions.create(
                stream=True, model="tiny", messages=MESSAGES, extra_body={"retrieval": body["retrieval"]}
            )
        )  # type: ignore[call-overload]
        content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        message = chunks[-1].choices[0].delta.model_extra
    else:
        message = running.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
        content = message["content"]
    title = "" if found["text"].startswith(found["title"]) else f"{found['title']}: "
    passage = f"The passage that best matches the question: {title}{found['text']} [1]"
    assert content.strip() == f"{NO_ANSWER} {passage}"
    assert message["answered"] is False and message["unsupported"] == []
    assert [each["text"] for each in message["citations"]] == [found["text"]]
    (note,) = message["annotations"]
    assert content[note["url_citation"]["start_index"] : note["url_citation"]["end_index"]] == "[1]"


def test_a_long_replacement_is_shortened_and_its_bracketed_numbers_are_removed() -> None:
    words = "Tarn [2] is a village. " * 100
    passage = Excerpt("a", "Tarn", words, "tarn", 0, len(words))
    replacement = fallback_answer([passage, passage])
    assert (
        QUOTED_CHARS < len(replacement) < QUOTED_CHARS + 100
        and replacement.endswith(" … [1]")
        and "[2]" not in replacement
    )
    assert fallback_answer([]) == NO_ANSWER


def test_a_passage_without_spaces_is_quoted_up_to_the_limit() -> None:
    text = "東京は日本の首都である。" * 100
    quotation = f"地理: {text}"[:QUOTED_CHARS]
    assert fallback_answer([Excerpt("p", "地理", text)]).endswith(f"question: {quotation} … [1]")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
        {"structured_outputs": {"regex": "#.*"}},
        {"grammar": "root ::= .*"},
    ],
)
def test_a_reply_in_the_clients_format_is_unchanged_and_its_json_strings_are_citations(
    stack: Stack, stream: bool, fields: dict[str, object]
) -> None:
    reply = '{"a": "###Reason: [1] ###Answer: [9] b", "years": [1911, 1912], "ids": [2, 3]}'
    running, _ = stack(reply)
    assert answers_of(running, stream, **fields) == [(reply, "", "stop", [1], [])]
    cited, _ = stack("1911 [2]")
    assert answers_of(cited, stream, **fields) == [("1911 [2]", "", "stop", [2], [])]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_that_the_engine_has_separated_is_checked_and_returned(stack: Stack, name: str) -> None:
    message = {"role": "assistant", "content": "###Reason: so [1]. ###Answer: 1911", name: "Is it [2] or [9]?"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": [{"token": "so"}]}}
    running, _ = stack(lambda body, number: (200, json.dumps({"choices": [choice]})))
    assert answers_of(running, False) == [("1911", "Is it [2] or?\n\nso [1].", "stop", [1], [9])]
    answer = running.post("/v1/chat/completions", json={"model": "tiny", "messages": MESSAGES}).json()["choices"][0]
    assert answer["logprobs"] == choice["logprobs"] and "reasoning" not in answer["message"]


def test_a_tool_call_has_no_content(stack: Stack) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    choice = {"index": 0, "message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
    running, _ = stack(lambda body, number: (200, json.dumps({"choices": [choice]})))
    message = running.post("/v1/chat/completions", json={"model": "tiny", "messages": MESSAGES}).json()["choices"][0][
        "message"
    ]
    assert message["content"] is None and message["tool_calls"] == [call] and message["citations"] == []


def test_fields_for_the_engine_are_passed_on(stack: Stack) -> None:
    running, upstream = stack()
    fields = {
        "stop": ["\n\n"],
        "seed": 5,
        "top_p": 0.5,
        "temperature": 0.3,
        "logprobs": True,
        "max_completion_tokens": 9,
    }
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    running.client().chat.completions.create(
        model="tiny",
        messages=MESSAGES,  # type: ignore[arg-type]
        response_format=schema,  # type: ignore[arg-type]
        extra_body={"structured_outputs": {"choice": ["a"]}, "retrieval": {"k": 1}},
        **fields,  # type: ignore[arg-type]
    )
    request = upstream.requests[0]
    assert {name: request[name] for name in fields} == fields and "max_tokens" not in request
    assert request["response_format"] == schema and request["structured_outputs"] == {"choice": ["a"]}
    assert "retrieval" not in request and "stream" not in request


def test_the_model_and_its_adapters_are_selected_by_name(stack: Stack) -> None:
    running, upstream = stack(adapters=("sft", "ms"))
    client = running.client()
    assert [model.id for model in client.models.list()] == ["tiny", "sft", "ms"]
    assert client.models.retrieve("ms").id == "ms"
    for name in ("ms", "tiny", "sft"):
        assert client.chat.completions.create(model=name, messages=MESSAGES).model == name  # type: ignore[arg-type]
    assert [body["model"] for body in upstream.requests] == ["ms", "tiny", "sft"]


def test_without_evidence_the_model_is_not_called(stack: Stack) -> None:
    running, upstream = stack()
    body = {"model": "tiny", "messages": [{"role": "user", "content": "zzz qqq"}], "retrieval": {"mode": "lexical"}}
    completion = running.post("/v1/chat/completions", json=body).json()
    assert completion["choices"][0]["message"]["content"] == NOT_FOUND and upstream.requests == []
    events = running.post("/v1/chat/completions", json={**body, "stream": True}).text.split("\n\n")
    assert NOT_FOUND in events[0] and events[-2] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [{"response_format": {"type": "json_object"}}, {"tools": [{"type": "function", "function": {"name": "f"}}]}],
)
def test_without_evidence_the_model_is_called_for_a_format_or_a_tool(
    stack: Stack, stream: bool, fields: dict[str, object]
) -> None:
    running, upstream = stack('{"found": false}')
    turns = [{"role": "user", "content": "zzz qqq"}]
    answers = answers_of(running, stream, messages=turns, retrieval={"mode": "lexical"}, **fields)
    assert answers == [('{"found": false}', "", "stop", [], [])]
    (request,) = upstream.requests
    assert request["messages"][-1]["content"] == "Question: zzz qqq"


def test_the_error_for_a_tools_result_says_how_to_send_it(shared_stack: tuple[Running, ChatServer]) -> None:
    running, _ = shared_stack
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    turns = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "1911"},
    ]
    refusal = running.post("/v1/chat/completions", json={"model": "tiny", "messages": turns})
    assert refusal.status_code == 400 and "set retrieval.enabled to false" in refusal.json()["error"]["message"]


def test_retrieval_can_be_turned_off(stack: Stack) -> None:
    running, upstream = stack("As [1] says.")
    turns = [{"role": "system", "content": "Be <|im_end|> brief."}, {"role": "user", "content": "Hello"}]
    for stream in (False, True):
        body = {"model": "tiny", "messages": turns, "retrieval": {"enabled": False}, "stream": stream}
        response = running.post("/v1/chat/completions", json=body)
        assert response.status_code == 200 and "[1]" in response.text and "citations" not in response.text
        messages = upstream.requests[-1]["messages"]
        assert (upstream.requests[-1]["temperature"], upstream.requests[-1]["max_tokens"]) == (0.0, 512)
        assert [turn["role"] for turn in messages] == ["system", "user"] and "<|im_end|>" not in json.dumps(messages)


def test_the_clients_system_message_follows_the_servers(stack: Stack) -> None:
    running, upstream = stack()
    turns = [{"role": "system", "content": "Answer in Welsh."}, *MESSAGES]
    running.post("/v1/chat/completions", json={"model": "tiny", "messages": turns})
    system = upstream.requests[0]["messages"][0]["content"]
    assert system == answer_messages("?", ())[0].content + "\n\nAnswer in Welsh."


def test_the_text_parts_of_a_message_are_joined(stack: Stack) -> None:
    running, upstream = stack()
    parts = [{"type": "text", "text": "Who built"}, {"type": "text", "text": "the Lantern?"}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": parts}]}
    assert running.post("/v1/chat/completions", json=body).status_code == 200
    assert upstream.requests[0]["messages"][1]["content"].endswith("Question: Who built the Lantern?")


def test_a_context_stays_within_its_token_limit(stack: Stack) -> None:
    running, upstream = stack()
    body = {"model": "tiny", "messages": MESSAGES, "retrieval": {"k": 5, "max_context_tokens": 70}}
    assert running.post("/v1/chat/completions", json=body).status_code == 200
    assert (
        "[2]" in upstream.requests[0]["messages"][1]["content"]
        and "[4]" not in upstream.requests[0]["messages"][1]["content"]
    )
    body["retrieval"] = {"max_context_tokens": 3}
    refusal = running.post("/v1/chat/completions", json=body)
    assert refusal.status_code == 400 and "none of the 5 excerpts fits" in refusal.json()["error"]["message"]
