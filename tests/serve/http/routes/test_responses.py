"""Responses with file search, through the openai client, whose types validate the items, the citations and every event."""

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from graph.answer.prompt import NOT_FOUND
from tests.fakes import ChatServer
from tests.serve.conftest import Stack
from tests.serve.http.running import Running

QUESTION = "Who built the Lantern?"
REPLY = "###Reason: The yard did [1], says [9]. ###Answer: 😀 the Marlow Yard [2][1]."
SEARCH = [{"type": "file_search", "vector_store_ids": ["index"], "max_num_results": 3}]
EVENT_ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.annotation.added",
    "response.output_text.annotation.added",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]
REQUIRED_FIELDS = """id object created_at completed_at status incomplete_details model previous_response_id instructions output error tools
    tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs temperature reasoning user
    usage max_output_tokens max_tool_calls store background service_tier metadata safety_identifier prompt_cache_key"""
"""The fields that the Open Responses specification requires of every response."""


def ask(running: Running, **fields: Any) -> Any:
    body = {"model": "tiny", "input": QUESTION, "tools": SEARCH, **fields}
    return running.client().responses.create(**body)


def without_repeated_deltas(kinds: list[str]) -> list[str]:
    """The kinds of events, without deltas that follow a delta of the same kind."""
    return [kind for n, kind in enumerate(kinds) if not (n and kinds[n - 1] == kind and kind.endswith("delta"))]


def test_a_response_contains_the_search_the_reasoning_and_the_answer(stack: Stack) -> None:
    running, upstream = stack(REPLY)
    response = ask(running, include=["file_search_call.results"], instructions="Answer in Welsh.")
    Response.model_validate(
        response.model_dump(exclude={"output": {2: {"removed", "unsupported", "not_checked", "checked", "answered"}}})
    )
    search, reasoning, message = response.output
    assert (search.type, search.status, search.queries) == ("file_search_call", "completed", [QUESTION])
    found = running.post("/v1/retrieve", json={"query": QUESTION, "k": 3}).json()["passages"]
    results = [(each.file_id, each.text, each.score, each.attributes) for each in search.results]
    assert results == [(each["source"], each["text"], each["score"], {}) for each in found]
    assert reasoning.content[0].text == "The yard did [1], says."
    text, notes = message.content[0].text, message.content[0].annotations
    assert response.output_text == text == "😀 the Marlow Yard [2][1]."
    assert [each.type for each in notes] == ["file_citation"] * 2
    assert [text[each.index : each.end_index] for each in notes] == ["[2]", "[1]"]
    place = found[1]
    assert (notes[0].file_id, notes[0].filename) == (place["source"], place["source"])
    assert notes[0].url == f"{running.url}/#read/{place['source']}/{place['start']}-{place['end']}"
    assert message.removed == [9] and response.status == message.status == "completed"
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (7, 3, 10)
    whole = running.post("/v1/responses", json={"model": "tiny", "input": QUESTION, "tools": SEARCH}).json()
    assert set(REQUIRED_FIELDS.split()) <= set(whole) and whole["output"][0]["results"] is None
    assert whole["tools"] == SEARCH and whole["store"] is False
    request = upstream.requests[0]
    assert request["messages"][0]["content"].endswith("Answer in Welsh.") and "tools" not in request
    assert request["messages"][1]["content"].count("\n[") == 3


