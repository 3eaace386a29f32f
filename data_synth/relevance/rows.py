"""Relevance rows, question by question: candidates, labels, features; what another split owns is left out and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from data_synth.relevance.candidates import Candidates, find_candidates
from data_synth.relevance.labels import chosen_rows, gold_rows, rows_of_sources
from data_synth.relevance.split import Split
from data_synth.relevance.types import FEATURE_DIGITS, GoldQuestion, LabelledBy, RelevanceRow
from data_synth.types import Dropped
from graph.documents.questions import Question
from graph.retrieve.learned.features import look, measure
from graph.retrieve.parts.caller import Caller
from graph.retrieve.parts.query import Query
from graph.shared.types import Floats, LanguageModel

if TYPE_CHECKING:
    from graph.index.index import Index

OTHER_SPLIT = "a proposition that is not, or not only, of the question's split"
LOST_GOLD = "a question none of whose relevant propositions is in its split"
QUESTIONS_AT_ONCE = 32


def relevance_rows(
    index: Index, asked: Iterable[GoldQuestion], split: Split, negatives: int, model: LanguageModel | None = None
) -> Iterator[RelevanceRow | Dropped]:
    """The rows of each question in order: its own passages' propositions and `negatives` hard ones; labelled by gold or by `model`.

    Raises ModelGone when the model does not answer; with a ledger, finished calls are not repeated.
    """
    waiting = iter(asked)
    while group := list(islice(waiting, QUESTIONS_AT_ONCE)):
        vectors_QD = index.encode_queries([each.question.text for each in group])
        for each, vector_D in zip(group, vectors_QD, strict=True):
            query = Query(each.question.text, vector_D, Caller(model) if model is not None else None)
            yield from rows_of_question(index, each, query, split, negatives)


def rows_of_question(
    index: Index, each: GoldQuestion, query: Query, split: Split, negatives: int
) -> Iterator[RelevanceRow | Dropped]:
    """The rows of one question; a question without gold has none, unless a model is there to choose."""
    question = each.question
    positives, lost = gold_rows(index, question) if query.model is None else (np.zeros(0, np.int64), [])
    yield from lost
    if query.model is None and not len(positives):
        return
    allowed_N = split.allowed(question.id)
    gold = rows_of_sources(index, each.gold_sources)
    own = rows_of_sources(index, each.own_sources)
    yield from (Dropped(OTHER_SPLIT) for _ in np.flatnonzero(~allowed_N[np.union1d(gold, own)]))
    if query.model is None and not allowed_N[positives].any():
        yield Dropped(LOST_GOLD)
        return
    view = look(index, query)
    found = find_candidates(view, gold[allowed_N[gold]], own[allowed_N[own]], allowed_N, negatives)
    features_nF = measure(index, query, view, found.rows_n)
    verdicts = (
        np.isin(found.rows_n, positives).tolist() if query.model is None else chosen_rows(index, query, found.rows_n)
    )
    yield from _make_rows(index, each, split, found, features_nF, verdicts, labeller(question, query))


def labeller(question: Question, query: Query) -> LabelledBy:
    """What the labels of a question's rows rest on."""
    if query.model is not None:
        return "model"
    return "sentence" if question.evidence else "passage"


def _make_rows(
    index: Index,
    each: GoldQuestion,
    split: Split,
    found: Candidates,
    features_nF: Floats,
    verdicts: Sequence[bool | Dropped],
    labelled_by: LabelledBy,
) -> Iterator[RelevanceRow | Dropped]:
    data, question = index.data, each.question
    for place, (row, verdict) in enumerate(zip(found.rows_n.tolist(), verdicts, strict=True)):
        if isinstance(verdict, Dropped):
            yield verdict
            continue
        yield RelevanceRow(
            id=f"{question.id}#{data.proposition_ids[row]}",
            question_id=question.id,
            question=question.text,
            kind=question.kind,
            split=split.questions[question.id],
            proposition_id=data.proposition_ids[row],
            proposition=data.proposition_texts[row],
            passage_ids=tuple(data.passage_ids[p] for p in index.proposition_passage_NP[[row], :].indices),
            label=int(verdict),
            labelled_by=labelled_by,
            found_by=found.found_by[place],
            features=tuple(round(float(value), FEATURE_DIGITS) for value in features_nF[place]),
        )
