"""Types of serving: what an engine adds to a language model, and the cost of a part of an answer."""

from dataclasses import dataclass
from typing import Protocol

from graph.types import LanguageModel


class Engine(LanguageModel, Protocol):
    """A language model with a preferred batch size (1 for a server, more for a local model) and a limit on concurrent calls."""

    @property
    def batch_size(self) -> int: ...
    @property
    def in_flight(self) -> int: ...


@dataclass(frozen=True)
class Cost:
    """The cost of one part of an answer: calls to the language model, their tokens, and the seconds that the part took, encoder and model included.

    `replayed` is how many of the calls were answered from a ledger; their original tokens and time are included.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    replayed: int = 0
