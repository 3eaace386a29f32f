"""The engine that this server starts by itself: vLLM as a child process, asked as any other server."""

from __future__ import annotations

from serve.engines.vllm import VllmChild, VllmSpec
from serve.http.control import breaker_of
from serve.http.errors import ApiError
from serve.http.openai_backend import OpenAIBackend


class VllmBackend(OpenAIBackend):
    """As OpenAIBackend, over a child that starts and stops with the server."""

    def __init__(self, spec: VllmSpec) -> None:
        self.child = VllmChild(spec)
        names = (spec.name, *spec.adapters)
        super().__init__(self.child.url, self.child.key, {name: name for name in names}, breaker_of(spec.model))

    async def start(self) -> None:
        await self.child.start()

    async def close(self) -> None:
        await super().close()
        await self.child.stop()

    async def check(self) -> None:
        """As OpenAIBackend; 503 without asking while the child is not ready."""
        if not self.child.ready.is_set():
            message = "the model is being loaded; /v1/retrieve works already"
            raise ApiError(503, "model_starting", message, headers={"Retry-After": "10"})
        await super().check()
