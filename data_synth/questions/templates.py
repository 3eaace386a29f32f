"""Candidates of questions over several documents: bridges, comparisons, and what two documents both name.

A bridge is a path to a thing that is described, not named. Comparisons and joint names are of things of one kind.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from data_synth.questions.paths import (
    PathEnd,
    joint_starts,
    kind_at,
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
from data_synth.questions.phrases import Kind
from data_synth.questions.reading import IndexStatements
from data_synth.questions.types import Step
from data_synth.questions.values import Value

MAX_TRIES_A_START = 8
"""Paths that are tried from one document before the next one's turn."""
MIN_GAP = 1.0
"""Two values compare only if they are as far apart as this (a year, for dates)."""


@dataclass(frozen=True)
class Candidate:
    """A question with its answer and the chains of steps that lead there, not yet checked.

    `others` are further accepted answers; `attribute` is what a comparison compares.
    """

    kind: str
    text: str
    answer: str
    chains: tuple[tuple[Step, ...], ...]
    bridges: tuple[str, ...]
    others: tuple[str, ...] = ()
    attribute: str = ""


Template = Callable[[IndexStatements, int, Random], Iterator[Candidate]]
"""(readings, hops, chance) to candidates, in an order that chance gives."""


def bridge_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Chains of `hops` steps (2 or more), the last one to what is asked for: a value, a name, or a document that names the last.

    They begin at one document, or at two that have one name in common.
    """
    if hops < 2:
        return
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


@dataclass(frozen=True)
class _Side:
    reached: PathEnd
    value: Value
    step: Step

    @property
    def chain(self) -> tuple[Step, ...]:
        return self.reached.and_then(self.step)[0]


def comparison_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Which of two things of one kind has the smaller or larger value of an attribute; each is named, or described over a bridge.

    Two chains of `hops` steps (2 or more) together, as even as can be.
    """
    if hops < 2:
        return
    left, right = (_by_attribute(readings, steps, rng) for steps in ((hops + 1) // 2, hops // 2))
    pairs = [(left[attribute], right[attribute]) for attribute in left if attribute in right]
    while pairs := [(firsts, seconds) for firsts, seconds in pairs if firsts and seconds]:
        for firsts, seconds in pairs:
            first = firsts.pop()
            second = next((side for side in seconds if _compare_well(readings, first, side)), None)
            if second is not None:
                seconds.remove(second)
                pair = (first, second) if rng.random() < 0.5 else (second, first)
                yield _compared(*pair, larger=rng.random() < 0.5)


def intersection_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """What two documents name: the one name that both have in common. Two steps, so none for more `hops`."""
    for reached, asked in joint_starts(readings, rng) if hops == 2 else ():
        yield Candidate("intersection", asked, reached.name, reached.chains, ())


def _by_attribute(readings: IndexStatements, steps: int, rng: Random) -> dict[str, list[_Side]]:
    found: dict[str, list[_Side]] = defaultdict(list)
    for start in starts(readings, rng):
        for reached in islice(walks(readings, start, steps - 1, rng), 1):
            for value, step in values_at(readings, reached):
                found[value.attribute].append(_Side(reached, value, step))
    return found


def _compare_well(readings: IndexStatements, first: _Side, second: _Side) -> bool:
    """Whether two things are of one kind and their documents in one split, and their values apart."""
    splits = {readings.splits.get(side.reached.document or 0) for side in (first, second)}
    kinds = [kind_at(readings, side.reached) for side in (first, second)]
    apart = abs(first.value.order - second.value.order) >= MIN_GAP
    return first.reached.name != second.reached.name and apart and len(splits) == 1 and kinds[0] == kinds[1] != Kind()


def _compared(first: _Side, second: _Side, larger: bool) -> Candidate:
    ordered = sorted((first, second), key=lambda side: side.value.order)
    asked = first.value.larger if larger else first.value.smaller
    return Candidate(
        "comparison",
        put_in(asked, first.reached.described, second.reached.described),
        ordered[1 if larger else 0].reached.name,
        (first.chain, second.chain),
        (*first.reached.bridges, *second.reached.bridges),
        attribute=first.value.attribute,
    )
