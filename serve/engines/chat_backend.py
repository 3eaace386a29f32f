"""What the server wants of an engine: chat completions in OpenAI's form, whole or as a stream of chunks; and the backend of a server without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from starlette.responses import Response

from graph.types import LanguageModel
from serve.http.errors import no_model

TOO_LONG = "prompt_too_long"
"""The code of an ApiError for a prompt that the engine's window does not hold; with less of it, it may."""
Body = Mapping[str, Any]
"""A chat completion, a chunk of one or a request for one, in OpenAI's form: JSON that is passed on as it came."""


class ChatBackend(Protocol):
    """An engine with one or several models. Whatever fails is an ApiError: 503 when it cannot be reached at all."""

    @property
    def models(self) -> tuple[str, ...]:
        """The names that clients ask for; the first is the base model."""
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def check(self) -> None:
        """Nothing, when the engine has answered a moment ago or answers now; ApiError 503 at once when it does not."""
        ...

    async def complete(self, body: Body) -> dict[str, Any]:
        """The completion of a request without `stream`."""
        ...

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a completion, the last with its usage; what the engine refuses is raised before the first.

        Closing the iterator ends the generation.
        """
        ...

    async def respond(self, body: Body) -> Response:
        """A request of OpenAI's Responses protocol passed on; ApiError 404 where the engine has none."""
        ...

    def language_model(self, model: str) -> LanguageModel:
        """The model for retrieval and rewriting, called from threads."""
        ...

    def escape_special_tokens(self, text: str) -> str:
        """`text` with the spellings of special tokens broken."""
        ...


class NoModelBackend:
    """The backend of a server that was started without --model; it is ready, since search is all that it has."""

    models: tuple[str, ...] = ()

    async def start(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""

    async def check(self) -> None:
        """Nothing: what is not there cannot be away."""

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
