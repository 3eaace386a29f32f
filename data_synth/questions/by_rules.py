"""Questions without a model: candidates of every kind in turn, those that stay if they need all their passages and no others."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from data_synth.questions.check import DuplicateFilter, id_of, needs_all
from data_synth.questions.facts import Sentences, fact_questions
from data_synth.questions.reading import IndexStatements, read_index
from data_synth.questions.templates import (
    Candidate,
    Template,
    bridge_questions,
    comparison_questions,
    intersection_questions,
)
from data_synth.questions.types import BY_TEMPLATES, QuestionRow, named_in
from data_synth.questions.unanswerable import near_miss
from data_synth.relevance.split import spread_documents
from graph.index.index import Index

TEMPLATES: dict[str, Template] = {
    "single": fact_questions,
    "bridge": bridge_questions,
    "comparison": comparison_questions,
    "intersection": intersection_questions,
}
MAX_WORDS = 60
MOST_COMPARISONS, MOST_OF_AN_ATTRIBUTE, FREE = 0.5, 1 / 3, 5
"""Shares: of comparisons among all questions, of one attribute ("born") among comparisons; as many as FREE are never too many."""


def template_questions(
    index: Index, count: int, hops: Sequence[int], seed: int, unanswerable: float = 0.0
) -> Iterator[QuestionRow]:
    """Up to `count` questions of so many hops, kinds and hops by turns; fewer if the index holds no more.

    A share of `unanswerable` ones is among them. All questions on a document are in its split, so none rests on documents of two.
    """
    splits = spread_documents(index.sources(), seed)
    readings = read_index(index, splits)
    making = _Making(readings, splits, DuplicateFilter(), Counter())
    turns = [
        [
            (kind, making.rows(make(readings, wanted, Random(f"{seed} {kind} {wanted}"))))
            for kind, make in TEMPLATES.items()
        ]
        for wanted in sorted(set(hops))
    ]
    rows = making.by_turns(turns)
    yield from islice(rows if unanswerable == 0 else _with_near_misses(rows, index, unanswerable, seed), count)


def to_row(candidate: Candidate, splits: Mapping[str, str]) -> QuestionRow | None:
    """A candidate as a row; None if it gives its answer or a bridge away, is too long, goes twice to a document, or
    over documents of two splits."""
    text = (candidate.text[0].upper() + candidate.text[1:]).replace("??", "?")
    steps = list(dict.fromkeys(step for chain in candidate.chains for step in chain))
    gives_away = [*candidate.bridges, *([candidate.answer] if candidate.kind != "comparison" else [])]
    twice = len({step.source for step in steps}) < len(steps)
    of_documents = {splits[step.source] for step in steps}
    if (
        twice
        or len(of_documents) > 1
        or len(text.split()) > MAX_WORDS
        or any(named_in(name, text) for name in gives_away)
    ):
        return None
    return QuestionRow(
        id=id_of(text),
        text=text,
        answers=(candidate.answer, *candidate.others),
        kind=candidate.kind,
        hops=len(steps),
        split=of_documents.pop(),
        chains=candidate.chains,
        bridges=tuple(dict.fromkeys(candidate.bridges)),
        writer=BY_TEMPLATES,
    )


@dataclass(frozen=True)
class _Making:
    """The questions that are being made: the split of each document, and what there is so far, by kind and attribute."""

    readings: IndexStatements
    splits: Mapping[str, str]
    duplicates: DuplicateFilter
    made: Counter[str]

    def rows(self, candidates: Iterator[Candidate]) -> Iterator[QuestionRow]:
        """The candidates that are good when their turn comes."""
        for candidate in candidates:
            row = to_row(candidate, self.splits)
            if row is None or self.duplicates.is_used_up(row) or self.duplicates.is_duplicate(row):
                continue
            if row.hops > 1 and not needs_all(row, self.readings.mentions):
                continue
            if candidate.attribute and self._is_too_many(
                candidate.attribute, self.made["comparison"], MOST_OF_AN_ATTRIBUTE
            ):
                continue
            self.duplicates.add(row)
            self.made.update(("all", row.kind, *([candidate.attribute] if candidate.attribute else [])))
            yield row

    def by_turns(self, turns: Sequence[Sequence[tuple[str, Iterator[QuestionRow]]]]) -> Iterator[QuestionRow]:
        """One row of each number of hops, the kinds of one by turns, until all have ended or comparisons alone are left."""
        waiting = [list(kinds) for kinds in turns]
        found = True
        while found:
            found = False
            for kinds in waiting:
                row = self._next(kinds)
                if row is not None:
                    found = True
                    yield row

    def _next(self, kinds: list[tuple[str, Iterator[QuestionRow]]]) -> QuestionRow | None:
        """The next row of the first kind that has one and is not too frequent; its kind goes to the end of the line."""
        for at, (kind, rows) in enumerate(list(kinds)):
            if kind == "comparison" and self._is_too_many(kind, self.made["all"], MOST_COMPARISONS):
                continue
            row = next(rows, None)
            if row is not None:
                kinds.append(kinds.pop(at))
                return row
        return None

    def _is_too_many(self, what: str, of: int, share: float) -> bool:
        return self.made[what] >= max(FREE, share * of)


def _with_near_misses(rows: Iterator[QuestionRow], index: Index, share: float, seed: int) -> Iterator[QuestionRow]:
    """The rows, and among them so many that cannot be answered that these are a share of all."""
    sentences, rng = Sentences(index), Random(f"{seed} unanswerable")
    missed = 0
    for made, row in enumerate(rows, start=1):
        yield row
        near = near_miss(row, sentences, rng) if missed < share / (1 - share) * made else None
        if near is not None:
            missed += 1
            yield near
