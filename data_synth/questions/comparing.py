"""Candidates that need two things held side by side: comparisons of their values, and what both of them name."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from data_synth.questions.paths import PathEnd, joint_starts, put_in, starts, values_at, walks
from data_synth.questions.reading import IndexStatements
from data_synth.questions.templates import Candidate
from data_synth.questions.types import Step
from data_synth.questions.values import Value

MIN_GAP = 1.0
"""Two values compare only if they are as far apart as this (a year, for dates)."""


@dataclass(frozen=True)
class _Side:
    reached: PathEnd
    value: Value
    step: Step

    @property
    def chain(self) -> tuple[Step, ...]:
        return self.reached.and_then(self.step)[0]


def comparison_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Which of two has the smaller or larger value of an attribute; each is named, or described over a bridge.

    Two chains of `hops` steps together, as even as can be.
    """
    left, right = (_by_attribute(readings, steps, rng) for steps in ((hops + 1) // 2, hops // 2))
    pairs = [(left[attribute], right[attribute]) for attribute in left if attribute in right]
    while pairs := [(firsts, seconds) for firsts, seconds in pairs if firsts and seconds]:
        for firsts, seconds in pairs:
            first = firsts.pop()
            second = next((side for side in seconds if _differ(first, side)), None)
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


def _differ(first: _Side, second: _Side) -> bool:
    return first.reached.name != second.reached.name and abs(first.value.order - second.value.order) >= MIN_GAP


def _compared(first: _Side, second: _Side, larger: bool) -> Candidate:
    ordered = sorted((first, second), key=lambda side: side.value.order)
    asked = first.value.larger if larger else first.value.smaller
    return Candidate(
        "comparison",
        put_in(asked, first.reached.described, second.reached.described),
        ordered[1 if larger else 0].reached.name,
        (first.chain, second.chain),
        (*first.reached.bridges, *second.reached.bridges),
    )
