"""/v1/messages: Anthropic's Messages protocol, always answered from the index, since it has no tool of ours to ask with.

The request as a chat completion, then the message: blocks of text, each with the citations at its end, and the events that tell of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response, StreamingResponse

from graph.answer.citations import Mark
from graph.types import Excerpt
from serve.citations import search_result_location
from serve.engines.engine_fields import MAX_DEPTH, Share, Stop, is_deep
from serve.http.encoding import SSE, AsciiJSONResponse, Text, named_event
from serve.http.errors import ApiError, not_supported
from serve.http.keys import access_of
from serve.http.openapi import STREAMED
from serve.server.chat_request import AnswerOptions, ChatRequest, chat_request
from serve.server.completion import TextEnd, open_stream, prepare, stream_text
from serve.server.services import Services
from serve.stream import MessageDelta

CACHE_NOTE = "nothing is cached by request; it is allowed, and changes nothing"


class Block(BaseModel):
    """A piece of text, or of the thinking of an earlier answer, which the model is not shown again."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text", "thinking"]
    text: Text = ""
    thinking: Text = ""
    signature: Text = ""
    citations: list[dict[str, Any]] | None = Field(None, description="those of an earlier answer; not read")
    cache_control: dict[str, Any] | None = Field(None, description=CACHE_NOTE)


Content = Text | Annotated[list[Block], Field(max_length=1000)]


class Turn(BaseModel):
    """What user or assistant said."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["user", "assistant"]
    content: Content


class Thinking(BaseModel):
    """Whether the reasoning is told; how long it may be is the model's own affair."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(None, ge=1, description="not heeded: max_tokens holds for reasoning and answer")
    display: Literal["summarized", "omitted"] | None = None


class Metadata(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: Text | None = None


class MessagesRequest(BaseModel):
    """What /v1/messages takes; `retrieval` is ours, as in chat completions."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

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
    tool_choice: dict[str, Any] | None = Field(None, description="refused, as tools are")
    retrieval: AnswerOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _shallow(cls, value: Any) -> Any:
        if is_deep(value):
            raise ValueError(f"the body nests deeper than {MAX_DEPTH} levels")
        return value

    @property
    def thinks(self) -> bool:
        """Whether the reasoning is wanted."""
        return self.thinking is not None and self.thinking.type != "disabled" and self.thinking.display != "omitted"

    def as_chat(self) -> ChatRequest:
        """The same as a chat completion; ApiError 400 for tools."""
        if self.tools:
            raise not_supported("tools", "the index is searched without them")
        if self.tool_choice and self.tool_choice.get("type") != "none":
            raise not_supported("tool_choice", "there are no tools")
        told = [{"role": "system", "content": _turn_text(self.system)}] if self.system else []
        turns = [{"role": turn.role, "content": _turn_text(turn.content)} for turn in self.messages]
        sampled = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences or None,
            "user": self.metadata.user_id if self.metadata else None,
        }
        return chat_request(
            {
                **{name: value for name, value in sampled.items() if value is not None},
                "model": self.model,
                "max_tokens": self.max_tokens,
                "messages": [*told, *turns],
                "retrieval": self.retrieval.model_dump(exclude_unset=True) if self.retrieval else {},
            }
        )


def _turn_text(content: str | list[Block]) -> str:
    """The text of a turn, blocks one behind another: an answer's are pieces of one text."""
    return content if isinstance(content, str) else "".join(block.text for block in content)


Event = dict[str, Any]
STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}
"""Why a text ended, OpenAI's words to Anthropic's; all else is the end of a turn."""


