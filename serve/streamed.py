"""An answer as it is written: pieces of its text with citations already checked, then the whole answer.

What serve/answering.py does at once, over an engine that streams (serve/http/backends/). Needs the extra `serve`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from graph.prompt.answer import NOT_FOUND
from graph.prompt.context import rank_excerpts, token_budget
from graph.shared.errors import UserError
from graph.shared.types import Completion, Evidence, LanguageModel
from graph.verify.verifier import Verifier
from serve.answering import Answer, cite
from serve.http.backends.backend import TOO_LONG, ChatBackend
from serve.http.routes.parts import MessageParts, Shown
from serve.http.shared.errors import ApiError
from serve.talk.prompt import Prompt, fitted, prompt_of


class Written(NamedTuple):
    """Some text of the reason or of the answer."""

    part: Literal["reason", "answer"]
    text: str


async def stream_answer(
    evidence: Evidence,
    top_k: int,
    max_context_tokens: int | None,
    backend: ChatBackend,
    max_answer_tokens: int,
    verifier: Verifier | None = None,
) -> AsyncIterator[Written | Answer]:
    """The text over the best `top_k` excerpts as it comes, then the answer. Closing this ends the generation.

    UserError when the engine refuses or goes away.
    """
    name = backend.models[0]
    started = time.perf_counter()
    prompt, limit = await asyncio.to_thread(
        _prompt, evidence, top_k, max_context_tokens, backend, backend.language_model(name), max_answer_tokens
    )
    said, parts = Said(), MessageParts(prompt.excerpts, form=True)
    if not prompt.ranked:
        said.text, said.finish_reason = NOT_FOUND, "stop"
        shown = parts.feed({"content": NOT_FOUND})
        for written in (*_written(shown), *_written(parts.finish())):
            yield written
    else:
        try:
            prompt, chunks = await _asked(backend, name, prompt, limit)
            parts = MessageParts(prompt.excerpts, form=True)
            async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
                async for chunk in open_chunks:
                    for delta in said.take(chunk):
                        for written in _written(parts.feed(delta)):
                            yield written
        except ApiError as problem:
            raise UserError(f"{name}: {problem}", "", "") from None
        for written in _written(parts.finish()):
            yield written
    seconds = time.perf_counter() - started
    yield cite(prompt, said.completion(), name, seconds, verifier)


class Said:
    """The text of the one choice of a stream, why it ended, and its tokens."""

    def __init__(self) -> None:
        self.text = ""
        self.finish_reason = "length"
        self._usage: dict[str, int] = {}

    def take(self, chunk: dict[str, Any]) -> list[dict[str, Any]]:
        """The deltas of a chunk."""
        self._usage = chunk.get("usage") or self._usage
        deltas = []
        for choice in chunk["choices"]:
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            deltas.append(delta)
        return deltas

    def completion(self) -> Completion:
        """What came back, as a whole."""
        reason: Literal["stop", "length"] = "length" if self.finish_reason == "length" else "stop"
        tokens = (self._usage.get("prompt_tokens", 0), self._usage.get("completion_tokens", 0))
        return Completion(self.text.strip(), reason, *tokens)


def _prompt(
    evidence: Evidence,
    top_k: int,
    max_context_tokens: int | None,
    backend: ChatBackend,
    model: LanguageModel,
    max_answer_tokens: int,
) -> tuple[Prompt, int]:
    ranked = rank_excerpts(evidence, top_k, token_budget(max_context_tokens, model.count_tokens))
    return fitted(replace(prompt_of(evidence, ranked), escape=backend.escape_special_tokens), model, max_answer_tokens)


async def _asked(
    backend: ChatBackend, name: str, prompt: Prompt, max_answer_tokens: int
) -> tuple[Prompt, AsyncIterator[dict[str, Any]]]:
    """The engine's chunks, and of which prompt: where it finds it too long, it is asked again with half of it."""
    while True:
        messages = [{"role": turn.role, "content": turn.content} for turn in prompt.messages()]
        body = {"model": name, "messages": messages, "max_tokens": max_answer_tokens, "temperature": 0.0}
        try:
            return prompt, await backend.stream(body)
        except ApiError as problem:
            less = prompt.halved() if problem.code == TOO_LONG else None
            if less is None:
                raise
            prompt = less


def _written(shown: Shown) -> list[Written]:
    both = (Written("reason", shown.reasoning), Written("answer", shown.content))
    return [each for each in both if each.text]
