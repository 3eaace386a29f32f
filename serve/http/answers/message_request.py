"""A request of Anthropic's Messages protocol: always answered from the index, since it has no tool of ours to ask with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serve.http.backends.engine_fields import MAX_DEPTH, Share, Stop, is_deep
from serve.http.routes.chat_request import AnswerOptions, ChatRequest, chat_request
from serve.http.shared.encoding import Text
from serve.http.shared.errors import not_supported

CACHE = "nothing is cached by request; it is allowed, and changes nothing"


class Block(BaseModel):
    """A piece of text, or of the thinking of an earlier answer, which the model is not shown again."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text", "thinking"]
    text: Text = ""
    thinking: Text = ""
    signature: Text = ""
    citations: list[dict[str, Any]] | None = Field(None, description="those of an earlier answer; not read")
    cache_control: dict[str, Any] | None = Field(None, description=CACHE)


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
    cache_control: dict[str, Any] | None = Field(None, description=CACHE)
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
        told = [{"role": "system", "content": _text(self.system)}] if self.system else []
        turns = [{"role": turn.role, "content": _text(turn.content)} for turn in self.messages]
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


def _text(content: str | list[Block]) -> str:
    """The text of a turn, blocks one behind another: an answer's are pieces of one text."""
    return content if isinstance(content, str) else "".join(block.text for block in content)
