"""Candidates of bridge questions: a path to a thing that is described, not named, and what is asked of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from data_synth.questions.paths import (
    PathEnd,
    joint_starts,
    put_in,
    shuffled,
    starts,
    step_ahead,
    step_back,
    ties_ahead,
    ties_back,
    values_at,
    walks,
)
from data_synth.questions.reading import IndexStatements
from data_synth.questions.types import Step

MAX_TRIES_A_START = 8
"""Paths that are tried from one document before the next one's turn."""


@dataclass(frozen=True)
class Candidate:
    """A question with its answer and the chains of steps that lead there, not yet checked."""

    kind: str
    text: str
    answer: str
    chains: tuple[tuple[Step, ...], ...]
    bridges: tuple[str, ...]


Template = Callable[[IndexStatements, int, Random], Iterator[Candidate]]
"""(readings, hops, chance) to candidates, in an order that chance gives."""


def bridge_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Chains of `hops` steps, the last one to what is asked for: a value, a name, or a document that names the last.

    They begin at one document, or at two that have one name in common.
    """
    begun = [(start, hops - 1) for start in starts(readings, rng)]
    begun += [(start, hops - 3) for start, _ in joint_starts(readings, rng) if start.described] if hops > 2 else []
    for start, left in shuffled(begun, rng):
        for reached in islice(walks(readings, start, left, rng), MAX_TRIES_A_START):
            yield from shuffled(list(_ends(readings, reached)), rng)


def _ends(readings: IndexStatements, reached: PathEnd) -> Iterator[Candidate]:
    for value, step in values_at(readings, reached):
        yield _bridge(reached, value.asked, value.text, step)
    for tie in ties_ahead(readings, reached):
        if tie.relation.ahead_asked:
            yield _bridge(reached, tie.relation.ahead_asked, tie.name, step_ahead(readings, reached, tie))
    for tie in ties_back(readings, reached):
        title = readings.title(tie.place.document)
        yield _bridge(reached, tie.relation.back_asked, title, step_back(readings, reached, tie))


def _bridge(reached: PathEnd, asked: str, answer: str, last: Step) -> Candidate:
    return Candidate("bridge", put_in(asked, reached.described), answer, reached.and_then(last), reached.bridges)
