"""/v1/messages: Anthropic's Messages protocol, always answered from the index, since the protocol has no counterpart to file_search.

The request is translated into a request for a chat completion, and the result into a message or a stream of its events. Each text block ends with its
citations."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from graph.answer.citations import Mark
from graph.types import Excerpt
from serve.citations import search_result_location
from serve.engines.engine_fields import RequestFields, Share, Stop
from serve.http.auth import STREAMABLE_RESPONSES
from serve.http.encoding import SSE, AsciiJSONResponse, StrictModel, Text, named_event
from serve.http.errors import ApiError, not_supported
from serve.http.keys import access_of
from serve.server.chat_request import AnswerOptions, ChatRequest, chat_request
from serve.server.completion import TextEnd, open_stream, prepare, stream_text
from serve.server.services import Services
from serve.stream import MessageDelta

CACHE_NOTE = "accepted without effect: nothing is cached on request"


class Block(StrictModel):
    """A piece of text, or the thinking of an earlier answer; thinking is not passed to the model."""

    type: Literal["text", "thinking"]
    text: Text = ""
    thinking: Text = ""
    signature: Text = ""
    citations: list[dict[str, Any]] | None = Field(None, description="citations of an earlier answer; ignored")
    cache_control: dict[str, Any] | None = Field(None, description=CACHE_NOTE)


Content = Text | Annotated[list[Block], Field(max_length=1000)]


class Turn(StrictModel):
    """A turn of the user or the assistant."""

    role: Literal["user", "assistant"]
    content: Content


class Thinking(StrictModel):
    """Whether to return the reasoning; its length is up to the model."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(
        None, ge=1, description="ignored: max_tokens limits reasoning and answer together"
    )
    display: Literal["summarized", "omitted"] | None = None


class Metadata(StrictModel):
    user_id: Text | None = None


class MessagesRequest(RequestFields):
    """A request to /v1/messages; `retrieval` is modegraph's own field, as in chat completions but without `enabled`."""

    model: str = Field(min_length=1, max_length=200)
    max_tokens: int = Field(ge=1, le=1_000_000)
    messages: list[Turn] = Field(
        min_length=1, max_length=1000, examples=[[{"role": "user", "content": "Who built the Lantern?"}]]
    )
    system: Content | None = None
    stream: bool = False
    temperature: Share | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    stop_sequences: Annotated[list[Stop], Field(max_length=16)] | None = None
    thinking: Thinking | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: dict[str, Any] | None = Field(None, description=CACHE_NOTE)
    tools: list[dict[str, Any]] | None = Field(None, description="refused: the server calls no functions")
    tool_choice: dict[str, Any] | None = Field(
        None, description="refused unless its type is none, since there are no tools"
    )
    retrieval: AnswerOptions | None = None

    @property
    def wants_reasoning(self) -> bool:
        """Whether to return the reasoning."""
        return self.thinking is not None and self.thinking.type != "disabled" and self.thinking.display != "omitted"

    def as_chat(self) -> ChatRequest:
        """The request as a chat completion; ApiError 400 for tools, or for a `tool_choice` other than none."""
        if self.tools:
            raise not_supported("tools", "the index is searched without them")
        if self.tool_choice and self.tool_choice.get("type") != "none":
            raise not_supported("tool_choice", "there are no tools")
        system = [_turn("system", self.system)] if self.system else []
        turns = [_turn(turn.role, turn.content) for turn in self.messages]
        values = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences or None,
            "user": self.metadata.user_id if self.metadata else None,
            "messages": [*system, *turns],
            "retrieval": self.retrieval.model_dump(exclude_unset=True) if self.retrieval else {},
        }
        return chat_request(values)


SEPARATORS = {"system": "\n", "user": "\n", "assistant": ""}
"""What joins the text blocks of a turn: those of an answer are pieces of one text, split after its citations."""


def _turn(role: str, content: Content) -> dict[str, str]:
    texts = [content] if isinstance(content, str) else [block.text for block in content if block.type == "text"]
    return {"role": role, "content": SEPARATORS[role].join(texts)}


Event = dict[str, Any]
STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}
"""Maps OpenAI's finish reasons to Anthropic's stop reasons; all others become end_turn."""