def test_a_stream_gives_the_same_response_in_the_order_of_the_specification(stack: Stack) -> None:
    running, _ = stack(REPLY)
    events = list(ask(running, stream=True))
    assert without_repeated_deltas([event.type for event in events]) == EVENT_ORDER
    assert [event.sequence_number for event in events] == list(range(len(events)))
    event_type = TypeAdapter(ResponseStreamEvent)
    for event in events:
        event_type.validate_python(event.model_dump())
    last = events[-1].response
    whole = ask(running)
    parts = [[each.type for each in response.output] for response in (last, whole)]
    assert parts[0] == parts[1] and last.output_text == whole.output_text
    assert last.output[2].content[0].annotations == whole.output[2].content[0].annotations
    assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == last.output_text
    items = [each.item for each in events if each.type == "response.output_item.done"]
    assert [each.id for each in items] == [each.id for each in last.output]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cites_nothing_has_attributed_annotations(stack: Stack, stream: bool) -> None:
    running, _ = stack("###Reason: It is known. ###Answer: So it is said. The Marlow Yard built her in 1911.\n")
    events = list(ask(running, stream=True)) if stream else []
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event.model_dump())
    response = events[-1].response if stream else ask(running)
    text, [note] = response.output_text, response.output[-1].content[0].annotations
    statement = "The Marlow Yard built her in 1911."
    assert (note.type, note.filename, note.attributed, note.statement) == ("file_citation", "lantern", True, statement)
    assert note.text == "She was built in 1911 by the Marlow Yard."
    assert text[: note.index].endswith(statement) and note.index == note.end_index
    streamed = [event.annotation for event in events if event.type == "response.output_text.annotation.added"]
    assert [each.statement for each in streamed] == [statement] * stream
    assert not ask(stack(NOT_FOUND)[0]).output[-1].content[0].annotations
    own = ask(stack("The Marlow Yard [1] built her.")[0]).output[-1].content[0].annotations
    assert [(each.attributed, hasattr(each, "statement")) for each in own] == [(False, False)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reply", "fields"),
    [
        ("###Reason: The yard did [2], says [9]. ###Answer: the Marlow Yard", {}),
        ('{"builder": "the Marlow Yard [2]", "ids": [1]}', {"text": {"format": {"type": "json_object"}}}),
    ],
)
def test_citations_of_the_reason_or_in_json_are_annotations_at_the_end(
    stack: Stack, stream: bool, reply: str, fields: dict[str, Any]
) -> None:
    running, _ = stack(reply)
    response = list(ask(running, stream=True, **fields))[-1].response if stream else ask(running, **fields)
    [note] = response.output[-1].content[0].annotations
    found = running.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"][1]
    assert response.output_text == reply.rpartition("###Answer: ")[2]
    assert (note.index, note.end_index) == (len(response.output_text), len(response.output_text))
    assert (note.text, note.attributed, hasattr(note, "statement")) == (found["text"], False, False)


def test_the_sdk_assembles_the_answer_from_a_stream(stack: Stack) -> None:
    running, _ = stack(REPLY)
    with running.client().responses.stream(model="tiny", input=QUESTION, tools=SEARCH) as stream:  # type: ignore[arg-type]
        for _ in stream:
            pass
        response = stream.get_final_response()
    assert response.output_text == "😀 the Marlow Yard [2][1]."


def test_events_have_names_and_the_stream_ends_with_done(stack: Stack) -> None:
    running, _ = stack("1911 [1]")
    body = {"model": "tiny", "input": QUESTION, "tools": SEARCH, "stream": True}
    blocks = running.post("/v1/responses", json=body).text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    for block in blocks[:-2]:
        name, data = block.split("\n")
        assert f'"type": "{name.removeprefix("event: ")}"' in data


def test_an_answer_without_reasoning_has_no_reasoning_item_and_late_reasoning_comes_last(stack: Stack) -> None:
    running, _ = stack("It was 1911 [1].")
    assert [each.type for each in ask(running).output] == ["file_search_call", "message"]
    running, _ = stack("Sure, so it is. ###Reason: so [1] ###Answer: 1911 [2]")
    response = ask(running)
    assert [each.type for each in response.output] == ["file_search_call", "message", "reasoning"]
    text = response.output[1].content[0]
    assert text.text == "Sure, so it is.\n\n1911 [2]" and response.output[2].content[0].text == "so [1]"
    assert [text.text[each.index : each.end_index] for each in text.annotations] == ["[2]"]


def test_an_answer_that_is_cut_off_is_incomplete(stack: Stack) -> None:
    running, _ = stack(lambda body, number: (200, cut_stream(body)))
    response = ask(running, max_output_tokens=4)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output[-1].status == "incomplete" and response.output_text == "It was"
    kinds = [event.type for event in ask(running, stream=True)]
    assert kinds[-1] == "response.incomplete"


def test_a_reply_in_the_clients_format_with_only_reasoning_has_an_empty_message_with_the_checks(stack: Stack) -> None:
    running, _ = stack(lambda body, number: (200, cut_stream(body, "reasoning_content")))
    _, reasoning, message = ask(running, text={"format": {"type": "json_object"}}).output
    assert reasoning.content[0].text == "It was" and reasoning.status == "completed"
    assert (message.type, message.status, message.content[0].text) == ("message", "incomplete", "")
    assert (message.answered, message.removed, message.unsupported) == (False, [], [])


def cut_stream(body: dict[str, Any], field: str = "content") -> str:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    start = {"index": 0, "delta": {field: "It was"}, "finish_reason": None}
    ends = {"index": 0, "delta": {}, "finish_reason": "length"}
    chunks = [{**head, "choices": [choice]} for choice in (start, ends)]
    return "".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n"


