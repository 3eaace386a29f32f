"""What a stream asks: the engine behind a model, for the length of one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from graph.shared.errors import UserError
from modegraph.models import Model, model_of, spec_of
from modegraph.runs import Run
from serve.engines.llama import OwnLlamaModel
from serve.engines.local import LocalModel
from serve.http.backends.backend import ChatBackend
from serve.http.backends.child_backend import OwnLlamaBackend
from serve.http.backends.engines import VllmOptions, open_backend
from serve.http.backends.local_backend import LocalBackend

STREAMS = "hf:PATH_OR_NAME, gguf:FILE, openvino:FOLDER, openai:NAME@URL, a run, or such a model opened"


@asynccontextmanager
async def streaming_backend(model: Model) -> AsyncIterator[ChatBackend]:
    """The engine of a model; UserError for one that cannot stream."""
    if isinstance(model, str | Run) and spec_of(model).startswith("openai:"):
        backend = open_backend(spec_of(model), (), VllmOptions())
    else:
        backend = _in_memory(model)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


def _in_memory(model: Model) -> ChatBackend:
    opened = model_of(model)
    if isinstance(opened, OwnLlamaModel):
        return OwnLlamaBackend(opened)
    if not isinstance(opened, LocalModel):
        raise UserError(f"{opened.name} does not stream", STREAMS, "use ask, or give the model's SPEC")
    return LocalBackend({opened.name: opened})
