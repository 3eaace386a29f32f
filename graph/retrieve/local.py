"""`local` (ToPG §2.3.2, Algorithm 1): rounds of suggesting propositions by a query-aware walk, and selecting among them.

This is the form without a model: a threshold selects, nothing evaluates, and the question stays the same from round to round.
"""

import numpy as np

from graph.index import Index
from graph.retrieve.gather import best_in_passage
from graph.retrieve.query import Query
from graph.retrieve.rank import top_rows
from graph.retrieve.select import select_by_threshold
from graph.retrieve.settings import RetrieveSettings
from graph.retrieve.suggest import suggest
from graph.types import Evidence, Scored, Trace

NAIVE_PROPOSITIONS, SUGGESTED, ROUNDS = 20, 20, 2
WALK_WEIGHT = 0.1
"""What the proposition that the walk visited most gains; others gain in proportion to the square root of their mass."""


def retrieve_local(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, ranked by their own cosine and their best proposition's, raised by what the walks brought in."""
    data = index.data
    cosines_N = data.proposition_vectors_ND @ query.vector_D
    held = select_by_threshold(index, query, top_rows(cosines_N, NAIVE_PROPOSITIONS))
    gain_N = np.zeros(len(cosines_N), np.float32)
    steps = [f"{len(held)} propositions selected to start from"]
    for _ in range(ROUNDS):
        found = suggest(index, cosines_N, held, SUGGESTED)
        if len(found.rows) == 0:
            break
        gain_N[found.rows] = np.maximum(gain_N[found.rows], WALK_WEIGHT * np.sqrt(found.mass / found.mass[0]))
        chosen = select_by_threshold(index, query, found.rows)
        steps.append(f"{len(found.rows)} suggested, {len(chosen)} selected")
        held = np.concatenate([held, chosen])
    cosines_P = data.passage_vectors_PD @ query.vector_D
    raised_P = best_in_passage(cosines_N + gain_N, data.passage_proposition_PN, cosines_P)
    scores_P = ((cosines_P + raised_P) / 2).astype(np.float32)
    rows = top_rows(scores_P, settings.top_k)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows),
        trace=Trace("local", tuple(steps)),
    )
