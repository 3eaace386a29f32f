"""`local` (ToPG §2.3.2, Algorithm 1): from the best propositions, a walk drawn to the question brings in others.

This is the form without a model: the seeds are the few propositions that are near to the question and stand in a passage that
is, and one round of suggestions is made. A second round from the suggested ones lowered Recall@5 by .02 on two public sets
(docs/log.md): without a model to prune it, the walk drifts.

Legend: P passages, N propositions.
"""

import numpy as np

from graph.index import Index
from graph.retrieve.gather import best_in_passage
from graph.retrieve.query import Query
from graph.retrieve.rank import top_rows
from graph.retrieve.select import find_selector
from graph.retrieve.settings import RetrieveSettings
from graph.retrieve.suggest import Suggestion, suggest
from graph.retrieve.titles import named_documents
from graph.retrieve.walk import own_scores
from graph.types import Evidence, Floats, Scored, Trace

SEEDS, SUGGESTED = 3, 20
WALK_GAIN = 0.6
"""What the passage of the proposition that the walk visited most gains; others by the square root of their share of its mass."""


def retrieve_local(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, ranked by their own score, raised by the propositions in them that the walk brought in."""
    data = index.data
    cosines_N = data.proposition_vectors_ND @ query.vector_D
    named = [document for _, document in named_documents(index, query.text)]
    own_P = own_scores(index, data.passage_vectors_PD @ query.vector_D, cosines_N, named)
    select = find_selector(settings.selector, query)
    seeds = select(index, query, top_rows(worth_of_propositions(index, cosines_N, own_P), SEEDS))
    found = suggest(index, cosines_N, seeds, SUGGESTED)
    scores_P = own_P + WALK_GAIN * brought_in(index, found)
    rows = top_rows(scores_P, settings.top_k)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows),
        trace=Trace("local", (f"{len(seeds)} propositions to start from", f"{len(found.rows)} suggested by the walk")),
    )


def worth_of_propositions(index: Index, cosines_N: Floats, own_P: Floats) -> Floats:
    """Mean of each proposition's cosine and the best score of a passage that it stands in: float32[N]."""
    data = index.data
    best_N = np.full(len(cosines_N), -1, np.float32)
    np.maximum.at(best_N, data.statement_proposition_M, own_P[data.statement_passage_M])
    return np.asarray((cosines_N + best_N) / 2, np.float32)


def brought_in(index: Index, found: Suggestion) -> Floats:
    """For each passage, the largest √(mass ÷ largest mass) of its suggested propositions; 0 without one: float32[P]."""
    data = index.data
    share_N = np.zeros(len(data.proposition_ids), np.float32)
    if len(found.rows):
        share_N[found.rows] = np.sqrt(found.mass / found.mass[0])
    return best_in_passage(share_N, data.passage_proposition_PN, np.zeros(len(data.passage_ids), np.float32))
