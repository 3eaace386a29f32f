"""The engine that this server starts by itself: vLLM as a child process, asked as any other server."""

from __future__ import annotations

from functools import partial

from graph.text.special_tokens import escape_special_tokens
from serve.engines.vllm import VllmChild, VllmSpec
from serve.engines.vllm_template import as_trained
from serve.http.backends.openai_backend import OpenAIBackend
from serve.http.shared.errors import ApiError


class VllmBackend(OpenAIBackend):
    """As OpenAIBackend, over a child that starts and stops with the server."""

    def __init__(self, spec: VllmSpec) -> None:
        # Imported here because it brings transformers.
        from graph.checkpoints.load import read_tokenizer

        tokenizer = read_tokenizer(spec.model, f"vllm:{spec.model}")
        self.child = VllmChild(as_trained(spec, tokenizer))
        names = (spec.name, *spec.adapters)
        escape = partial(escape_special_tokens, tokenizer=tokenizer)
        super().__init__(self.child.url, self.child.key, {name: name for name in names}, escape)

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
