"""What a client can choose for sentences that the passages do not support (mark, drop or ignore them), in each of the three APIs, streamed or not."""

import json
from typing import Any

import pytest

from graph.answer.prompt import NOT_FOUND
from tests.fakes import ChatServer
from tests.serve.conftest import Stack
from tests.serve.http.running import Running, events_of

TURNS = {"messages": [{"role": "user", "content": "Who built the Lantern?"}]}
SEARCH = {"type": "file_search", "vector_store_ids": ["index"]}
PATHS = {
    "chat": ("/v1/chat/completions", TURNS),
    "responses": ("/v1/responses", {"input": TURNS["messages"], "tools": [SEARCH]}),
    "messages": ("/v1/messages", {**TURNS, "max_tokens": 64, "thinking": {"type": "adaptive"}}),
}
UNSUPPORTED = "Casimir Thole never built ships in 1742 [5]."
REASON = f"The Lantern is a ferry of Port Ellery [1]. {UNSUPPORTED}"
ANSWER = f"{UNSUPPORTED} So is she [2][1].\n\n- {UNSUPPORTED}\n- a ferry [1]\n\n{UNSUPPORTED}"
SUPPORTED_PARTS = ("The Lantern is a ferry of Port Ellery [1].", "So is she [2][1].\n\n- a ferry [1]")
REPLY = f"###Reason: {REASON} ###Answer: {ANSWER}"
SCHEMA = {"name": "a", "schema": {"type": "object"}}


def answer_of(running: Running, api: str, stream: bool, **retrieval: Any) -> dict[str, Any]:
    """The answer of an API: its reasoning, its content, its citation marks ([n]) and its unsupported sentences."""
    path, body = PATHS[api]
    body = {"model": "tiny", "stream": stream, "retrieval": retrieval, **body}
    response = running.post(path, json=body)
    assert response.status_code == 200, response.text
    if not stream:
        return READ[api](response.json())
    return READ[api](JOIN[api](events_of(response)))


def read_chat(whole: dict[str, Any]) -> dict[str, Any]:
    message = whole["choices"][0]["message"]
    content = message["content"]
    annotations = [each["url_citation"] for each in message["annotations"]]
    return {
        "reasoning": message["reasoning_content"],
        "content": content,
        "marks": [content[each["start_index"] : each["end_index"]] for each in annotations],
        "cited": [each["number"] for each in message["citations"]],
        "unsupported": message["unsupported"],
    }


def read_response(whole: dict[str, Any]) -> dict[str, Any]:
    reasoning, message = whole["output"][-2:]
    part = message["content"][0]
    return {
        "reasoning": reasoning["content"][0]["text"],
        "content": part["text"],
        "marks": [part["text"][each["index"] : each["end_index"]] for each in part["annotations"]],
        "unsupported": message["unsupported"],
    }


def read_message(whole: dict[str, Any]) -> dict[str, Any]:
    thinking, *texts = whole["content"]
    numbers = [each["search_result_index"] + 1 for block in texts for each in block["citations"] or ()]
    return {
        "reasoning": thinking["thinking"],
        "content": "".join(block["text"] for block in texts),
        "marks": [f"[{number}]" for number in numbers],
        "unsupported": whole["unsupported"],
    }


def join_chat(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"content": "", "reasoning_content": ""}
    for delta in (event["choices"][0]["delta"] for event in events):
        for name, value in delta.items():
            message[name] = message.get(name, "") + value if isinstance(value, str) else value
    return {"choices": [{"message": message}]}


