"""Relevance rows, question by question: candidates, labels, features; propositions of another split are left out and counted.

Candidates are the propositions of the question's gold and other documents, and hard negatives; labels come from gold sentences, gold documents or a model.
Legend: N propositions, P passages, M occurrences, Q questions, n candidates, F features, D dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from data_synth.relevance.relevance_form import FEATURE_DIGITS, FoundBy, GoldQuestion, LabelledBy, RelevanceRow
from data_synth.relevance.split import Split
from data_synth.rows import Dropped, separate_dropped
from graph.documents.questions import Question
from graph.index.index import row_of
from graph.retrieve.learned.light import QuestionView, features_of, view_of
from graph.retrieve.learned.selectors import choices_of_model
from graph.retrieve.parts.query import Caller, Query
from graph.retrieve.parts.ranking import expand_rows, top_rows
from graph.types import Ints, LanguageModel, Passage

if TYPE_CHECKING:
    from graph.documents.questions import Quote
    from graph.index.index import Index


@dataclass(frozen=True)
class Candidates:
    """Distinct propositions, by row, and why each is a candidate."""

    rows_n: Ints
    found_by: tuple[FoundBy, ...]


def find_candidates(
    view: QuestionView, gold_rows: Ints, own_rows: Ints, allowed_N: NDArray[np.bool_], negatives: int
) -> Candidates:
    """All of `gold_rows`, then the remaining `own_rows`, then hard negatives: at most half by the walk, the rest by cosine.

    `gold_rows` are the propositions of the gold documents, `own_rows` those of all documents published with the question. The hard negatives are
    `negatives` propositions outside both (fewer only if no more are allowed).
    """
    free_N = allowed_N.copy()
    free_N[gold_rows] = free_N[own_rows] = False
    walk_rows = best_allowed(view.mass_N, free_N & (view.mass_N > 0), negatives // 2)
    free_N[walk_rows] = False
    cosine_rows = best_allowed(view.similarity_N, free_N, negatives - len(walk_rows))
    own_rows = np.setdiff1d(own_rows, gold_rows)
    groups: dict[FoundBy, Ints] = {"gold": gold_rows, "own": own_rows, "walk": walk_rows, "cosine": cosine_rows}
    found_by = tuple(name for name, rows in groups.items() for _ in rows)
    return Candidates(np.concatenate(list(groups.values())), found_by)


def best_allowed(scores_N: NDArray[np.float32], allowed_N: NDArray[np.bool_], count: int) -> Ints:
    """The `count` allowed rows with the highest scores, best first."""
    allowed = np.flatnonzero(allowed_N)
    return allowed[top_rows(scores_N[allowed], count)]


NO_GOLD = "the question has no gold sentence and no gold document"
SENTENCE_NOT_FOUND = "a gold sentence does not occur in its document"
NO_PROPOSITION = "a gold sentence from which no proposition was extracted"
UNUSABLE_CHOICE = "the model's choice could not be used"
MIN_OVERLAP = 0.5
"""The minimum overlap of an occurrence with a gold sentence, as a share of the shorter of the two."""
CANDIDATES_PER_CALL = 20
"""How many candidates a model chooses among in one call: the same number as in the first call of the mode `local`."""


def document_row(index: Index, source: str) -> int:
    """The row of a document; KeyError when it is not in the index."""
    row = row_of(index.data, "document", source)
    if row is None:
        raise KeyError(source)
    return row


def rows_of_sources(index: Index, sources: Sequence[str]) -> Ints:
    """The propositions of the given documents, ascending."""
    documents = [document_row(index, source) for source in dict.fromkeys(sources)]
    passages = np.flatnonzero(np.isin(index.data.passage_document_P, documents))
    return np.unique(expand_rows(index.data.passage_proposition_PN, passages)[1])


def gold_rows(index: Index, question: Question) -> tuple[Ints, list[Dropped]]:
    """The relevant propositions of a question, ascending, and a Dropped for each gold sentence without propositions, or for a question without gold.

    With evidence, these are the propositions extracted from its sentences; without it, all propositions of the gold documents.
    """
    if not question.evidence:
        if not question.gold_sources:
            return np.zeros(0, np.int64), [Dropped(NO_GOLD)]
        return rows_of_sources(index, question.gold_sources), []
    found, dropped = separate_dropped(quoted_rows(index, quote) for quote in question.evidence)
    return np.unique(np.concatenate([np.zeros(0, np.int64), *found])), dropped


def quoted_rows(index: Index, quote: Quote) -> Ints | Dropped:
    """The propositions with an occurrence that overlaps the quoted sentence by at least MIN_OVERLAP.

    Dropped if there is none, or if the sentence is not in its document.
    """
    data = index.data
    spans = find_quote(index.passages_of(quote.source), quote.text)
    if not spans:
        return Dropped(SENTENCE_NOT_FOUND)
    document = document_row(index, quote.source)
    rows = np.flatnonzero(data.passage_document_P[data.occurrence_passage_M] == document)
    start, end = data.occurrence_start_M[rows], data.occurrence_end_M[rows]
    hit = np.zeros(len(rows), bool)
    for first, last in spans:
        overlap = np.minimum(end, last) - np.maximum(start, first)
        hit |= (overlap > 0) & (overlap >= MIN_OVERLAP * np.minimum(end - start, last - first))
    return np.unique(data.occurrence_proposition_M[rows[hit]]) if hit.any() else Dropped(NO_PROPOSITION)


def find_quote(passages: Sequence[Passage], text: str) -> list[tuple[int, int]]:
    """Every place where a sentence occurs in a document, as (start, end) character offsets; white space may differ."""
    words = [re.escape(word) for word in text.split()]
    if not words or not passages:
        return []
    letters = [" "] * max(passage.end for passage in passages)
    for passage in passages:
        letters[passage.start : passage.end] = passage.text
    return [match.span() for match in re.finditer(r"\s+".join(words), "".join(letters))]


def labels_by_model(index: Index, query: Query, rows_n: Ints) -> list[bool | Dropped]:
    """For each candidate, whether the query's model selects it; each call shows CANDIDATES_PER_CALL of them, by descending cosine.

    Dropped for the candidates of an unusable reply: a selector must not learn the rule that retrieval falls back on. ModelUnavailable when the model
    does not answer.
    """
    cosines_n = index.data.proposition_vectors_ND[rows_n] @ query.vector_D
    order = np.lexsort((rows_n, -cosines_n))
    batches = [order[first : first + CANDIDATES_PER_CALL] for first in range(0, len(order), CANDIDATES_PER_CALL)]
    verdicts: list[bool | Dropped] = [Dropped(UNUSABLE_CHOICE)] * len(rows_n)
    choices = choices_of_model(index, query, [rows_n[batch] for batch in batches])
    for batch, chosen in zip(batches, choices, strict=True):
        if chosen is not None:
            for candidate in batch.tolist():
                verdicts[candidate] = bool(np.isin(rows_n[candidate], chosen))
    return verdicts


OTHER_SPLIT = "a proposition that is not, or not only, in the question's split"
NO_GOLD_IN_SPLIT = "a question none of whose relevant propositions is in its split"
QUESTIONS_PER_BATCH = 32
"""How many questions are encoded in one batch."""


def relevance_rows(
    index: Index, questions: Iterable[GoldQuestion], split: Split, negatives: int, model: LanguageModel | None = None
) -> Iterator[RelevanceRow | Dropped]:
    """The rows of each question in order: the propositions of its documents and `negatives` hard negatives, labelled by gold or by `model`.

    Raises ModelUnavailable when the model does not answer; a later run with the same ledger does not repeat finished calls.
    """
    remaining = iter(questions)
    while group := list(islice(remaining, QUESTIONS_PER_BATCH)):
        vectors_QD = index.encode_queries([gold.question.text for gold in group])
        for gold, vector_D in zip(group, vectors_QD, strict=True):
            query = Query(gold.question.text, vector_D, Caller(model) if model is not None else None)
            yield from question_relevance_rows(index, gold, query, split, negatives)


def question_relevance_rows(
    index: Index, gold: GoldQuestion, query: Query, split: Split, negatives: int
) -> Iterator[RelevanceRow | Dropped]:
    """The rows of one question; without a model in the query, none for a question without a relevant proposition in its split."""
    question = gold.question
    positives, dropped = gold_rows(index, question) if query.model is None else (np.zeros(0, np.int64), [])
    yield from dropped
    if query.model is None and not len(positives):
        return
    allowed_N = split.allowed(question.id)
    in_gold = rows_of_sources(index, gold.gold_sources)
    in_own = rows_of_sources(index, gold.own_sources)
    yield from (Dropped(OTHER_SPLIT) for _ in np.flatnonzero(~allowed_N[np.union1d(in_gold, in_own)]))
    if query.model is None and not allowed_N[positives].any():
        yield Dropped(NO_GOLD_IN_SPLIT)
        return
    view = view_of(index, query)
    candidates = find_candidates(view, in_gold[allowed_N[in_gold]], in_own[allowed_N[in_own]], allowed_N, negatives)
    rows_n = candidates.rows_n
    features_nF = features_of(index, query, view, rows_n)
    verdicts = np.isin(rows_n, positives).tolist() if query.model is None else labels_by_model(index, query, rows_n)
    labelled_by: LabelledBy = "model" if query.model is not None else "sentence" if question.evidence else "passage"
    data = index.data
    for n, (row, verdict) in enumerate(zip(rows_n.tolist(), verdicts, strict=True)):
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
            found_by=candidates.found_by[n],
            features=tuple(round(float(value), FEATURE_DIGITS) for value in features_nF[n]),
        )
