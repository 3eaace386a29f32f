"""Beam search over propositions that share entities (HLG Eq. 5 and 8): how `statements` and `topics` go more than one step.

A path grows by a proposition that shares an entity with its last one. An entity that many documents mention says little about where it
leads, so a step over it costs the path some of its worth, unless it leads to a document that is called so. The published search keeps
only steps that make a path's score better; but the second proposition of a multi-hop question is seldom nearer to it than the
first, and without that condition Recall@5 is .12 higher on 2wiki_dev164.

Legend: N propositions, E entities, U documents, F paths of the frontier, X ways on (path, next proposition), Y propositions of an entity.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.retrieve.parts.gather import entries_in, expand_rows
from graph.retrieve.parts.rank import top_rows
from graph.shared.types import Floats, Ints

WIDTH, DEPTH = 50, 3
MAX_MENTIONS = 150
"""Entities with more propositions lead everywhere; no path goes through them."""
RARITY_LOSS = 0.08
"""A step over an entity loses this much times the logarithm of the number of documents that mention it."""

Judge = Callable[[Ints, Ints, Ints], Floats]
"""(steps [F, L], path [X], next proposition [X]) -> what each path with its next proposition is worth, losses aside: [X]."""


@dataclass(frozen=True)
class Frontier:
    """Paths of one length, best first: their propositions, what their steps lost, and what they are worth after it."""

    steps_FL: Ints
    loss_F: Floats
    worth_F: Floats


@dataclass(frozen=True)
class Ways:
    """Steps from propositions to others that share an entity: the position of the one, the row of the other, and the loss."""

    path_X: Ints
    next_X: Ints
    loss_X: Floats


def search_paths(
    index: Index, starts: Ints, worth_N: Floats, judge: Judge, width: int = WIDTH, depth: int = DEPTH
) -> list[Frontier]:
    """The frontier of every length from 1 (the `width` of `starts` that are worth most) to at most `depth`, ties by row."""
    starts = np.sort(starts)
    starts = starts[top_rows(worth_N[starts], width)]
    frontiers = [Frontier(starts[:, None], np.zeros(len(starts), np.float32), worth_N[starts])]
    while len(frontiers) < depth and len(frontiers[-1].steps_FL):
        frontiers.append(_grow(index, frontiers[-1], judge, width))
    return frontiers


def best_paths(frontiers: list[Frontier]) -> dict[int, tuple[float, tuple[int, ...]]]:
    """For each proposition that a path ends in, what the best of those paths is worth, and its steps; a tie goes to the shorter."""
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    for frontier in frontiers:
        for steps, worth in zip(frontier.steps_FL.tolist(), frontier.worth_F.tolist(), strict=True):
            if steps[-1] not in best or worth > best[steps[-1]][0]:
                best[steps[-1]] = (worth, tuple(steps))
    return best


def ways_on(index: Index, rows_F: Ints) -> Ways:
    """Nbr(s) (Eq. 5) of every given proposition, each once, by the entity that loses least; by position, then neighbour."""
    count = len(index.data.proposition_ids)
    from_Y, entity_Y = expand_rows(index.data.proposition_entity_NE, rows_F)
    entities_E, place_Y = np.unique(entity_Y, return_inverse=True)
    shared_EN = step_losses(index, entities_E)
    way_X, entry_X = expand_rows(_numbered(shared_EN), place_Y)
    path_X, next_X, loss_X = from_Y[way_X], shared_EN.indices[entry_X].astype(np.int64), shared_EN.data[entry_X]
    order_X = np.lexsort((loss_X, path_X * count + next_X))
    order_X = order_X[next_X[order_X] != rows_F[path_X[order_X]]]
    _, first = np.unique((path_X * count + next_X)[order_X], return_index=True)
    kept_X = order_X[first]
    return Ways(path_X[kept_X], next_X[kept_X], loss_X[kept_X])


def step_losses(index: Index, entities_E: Ints) -> sp.csr_array:
    """What a step over each of the given entities to each of its propositions loses: CSR[E, N] with explicit zeros.

    RARITY_LOSS · ln(documents that mention the entity), 0 into a document that is called by it; entities with more than
    MAX_MENTIONS propositions have no entries.
    """
    data = index.data
    documents = len(data.document_sources)
    mentions_E = entries_in(index.entity_proposition_EN, entities_E)
    few_E = np.flatnonzero(mentions_E <= MAX_MENTIONS)
    place_Y, proposition_Y = expand_rows(index.entity_proposition_EN, entities_E[few_E])
    entity_Y = few_E[place_Y]
    standing, passages = expand_rows(index.proposition_passage_NP, proposition_Y)
    told = entity_Y[standing] * documents + data.passage_document_P[passages]
    documents_E = np.bincount(np.unique(told) // documents, minlength=len(entities_E))
    entity_C, document_C = expand_rows(data.entity_document_EU, entities_E)
    about_Y = np.zeros(len(entity_Y), bool)
    about_Y[standing[np.isin(told, entity_C * documents + document_C)]] = True
    loss_Y = np.where(about_Y, 0, RARITY_LOSS * np.log(np.maximum(documents_E[entity_Y], 1)))
    indptr = np.concatenate([[0], np.cumsum(np.where(mentions_E <= MAX_MENTIONS, mentions_E, 0))])
    return sp.csr_array(
        (loss_Y.astype(np.float32), proposition_Y, indptr), shape=(len(entities_E), len(data.proposition_ids))
    )


def _grow(index: Index, frontier: Frontier, judge: Judge, width: int) -> Frontier:
    """The best paths that are one proposition longer; no proposition is on a path twice."""
    ways = ways_on(index, frontier.steps_FL[:, -1])
    fresh_X = (frontier.steps_FL[ways.path_X] != ways.next_X[:, None]).all(axis=1)
    path_X, next_X = ways.path_X[fresh_X], ways.next_X[fresh_X]
    loss_X = frontier.loss_F[path_X] + ways.loss_X[fresh_X]
    worth_X = np.asarray(judge(frontier.steps_FL, path_X, next_X) - loss_X, np.float32)
    kept_X = top_rows(worth_X, width)
    steps_FL = np.concatenate([frontier.steps_FL[path_X[kept_X]], next_X[kept_X, None]], axis=1)
    return Frontier(steps_FL, loss_X[kept_X], worth_X[kept_X])


def _numbered(block: sp.csr_array) -> sp.csr_array:
    """The block's entries by number: the same rows, with 0, 1, 2, … for columns."""
    return sp.csr_array((block.data, np.arange(block.nnz), block.indptr), shape=(block.shape[0], max(block.nnz, 1)))
