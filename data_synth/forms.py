"""What a kind of training data is to the writer, the card and the validator: how its rows read, what to count, what is wrong.

One `Form` a kind of row (preferences, responses, questions, relevance, routes); everything that streams, counts, describes and
checks rows is written once, over forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa


class Row(Protocol):
    """What every row has: an id of its own, and the split that it belongs to (train, dev or test)."""

    @property
    def id(self) -> str: ...
    @property
    def split(self) -> str: ...


R = TypeVar("R", bound=Row)


def no_measures(rows: Sequence[Any]) -> dict[str, float]:
    """The measures of a form that has none."""
    del rows
    return {}


@dataclass(frozen=True)
class Form(Generic[R]):
    """A kind of row. `name` is its command (`modegraph synth NAME`), `title` and `about` open its dataset card.

    `from_json` raises KeyError for a missing key, TypeError, IndexError, AttributeError or ValueError for a malformed value.
    `problems` says what keeps a row from being learned from, in words. `counts` gives the value of a row in each table of the
    card, `lengths` its lengths in words, `texts` what makes two rows the same. `measures` are figures of a sample of the rows.
    """

    name: str
    title: str
    about: str
    to_json: Callable[[R], dict[str, Any]]
    from_json: Callable[[Mapping[str, Any]], R]
    schema: Callable[[], pa.Schema]
    problems: Callable[[R], Sequence[str]]
    counts: Callable[[R], Mapping[str, str]]
    lengths: Callable[[R], Mapping[str, int]]
    texts: Callable[[R], Sequence[str]]
    measures: Callable[[Sequence[R]], Mapping[str, float]] = no_measures
