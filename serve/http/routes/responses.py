"""/v1/responses: OpenAI's Responses protocol, answered from the index where the request has the tool file_search.

Without the tool the request reaches the engine, field by field, where the engine has the protocol. The events come in the order of the open
specification; the last one has the whole response, which is the answer that is not streamed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from graph.types import Excerpt
from serve.citations import file_citation
from serve.http.encoding import DONE, SSE, AsciiJSONResponse, named_event
from serve.http.errors import ApiError
from serve.http.keys import access_of
from serve.http.openapi import STREAMED
from serve.http.routes.response_request import RESULTS, ResponsesRequest
from serve.http.routes.vector_stores import attributes
from serve.server.completion import PreparedRequest, TextEnd, open_stream, prepare, stream_text
from serve.server.services import Services
from serve.stream import MessageDelta

Event = dict[str, Any]
INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a text did not end by itself: OpenAI's words for chat completions, and for responses."""


class ResponseWriter:
    """`fields` are those of the response that stay; `base` is the address that links to passages begin with.

    Items follow one another: the search, the reasoning, the message. Reasoning that comes when the message has begun waits for its end.
    """

    def __init__(self, fields: dict[str, Any], excerpts: Sequence[Excerpt], base: str) -> None:
        head = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": int(time.time())}
        self._response = {**head, "completed_at": None, "incomplete_details": None, "error": None, **fields}
        self._excerpts, self._base = excerpts, base
        self._output: list[dict[str, Any]] = []
        self._events = 0
        self._open: _OpenItem | None = None
        self._late = ""

    def begin(self) -> list[Event]:
        """The response is there, and being worked on."""
        return [self._whole(kind, "in_progress") for kind in ("response.created", "response.in_progress")]

    def searched(self, query: str, results: list[dict[str, Any]] | None) -> list[Event]:
        """The index was searched for `query`; `results` only where they were asked for."""
        item = {"type": "file_search_call", "id": f"fs_{uuid4().hex}", "queries": [query]}
        place = {"item_id": item["id"], "output_index": len(self._output)}
        begun = self._event(
            "response.output_item.added",
            output_index=place["output_index"],
            item={**item, "status": "in_progress", "results": None},
        )
        steps = [self._event(f"response.file_search_call.{each}", **place) for each in SEARCH_STEPS]
        self._output.append({**item, "status": "completed", "results": results})
        return [begun, *steps, self._done()]

    def show(self, shown: MessageDelta) -> list[Event]:
        """Text of the reasoning, and of the message with its citations."""
        made: list[Event] = []
        if shown.reasoning and self._is_open("message"):
            self._late += shown.reasoning
        elif shown.reasoning:
            made += self._say("reasoning", shown.reasoning)
        if shown.content:
            made += self._say("message", shown.content)
        for mark in shown.marks:
            noted = file_citation(mark, self._excerpts[mark.number - 1], self._base)
            made.append(self._noted(noted))
        return made

    def end(self, ended: TextEnd) -> list[Event]:
        """The text has ended, and with it the response."""
        why = INCOMPLETE_REASONS.get(ended.finish_reason)
        status = "completed" if why is None else "incomplete"
        late = self._late
        made = [] if self._open is not None else self._say("message", "")
        if self._is_open("message"):
            told = {"removed": list(ended.removed), "unsupported": ended.unsupported, "answered": ended.answered}
            self._output[-1] |= told
        made += self._close(status)
        if late:
            made += [*self._say("reasoning", late), *self._close(status)]
        usage = {
            "input_tokens": ended.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": ended.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": ended.prompt_tokens + ended.completion_tokens,
        }
        self._response |= {"usage": usage, "incomplete_details": None if why is None else {"reason": why}}
        self._response["completed_at"] = int(time.time()) if why is None else None
        return [*made, self._whole(f"response.{status}", status)]

    def fail(self, problem: ApiError) -> Event:
        """The response ends in an error."""
        self._response["error"] = {"code": "server_error", "message": problem.message}
        return self._whole("response.failed", "failed")

    def _say(self, kind: str, text: str) -> list[Event]:
        """More of the text of an item, which begins here if it is not open."""
        made = [] if self._is_open(kind) else [*self._close("completed"), *self._start(kind)]
        assert self._open is not None
        self._open.part["text"] += text
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        return [
            *made,
            *([self._event(f"{TEXT_EVENTS[kind]}.delta", **self._place(), delta=text, **more)] if text else []),
        ]

    def _start(self, kind: str) -> list[Event]:
        index = len(self._output)
        self._open = _OpenItem(kind, index)
        self._output.append(self._open.item)
        empty = {**self._open.item, "content": []}
        begun = self._event("response.output_item.added", output_index=index, item=empty)
        return [begun, self._event("response.content_part.added", **self._place(), part=dict(self._open.part))]

    def _noted(self, annotation: dict[str, Any]) -> Event:
        assert self._open is not None
        notes = self._open.part["annotations"]
        self._open.part["annotations"] = [*notes, annotation]
        return self._event(
            "response.output_text.annotation.added",
            **self._place(),
            annotation_index=len(notes),
            annotation=annotation,
        )

    def _close(self, status: str) -> list[Event]:
        """The end of the item that is open, if one is."""
        if self._open is None:
            return []
        kind, part, place = self._open.kind, dict(self._open.part), self._place()
        self._open.item["status"] = status
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        made = [
            self._event(f"{TEXT_EVENTS[kind]}.done", **place, text=part["text"], **more),
            self._event("response.content_part.done", **place, part=part),
            self._done(),
        ]
        self._open = None
        return made

    def _done(self) -> Event:
        """The last item is done."""
        item, index = self._output[-1], len(self._output) - 1
        return self._event("response.output_item.done", output_index=index, item=dict(item))

    def _is_open(self, kind: str) -> bool:
        return self._open is not None and self._open.kind == kind

    def _place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open.item["id"], "output_index": self._open.index, "content_index": 0}

    def _whole(self, kind: str, status: str) -> Event:
        return self._event(kind, response={**self._response, "status": status, "output": list(self._output)})

    def _event(self, kind: str, **values: Any) -> Event:
        self._events += 1
        return {"type": kind, "sequence_number": self._events - 1, **values}


