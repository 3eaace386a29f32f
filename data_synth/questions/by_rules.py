"""Questions without a model: candidates of every kind in turn, kept if they need all their passages."""

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

from data_synth.questions.check import needs_all
from data_synth.questions.comparing import comparison_questions, intersection_questions
from data_synth.questions.duplicate_filter import DuplicateFilter, id_of
from data_synth.questions.reading import IndexStatements, read_index
from data_synth.questions.templates import Candidate, Template, bridge_questions
from data_synth.questions.types import BY_TEMPLATES, QuestionRow, named_in
from graph.documents.questions import split_by_hash
from graph.index.index import Index

TEMPLATES: dict[str, Template] = {
    "bridge": bridge_questions,
    "comparison": comparison_questions,
    "intersection": intersection_questions,
}
MAX_WORDS = 60


def template_questions(index: Index, count: int, hops: Sequence[int], seed: int) -> Iterator[QuestionRow]:
    """Up to `count` questions of so many hops, kinds and hops by turns; fewer if the index holds no more."""
    readings, kept = read_index(index), DuplicateFilter()
    turns = [
        _rows(readings, make(readings, wanted, Random(f"{seed} {kind} {wanted}")), kept)
        for wanted in sorted(set(hops))
        for kind, make in TEMPLATES.items()
    ]
    yield from islice(_by_turns(turns), count)


def to_row(candidate: Candidate) -> QuestionRow | None:
    """A candidate as a row; None if it gives its answer or a bridge away, is too long, or goes twice to a document."""
    text = (candidate.text[0].upper() + candidate.text[1:]).replace("??", "?")
    steps = list(dict.fromkeys(step for chain in candidate.chains for step in chain))
    gives_away = [*candidate.bridges, *([candidate.answer] if candidate.kind != "comparison" else [])]
    twice = len({step.source for step in steps}) < len(steps)
    if twice or len(text.split()) > MAX_WORDS or any(named_in(name, text) for name in gives_away):
        return None
    return QuestionRow(
        id=id_of(text),
        text=text,
        answers=(candidate.answer,),
        kind=candidate.kind,
        hops=len(steps),
        split=split_by_hash(text),
        chains=candidate.chains,
        bridges=tuple(dict.fromkeys(candidate.bridges)),
        writer=BY_TEMPLATES,
    )


def _rows(readings: IndexStatements, candidates: Iterator[Candidate], kept: DuplicateFilter) -> Iterator[QuestionRow]:
    """The candidates that can be kept when their turn comes, each remembered."""
    for candidate in candidates:
        row = to_row(candidate)
        if row is None or kept.is_used_up(row) or kept.is_duplicate(row) or not needs_all(row, readings.mentions):
            continue
        kept.add(row)
        yield row


def _by_turns(turns: Sequence[Iterator[QuestionRow]]) -> Iterator[QuestionRow]:
    """One row of each until all have ended."""
    while turns:
        found = [(row, rows) for rows in turns if (row := next(rows, None)) is not None]
        yield from (row for row, _ in found)
        turns = [rows for _, rows in found]
