"""A question as the strategies get it."""

from dataclasses import dataclass

from graph.types import Floats


@dataclass(frozen=True)
class Query:
    """The question's words and its unit vector [D]."""

    text: str
    vector_D: Floats
