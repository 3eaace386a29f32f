"""ToPG's suggestion step (§2.2, Eq. 3–8): the propositions that a walk from known ones, attracted by the question, reaches.

Legend: N propositions of the index, B hubs (entities, then passages), V vertices (propositions, then hubs), l propositions of the subgraph.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.random_walk import (
    attraction,
    personalised_pagerank,
    query_aware_transition,
    restart_at,
    structural_transition,
)
from graph.retrieve.parts.query import SuggestSettings
from graph.retrieve.parts.ranking import top_rows
from graph.types import Floats, Ints

SUBGRAPH_PROPOSITIONS = 500
SUBGRAPH_RESTART = 0.15
SUBGRAPH_TOLERANCE = 0.2833
"""The first walk only chooses the subgraph, which at this tolerance contains .99 of the exact one (minimum .94; 200 questions, two sets)."""
TEMPERATURE, THRESHOLD = 0.1, 0.4
"""τ and θ of the attraction (Eq. 6), with normalised similarity instead of the cosine."""


@dataclass(frozen=True)
class Suggestion:
    """Propositions (rows of the index) that the walk reached, best first, and their share of the walk's mass."""

    rows: Ints
    mass: Floats

    @property
    def root_share(self) -> Floats:
        """√(mass ÷ largest mass)."""
        return np.asarray(np.sqrt(self.mass / self.mass[:1]), np.float32)


def suggest(index: Index, similarity_N: Floats, known: Ints, count: int, settings: SuggestSettings) -> Suggestion:
    """The `count` propositions outside `known` that a query-aware walk from `known` visits most."""
    if len(known) == 0:
        return Suggestion(np.zeros(0, np.int64), np.zeros(0, np.float32))
    rows_l = extract_subgraph(index, known)
    structure_ll = structure_of(index, rows_l)
    attracted_l = attraction(similarity_N[rows_l], TEMPERATURE, THRESHOLD)
    transition_ll = query_aware_transition(structure_ll, attracted_l, settings.structure_weight)
    seeds = np.flatnonzero(np.isin(rows_l, known))
    mass_l = personalised_pagerank(transition_ll, restart_at(seeds, len(rows_l)), settings.damping)[:, 0]
    mass_l[seeds] = 0
    best = top_rows(mass_l, min(count, int((mass_l > 0).sum())))
    return Suggestion(rows_l[best], mass_l[best])


def extract_subgraph(index: Index, seeds: Ints) -> Ints:
    """GExtract: the rows, ascending, of the seeds and of the propositions that a walk from them, not attracted by the question, visits most; at most
    SUBGRAPH_PROPOSITIONS in all, or only the seeds if there are more of them.
    """
    chain, walk_on = index.bipartite_chain, 1 - SUBGRAPH_RESTART
    restart_V1 = restart_at(seeds, len(chain.missing_V))
    mass_V1 = personalised_pagerank(chain, restart_V1, walk_on, SUBGRAPH_TOLERANCE)
    mass_N = mass_V1[: len(index.data.proposition_ids), 0]
    mass_N[seeds] = 1
    return np.sort(top_rows(mass_N, min(max(SUBGRAPH_PROPOSITIONS, len(seeds)), int((mass_N > 0).sum()))))


def structure_of(index: Index, rows_l: Ints) -> sp.csr_array:
    """The structural transition between the propositions of a subgraph: CSR[l, l]."""
    block_lB = index.incidence_NB[rows_l, :]
    used, columns = np.unique(block_lB.indices, return_inverse=True)
    return structural_transition(sp.csr_array((block_lB.data, columns, block_lB.indptr), (len(rows_l), len(used))))
