"""The interface of the server to an engine: chat completions in OpenAI's form, complete or as a stream; and the backend without a model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from starlette.responses import Response

from graph.types import LanguageModel
from serve.http.errors import ApiError, no_model

TOO_LONG = "prompt_too_long"
"""The code of an ApiError for a prompt longer than the engine's window; a shorter one may fit."""
Body = Mapping[str, Any]
"""A chat completion, a chunk of one or a request for one, in OpenAI's form: JSON that is passed on unchanged."""


def head_of(body: Body, kind: str) -> dict[str, Any]:
    """The leading fields of a completion, or of each chunk of one; `kind` is the object's type."""
    return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": body["model"]}


P = TypeVar("P")
T = TypeVar("T")


async def call_until_it_fits(prompts: Iterable[P], call: Callable[[P], Awaitable[T]]) -> tuple[P, T]:
    """The first of `prompts`, each shorter than the one before, that the engine does not find too long, and the engine's reply to that prompt.

    ApiError: the engine's refusal, where it finds all of them too long or refuses for another reason.
    """
    refusal: ApiError | None = None
    for prompt in prompts:
        try:
            return prompt, await call(prompt)
        except ApiError as problem:
            if problem.code != TOO_LONG:
                raise
            refusal = problem
    raise refusal or ValueError("no prompt")


class ChatBackend(Protocol):
    """An engine with one or several models. Failures raise ApiError: 503 when it cannot be reached."""

    @property
    def models(self) -> tuple[str, ...]:
        """The model names that clients request; the first is the base model."""
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def check(self) -> None:
        """Return if the engine answered recently or answers now; otherwise raise ApiError at once: 503, or 502 when it refuses this server's key."""
        ...

    async def complete(self, body: Body) -> dict[str, Any]:
        """The completion of a request without `stream`."""
        ...

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a completion, the last with its usage; a refusal is raised before the first.

        Closing the iterator ends the generation.
        """
        ...

    async def respond(self, body: Body) -> Response:
        """Pass on a request of OpenAI's Responses protocol; ApiError 404 where the engine does not support it."""
        ...

    def language_model(self, model: str) -> LanguageModel:
        """The model for retrieval and rewriting, called from threads."""
        ...

    def escape_special_tokens(self, text: str) -> str:
        """`text` with special tokens escaped."""
        ...


class NoModelBackend:
    """The backend of a server without --model. It is always ready, since the server only searches."""

    models: tuple[str, ...] = ()

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def check(self) -> None:
        """Do nothing: there is no engine that could fail."""

    async def complete(self, body: Body) -> dict[str, Any]:
        raise no_model()

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        raise no_model()

    async def respond(self, body: Body) -> Response:
        raise no_model()

    def language_model(self, model: str) -> LanguageModel:
        raise no_model()

    def escape_special_tokens(self, text: str) -> str:
        return text
