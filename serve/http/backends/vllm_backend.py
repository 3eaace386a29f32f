"""The engine that this server starts by itself: vLLM as a child process, asked as any other server."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from graph.prompt.template import WITHOUT_THINKING, leaves_thinking_open, switches_thinking
from graph.shared.errors import UserError
from graph.text.special_tokens import escape_special_tokens
from serve.engines.vllm import VllmChild, VllmSpec
from serve.http.backends.openai_backend import OpenAIBackend
from serve.http.shared.errors import ApiError

PARSER = "deepseek_r1"
"""vLLM's name for the parser of replies that begin within <think>, opened by the prompt."""


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


def as_trained(spec: VllmSpec, tokenizer: Any) -> VllmSpec:
    """The spec with prompts as in training: thinking is off by default, where the template can turn it off (graph/prompt/template.py).

    Where it always opens a thinking block, vLLM is told to take what is written in there out of the answer. An option of the user's own comes
    later in the command line, and counts. UserError for a tokenizer without a template: vLLM would refuse every chat.
    """
    if tokenizer.chat_template is None:
        remedy = "serve its instruct variant, or put a chat_template.jinja beside its tokenizer"
        raise UserError(f"vllm:{spec.model}: its tokenizer has no chat template", "a chat (instruct) model", remedy)
    options = []
    if switches_thinking(tokenizer):
        options.append(f"--default-chat-template-kwargs={json.dumps(WITHOUT_THINKING)}")
    if leaves_thinking_open(tokenizer):
        options.append(f"--reasoning-parser={PARSER}")
    return replace(spec, extra=(*options, *spec.extra))
