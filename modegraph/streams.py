"""Answers as they are written: to iterate over, in a loop or in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Literal, Self

import serve.answering
from graph.shared.errors import UserError
from modegraph.answers import Answer, public_answer
from serve.streamed import Written

Parts = AsyncGenerator["Written | serve.answering.Answer", None]
"""What serve/streamed.py yields."""


class Piece(str):
    """Some text as the model wrote it, its citations checked; `part` tells whether it is of the reason or of the answer."""

    part: Literal["reason", "answer"]

    def __new__(cls, text: str, part: Literal["reason", "answer"]) -> Self:
        made = super().__new__(cls, text)
        made.part = part
        return made


class AsyncAnswerStream:
    """`async for piece in stream`, once; then `stream.answer`. Leaving the loop early ends the generation."""

    def __init__(self, begin: Callable[[], Parts]) -> None:
        self._begin = begin
        self._answer: Answer | None = None

    @property
    def answer(self) -> Answer:
        """The whole answer; UserError before the end of the stream."""
        if self._answer is None:
            raise UserError("the answer is not finished", "a stream that was read to its end", "iterate over it first")
        return self._answer

    async def __aiter__(self) -> AsyncIterator[Piece]:
        async with aclosing(self._begin()) as parts:
            async for part in parts:
                if isinstance(part, Written):
                    yield Piece(part.text, part.part)
                else:
                    self._answer = public_answer(part)


class AnswerStream:
    """`for piece in stream`, once; then `stream.answer`. Leaving the loop early ends the generation.

    The engine runs in an event loop of its own thread, so this works where another loop is running, too: in a notebook.
    """

    def __init__(self, stream: AsyncAnswerStream) -> None:
        self._stream = stream

    @property
    def answer(self) -> Answer:
        """The whole answer; UserError before the end of the stream."""
        return self._stream.answer

    def __iter__(self) -> Iterator[Piece]:
        with ThreadPoolExecutor(1, "answer") as thread, asyncio.Runner() as runner:
            pieces = self._stream.__aiter__()

            async def following() -> Piece | None:
                return await anext(pieces, None)

            async def close() -> None:
                await pieces.aclose()  # type: ignore[attr-defined]

            try:
                while (piece := thread.submit(runner.run, following()).result()) is not None:
                    yield piece
            finally:
                thread.submit(runner.run, close()).result()
                thread.submit(runner.close).result()
