"""Evidence and answers of the Python API, printable in a terminal and in a notebook; synchronous and asynchronous iterators over an answer
while a model writes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import graph.types
import serve.pipeline
from graph.errors import UserError
from graph.shared.console import counted
from modegraph.arguments import public_call
from modegraph.notebook import answer_html, evidence_html
from serve.show import show_answer, show_evidence

if TYPE_CHECKING:
    from serve.stream import AnswerDelta


@dataclass(frozen=True, repr=False)
class Evidence(graph.types.Evidence):
    """The result of one retrieval: `passages`, best first, each with `.item` and `.score`; `paths` to them; `trace`, with the cost.

    `print` shows it as `modegraph ask` does; a notebook shows a table.
    """

    def __str__(self) -> str:
        return show_evidence(self)

    def __repr__(self) -> str:
        return f"Evidence({self.query!r}, {counted(len(self.passages), 'passage')}, mode={self.trace.mode!r})"

    def _repr_html_(self) -> str:
        return evidence_html(self)


@dataclass(frozen=True, repr=False)
class Answer(serve.pipeline.Answer):
    """A cited answer: `text`, the `reason` before it, `citations` by number, and the `evidence` that it is based on.

    Where the model cites nothing, the citations are `attributed`: the passages that support the answer best, found by modegraph.
    """

    evidence: Evidence

    @property
    def text(self) -> str:
        """The answer with its citations, [1] and so on; the reason if the model wrote nothing else."""
        return self.answer or self.reason

    def __str__(self) -> str:
        return show_answer(self)

    def __repr__(self) -> str:
        return f"Answer({self.text!r}, {counted(len(self.citations), 'citation')}, model={self.model!r})"

    def _repr_html_(self) -> str:
        return answer_html(self)


def public_evidence(evidence: graph.types.Evidence) -> Evidence:
    """The same evidence as an object of the public class."""
    return Evidence(**vars(evidence))


def public_answer(answer: serve.pipeline.Answer) -> Answer:
    """The same answer as an object of the public class."""
    return Answer(**{**vars(answer), "evidence": public_evidence(answer.evidence)})


Parts = AsyncGenerator["AnswerDelta | serve.pipeline.Answer", None]
"""The generator of serve/stream.py: parts of the text as they are written, then the complete answer."""


class Piece(str):
    """A piece of the text, its citations checked; `part` is the part that it belongs to, the reason or the answer."""

    part: Literal["reason", "answer"]

    def __new__(cls, text: str, part: Literal["reason", "answer"]) -> Self:
        piece = super().__new__(cls, text)
        piece.part = part
        return piece

    def __getnewargs__(self) -> tuple[str, Literal["reason", "answer"]]:  # type: ignore[override]
        """The arguments of `__new__`, from which a copy or a pickled piece is made."""
        return str(self), self.part


class AsyncAnswerStream:
    """`async for piece in stream`, once; then `stream.answer`. Leaving the loop early ends the generation."""

    def __init__(self, begin: Callable[[], Parts]) -> None:
        self._begin = begin
        self._answer: Answer | None = None

    @property
    def answer(self) -> Answer:
        """The complete answer; UserError before the end of the stream."""
        if self._answer is None:
            raise UserError("the answer is not finished", "a stream read to its end", "iterate over it first")
        return self._answer

    async def __aiter__(self) -> AsyncIterator[Piece]:
        async with aclosing(self._begin()) as parts:
            while (part := await _next_part(parts)) is not None:
                if isinstance(part, serve.pipeline.Answer):
                    self._answer = public_answer(part)
                else:
                    yield Piece(part.text, part.part)


async def _next_part(parts: Parts) -> AnswerDelta | serve.pipeline.Answer | None:
    with public_call():
        return await anext(parts, None)


class AnswerStream:
    """`for piece in stream`, once; then `stream.answer`. Leaving the loop early ends the generation.

    The engine runs in an event loop on a separate thread, so this also works where another loop is running, as in a notebook.
    """

    def __init__(self, stream: AsyncAnswerStream) -> None:
        self._stream = stream

    @property
    def answer(self) -> Answer:
        """The complete answer; UserError before the end of the stream."""
        return self._stream.answer

    def __iter__(self) -> Iterator[Piece]:
        with ThreadPoolExecutor(1, "answer") as thread, asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            pieces = self._stream.__aiter__()

            async def next_piece() -> Piece | None:
                return await anext(pieces, None)

            async def close() -> None:
                await pieces.aclose()  # type: ignore[attr-defined]

            try:
                while (piece := thread.submit(runner.run, next_piece()).result()) is not None:
                    yield piece
            finally:
                thread.submit(runner.run, close()).result()
                thread.submit(runner.close).result()
