"""A question as the strategies get it."""

from dataclasses import dataclass

from graph.retrieve.parts.caller import Caller
from graph.shared.types import Floats


@dataclass(frozen=True)
class Query:
    """The question's words, its unit vector [D], and the model that may be asked for it (None: no model is called)."""

    text: str
    vector_D: Floats
    model: Caller | None = None
