"""`lexical`: the passages that share the question's words, by BM25. The other baseline of every comparison.

Legend: P passages, W terms of a question.
"""

from bisect import bisect_left

from graph.index.index import Index
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.shared.types import Evidence, Floats, Ints, Scored, Trace
from graph.text.bm25 import bm25, sum_of_terms, terms_of

TERMS_TOLD = 8


def retrieve_lexical(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages of those with a term of the question; fewer, or none, when fewer have one."""
    terms = known_terms(index, query.text)
    scores_P = word_scores(index, terms)
    rows = matching_rows(scores_P, settings.top_k)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows),
        paths=tell_terms(index, terms, rows),
        trace=Trace(
            "lexical", (f"{len(terms)} of {len(terms_of(query.text))} terms of the question are in the index",)
        ),
    )


def word_scores(index: Index, terms: list[int]) -> Floats:
    """BM25 of every passage for terms (rows), a repeated one counted as often: float32[P]."""
    return sum_of_terms(index.data.term_count_WP, index.data.term_idf_W, index.data.term_norm_P, terms)


def known_terms(index: Index, text: str) -> list[int]:
    """Rows of the text's terms that the index has, in order, repeated ones as often as they stand there."""
    texts = index.data.term_texts
    places = [(term, bisect_left(texts, term, 0, len(texts))) for term in terms_of(text)]
    return [row for term, row in places if row < len(texts) and texts[row] == term]


def matching_rows(scores_P: Floats, count: int) -> Ints:
    """Rows of the `count` best passages among those with a score at all."""
    return top_rows(scores_P, min(count, int((scores_P > 0).sum())))


def tell_terms(index: Index, terms: list[int], passages: Ints) -> tuple[tuple[str], ...]:
    """For each of the passages, in words: the terms of the question that it has, those that count most first."""
    data, distinct = index.data, list(dict.fromkeys(terms))
    count_WP = data.term_count_WP[distinct, :][:, passages].toarray()
    worth_WP = bm25(count_WP, data.term_idf_W[distinct][:, None], data.term_norm_P[passages])
    told = []
    for worth_W in worth_WP.T:
        best = top_rows(worth_W, min(TERMS_TOLD, int((worth_W > 0).sum())))
        told.append(("has the question's " + ", ".join(f"“{data.term_texts[distinct[row]]}”" for row in best),))
    return tuple(told)
