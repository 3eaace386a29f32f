"""Anthropic's Messages API through Anthropic's client: blocks with citations, thinking, events, refusals."""

import json
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.fakes import ChatServer
from tests.serve.conftest import Stack
from tests.serve.http.running import Running

QUESTION = "Who built the Lantern?"
REPLY = "###Reason: The yard did [1], says [9]. ###Answer: 😀 the Marlow Yard [2][1] did, in 1911 [1]."
THINKING = {"type": "enabled", "budget_tokens": 1024}


def client(running: Running, key: str = "none") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=running.url, api_key=key, max_retries=0)


def request_body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 64, "messages": [{"role": "user", "content": QUESTION}], **fields}


def test_each_text_block_ends_after_its_citations(stack: Stack) -> None:
    running, upstream = stack(REPLY)
    fields = request_body(system="Answer in Welsh.", stop_sequences=["\n\n"])
    message = client(running).messages.create(**fields, extra_body={"temperature": 0.5})
    Message.model_validate(message.model_dump())
    texts = [(block.text, [each.search_result_index for each in block.citations or ()]) for block in message.content]  # type: ignore[union-attr]
    assert texts == [("😀 the Marlow Yard [2][1]", [1, 0]), (" did, in 1911 [1]", [0]), (".", [])]
    first = message.content[0].citations[0]  # type: ignore[union-attr,index]
    found = running.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"][1]
    assert (first.type, first.source, first.title, first.cited_text) == (
        "search_result_location",
        found["source"],
        found["title"],
        found["text"],
    )
    assert first.attributed is False and not hasattr(first, "statement")
    assert first.url == f"{running.url}/#read/{found['source']}/{found['start']}-{found['end']}"
    assert (message.role, message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == (
        "assistant",
        "end_turn",
        7,
        3,
    )
    extra = message.model_extra
    assert extra is not None and extra["removed"] == [9] and extra["retrieval"]["question"] == QUESTION
    request = upstream.requests[0]
    assert request["messages"][0]["content"].endswith("Answer in Welsh.")
    assert (request["temperature"], request["stop"], request["max_tokens"]) == (0.5, ["\n\n"], 64)


def test_reasoning_is_returned_on_request(stack: Stack) -> None:
    running, _ = stack(REPLY)
    message = client(running).messages.create(**request_body(thinking=THINKING))
    assert [block.type for block in message.content] == ["thinking", "text", "text", "text"]
    assert message.content[0].thinking == "The yard did [1], says."  # type: ignore[union-attr]
    for off in ({"type": "disabled"}, {"type": "adaptive", "display": "omitted"}):
        assert client(running).messages.create(**request_body(thinking=off)).content[0].type == "text"


@pytest.mark.parametrize(
    "text",
    [
        REPLY,
        "It was 1911.",
        "###Reason: so ###Answer: the Marlow Yard, in 1911.",
        "Sure, so it is. ###Reason: so [1] ###Answer: 1911 [2]",
        "###Reason: so",
    ],
)
def test_a_stream_adds_up_to_the_message(stack: Stack, text: str) -> None:
    running, _ = stack(text)
    whole = client(running).messages.create(**request_body(thinking=THINKING)).model_dump()
    with client(running).messages.stream(**request_body(thinking=THINKING)) as stream:
        streamed = stream.get_final_message().model_dump()
    assert streamed["content"] == whole["content"]
    assert (streamed["stop_reason"], streamed["usage"]) == (whole["stop_reason"], whole["usage"])


UNCITED_REPLY = "###Reason: It is known. ###Answer: the Marlow Yard"
SUPPORTING_SENTENCE = "She was built in 1911 by the Marlow Yard."


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cites_nothing_has_attributed_citations(stack: Stack, stream: bool) -> None:
    running, _ = stack(UNCITED_REPLY)
    if stream:
        with client(running).messages.stream(**request_body()) as streamed:
            message = streamed.get_final_message()
    else:
        message = client(running).messages.create(**request_body())
    [block] = message.content
    [citation] = block.citations  # type: ignore[union-attr, misc]
    Message.model_validate(message.model_dump())
    assert block.text == "the Marlow Yard"  # type: ignore[union-attr]
    assert (citation.type, citation.source, citation.cited_text) == (
        "search_result_location",
        "lantern",
        SUPPORTING_SENTENCE,
    )
    assert (citation.attributed, citation.statement) == (True, "the Marlow Yard")
    start, end = map(int, citation.url.rpartition("/")[2].split("-"))
    passages = running.get("/v1/documents/lantern").json()["passages"]
    assert [
        each["text"][start - each["start"] : end - each["start"]]
        for each in passages
        if each["start"] <= start < each["end"]
    ] == [SUPPORTING_SENTENCE]
    for reply in (
        "###Reason: None says so [1]. ###Answer: not in the documents",
        "Florian Achterberg sold it to Zanzibar.",
    ):
        blocks = client(stack(reply)[0]).messages.create(**request_body()).content
        assert [block.citations for block in blocks] == [None]  # type: ignore[union-attr]


def test_an_answer_without_citations_gets_the_citations_of_its_reason(stack: Stack) -> None:
    running, _ = stack("###Reason: The yard did [2], says [9]. ###Answer: the Marlow Yard")
    found = running.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"][1]
    [block] = client(running).messages.create(**request_body()).content
    [citation] = block.citations  # type: ignore[union-attr, misc]
    assert (block.text, citation.search_result_index) == ("the Marlow Yard", 1)  # type: ignore[union-attr]
    assert (citation.cited_text, citation.attributed, hasattr(citation, "statement")) == (found["text"], False, False)


def test_events_have_the_types_and_order_that_the_sdk_expects(stack: Stack) -> None:
    running, _ = stack(UNCITED_REPLY)
    events = list(client(running).messages.create(**request_body(stream=True)))
    kinds = [event.type for event in events]
    assert kinds[-4:] == ["content_block_delta", "content_block_stop", "message_delta", "message_stop"]
    assert events[-4].delta.type == "citations_delta"  # type: ignore[union-attr]
    running, _ = stack("It was 1911 [1].")
    events += list(client(running).messages.create(**request_body(stream=True)))
    event_type: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    for event in events:
        event_type.validate_python(event.model_dump())
    events = events[len(kinds) :]
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    deltas = [event.delta.type for event in events if event.type == "content_block_delta"]
    assert deltas[-3:] == ["text_delta", "citations_delta", "text_delta"]
    body = running.post("/v1/messages", json=request_body(stream=True)).text
    assert "[DONE]" not in body and body.startswith("event: message_start\ndata: ")


def test_turns_made_of_blocks_are_read_as_a_conversation(stack: Stack) -> None:
    running, upstream = stack("You are welcome.")
    first = [
        {"type": "thinking", "thinking": "so", "signature": ""},
        {"type": "text", "text": "The Marlow Yard [1]", "citations": [{"type": "search_result_location"}]},
        {"type": "text", "text": " did.", "cache_control": {"type": "ephemeral"}},
    ]
    turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": first}]
    message = client(running).messages.create(**request_body(messages=[*turns, {"role": "user", "content": "Thanks!"}]))
    assert message.content[0].text == "You are welcome."  # type: ignore[union-attr]
    assert upstream.requests[0]["messages"][2]["content"] == "The Marlow Yard did."


def test_the_text_blocks_of_a_question_and_of_instructions_are_joined_by_newlines(stack: Stack) -> None:
    def blocks(*texts: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": text} for text in texts]

    running, upstream = stack("x")
    turns = [{"role": "user", "content": blocks("Who built", "the Lantern?")}]
    message = client(running).messages.create(
        **request_body(messages=turns, system=blocks("Answer in Welsh.", "Be brief."))
    )
    assert message.model_extra["retrieval"]["question"] == "Who built\nthe Lantern?"  # type: ignore[index]
    assert upstream.requests[0]["messages"][0]["content"].endswith("\n\nAnswer in Welsh.\nBe brief.")


def test_retrieval_options_are_accepted(stack: Stack) -> None:
    running, upstream = stack("x")
    client(running).messages.create(**request_body(), extra_body={"retrieval": {"k": 2, "mode": "dense"}})
    assert (
        "[2]" in upstream.requests[0]["messages"][1]["content"]
        and "[3]" not in upstream.requests[0]["messages"][1]["content"]
    )


@pytest.mark.parametrize(
    ("fields", "status", "place"),
    [
        ({"tools": [{"name": "f", "input_schema": {}}]}, 400, "tools"),
        ({"tool_choice": {"type": "any"}}, 400, "tool_choice"),
        ({"container": "c"}, 422, "container"),
        ({"mcp_servers": []}, 422, "mcp_servers"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            422,
            "messages.0.content.0.type",
        ),
        ({"messages": [{"role": "user", "content": "x" * 8001}]}, 400, None),
        ({"messages": [{"role": "assistant", "content": "so"}]}, 400, "messages"),
        ({"max_tokens": 0}, 422, "max_tokens"),
        ({"model": "claude"}, 404, "model"),
    ],
)
def test_an_unsupported_field_or_value_is_refused_before_the_model_is_called(
    shared_stack: tuple[Running, ChatServer], fields: dict[str, Any], status: int, place: str
) -> None:
    running, upstream = shared_stack
    with pytest.raises(anthropic.APIStatusError) as refusal:
        client(running).messages.create(**request_body(), extra_body=fields)
    error = refusal.value.body["error"]  # type: ignore[index]
    assert (refusal.value.status_code, error["param"]) == (status, place) and upstream.requests == []


def test_the_route_requires_the_key_that_the_anthropic_client_sends(stack: Stack) -> None:
    running, _ = stack("1911 [1]", api_key="k")
    with pytest.raises(anthropic.AuthenticationError):
        client(running).messages.create(**request_body())
    assert client(running, "k").messages.create(**request_body()).stop_reason == "end_turn"


def test_a_stream_that_breaks_or_takes_too_long_raises_an_error(stack: Stack) -> None:
    broken = json.dumps({"choices": [{"index": 0, "delta": {"content": "It was"}, "finish_reason": None}]})
    running, _ = stack(lambda body, number: (200, f"data: {broken}\n\n"))
    with pytest.raises(anthropic.APIStatusError, match="cut_off"):
        list(client(running).messages.create(**request_body(stream=True)))
    slow, _ = stack("word " * 50, seconds_per_word=0.1, request_timeout_s=0.5)
    with pytest.raises(anthropic.APIStatusError, match="too_long"):
        list(client(slow).messages.create(**request_body(stream=True)))
