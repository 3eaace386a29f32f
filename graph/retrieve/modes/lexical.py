"""`lexical`: the passages that share the question's words, by BM25. The other baseline of every comparison.

Legend: P passages.
"""

from graph.index.index import Index
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.parts.words import best_terms, known_terms, tell_terms, word_scores
from graph.shared.types import Evidence, Floats, Ints, Scored, Trace
from graph.text.bm25 import terms_of


def retrieve_lexical(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages of those with a term of the question; fewer, or none, when fewer have one."""
    terms = known_terms(index, query.text)
    scores_P = word_scores(index, terms)
    rows = matching_rows(scores_P, settings.top_k)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows),
        paths=tuple((tell_terms(found),) for found in best_terms(index, terms, rows)),
        trace=Trace(
            "lexical", (f"{len(terms)} of {len(terms_of(query.text))} terms of the question are in the index",)
        ),
    )


def matching_rows(scores_P: Floats, count: int) -> Ints:
    """Rows of the `count` best passages among those with a score at all."""
    return top_rows(scores_P, min(count, int((scores_P > 0).sum())))