def join_messages(events: list[dict[str, Any]]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    whole: dict[str, Any] = {"content": blocks}
    for event in events:
        delta = event.get("delta", {})
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"])
        elif event["type"] == "message_delta":
            whole |= delta
        elif delta.get("type") == "citations_delta":
            blocks[-1]["citations"] = [*(blocks[-1]["citations"] or ()), delta["citation"]]
        elif delta:
            field = delta["type"].removesuffix("_delta")
            blocks[-1][field] += delta[field]
    return whole


READ = {"chat": read_chat, "responses": read_response, "messages": read_message}
JOIN = {"chat": join_chat, "responses": lambda events: events[-1]["response"], "messages": join_messages}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", list(PATHS))
def test_each_request_decides_what_happens_to_unsupported_sentences(stack: Stack, api: str, stream: bool) -> None:
    running, _ = stack(REPLY)
    marked = answer_of(running, api, stream)
    assert (marked["reasoning"], marked["content"]) == (REASON, ANSWER)
    parts = [REASON, ANSWER, ANSWER, ANSWER]
    assert [each["text"] for each in marked["unsupported"]] == [UNSUPPORTED] * 4
    assert [text[each["start"] : each["end"]] for text, each in zip(parts, marked["unsupported"], strict=True)] == [
        UNSUPPORTED
    ] * 4

    dropped = answer_of(running, api, stream, unsupported="drop")
    assert (dropped["reasoning"], dropped["content"]) == SUPPORTED_PARTS
    assert dropped["marks"] == ["[2]", "[1]", "[1]"] and dropped.get("cited", [1, 2]) == [1, 2]
    places = [(each["part"], each["text"], each["start"], each["end"]) for each in dropped["unsupported"]]
    reason, answer = (len(text) for text in SUPPORTED_PARTS)
    item = SUPPORTED_PARTS[1].index("- a ferry")
    assert places == [
        ("reasoning_content", UNSUPPORTED, reason, reason),
        *(("content", UNSUPPORTED, place, place) for place in (0, item, answer)),
    ]

    ignored = answer_of(running, api, stream, unsupported="ignore")
    assert ignored == {**marked, "unsupported": []}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", list(PATHS))
def test_an_answer_whose_sentences_are_all_dropped_is_replaced_by_not_found(
    stack: Stack, api: str, stream: bool
) -> None:
    running, _ = stack(f"###Reason: {SUPPORTED_PARTS[0]} ###Answer: {UNSUPPORTED}")
    answer = answer_of(running, api, stream, unsupported="drop")
    assert answer["content"] == NOT_FOUND and answer["marks"] == []
    assert [each["text"] for each in answer["unsupported"]] == [UNSUPPORTED]
    assert answer_of(running, api, stream)["content"] == UNSUPPORTED
    for text, rest in ((f"# Yard\n\n{UNSUPPORTED}", "# Yard\n\n"), (f"**{UNSUPPORTED}** [1]", "")):
        other, _ = stack(f"###Reason: {SUPPORTED_PARTS[0]} ###Answer: {text}")
        assert answer_of(other, api, stream, unsupported="drop")["content"] == f"{rest}{NOT_FOUND}"


@pytest.mark.parametrize("api", list(PATHS))
def test_a_request_overrides_the_servers_setting(stack: Stack, api: str) -> None:
    dropping, _ = stack(REPLY, unsupported="drop")
    assert answer_of(dropping, api, False)["content"] == SUPPORTED_PARTS[1]
    assert answer_of(dropping, api, False, unsupported="mark")["content"] == ANSWER
    ignoring, _ = stack(REPLY, unsupported="ignore")
    assert answer_of(ignoring, api, False)["unsupported"] == []
    assert len(answer_of(ignoring, api, False, unsupported="mark")["unsupported"]) == 4


def test_a_stream_that_drops_unsupported_sentences_arrives_in_paragraphs(stack: Stack) -> None:
    running, _ = stack(f"Yes, it is so [1]. {UNSUPPORTED}\n\nSo it ends. It does.")
    body = {"model": "tiny", "stream": True, "retrieval": {"unsupported": "drop"}, **TURNS}
    events = events_of(running.post("/v1/chat/completions", json=body))
    deltas = [event["choices"][0]["delta"] for event in events]
    assert [delta["content"] for delta in deltas if delta.get("content")] == [
        "Yes, it is so [1].",
        "\n\nSo it ends. It does.",
    ]


def test_each_of_several_choices_is_checked_separately(stack: Stack) -> None:
    running, _ = stack(f"So it is [1]. {UNSUPPORTED}")
    for stream in (False, True):
        body = {"model": "tiny", "n": 2, "stream": stream, "retrieval": {"unsupported": "drop"}, **TURNS}
        response = running.post("/v1/chat/completions", json=body)
        if stream:
            messages = [choice["delta"] for choice in events_of(response)[-1]["choices"]]
        else:
            messages = [choice["message"] for choice in response.json()["choices"]]
            assert [each["content"] for each in messages] == ["So it is [1]."] * 2
        assert [(len(each["unsupported"]), len(each["annotations"])) for each in messages] == [(1, 1)] * 2


@pytest.mark.parametrize(
    ("api", "fields", "status", "place"),
    [
        ("chat", {"retrieval": {"unsupported": "drop", "enabled": False}}, 400, "retrieval.unsupported"),
        (
            "chat",
            {"retrieval": {"unsupported": "drop"}, "response_format": {"type": "json_schema", "json_schema": SCHEMA}},
            400,
            "retrieval.unsupported",
        ),
        ("chat", {"retrieval": {"unsupported": "drop"}, "grammar": "root ::= .*"}, 400, "retrieval.unsupported"),
        (
            "responses",
            {"retrieval": {"unsupported": "drop"}, "text": {"format": {"type": "json_schema", **SCHEMA}}},
            400,
            "retrieval.unsupported",
        ),
        ("responses", {"retrieval": {"unsupported": "drop"}, "tools": []}, 400, "retrieval"),
        ("responses", {"retrieval": {"k": 3}}, 400, "retrieval.k"),
        ("responses", {"retrieval": {"where": ["a=b"]}}, 400, "retrieval.where"),
        ("responses", {"retrieval": {"enabled": False}}, 422, "retrieval.enabled"),
        ("messages", {"retrieval": {"unsupported": "hide"}}, 422, "retrieval.unsupported"),
    ],
)
def test_an_impossible_request_is_refused_and_its_field_named(
    shared_stack: tuple[Running, ChatServer], api: str, fields: dict[str, Any], status: int, place: str
) -> None:
    running, upstream = shared_stack
    path, body = PATHS[api]
    refusal = running.post(path, json={"model": "tiny", **body, **fields})
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (status, place) and upstream.requests == []


def test_a_search_without_an_answer_cannot_drop_sentences(stack: Stack) -> None:
    running, _ = stack()
    refusal = running.post("/v1/retrieve", json={"query": "Who?", "unsupported": "drop"})
    assert refusal.status_code == 422 and refusal.json()["error"]["param"] == "unsupported"


def test_a_reply_in_a_format_set_by_the_client_is_only_marked_even_if_the_server_drops_sentences(stack: Stack) -> None:
    running, _ = stack(json.dumps({"a": UNSUPPORTED}), unsupported="drop")
    body = {"model": "tiny", **TURNS, "response_format": {"type": "json_schema", "json_schema": SCHEMA}}
    message = running.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert json.loads(message["content"]) == {"a": UNSUPPORTED} and len(message["unsupported"]) == 1
