"""A model that several workers hold, each its own: batches of calls go to whichever is free.

The ledger stays with whoever asks (serve/ledger.py), so a call whose worker was lost is made again, and a finished one never.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import methodcaller
from typing import Any

from graph.shared.types import AnswerForm, Completion, CompletionRequest, Message, Workers
from serve.types import Engine

OpenEngine = Callable[[str], Engine]


class ModelOnWorkers:
    """The Engine that `open_engine` makes of `spec`, on workers."""

    def __init__(self, spec: str, open_engine: OpenEngine, workers: Workers) -> None:
        """Asks one worker what the model is called and how it likes to be asked; UserError when it cannot be opened there."""
        self._asked, self._workers = _Asked(spec, open_engine), workers
        self.name, self.form, self.batch_size, in_flight = self._ask(_about)
        self.in_flight = in_flight * workers.models

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        made: list[Completion] = self._ask(methodcaller("complete", requests))
        return made

    def count_tokens(self, text: str) -> int:
        return int(self._ask(methodcaller("count_tokens", text)))

    def window(self) -> int | None:
        window: int | None = self._ask(methodcaller("window"))
        return window

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return int(self._ask(methodcaller("prompt_tokens", messages)))

    def _ask(self, question: Callable[[Engine], Any]) -> Any:
        return next(iter(self._workers.map(self._asked, [question], needs="model")))


@dataclass(frozen=True)
class _Asked:
    """In a worker: what its model says to a question."""

    spec: str
    open_engine: OpenEngine

    def __call__(self, question: Callable[[Engine], Any]) -> Any:
        return question(_opened(self.spec, self.open_engine))


def _about(model: Engine) -> tuple[str, AnswerForm, int, int]:
    return model.name, model.form, model.batch_size, model.in_flight


@cache
def _opened(spec: str, open_engine: OpenEngine) -> Engine:
    return open_engine(spec)
