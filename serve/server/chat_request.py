"""A request for a chat completion: OpenAI's fields, permitted fields of vLLM and llama.cpp (serve/engines/engine_fields.py), and `retrieval`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graph.answer.support import Handling
from graph.types import Message
from serve.engines.engine_fields import EngineFields
from serve.http.encoding import Text, map_texts
from serve.http.errors import ApiError
from serve.server.retriever import RetrievalOptions

SERVER_FIELDS = frozenset({"messages", "retrieval", "stream", "stream_options"})
"""Fields that the server handles itself; all others go to the engine unchanged."""
MESSAGE_FIELDS = frozenset(
    {"role", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning_content"}
)
"""Fields of a message that the engine gets besides its text."""


class TextPart(BaseModel):
    """A piece of a message's text."""

    type: Literal["text"]
    text: Text


class ChatMessage(BaseModel):
    """One turn. Only its role and text are used; with retrieval off, the engine also gets its other MESSAGE_FIELDS."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | list[TextPart] | None = None

    def text(self) -> str:
        """The text of the turn; parts are joined by newlines."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""

    def for_engine(self, escape: Callable[[str], str]) -> dict[str, Any]:
        """The turn in the form that the engine gets: parts joined into one text, and special tokens in every text escaped."""
        fields = {name: value for name, value in self.model_dump(exclude_unset=True).items() if name in MESSAGE_FIELDS}
        content = {} if self.content is None else {"content": escape(self.text())}
        return {name: value if name == "role" else map_texts(escape, value) for name, value in fields.items()} | content


class StreamOptions(BaseModel):
    include_usage: bool | None = None


class AnswerOptions(RetrievalOptions):
    """How to search for evidence, and what to do with sentences of the answer that the evidence does not support."""

    unsupported: Handling | None = Field(
        None,
        description="what to do with sentences that the passages do not support; with drop, a stream arrives paragraph by paragraph",
    )


class ChatRetrieval(AnswerOptions):
    """How to search for evidence; if `enabled` is false, there is no search, and the model gets the messages with special tokens escaped."""

    enabled: bool = True


class ChatRequest(EngineFields):
    """A request to /v1/chat/completions."""

    messages: list[ChatMessage] = Field(
        min_length=1, max_length=1000, examples=[[{"role": "user", "content": "Who built the Lantern?"}]]
    )
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=16)
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    min_tokens: int | None = Field(None, ge=0, le=1_000_000)
    logprobs: bool | None = None
    prompt_logprobs: int | None = Field(None, ge=0, le=20)
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    response_format: dict[str, Any] | None = None
    grammar: Text | None = Field(None, description="grammar in llama.cpp's format")
    reasoning_effort: Text | None = None
    verbosity: Text | None = None
    thinking_token_budget: int | None = Field(None, ge=0)
    bad_words: list[Text] | None = None
    allowed_token_ids: list[int] | None = None
    length_penalty: float | None = None
    use_beam_search: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    retrieval: ChatRetrieval = Field(default_factory=lambda: ChatRetrieval.model_validate({}))

    def engine_fields(self, max_answer_tokens: int) -> dict[str, Any]:
        """The fields that go to the engine unchanged, with the default temperature, 0, and token limit if the request sets none."""
        set_fields = {name: value for name, value in self.request_fields().items() if name not in SERVER_FIELDS}
        fields = {"temperature": 0.0, **set_fields}
        if self.max_tokens is None and self.max_completion_tokens is None:
            fields["max_tokens"] = max_answer_tokens
        return fields

    def question(self) -> str:
        """The text of the user turns at the end, joined by newlines; ApiError 400 if the last message is not the user's."""
        role = self.messages[-1].role
        if role != "user":
            is_result = role in ("tool", "function")
            remedy = "; to give the model a tool's result, set retrieval.enabled to false" if is_result else ""
            raise ApiError(400, "no_question", f"the last message must be the user's question{remedy}", "messages")
        return "\n".join(turn.text() for turn in self._split_turns()[1])

    def history(self) -> list[Message]:
        """The non-empty user and assistant turns before the user turns at the end."""
        turns = [turn for turn in self._split_turns()[0] if turn.role in ("user", "assistant") and turn.text().strip()]
        return [Message("user" if turn.role == "user" else "assistant", turn.text()) for turn in turns]

    def _split_turns(self) -> tuple[list[ChatMessage], list[ChatMessage]]:
        """The messages without the client's instructions: those before the user turns at the end, and these."""
        turns = [turn for turn in self.messages if turn.role not in ("system", "developer")]
        length = len(list(takewhile(lambda turn: turn.role == "user", reversed(turns))))
        return turns[: len(turns) - length], turns[len(turns) - length :]

    def instructions(self) -> str:
        """The client's own system messages, joined."""
        texts = [turn.text().strip() for turn in self.messages if turn.role in ("system", "developer")]
        return "\n\n".join(text for text in texts if text)


def chat_request(values: dict[str, Any]) -> ChatRequest:
    """A chat completion request translated from another protocol; validation errors are reported as those of the client's request."""
    try:
        return ChatRequest.model_validate(values)
    except ValidationError as problems:
        errors = [{**error, "loc": ("body", *error["loc"])} for error in problems.errors()]
        raise RequestValidationError(errors, body=values) from None