class MessageWriter:
    """Builds a message and its events. A block ends after its citations; `with_reasoning` includes the reasoning.

    Reasoning that arrives after the text has begun is added at the end.
    """

    def __init__(
        self, model: str, retrieval: dict[str, Any] | None, excerpts: Sequence[Excerpt], base: str, with_reasoning: bool
    ) -> None:
        self._excerpts, self._base, self._with_reasoning = excerpts, base, with_reasoning
        self._blocks: list[dict[str, Any]] = []
        self._is_open = False
        self._shown_chars = 0
        self._late_reasoning = ""
        self.message: dict[str, Any] = {
            "id": f"msg_{uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._blocks,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
            "retrieval": retrieval,
        }

    def begin(self) -> Event:
        """The event that starts the message, without content."""
        return {"type": "message_start", "message": {**self.message, "content": []}}

    def show(self, delta: MessageDelta) -> list[Event]:
        """The events for more reasoning, and more text with its citations."""
        events: list[Event] = []
        if delta.reasoning and self._with_reasoning and self._has_text:
            self._late_reasoning += delta.reasoning
        elif delta.reasoning and self._with_reasoning:
            events += self._add_reasoning(delta.reasoning)
        position = 0
        for mark in delta.marks:
            start, end = mark.start - self._shown_chars, mark.end - self._shown_chars
            events += self._add_text(delta.content[position:start])
            events += self._add_citation(delta.content[start:end], mark)
            position = end
        events += self._add_text(delta.content[position:])
        self._shown_chars += len(delta.content)
        return events

    def end(self, text_end: TextEnd) -> list[Event]:
        """The events at the end of the text, which complete the message."""
        events = [] if self._has_text else self._open("text")
        for mark, excerpt, statement in text_end.unmarked_citations:
            events += self._cite(search_result_location(mark, excerpt, self._base, statement))
        if self._late_reasoning:
            events += self._add_reasoning(self._late_reasoning)
        events += self._close()
        usage = {"input_tokens": text_end.prompt_tokens, "output_tokens": text_end.completion_tokens}
        stop_reason = STOP_REASONS.get(text_end.finish_reason, "end_turn")
        delta = {"stop_reason": stop_reason, "stop_sequence": None, **text_end.checks}
        self.message |= {**delta, "usage": usage}
        return [*events, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]

    @property
    def _has_text(self) -> bool:
        return any(block["type"] == "text" for block in self._blocks)

    def _add_reasoning(self, text: str) -> list[Event]:
        events = [] if self._is_in("thinking") else self._open("thinking")
        self._blocks[-1]["thinking"] += text
        return [*events, self._delta("thinking_delta", thinking=text)]

    def _add_text(self, text: str) -> list[Event]:
        """The events for more text; text after a citation starts a new block."""
        if not text:
            return []
        events = [] if self._is_in("text") and not self._blocks[-1]["citations"] else self._open("text")
        self._blocks[-1]["text"] += text
        return [*events, self._delta("text_delta", text=text)]

    def _add_citation(self, text: str, mark: Mark) -> list[Event]:
        """The events for a citation: its [n] is part of the block of the text before it."""
        events = [] if self._is_in("text") else self._open("text")
        self._blocks[-1]["text"] += text
        citation = search_result_location(mark, self._excerpts[mark.number - 1], self._base)
        return [*events, self._delta("text_delta", text=text), *self._cite(citation)]

    def _cite(self, citation: dict[str, Any]) -> list[Event]:
        self._blocks[-1]["citations"] = [*(self._blocks[-1]["citations"] or []), citation]
        return [self._delta("citations_delta", citation=citation)]

    def _open(self, kind: str) -> list[Event]:
        events = self._close()
        block: dict[str, Any] = {"type": "text", "text": "", "citations": None}
        if kind == "thinking":
            block = {"type": "thinking", "thinking": "", "signature": ""}
        self._blocks.append(block)
        self._is_open = True
        return [*events, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": dict(block)}]

    def _close(self) -> list[Event]:
        if not self._is_open:
            return []
        self._is_open = False
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]

    def _is_in(self, kind: str) -> bool:
        return self._is_open and bool(self._blocks[-1]["type"] == kind)

    def _delta(self, kind: str, **values: Any) -> Event:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": {"type": kind, **values}}


def messages_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/messages", response_model=None, responses=STREAMABLE_RESPONSES)
    async def messages(request: MessagesRequest, http: Request) -> Response:
        """A message based on the passages of the index; its text blocks have `citations` of the type search_result_location.

        A citation has `attributed`, true if the model cited nothing and modegraph found the passage: `cited_text` is then the sentence of
        the passage that is closest to `statement`, a sentence of the answer. If only the reasoning cites passages, its citations are at the
        end of the answer. Besides Anthropic's fields the message has `retrieval`, `removed` (cited numbers without a passage), `unsupported`
        (sentences that the passages do not seem to support), `not_checked` (sentences that cannot be judged), `checked` (how many were
        judged) and `answered` (false if the model wrote no answer and a passage is quoted instead); the request takes `retrieval`.
        """
        arrived_s = time.perf_counter()
        prepared = await prepare(services, request.as_chat(), access_of(http))
        prepared, chunks = await open_stream(services, prepared)
        parts = stream_text(services, prepared, chunks, arrived_s)
        base = services.page_url(http, prepared.view)
        writer = MessageWriter(request.model, prepared.retrieval, prepared.excerpts, base, request.wants_reasoning)
        if request.stream:
            return StreamingResponse(_event_stream(services, writer, parts), media_type=SSE)
        async for part in parts:
            _ = writer.end(part) if isinstance(part, TextEnd) else writer.show(part)
        return AsciiJSONResponse(writer.message)

    return router


async def _event_stream(
    services: Services, writer: MessageWriter, parts: AsyncIterator[MessageDelta | TextEnd]
) -> AsyncIterator[bytes]:
    yield named_event(writer.begin())
    try:
        async for part in parts:
            for event in writer.end(part) if isinstance(part, TextEnd) else writer.show(part):
                yield named_event(event)
    except ApiError as problem:
        services.metrics.errors.labels(problem.code).inc()
        yield named_event({"type": "error", **problem.body()})
