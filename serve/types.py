"""The nouns of serving: what an engine adds to a language model, and what a part of an answer cost."""

from dataclasses import dataclass
from typing import Protocol

from graph.types import LanguageModel


class Engine(LanguageModel, Protocol):
    """A language model with a natural size of one call, 1 request for a server, a padded batch for a local model, and of calls at once."""

    @property
    def batch_size(self) -> int: ...
    @property
    def in_flight(self) -> int: ...


@dataclass(frozen=True)
class Cost:
    """What one part of an answer took: calls of the language model, their tokens, and seconds with encoder and model.

    `replayed` of the calls were answered from a ledger and count as they were made, but for the time of `untimed` ones, not known.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    replayed: int = 0
    untimed: int = 0