SEARCH_STEPS = ("in_progress", "searching", "completed")
TEXT_EVENTS = {"message": "response.output_text", "reasoning": "response.reasoning_text"}
"""What the events of an item's text are called."""


class _OpenItem:
    """An item that is being written, and its one part."""

    def __init__(self, kind: str, index: int) -> None:
        self.kind, self.index = kind, index
        self.part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        self.item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{uuid4().hex}", "summary": []}
        if kind == "message":
            self.part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self.item = {"type": "message", "id": f"msg_{uuid4().hex}", "role": "assistant"}
        self.item |= {"status": "in_progress", "content": [self.part]}


def responses_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/responses", response_model=None, responses=STREAMED)
    async def responses(request: ResponsesRequest, http: Request) -> Response:
        """A response from the passages of the index, by the tool `file_search`.

        Its items are the search (with `results`, if `include` asks for them), the reasoning and the message, whose annotations are
        `file_citation`. Without the tool the engine itself answers; 404 where it has no such protocol.
        """
        arrived_s, backend = time.perf_counter(), services.backend
        access = access_of(http)
        if not request.searches:
            name, _ = services.asked_model(access, request.model)
            plain = request.model_copy(update={"model": name})
            return await backend.respond(plain.passed_on(backend.escape_special_tokens))
        prepared = await prepare(services, request.as_chat(), access, request.searched_store())
        prepared, chunks = await open_stream(services, prepared)
        told = {**echoed_fields(request), "retrieval": prepared.retrieval}
        writer = ResponseWriter(told, prepared.excerpts, services.page_url(http, prepared.seen))
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
    told: AsyncIterator[MessageDelta | TextEnd],
) -> AsyncIterator[Event]:
    """The events of a response, the last with the whole of it."""
    for event in writer.begin():
        yield event
    if prepared.prompt is not None and prepared.prompt.evidence.query:
        for event in writer.searched(prepared.prompt.evidence.query, results):
            yield event
    async for each in told:
        for event in writer.end(each) if isinstance(each, TextEnd) else writer.show(each):
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
    if prepared.prompt is None or prepared.seen is None:
        return []
    current = prepared.seen.generation
    return [
        {
            "file_id": each.item.source,
            "filename": each.item.source,
            "score": each.score,
            "text": each.item.text,
            "attributes": attributes(current.metadata(each.item.source)),
        }
        for each in prepared.prompt.evidence.passages
    ]


def echoed_fields(request: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats of its request, and what holds where that does not say."""
    given = request.given()
    return {name: given.get(name, usual) for name, usual in ECHOED_DEFAULTS.items()} | {"usage": None}


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
