"""How candidate propositions hang together with the best ones, the seeds: by shared entities, by titles, by steps, by paths.

Legend: N propositions, P passages, E entities, U documents, S seeds, n candidates, X pairs.
"""

import numpy as np
from numpy.typing import NDArray

from graph.index.index import Index
from graph.retrieve.parts.gather import entries_in, expand_rows
from graph.shared.types import Floats, Ints

FARTHEST_HOPS = 3
OPPOSITE = -0.9
"""The least likeness of two propositions that `pair_scores` reckons with; the mean of opposite vectors points nowhere."""


def tied(index: Index, rows_n: Ints, seeds_S: Ints) -> NDArray[np.bool_]:
    """Which candidates share an entity with which seeds; a seed is tied to itself by its own entities: [n, S]."""
    block_NE = index.data.proposition_entity_NE
    return np.asarray((block_NE[rows_n, :] @ block_NE[seeds_S, :].T).toarray() > 0)


def pair_scores(near_n: Floats, near_S: Floats, likeness_nS: Floats, tied_nS: NDArray[np.bool_]) -> Floats:
    """PropRAG's path score of each candidate with the best tied seed, or its own nearness where that is higher: [n].

    cos(q, a + b) = (cos(q, a) + cos(q, b)) / √(2 + 2 cos(a, b)) for unit vectors a, b, with nearness for the cosine.
    """
    lengths_nS = np.sqrt(2 + 2 * np.maximum(likeness_nS, OPPOSITE))
    scores_nS = (near_n[:, None] + near_S[None, :]) / lengths_nS
    return np.asarray(np.maximum(near_n, np.where(tied_nS, scores_nS, -np.inf).max(axis=1, initial=-np.inf)))


def called_by_seeds(index: Index, seeds_S: Ints, near_S: Floats) -> Floats:
    """The best nearness of a seed that names each passage's document and stands in another one; 0 where none does: [P]."""
    data, documents = index.data, len(index.data.document_sources)
    from_X, entity_X = expand_rows(data.proposition_entity_NE, seeds_S)
    pair_X, document_X = expand_rows(data.entity_document_EU, entity_X)
    from_X = from_X[pair_X]
    stands_X, passage_X = expand_rows(index.proposition_passage_NP, seeds_S)
    own = stands_X * documents + data.passage_document_P[passage_X]
    elsewhere_X = ~np.isin(from_X * documents + document_X, own)
    best_U = np.zeros(documents, np.float32)
    np.maximum.at(best_U, document_X[elsewhere_X], near_S[from_X[elsewhere_X]])
    return best_U[data.passage_document_P]


def entity_counts(index: Index, rows_n: Ints, entities_W: Ints) -> Floats:
    """How many of the given entities each candidate has: [n]."""
    from_X, entity_X = expand_rows(index.data.proposition_entity_NE, rows_n)
    return np.bincount(from_X[np.isin(entity_X, entities_W)], minlength=len(rows_n)).astype(np.float32)


def shared_entities(index: Index, rows_n: Ints, seeds_S: Ints) -> Floats:
    """Σ 1 / (1 + ln m) over the entities that each candidate shares with another seed; m propositions have the entity: [n]."""
    data = index.data
    _, seed_entity_X = expand_rows(data.proposition_entity_NE, seeds_S)
    held_E = np.bincount(seed_entity_X, minlength=len(data.entity_ids))
    from_X, entity_X = expand_rows(data.proposition_entity_NE, rows_n)
    shared_X = held_E[entity_X] > np.isin(rows_n, seeds_S)[from_X]
    mentions_X = entries_in(index.entity_proposition_EN, entity_X[shared_X])
    weights_X = 1 / (1 + np.log(mentions_X))
    return np.bincount(from_X[shared_X], weights_X, minlength=len(rows_n)).astype(np.float32)


def hops_from(index: Index, seeds_S: Ints, rows_n: Ints) -> Floats:
    """Steps from the nearest seed, over a shared entity or passage each, seeds 0; FARTHEST_HOPS for all that are farther: [n]."""
    propositions = len(index.data.proposition_ids)
    from_X, hub_X = expand_rows(index.incidence_NB, rows_n)
    hops_n = np.full(len(rows_n), FARTHEST_HOPS, np.float32)
    reached = seeds_S
    for hop in range(1, FARTHEST_HOPS):
        hubs = np.unique(expand_rows(index.incidence_NB, reached)[1])
        near_n = from_X[np.isin(hub_X, hubs)]
        hops_n[near_n] = np.minimum(hops_n[near_n], hop)
        if hop + 1 < FARTHEST_HOPS:
            reached = np.unique(expand_rows(index.hub_graph_VV, propositions + hubs)[1])
    hops_n[np.isin(rows_n, seeds_S)] = 0
    return hops_n
