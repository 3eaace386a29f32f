"""An answer while a model writes it: the engines that can stream, and the parts of the text. Needs the extra `serve`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import serve.pipeline
from graph.answer.verifier import Verifier
from graph.errors import UserError
from graph.types import Evidence, LanguageModel
from modegraph.arguments import Model, model_of, spec_of
from modegraph.runs import Run
from serve.engines.chat_backend import ChatBackend
from serve.engines.child_backend import ServedLlamaBackend
from serve.engines.llama import ServedLlamaModel
from serve.engines.local import LocalModel
from serve.engines.local_backend import LocalBackend
from serve.engines.open_backend import VllmOptions, open_backend
from serve.stream import AnswerDelta, stream_answer


async def answer_parts(
    model: Model,
    evidence_for: Callable[[LanguageModel], Evidence],
    top_k: int,
    max_context_tokens: int | None,
    max_answer_tokens: int,
    verifier: Verifier | None,
) -> AsyncGenerator[AnswerDelta | serve.pipeline.Answer, None]:
    """The parts of a model's answer as the model writes them, from the evidence that `evidence_for` finds with the model; then the complete answer."""
    async with streaming_backend(model) as backend:
        evidence = await asyncio.to_thread(evidence_for, backend.language_model(backend.models[0]))
        limits = (top_k, max_context_tokens, backend, max_answer_tokens, verifier)
        async with aclosing(stream_answer(evidence, *limits)) as parts:  # type: ignore[type-var]
            async for part in parts:
                yield part


STREAMING_MODELS = (
    "hf:PATH_OR_NAME, gguf:FILE, openvino:FOLDER, openai:NAME@URL, a run, or an open hf:, gguf: or openvino: model"
)


@asynccontextmanager
async def streaming_backend(model: Model) -> AsyncIterator[ChatBackend]:
    """The engine of a model; UserError for one that cannot stream."""
    if isinstance(model, str | Run) and spec_of(model).startswith("openai:"):
        backend = open_backend(spec_of(model), (), VllmOptions())
    else:
        backend = _backend_in_memory(model)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


def _backend_in_memory(model: Model) -> ChatBackend:
    if isinstance(model, str | Run) and spec_of(model).startswith("vllm:"):
        remedy = "use ask, or start vLLM yourself and give openai:NAME@URL"
        raise UserError(f"{model} does not stream", STREAMING_MODELS, remedy)
    language_model = model_of(model)
    if isinstance(language_model, ServedLlamaModel):
        return ServedLlamaBackend(language_model)
    if not isinstance(language_model, LocalModel):
        raise UserError(f"{language_model.name} does not stream", STREAMING_MODELS, "use ask, or give the model's SPEC")
    return LocalBackend({language_model.name: language_model})
