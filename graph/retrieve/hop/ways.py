"""Ways on from the best passages, and the passages that they may lead to.

A way on is a bridge, one of the passages that `hops` ranks best, and an entity that it mentions. It stands for the question with the
entity in place of the bridge: "who founded the yard that built the Lantern?" asks, by way of "Marlow Yard", something near to question −
"Lantern" + "Marlow Yard", as vectors (Mikolov et al. 2013).

Legend: P passages, N propositions, E entities, D dimensions, B bridges, K ways on, Y occurrences of entities in bridges, R some passages.
"""

from dataclasses import dataclass

import numpy as np

from graph.extract.entities import title_keys
from graph.index.index import Index
from graph.retrieve.parts.gather import expand_rows
from graph.retrieve.parts.passage_scores import ByItself, look_at
from graph.shared.types import Floats, Ints

WAYS, NEAREST = 48, 3
"""The ways, and passages near to each that are candidates too."""
SEARCHED = 20_000
"""In indexes of more passages, those near to a way are looked for among the pool and what shares its entity."""
TITLE_SHARE = 0.5
"""How much of the bridge's title is taken from a composed question: of .3, .5 and .7 best on 2wiki_train500 and hotpotqa_train together."""


@dataclass(frozen=True)
class Ways:
    """Ways on, at most WAYS: the place of each bridge among the candidates, the proposition that says it, and the entity."""

    bridge_K: Ints
    said_K: Ints
    entity_K: Ints


def find_ways(index: Index, bridges_B: Ints, alone: ByItself, reached_P: Floats, query_D: Floats) -> Ways:
    """The ways on from the bridges that are said nearest to the question by the best bridges; an entity once a bridge."""
    data = index.data
    bridge_Y, proposition_Y = expand_rows(data.passage_proposition_PN, bridges_B)
    look_at(index, proposition_Y, alone.scores_N, query_D)
    from_Y, entity_Y = expand_rows(data.proposition_entity_NE, proposition_Y)
    bridge_Y, proposition_Y = bridge_Y[from_Y], proposition_Y[from_Y]
    worth_Y = alone.scores_N[proposition_Y] + reached_P[bridges_B[bridge_Y]]
    order_Y = np.lexsort((proposition_Y, entity_Y, -worth_Y))
    key_Y = bridge_Y[order_Y] * np.int64(len(data.entity_ids)) + entity_Y[order_Y]
    first = np.sort(np.unique(key_Y, return_index=True)[1])[:WAYS]
    kept = order_Y[first]
    return Ways(bridge_Y[kept], proposition_Y[kept], entity_Y[kept])


def compose(index: Index, query_D: Floats, bridges_B: Ints, ways: Ways) -> Floats:
    """question − TITLE_SHARE · bridge's title + entity, of length 1: [K, D]. Nothing is taken where no entity is called like the title."""
    data = index.data
    titles = [data.document_titles[row] for row in data.passage_document_P[bridges_B].tolist()]
    title_BD = np.zeros((len(titles), len(query_D)), np.float32)
    for place, title in enumerate(titles):
        rows = index.entity_rows(list(title_keys(title)))
        called = rows[rows >= 0]
        if len(called):
            title_BD[place] = data.entity_vectors_ED[called].mean(axis=0)
    return unit(query_D - TITLE_SHARE * title_BD[ways.bridge_K] + data.entity_vectors_ED[ways.entity_K])


def unit(vectors_KD: Floats) -> Floats:
    """The vectors with length 1."""
    lengths_K1 = np.linalg.norm(vectors_KD, axis=1, keepdims=True)
    return np.asarray(vectors_KD / np.maximum(lengths_K1, 1e-9), np.float32)


def beyond_pool(index: Index, pool: Ints, ways: Ways, composed_KD: Floats) -> Ints:
    """The passages outside the pool that are among the NEAREST to a composed question, ascending."""
    vectors_PD = index.data.passage_vectors_PD
    if not len(composed_KD):
        return np.zeros(0, np.int64)
    if len(vectors_PD) <= SEARCHED:
        near_PK = vectors_PD @ composed_KD.T
        count = min(NEAREST, len(near_PK))
        return np.setdiff1d(np.argpartition(-near_PK, count - 1, axis=0)[:count].ravel(), pool)
    shared = np.unique(expand_rows(index.entity_proposition_EN, np.unique(ways.entity_K))[1])
    scope = np.setdiff1d(expand_rows(index.proposition_passage_NP, shared)[1], pool)[:SEARCHED]
    near_RK = vectors_PD[scope] @ composed_KD.T
    count = min(NEAREST, len(scope))
    return scope[np.unique(np.argpartition(-near_RK, count - 1, axis=0)[:count])] if count else scope
