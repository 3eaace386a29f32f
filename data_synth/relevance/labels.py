"""Which propositions are relevant: those of the gold sentences, of the gold passages, or those that a language model selects.

Legend: N propositions, P passages, U documents, M occurrences, n candidates.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from data_synth.types import Dropped
from graph.retrieve.parts.gather import expand_rows
from graph.retrieve.selection.select import choices_of_model
from graph.shared.types import Ints, Passage

if TYPE_CHECKING:
    from graph.documents.questions import Question, Quote
    from graph.index.index import Index
    from graph.retrieve.parts.query import Query

NO_GOLD = "the question has no gold sentence, and no gold passage"
NOT_THERE = "a gold sentence does not stand in its document"
NO_PROPOSITION = "a gold sentence that no proposition was read from"
UNUSABLE = "the model's choice could not be used"
MIN_OVERLAP = 0.5
"""Share of the shorter of occurrence and sentence that they must have in common."""
SHOWN_AT_ONCE = 20
"""Candidates that a model chooses among at a time: as many as `local` shows it."""


def document_row(index: Index, source: str) -> int:
    """The row of a document; KeyError when the index does not hold it. Documents stand by source."""
    sources = index.data.document_sources
    row = bisect_left(sources, source, 0, len(sources))
    if row == len(sources) or sources[row] != source:
        raise KeyError(source)
    return row


def rows_of_sources(index: Index, sources: Sequence[str]) -> Ints:
    """The propositions that stand in the given documents, ascending."""
    documents = [document_row(index, source) for source in dict.fromkeys(sources)]
    passages = np.flatnonzero(np.isin(index.data.passage_document_P, documents))
    return np.unique(expand_rows(index.data.passage_proposition_PN, passages)[1])


def gold_rows(index: Index, question: Question) -> tuple[Ints, list[Dropped]]:
    """The relevant propositions of a question, ascending, and what was lost of its gold sentences.

    With evidence, the propositions read from its sentences; without, all of the gold documents.
    """
    if not question.evidence:
        if not question.gold_sources:
            return np.zeros(0, np.int64), [Dropped(NO_GOLD)]
        return rows_of_sources(index, question.gold_sources), []
    found: list[Ints] = []
    lost: list[Dropped] = []
    for quote in question.evidence:
        rows = quoted_rows(index, quote)
        if isinstance(rows, Dropped):
            lost.append(rows)
        else:
            found.append(rows)
    return np.unique(np.concatenate([np.zeros(0, np.int64), *found])), lost


def quoted_rows(index: Index, quote: Quote) -> Ints | Dropped:
    """The propositions with an occurrence that shares MIN_OVERLAP of the shorter one's characters with the quoted sentence."""
    data = index.data
    places = find_quote(index.passages_of(quote.source), quote.text)
    if not places:
        return Dropped(NOT_THERE)
    document = document_row(index, quote.source)
    near = np.flatnonzero(np.isin(data.occurrence_proposition_M, rows_of_sources(index, [quote.source])))
    near = near[data.passage_document_P[data.occurrence_passage_M[near]] == document]
    start, end = data.occurrence_start_M[near], data.occurrence_end_M[near]
    hit = np.zeros(len(near), bool)
    for first, last in places:
        common = np.minimum(end, last) - np.maximum(start, first)
        hit |= (common > 0) & (common >= MIN_OVERLAP * np.minimum(end - start, last - first))
    return np.unique(data.occurrence_proposition_M[near[hit]]) if hit.any() else Dropped(NO_PROPOSITION)


def find_quote(passages: Sequence[Passage], text: str) -> list[tuple[int, int]]:
    """Where a sentence stands in a document, as (start, end) of the document's characters; white space may differ."""
    words = [re.escape(word) for word in text.split()]
    if not words or not passages:
        return []
    letters = [" "] * max(passage.end for passage in passages)
    for passage in passages:
        letters[passage.start : passage.end] = passage.text
    return [match.span() for match in re.finditer(r"\s+".join(words), "".join(letters))]


def chosen_rows(index: Index, query: Query, rows_n: Ints) -> list[bool | Dropped]:
    """For each candidate whether the query's model selects it, shown SHOWN_AT_ONCE at a time by descending cosine.

    Dropped where a reply could not be used: the rule that retrieval falls back on is not what is to be distilled. ModelGone
    when the model does not answer.
    """
    cosines_n = index.data.proposition_vectors_ND[rows_n] @ query.vector_D
    order = np.lexsort((rows_n, -cosines_n))
    shown = [order[first : first + SHOWN_AT_ONCE] for first in range(0, len(order), SHOWN_AT_ONCE)]
    verdicts: list[bool | Dropped] = [Dropped(UNUSABLE)] * len(rows_n)
    for places, chosen in zip(shown, choices_of_model(index, query, [rows_n[each] for each in shown]), strict=True):
        if chosen is not None:
            for place in places.tolist():
                verdicts[place] = bool(np.isin(rows_n[place], chosen))
    return verdicts
