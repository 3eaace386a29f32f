"""/v1/responses: OpenAI's Responses protocol, answered from the index if the request has the tool file_search.

Without the tool the request is passed to the engine, field by field, if the engine supports the protocol. The events are in the order of the
Open Responses specification; the last one contains the complete response, which is all that a request without `stream` gets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from graph.types import Excerpt
from serve.citations import file_citation
from serve.http.auth import STREAMABLE_RESPONSES
from serve.http.encoding import DONE, SSE, AsciiJSONResponse, named_event
from serve.http.errors import ApiError
from serve.http.keys import access_of
from serve.http.routes.response_request import RESULTS, ResponsesRequest
from serve.http.routes.vector_stores import attributes
from serve.server.completion import PreparedRequest, TextEnd, open_stream, prepare, stream_text
from serve.server.services import Services
from serve.stream import MessageDelta

Event = dict[str, Any]
INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Maps finish reasons of chat completions to reasons for an incomplete response."""


class ResponseWriter:
    """Builds a response and its events. `fields` are its initial fields; `base` is the base URL of links to passages.

    The items are the search, the reasoning and the message. Reasoning that arrives after the message has begun is added at the end.
    """

    def __init__(self, fields: dict[str, Any], excerpts: Sequence[Excerpt], base: str) -> None:
        head = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": int(time.time())}
        self._response = {**head, "completed_at": None, "incomplete_details": None, "error": None, **fields}
        self._excerpts, self._base = excerpts, base
        self._output: list[dict[str, Any]] = []
        self._event_count = 0
        self._open_item: _OpenItem | None = None
        self._late_reasoning = ""

    def begin(self) -> list[Event]:
        """The events at the start of the response."""
        return [self._response_event(kind, "in_progress") for kind in ("response.created", "response.in_progress")]

    def add_search(self, query: str, results: list[dict[str, Any]] | None) -> list[Event]:
        """The events of a search for `query`; `results` is None unless the request includes them."""
        item = {"type": "file_search_call", "id": f"fs_{uuid4().hex}", "queries": [query]}
        location = {"item_id": item["id"], "output_index": len(self._output)}
        begun = {**item, "status": "in_progress", "results": None}
        added = self._event("response.output_item.added", output_index=len(self._output), item=begun)
        steps = [self._event(f"response.file_search_call.{step}", **location) for step in SEARCH_STEPS]
        self._output.append({**item, "status": "completed", "results": results})
        return [added, *steps, self._item_done()]

    def show(self, delta: MessageDelta) -> list[Event]:
        """The events for more reasoning, and more of the message with its citations."""
        events: list[Event] = []
        if delta.reasoning and self._is_open("message"):
            self._late_reasoning += delta.reasoning
        elif delta.reasoning:
            events += self._add_text("reasoning", delta.reasoning)
        if delta.content:
            events += self._add_text("message", delta.content)
        for mark in delta.marks:
            events.append(self._annotate(file_citation(mark, self._excerpts[mark.number - 1], self._base)))
        return events

    def end(self, text_end: TextEnd) -> list[Event]:
        """The events at the end of the text, which complete the response."""
        reason = INCOMPLETE_REASONS.get(text_end.finish_reason)
        status = "completed" if reason is None else "incomplete"
        events = [] if self._is_open("message") else self._add_text("message", "")
        for mark, excerpt, statement in text_end.unmarked_citations:
            events.append(self._annotate(file_citation(mark, excerpt, self._base, statement)))
        self._output[-1] |= text_end.checks
        events += self._close(status)
        if self._late_reasoning:
            events += [*self._add_text("reasoning", self._late_reasoning), *self._close(status)]
        usage = {
            "input_tokens": text_end.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": text_end.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": text_end.prompt_tokens + text_end.completion_tokens,
        }
        self._response |= {"usage": usage, "incomplete_details": None if reason is None else {"reason": reason}}
        self._response["completed_at"] = int(time.time()) if reason is None else None
        return [*events, self._response_event(f"response.{status}", status)]

    def fail(self, problem: ApiError) -> Event:
        """The event of a response that ends in an error."""
        self._response["error"] = {"code": "server_error", "message": problem.message}
        return self._response_event("response.failed", "failed")

    def _add_text(self, kind: str, text: str) -> list[Event]:
        """The events for more text of an item, which is started if it is not open."""
        events = [] if self._is_open(kind) else [*self._close("completed"), *self._start(kind)]
        assert self._open_item is not None
        item = self._open_item
        item.part["text"] += text
        if text:
            events.append(self._event(f"{TEXT_EVENTS[kind]}.delta", **item.location, delta=text, **item.extra))
        return events

    def _start(self, kind: str) -> list[Event]:
        self._open_item = item = _OpenItem(kind, len(self._output))
        empty = {**item.fields, "content": []}
        added = self._event("response.output_item.added", output_index=len(self._output), item=empty)
        self._output.append(item.fields)
        return [added, self._event("response.content_part.added", **item.location, part=dict(item.part))]

    def _annotate(self, annotation: dict[str, Any]) -> Event:
        assert self._open_item is not None
        annotations = self._open_item.part["annotations"]
        self._open_item.part["annotations"] = [*annotations, annotation]
        place = {**self._open_item.location, "annotation_index": len(annotations)}
        return self._event("response.output_text.annotation.added", **place, annotation=annotation)

    def _close(self, status: str) -> list[Event]:
        """The events that close the open item, if any."""
        item, self._open_item = self._open_item, None
        if item is None:
            return []
        item.fields["status"] = status
        return [
            self._event(f"{TEXT_EVENTS[item.kind]}.done", **item.location, text=item.part["text"], **item.extra),
            self._event("response.content_part.done", **item.location, part=dict(item.part)),
            self._item_done(),
        ]

    def _item_done(self) -> Event:
        """The event for the end of the last item."""
        item, index = self._output[-1], len(self._output) - 1
        return self._event("response.output_item.done", output_index=index, item=dict(item))

    def _is_open(self, kind: str) -> bool:
        return self._open_item is not None and self._open_item.kind == kind

    def _response_event(self, kind: str, status: str) -> Event:
        return self._event(kind, response={**self._response, "status": status, "output": list(self._output)})

    def _event(self, kind: str, **values: Any) -> Event:
        self._event_count += 1
        return {"type": kind, "sequence_number": self._event_count - 1, **values}


