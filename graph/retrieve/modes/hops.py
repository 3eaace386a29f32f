"""`hops`: multi-hop retrieval without a model, our own; made for small encoders.

A question about Port Ellery's ferry's builder names the ferry; the builder is named only in the ferry's passage. So:
1. Every passage is scored by its own cosine and its best proposition's, and higher if the question calls its document by name.
2. The best of them are seeds, from which links lead on (links.py).
3. A passage is ranked by the better of what it is worth itself and the best link to it. All scores are on the cosine's scale.

Legend: P passages, N propositions.
"""

from graph.index.index import Index
from graph.retrieve.parts.links import SEEDS, find_links, reach, tell_path
from graph.retrieve.parts.passage_scores import score_alone
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.shared.types import Evidence, Scored, Trace


def retrieve_hops(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, each with the path that led to it."""
    alone = score_alone(index, query)
    links = find_links(index, alone.own_P, alone.scores_N, query.vector_D)
    reached_P, led = reach(alone.own_P, links)
    rows = [int(row) for row in top_rows(reached_P, settings.top_k)]
    called = {document: name for name, document in alone.named}
    steps = (
        f"{len(alone.named)} documents named by the question",
        f"{len(links.worth_X):,} links from {SEEDS} passages",
    )
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), float(reached_P[row])) for row in rows),
        paths=tuple(tell_path(index, row, links, led, called) for row in rows),
        trace=Trace("hops", steps),
    )
