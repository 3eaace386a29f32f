"""No engine: a server of search and evidence. What would need a model is refused, with what to do about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response

from graph.shared.types import LanguageModel
from serve.http.backends.backend import Body
from serve.http.shared.errors import no_model


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
