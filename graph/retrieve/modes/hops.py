"""`hops`: multi-hop retrieval without a model, our own; made for small encoders.

A question about Port Ellery's ferry's builder names the ferry; the builder is named only in the ferry's passage. So:
1. Every passage is scored by its own nearness (graph/index/nearness.py) and its best proposition's, and higher if it has the question's words (words.py) or the question
   calls its document by name. A word counts once: those of a name that calls a document are the name's.
2. The best of them are seeds, from which links lead on (links.py).
3. A passage is ranked by the better of what it is worth itself and the best link to it. All scores are on the scale of nearness.

Legend: P passages, N propositions.
"""

from functools import partial

from graph.index.index import Index
from graph.retrieve.parts.links import SEEDS, find_links, raise_by_words, reach, tell_path
from graph.retrieve.parts.passage_scores import look_at_passages, score_alone
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.parts.words import best_terms, tell_terms
from graph.shared.types import Evidence, Scored, Trace


def retrieve_hops(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, each with the path that led to it."""
    alone = score_alone(index, query)
    look = partial(look_at_passages, index, alone, query.vector_D)
    links = raise_by_words(find_links(index, alone.own_P, alone.scores_N, query.vector_D, look), alone.lift_P)
    reached_P, led = reach(alone.own_P, links)
    rows = top_rows(reached_P, settings.top_k)
    called = {document: name for name, document in alone.named}
    steps = (
        f"{len(alone.named)} documents named by the question",
        f"{len(alone.terms)} of its words are in the index and in no such name",
        f"{len(links.worth_X):,} links from {SEEDS} passages",
    )
    paths = []
    for row, words in zip(rows.tolist(), best_terms(index, alone.terms, rows), strict=True):
        path = tell_path(index, row, links, led, called)
        paths.append((*path, tell_terms(words)) if alone.lift_P[row] > 0 else path)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), float(reached_P[row])) for row in rows.tolist()),
        paths=tuple(paths),
        trace=Trace("hops", steps),
    )
