"""The nouns of serving: what an engine adds to a language model."""

from typing import Protocol

from graph.types import LanguageModel


class Engine(LanguageModel, Protocol):
    """A language model with a natural size of one call: 1 request for a server, a padded batch for a local model."""

    @property
    def batch_size(self) -> int: ...
