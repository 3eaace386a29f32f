"""The server's interface to an engine: chat completions in OpenAI's form, complete or as a stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from starlette.responses import Response

from graph.answer.prompt import NOT_FOUND
from graph.types import LanguageModel
from serve.http.errors import ApiError, no_model

TOO_LONG = "prompt_too_long"
"""The code of an ApiError for a prompt longer than the engine's context window; a shorter prompt may fit."""
Body = Mapping[str, Any]
"""A chat completion, a chunk of one or a request for one, in OpenAI's form: JSON that is passed on unchanged."""


def head_of(body: Body, kind: str) -> dict[str, Any]:
    """The leading fields of a completion, or of each chunk of one; `kind` is the object's type."""
    return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": body["model"]}


_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def not_found_completion(body: Body) -> dict[str, Any]:
    """The completion for a request for which no evidence was found, in OpenAI's form: the same text for each choice."""
    message = {"role": "assistant", "content": NOT_FOUND}
    choices = [{"index": index, "message": message, "finish_reason": "stop"} for index in range(body.get("n", 1))]
    return {**head_of(body, "chat.completion"), "choices": choices, "usage": _NO_USAGE}


async def not_found_chunks(body: Body) -> AsyncIterator[dict[str, Any]]:
    """Like `not_found_completion`, in chunks, the last with the usage."""
    head = head_of(body, "chat.completion.chunk")
    for index in range(body.get("n", 1)):
        delta = {"role": "assistant", "content": NOT_FOUND}
        yield {**head, "choices": [{"index": index, "delta": delta, "finish_reason": "stop"}]}
    yield {**head, "choices": [], "usage": _NO_USAGE}


P = TypeVar("P")
T = TypeVar("T")


async def call_until_it_fits(prompts: Iterable[P], call: Callable[[P], Awaitable[T]]) -> tuple[P, T]:
    """The first of `prompts`, each shorter than the one before, that the engine does not find too long, and the engine's reply to that prompt.

    ApiError with the engine's refusal if all prompts are too long, or if the engine refuses one for another reason.
    """
    refusal: ApiError | None = None
    for prompt in prompts:
        try:
            return prompt, await call(prompt)
        except ApiError as problem:
            if problem.code != TOO_LONG:
                raise
            refusal = problem
    raise refusal or ValueError("no prompts: at least one is expected")


class ChatBackend:
    """An engine with one or several models. Failures raise ApiError: 503 when it cannot be reached.

    This base class is the backend of a server without --model. It is always ready, since the server only searches.
    """

    models: tuple[str, ...] = ()
    """The model names that clients may request; the first is the default."""

    async def start(self) -> None:
        """Start the engine, if it is not running already."""

    async def close(self) -> None:
        """Stop what `start` started."""

    async def check(self) -> None:
        """Return if the engine answered recently or answers now; otherwise raise ApiError: 503, or 502 when it refuses this server's key."""

    async def complete(self, body: Body) -> dict[str, Any]:
        """The completion of a request without `stream`."""
        raise no_model()

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a completion, the last with its usage; a refusal is raised before the first.

        Closing the iterator ends the generation.
        """
        raise no_model()

    async def respond(self, body: Body) -> Response:
        """Pass on a request of OpenAI's Responses protocol; ApiError 404 if the engine does not support this protocol."""
        raise no_model()

    def language_model(self, model: str) -> LanguageModel:
        """The model for retrieval and rewriting, called from threads."""
        raise no_model()

    def escape_special_tokens(self, text: str) -> str:
        """`text` with special tokens escaped; unchanged if the engine escapes them itself."""
        return text