def test_the_whole_conversation_reaches_the_model_and_a_remark_triggers_no_search(stack: Stack) -> None:
    running, upstream = stack("You are welcome.")
    first = ask(running).model_dump()["output"]
    conversation = [{"role": "user", "content": QUESTION}, *first, {"role": "user", "content": "Thanks!"}]
    response = ask(running, input=conversation)
    assert [each.type for each in response.output] == ["message"]
    assert [turn["role"] for turn in upstream.requests[-1]["messages"]] == ["system", "user", "assistant", "user"]


def test_without_evidence_the_model_is_not_called(stack: Stack) -> None:
    running, upstream = stack(mode="lexical")
    response = ask(running, input="zzz qqq")
    assert response.output_text == NOT_FOUND and upstream.requests == []


def test_a_filter_that_no_document_meets_finds_nothing(stack: Stack) -> None:
    running, _ = stack()
    tool = {**SEARCH[0], "filters": {"type": "eq", "key": "source", "value": "nowhere"}}
    response = ask(running, tools=[tool], include=["file_search_call.results"])
    assert (response.output[0].results, response.output_text) == ([], NOT_FOUND)


def test_the_format_that_the_client_requests_reaches_the_engine(stack: Stack) -> None:
    running, upstream = stack('{"a": "b [1]"}')
    form = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    response = ask(
        running,
        text={"format": form, "verbosity": "low"},
        reasoning={"effort": "low", "summary": None},
        temperature=0.5,
    )
    assert response.output_text == '{"a": "b [1]"}'
    request = upstream.requests[0]
    schema = {"name": "a", "schema": {"type": "object"}, "strict": True}
    assert request["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert (request["verbosity"], request["reasoning_effort"], request["temperature"]) == ("low", "low", 0.5)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"tools": [*SEARCH, {"type": "function", "name": "f"}]}, "tools"),
        (
            {"tools": [{**SEARCH[0], "ranking_options": {"score_threshold": 0.5}}]},
            "tools.0.ranking_options.score_threshold",
        ),
        ({"tool_choice": "none"}, "tool_choice"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"tools": [], "include": ["file_search_call.results"]}, "include"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input.0"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/"}]}]},
            "input.0.content.0.type",
        ),
    ],
)
def test_an_unsupported_field_is_refused_and_named(
    shared_stack: tuple[Running, ChatServer], fields: dict[str, Any], place: str
) -> None:
    running, upstream = shared_stack
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(running, **fields)
    assert (refusal.value.code, refusal.value.param) == ("not_supported", place) and upstream.requests == []


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"tools": [{**SEARCH[0], "vector_store_ids": ["vs_1"]}]}, 404, "available: index"),
        ({"tools": [{**SEARCH[0], "max_num_results": 51}]}, 422, "max_num_results"),
        ({"previous_response_id": "resp_1"}, 422, "previous_response_id"),
        ({"store": True}, 422, "store"),
        ({"input": []}, 422, "messages"),
        ({"input": [{"role": "assistant", "content": "so"}]}, 400, "the user's question"),
        ({"input": [{"role": 7, "content": "so"}]}, 400, "input.0"),
        ({"input": "x" * 8001}, 400, "8,000"),
    ],
)
def test_an_invalid_request_gets_an_error_that_states_the_mistake(
    shared_stack: tuple[Running, ChatServer], fields: dict[str, Any], status: int, words: str
) -> None:
    running, _ = shared_stack
    response = running.post("/v1/responses", json={"model": "tiny", "input": QUESTION, "tools": SEARCH, **fields})
    assert response.status_code == status and words in response.json()["error"]["message"], response.text


def test_a_stream_that_breaks_ends_as_failed(stack: Stack) -> None:
    broken = 'data: {"choices": [{"index": 0, "delta": {"content": "It was"}, "finish_reason": null}]}\n\n'
    running, _ = stack(lambda body, number: (200, broken))
    events = list(ask(running, stream=True))
    assert events[-1].type == "response.failed" and events[-1].response.error.code == "server_error"
    response = running.post("/v1/responses", json={"model": "tiny", "input": QUESTION, "tools": SEARCH})
    assert response.status_code == 502


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"detail": "Not Found"}, "no_responses"),
        ({"error": {"message": "The model `tiny` does not exist."}}, "refused_by_model"),
    ],
)
def test_the_engine_lacks_the_route_unless_its_404_is_about_the_model(
    stack: Stack, error: dict[str, Any], code: str
) -> None:
    running, _ = stack(lambda body, number: (404, json.dumps(error)))
    response = running.post("/v1/responses", json={"model": "tiny", "input": QUESTION})
    assert (response.status_code, response.json()["error"]["code"]) == (404, code)