class MessageWriter:
    """A block ends behind the citations of what it says; `thinks` tells whether the reasoning is shown.

    Reasoning that comes when the text has begun waits for its end.
    """

    def __init__(
        self, model: str, retrieval: dict[str, Any] | None, excerpts: Sequence[Excerpt], base: str, thinks: bool
    ) -> None:
        self._excerpts, self._base, self._thinks = excerpts, base, thinks
        self._blocks: list[dict[str, Any]] = []
        self._is_open = False
        self._chars = 0
        self._late = ""
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

    def begin(self) -> list[Event]:
        """The message, still empty."""
        return [{"type": "message_start", "message": {**self.message, "content": []}}]

    def show(self, shown: MessageDelta) -> list[Event]:
        """Some of the reasoning, and of the text with its citations."""
        made: list[Event] = []
        if shown.reasoning and self._thinks and self._has_text:
            self._late += shown.reasoning
        elif shown.reasoning and self._thinks:
            made += self._think(shown.reasoning)
        at = 0
        for mark in shown.marks:
            start, end = mark.start - self._chars, mark.end - self._chars
            made += [*self._say(shown.content[at:start]), *self._cite(shown.content[start:end], mark)]
            at = end
        made += self._say(shown.content[at:])
        self._chars += len(shown.content)
        return made

    def end(self, ended: TextEnd) -> list[Event]:
        """The text has ended, and with it the message."""
        made = [] if self._has_text else self._open("text")
        if self._late:
            made += self._think(self._late)
        made += self._close()
        usage = {"input_tokens": ended.prompt_tokens, "output_tokens": ended.completion_tokens}
        stop = {"stop_reason": STOP_REASONS.get(ended.finish_reason, "end_turn"), "stop_sequence": None}
        checked = {"removed": list(ended.removed), "unsupported": ended.unsupported, "answered": ended.answered}
        self.message |= {**stop, "usage": usage, **checked}
        delta = {**stop, **checked}
        return [*made, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]

    @property
    def _has_text(self) -> bool:
        return any(block["type"] == "text" for block in self._blocks)

    def _think(self, text: str) -> list[Event]:
        made = [] if self._is_in("thinking") else self._open("thinking")
        self._blocks[-1]["thinking"] += text
        return [*made, self._delta("thinking_delta", thinking=text)]

    def _say(self, text: str) -> list[Event]:
        """More text; what is said behind a citation is a block of its own."""
        if not text:
            return []
        made = [] if self._is_in("text") and not self._blocks[-1]["citations"] else self._open("text")
        self._blocks[-1]["text"] += text
        return [*made, self._delta("text_delta", text=text)]

    def _cite(self, text: str, mark: Mark) -> list[Event]:
        """A citation: its [n] belongs to the text that it stands behind."""
        made = [] if self._is_in("text") else self._open("text")
        told = search_result_location(mark, self._excerpts[mark.number - 1], self._base)
        self._blocks[-1]["text"] += text
        self._blocks[-1]["citations"] = [*(self._blocks[-1]["citations"] or []), told]
        return [*made, self._delta("text_delta", text=text), self._delta("citations_delta", citation=told)]

    def _open(self, kind: str) -> list[Event]:
        made = self._close()
        block: dict[str, Any] = {"type": "text", "text": "", "citations": None}
        if kind == "thinking":
            block = {"type": "thinking", "thinking": "", "signature": ""}
        self._blocks.append(block)
        self._is_open = True
        return [*made, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": dict(block)}]

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
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/messages", response_model=None, responses=STREAMED)
    async def messages(request: MessagesRequest, http: Request) -> Response:
        """A message from the passages of the index, its blocks of text with `citations` of the type search_result_location.

        Beside Anthropic's fields the message has `retrieval`, `removed` (cited numbers that no passage had), `unsupported` (sentences that the
        passages do not seem to say) and `answered` (false where the model wrote no answer and a passage stands in its place), and takes `retrieval`.
        """
        arrived_s = time.perf_counter()
        prepared = await prepare(services, request.as_chat(), access_of(http))
        prepared, chunks = await open_stream(services, prepared)
        told = stream_text(services, prepared, chunks, arrived_s)
        base = services.page_url(http, prepared.seen)
        writer = MessageWriter(request.model, prepared.retrieval, prepared.excerpts, base, request.thinks)
        if request.stream:
            return StreamingResponse(_event_stream(services, writer, told), media_type=SSE)
        async for each in told:
            _ = writer.end(each) if isinstance(each, TextEnd) else writer.show(each)
        return AsciiJSONResponse(writer.message)

    return router


async def _event_stream(
    services: Services, writer: MessageWriter, told: AsyncIterator[MessageDelta | TextEnd]
) -> AsyncIterator[bytes]:
    for event in writer.begin():
        yield named_event(event)
    try:
        async for each in told:
            for event in writer.end(each) if isinstance(each, TextEnd) else writer.show(each):
                yield named_event(event)
    except ApiError as problem:
        services.metrics.errors.labels(problem.code).inc()
        yield named_event({"type": "error", **problem.body()})
