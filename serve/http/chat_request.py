"""A request for a chat completion: OpenAI's fields, `retrieval` besides, and whatever else the engine may know, passed on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from graph.types import Message
from serve.http.encoding import Text
from serve.http.errors import ApiError
from serve.http.retriever import RetrievalOptions

Stop = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
OURS = frozenset({"messages", "retrieval", "stream", "stream_options"})
"""Fields that the engine gets in another form, or not at all."""


class TextPart(BaseModel):
    """A piece of a message's text."""

    type: Literal["text"]
    text: Text


class ChatMessage(BaseModel):
    """One turn. Other fields of it are passed on when retrieval is off."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | list[TextPart] | None = None

    def text(self) -> str:
        """Its text, parts joined by line ends."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    include_usage: bool | None = None


class ChatRetrieval(RetrievalOptions):
    """How to look for evidence; not at all with `enabled` false, and then the messages go to the model as they are."""

    enabled: bool = True


class ChatRequest(BaseModel):
    """What /v1/chat/completions takes."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str = Field(min_length=1, max_length=200)
    messages: list[ChatMessage] = Field(
        min_length=1, max_length=1000, examples=[[{"role": "user", "content": "Who built the Lantern?"}]]
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=16)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: dict[str, Any] | None = None
    retrieval: ChatRetrieval = Field(default_factory=lambda: ChatRetrieval.model_validate({}))

    def engine_fields(self, max_answer_tokens: int) -> dict[str, Any]:
        """The fields that go to the engine as they came, the limit of tokens added where there is none."""
        fields = {
            name: value
            for name, value in self.model_dump(exclude_unset=True).items()
            if name not in OURS and value is not None
        }
        if self.max_tokens is None and self.max_completion_tokens is None:
            fields["max_tokens"] = max_answer_tokens
        return fields

    def question(self) -> str:
        """The last turn, which must be the user's."""
        last = self.messages[-1]
        if last.role != "user":
            raise ApiError(400, "no_question", "the last message must be the user's question", "messages")
        return last.text()

    def history(self) -> list[Message]:
        """What user and assistant said before the last turn."""
        said = [turn for turn in self.messages[:-1] if turn.role in ("user", "assistant") and turn.text().strip()]
        return [Message("user" if turn.role == "user" else "assistant", turn.text()) for turn in said]

    def instructions(self) -> str:
        """The client's own system messages, joined."""
        told = [turn.text().strip() for turn in self.messages if turn.role in ("system", "developer")]
        return "\n\n".join(text for text in told if text)