SEARCH_STEPS = ("in_progress", "searching", "completed")
TEXT_EVENTS = {"message": "response.output_text", "reasoning": "response.reasoning_text"}
"""Prefixes of the text events of an item."""


class _OpenItem:
    """An item in progress, its only part, and the fields of its text events: the location, and `extra` for a message."""

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        self.fields: dict[str, Any] = {"type": "reasoning", "id": f"rs_{uuid4().hex}", "summary": []}
        self.extra: dict[str, Any] = {}
        if kind == "message":
            self.part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self.fields = {"type": "message", "id": f"msg_{uuid4().hex}", "role": "assistant"}
            self.extra = {"logprobs": []}
        self.fields |= {"status": "in_progress", "content": [self.part]}
        self.location = {"item_id": self.fields["id"], "output_index": index, "content_index": 0}


def responses_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/responses", response_model=None, responses=STREAMABLE_RESPONSES)
    async def responses(request: ResponsesRequest, http: Request) -> Response:
        """A response based on the passages of the index, if the request has the tool `file_search`.

        Its items are the search (with `results`, if `include` names them), the reasoning and the message, whose annotations are of the type
        `file_citation`. If only the reasoning cites passages, its citations become annotations at the end of the answer. If the model cites nothing,
        the annotations are `attributed`: each has the sentence of a passage (`text`) closest to a sentence of the answer (`statement`).
        Without the tool, the engine itself answers; 404 if it does not support the protocol.
        """
        arrived_s, backend = time.perf_counter(), services.backend
        access = access_of(http)
        if not request.searches:
            name, _ = services.resolve_model(access, request.model)
            plain = request.model_copy(update={"model": name})
            return await backend.respond(plain.for_engine(backend.escape_special_tokens))
        prepared = await prepare(services, request.as_chat(), access, request.searched_store())
        prepared, chunks = await open_stream(services, prepared)
        sent = request.request_fields()
        echoed = {name: sent.get(name, default) for name, default in ECHOED_DEFAULTS.items()}
        fields = {**echoed, "usage": None, "retrieval": prepared.retrieval}
        writer = ResponseWriter(fields, prepared.excerpts, services.page_url(http, prepared.view))
        results = file_search_results(prepared) if RESULTS in (request.include or ()) else None
        events = response_events(writer, prepared, results, stream_text(services, prepared, chunks, arrived_s))
        if request.stream:
            return StreamingResponse(_event_stream(services, writer, events), media_type=SSE)
        return AsciiJSONResponse([event async for event in events][-1]["response"])

    return router


async def response_events(
    writer: ResponseWriter,
    prepared: PreparedRequest,
    results: list[dict[str, Any]] | None,
    parts: AsyncIterator[MessageDelta | TextEnd],
) -> AsyncIterator[Event]:
    """The events of a response, the last with the complete response."""
    events = writer.begin()
    if prepared.prompt is not None and prepared.prompt.evidence.query:
        events += writer.add_search(prepared.prompt.evidence.query, results)
    for event in events:
        yield event
    async for part in parts:
        for event in writer.end(part) if isinstance(part, TextEnd) else writer.show(part):
            yield event


async def _event_stream(
    services: Services, writer: ResponseWriter, events: AsyncIterator[Event]
) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            yield named_event(event)
    except ApiError as problem:
        services.metrics.errors.labels(problem.code).inc()
        yield named_event(writer.fail(problem))
    yield DONE


def file_search_results(prepared: PreparedRequest) -> list[dict[str, Any]]:
    """The passages of a search as results of file_search, best first."""
    if prepared.prompt is None or prepared.view is None:
        return []
    current = prepared.view.generation
    return [
        {
            "file_id": passage.item.source,
            "filename": passage.item.source,
            "score": passage.score,
            "text": passage.item.text,
            "attributes": attributes(current.metadata(passage.item.source)),
        }
        for passage in prepared.prompt.evidence.passages
    ]


ECHOED_DEFAULTS: dict[str, Any] = {
    "model": "",
    "instructions": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "truncation": "auto",
    "text": {"format": {"type": "text"}},
    "temperature": 0.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "reasoning": None,
    "user": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "previous_response_id": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
"""The fields that a response repeats from its request, with defaults for omitted ones."""
