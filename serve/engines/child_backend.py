"""Engines that this server starts itself, vLLM or llama.cpp, as child processes with an OpenAI-compatible API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from graph.models.checkpoint import answer_form
from graph.text.prompting import escape_special_tokens
from serve.engines.chat_backend import Body
from serve.engines.child import ServerSpec, SupervisedServer
from serve.engines.engine_fields import NEUTRAL_VALUES
from serve.engines.llama import LlamaModel, LlamaSpec, ServedLlamaModel
from serve.engines.openai_backend import OpenAIBackend, escape_known_tokens
from serve.engines.vllm import VllmSpec, with_training_prompts
from serve.http.errors import ApiError

LLAMA_NAMES = {"repetition_penalty": "repeat_penalty", "max_completion_tokens": "max_tokens"}
"""Fields that have another name in llama.cpp's server."""
LLAMA_UNSUPPORTED = frozenset(
    {"structured_outputs", "stop_token_ids", "include_stop_str_in_output", "min_tokens", "prompt_logprobs", "bad_words"}
    | {"allowed_token_ids", "length_penalty", "use_beam_search", "truncate_prompt_tokens", "return_token_ids"}
    | {"thinking_token_budget", "spaces_between_special_tokens", "add_special_tokens", "skip_special_tokens"}
    | {"include_reasoning", "return_tokens_as_token_ids"}
)
"""Fields that llama.cpp's server would ignore silently."""


class ChildBackend(OpenAIBackend):
    """An OpenAIBackend for a child process that starts and stops with the server."""

    def __init__(self, spec: ServerSpec, escape: Callable[[str], str]) -> None:
        self.child = SupervisedServer(spec)
        names = sorted((spec.name, *spec.adapters), key=lambda name: name != spec.default)
        super().__init__(self.child.url, self.child.key, {name: name for name in names}, escape)

    async def start(self) -> None:
        await self.child.start()

    async def close(self) -> None:
        await super().close()
        await self.child.stop()

    async def check(self) -> None:
        self._check_started()
        await super().check()

    async def _send(self, path: str, body: Body) -> httpx2.Response:
        self._check_started()
        return await super()._send(path, body)

    def _check_started(self) -> None:
        """ApiError 503 while the child is not ready."""
        if not self.child.ready.is_set():
            message = "the model is loading; /v1/retrieve already works"
            raise ApiError(503, "model_starting", message, headers={"Retry-After": "10"})


class VllmBackend(ChildBackend):
    """vLLM as a child process; escapes the special tokens of the model's tokenizer."""

    def __init__(self, spec: VllmSpec) -> None:
        # Imported here because it imports transformers.
        from graph.models.load import read_tokenizer

        tokenizer = read_tokenizer(spec.model, spec.spec_text)
        escape = partial(escape_special_tokens, tokenizer=tokenizer)
        super().__init__(with_training_prompts(spec, tokenizer), escape)
        for name, folder in {spec.name: Path(spec.model), **spec.adapters}.items():
            self._language_models[name].form = answer_form(folder)


class LlamaBackend(ChildBackend):
    """llama.cpp as a child process; each request names the active adapters, and fields that llama.cpp does not support are refused."""

    def __init__(self, spec: LlamaSpec) -> None:
        super().__init__(spec, escape_known_tokens)
        self._extras: Mapping[str, Mapping[str, Any]] = {name: spec.extra(name) for name in self.models}
        self._language_models = {
            name: LlamaModel(name, self.child.url, self.child.key, spec.name, extra)
            for name, extra in self._extras.items()
        }
        for name, file in {spec.name: spec.file, **spec.adapters}.items():
            self._language_models[name].form = answer_form(file.parent)

    def _upstream_body(self, body: Body) -> dict[str, Any]:
        return llama_body(body, self._extras[body["model"]], self.child.spec.name)


class ServedLlamaBackend(OpenAIBackend):
    """A llama.cpp model that is already open in this process, on the server that was started for it."""

    def __init__(self, model: ServedLlamaModel) -> None:
        super().__init__(model.url, model.key, {model.name: model.served_as}, escape_known_tokens)
        self._model = model
        self._language_models = {model.name: model}

    async def start(self) -> None:
        await asyncio.to_thread(self._model.wait)

    def _upstream_body(self, body: Body) -> dict[str, Any]:
        return llama_body(body, self._model.extra, self._model.served_as)


def llama_body(body: Body, extra: Mapping[str, Any], served_as: str) -> dict[str, Any]:
    """The request for llama.cpp's server, with the names that it uses for the model and the fields; ApiError 400 for a field that it would ignore.

    Fields of `body` override those in `extra`; template arguments are overridden one by one.
    """
    for name in LLAMA_UNSUPPORTED & body.keys():
        if body[name] != NEUTRAL_VALUES.get(name):
            raise ApiError(400, "not_supported", f"{name}: llama.cpp has no such field; leave it out", name)
    fields = {LLAMA_NAMES.get(name, name): value for name, value in body.items()}
    template_arguments = {**extra["chat_template_kwargs"], **body.get("chat_template_kwargs", {})}
    return {**extra, **fields, "chat_template_kwargs": template_arguments, "model": served_as}
