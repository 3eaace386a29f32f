"""`statements` (HLG §4.1, StatementGraphRAG): keywords and similarity give the first propositions; a beam search through shared entities adds others.

The published method reranks statements with a cross-encoder; here, a statement's score is the mean of its similarity and its passage's score, or
the score of the best path to it, if that is higher. A path grows by a proposition that shares an entity with its last one (Eq. 5 and 8); a step through an
entity costs more the more documents mention the entity, and nothing if it leads to a document with the entity's name. The published search keeps only
steps that raise a path's score; without that condition Recall@5 is .12 higher on 2wiki_dev164. Duplicates are dropped (diversity.py).

Legend: P passages, N propositions, E entities, U documents, D dimensions, F paths of the frontier, L propositions of a path,
X pairs of a path and a next proposition, Y pairs of an entity and a proposition, R distinct next propositions,
C pairs of an entity and a document with its name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.index.normalised_similarity import square_of_sum, usual_cosine
from graph.retrieve.parts.diversity import diverse_rows
from graph.retrieve.parts.mentions import keyword_propositions, keywords_of
from graph.retrieve.parts.passage_scores import score_all_propositions, scores_without_words
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import (
    entries_in,
    expand_rows,
    first_passages,
    passage_of_each,
    top_rows,
    worth_of_propositions,
)
from graph.store.columns.moved import ranges
from graph.store.vectors import Matrix
from graph.types import Evidence, Floats, Ints, Scored, Trace

BEAM_WIDTH, BEAM_DEPTH = 50, 3
MAX_MENTIONS = 150
"""Entities in more propositions than this link almost everything; no path goes through them."""
RARITY_LOSS = 0.08
"""A step through an entity lowers a path's score by this times the natural logarithm of the number of documents that mention the entity."""

PathScore = Callable[[Ints, Ints, Ints], Floats]
"""(steps [F, L], path [X], next proposition [X]) -> the score of each path with its next proposition, before the losses of `Steps`: [X]."""


@dataclass(frozen=True)
class Frontier:
    """Paths of one length, best first: their propositions, the sum of the losses of their steps, and their scores after losses."""

    steps_FL: Ints
    loss_F: Floats
    worth_F: Floats


@dataclass(frozen=True)
class Steps:
    """Steps to propositions that share an entity: the position of the path that ends at the source, the row of the target, and the loss."""

    path_X: Ints
    next_X: Ints
    loss_X: Floats


def search_paths(
    index: Index, starts: Ints, worth_N: Floats, judge: PathScore, width: int = BEAM_WIDTH, depth: int = BEAM_DEPTH
) -> list[Frontier]:
    """The frontier of every length from 1 (the best `width` of `starts`) to at most `depth`; of equal scores, the lower row comes first."""
    starts = np.sort(starts)
    starts = starts[top_rows(worth_N[starts], width)]
    frontiers = [Frontier(starts[:, None], np.zeros(len(starts), np.float32), worth_N[starts])]
    while len(frontiers) < depth and len(frontiers[-1].steps_FL):
        frontiers.append(_grow(index, frontiers[-1], judge, width))
    return frontiers


def best_paths(frontiers: list[Frontier]) -> dict[int, tuple[float, tuple[int, ...]]]:
    """The best path to each proposition that ends a path: its score and steps; of equal paths, the shorter one."""
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    for frontier in frontiers:
        for steps, worth in zip(frontier.steps_FL.tolist(), frontier.worth_F.tolist(), strict=True):
            if steps[-1] not in best or worth > best[steps[-1]][0]:
                best[steps[-1]] = (worth, tuple(steps))
    return best


def next_steps(index: Index, rows_F: Ints) -> Steps:
    """Nbr(s) (Eq. 5) of every given proposition: each neighbour once, through the entity with the least loss; sorted by position, then neighbour."""
    count = len(index.data.proposition_ids)
    from_Y, entity_Y = expand_rows(index.data.proposition_entity_NE, rows_F)
    entities_E, row_Y = np.unique(entity_Y, return_inverse=True)
    shared_EN = step_losses(index, entities_E)
    from_X = np.repeat(np.arange(len(row_Y)), entries_in(shared_EN, row_Y))
    entry_X = ranges(shared_EN.indptr[row_Y], shared_EN.indptr[row_Y + 1])
    path_X, next_X, loss_X = from_Y[from_X], shared_EN.indices[entry_X].astype(np.int64), shared_EN.data[entry_X]
    order_X = np.lexsort((loss_X, path_X * count + next_X))
    order_X = order_X[next_X[order_X] != rows_F[path_X[order_X]]]
    _, first = np.unique((path_X * count + next_X)[order_X], return_index=True)
    best_X = order_X[first]
    return Steps(path_X[best_X], next_X[best_X], loss_X[best_X])


def step_losses(index: Index, entities_E: Ints) -> sp.csr_array:
    """The loss of a step through each of the given entities to each of its propositions: CSR[E, N] with explicit zeros.

    RARITY_LOSS · ln(documents that mention the entity), 0 for a step into a document with the entity's name; entities with more than
    MAX_MENTIONS propositions have no entries.
    """
    data = index.data
    documents = len(data.document_sources)
    mentions_E = entries_in(index.entity_proposition_EN, entities_E)
    few_E = np.flatnonzero(mentions_E <= MAX_MENTIONS)
    few_Y, proposition_Y = expand_rows(index.entity_proposition_EN, entities_E[few_E])
    entity_Y = few_E[few_Y]
    occurrence_X, passage_X = expand_rows(index.proposition_passage_NP, proposition_Y)
    pair_X = entity_Y[occurrence_X] * documents + data.passage_document_P[passage_X]
    documents_E = np.bincount(np.unique(pair_X) // documents, minlength=len(entities_E))
    entity_C, document_C = expand_rows(data.entity_document_EU, entities_E)
    named_Y = np.zeros(len(entity_Y), bool)
    named_Y[occurrence_X[np.isin(pair_X, entity_C * documents + document_C)]] = True
    loss_Y = np.where(named_Y, 0, RARITY_LOSS * np.log(np.maximum(documents_E[entity_Y], 1)))
    indptr = np.concatenate([[0], np.cumsum(np.where(mentions_E <= MAX_MENTIONS, mentions_E, 0))])
    shape = len(entities_E), len(data.proposition_ids)
    return sp.csr_array((loss_Y.astype(np.float32), proposition_Y, indptr), shape=shape)


def _grow(index: Index, frontier: Frontier, judge: PathScore, width: int) -> Frontier:
    """The best extensions of the frontier's paths by one proposition; no proposition is on a path twice."""
    steps = next_steps(index, frontier.steps_FL[:, -1])
    new_X = (frontier.steps_FL[steps.path_X] != steps.next_X[:, None]).all(axis=1)
    path_X, next_X = steps.path_X[new_X], steps.next_X[new_X]
    loss_X = frontier.loss_F[path_X] + steps.loss_X[new_X]
    worth_X = np.asarray(judge(frontier.steps_FL, path_X, next_X) - loss_X, np.float32)
    best_X = top_rows(worth_X, width)
    steps_FL = np.concatenate([frontier.steps_FL[path_X[best_X]], next_X[best_X, None]], axis=1)
    return Frontier(steps_FL, loss_X[best_X], worth_X[best_X])


INITIAL_PROPOSITIONS = 100
"""Paths start from the best BEAM_WIDTH of up to this many propositions by keywords and this many by similarity (or top k, if that is more)."""
SHORT_LIST = 50
"""If top k is at most this, only the best INITIAL_PROPOSITIONS of the visited propositions are ranked; if it is more, all are."""
STEP_LOSS = 0.1
"""A path's loss per step, because the similarity of a sum of vectors is higher than that of each vector."""


def retrieve_statements(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, each with the path of propositions to it; or top k propositions, with the first passage of each."""
    similarity_N = score_all_propositions(index, query.vector_D)
    worth_N = worth_of_statements(index, query, similarity_N)
    keywords = keywords_of(index, query.text)
    by_keyword = keyword_propositions(index, keywords, similarity_N, INITIAL_PROPOSITIONS)
    starts = np.union1d(by_keyword, top_rows(similarity_N, max(INITIAL_PROPOSITIONS, settings.top_k)))
    judge = partial(judge_by_meaning, index.data.proposition_vectors_ND, similarity_N, worth_N, usual_cosine(index))
    first_step = f"{len(keywords)} keywords, {len(starts)} propositions to start from"
    return rank_statements(index, query, settings, starts, worth_N, judge, first_step)


def worth_of_statements(index: Index, query: Query, similarity_N: Floats) -> Floats:
    """Each proposition's own score, the mean of its similarity and its best passage's own score: float32[N]."""
    return worth_of_propositions(index, similarity_N, scores_without_words(index, query, similarity_N))


def judge_by_meaning(
    vectors_ND: Matrix, similarity_N: Floats, worth_N: Floats, usual: float, steps_FL: Ints, path_X: Ints, next_X: Ints
) -> Floats:
    """A PathScore: the mean of the extended path's score (Eq. 7) and its first proposition's own score, minus STEP_LOSS per step: [X]."""
    scores_X = longer_path_scores(vectors_ND, similarity_N, usual, steps_FL, path_X, next_X)
    worth_X = (scores_X + worth_N[steps_FL[path_X, 0]]) / 2 - STEP_LOSS * steps_FL.shape[1]
    return np.asarray(worth_X, np.float32)


def longer_path_scores(
    vectors_ND: Matrix, similarity_N: Floats, usual: float, steps_FL: Ints, path_X: Ints, next_X: Ints
) -> Floats:
    """The question's similarity to Σ α_i e_i, α = softmax of similarity, of each path with its next proposition (Eq. 6–7): [X].

    The softmax's denominator cancels out, so the sums stay unscaled and one term is added to each.
    """
    weights_FL = np.exp(similarity_N[steps_FL])
    sum_FD = np.einsum("fl,fld->fd", weights_FL, vectors_ND[steps_FL])
    weighted_F, total_F = (weights_FL * similarity_N[steps_FL]).sum(axis=1), weights_FL.sum(axis=1)
    next_R, place_X = np.unique(next_X, return_inverse=True)
    overlap_X = (vectors_ND[next_R] @ sum_FD.T)[place_X, path_X]
    weight_X = np.exp(similarity_N[next_X])
    square_X = np.square(sum_FD).sum(axis=1)[path_X] + 2 * weight_X * overlap_X + weight_X**2
    square_X = square_of_sum(square_X, total_F[path_X] + weight_X, usual)
    scores_X = (weighted_F[path_X] + weight_X * similarity_N[next_X]) / np.sqrt(square_X)
    return np.asarray(scores_X, np.float32)


def rank_statements(
    index: Index,
    query: Query,
    settings: RetrieveSettings,
    starts: Ints,
    worth_N: Floats,
    judge: PathScore,
    first_step: str,
) -> Evidence:
    """Search paths from `starts` and rank the propositions that the search visits; the trace starts with `first_step`."""
    data = index.data
    frontiers = search_paths(index, starts, worth_N, judge)
    path_to = best_paths(frontiers)
    best_N = worth_N.copy()
    for row, (worth, _) in path_to.items():
        best_N[row] = max(best_N[row], worth)
    visited = np.union1d(starts, np.array(list(path_to), np.int64))
    ranked = len(visited) if settings.top_k > SHORT_LIST else INITIAL_PROPOSITIONS
    order = visited[top_rows(best_N[visited], ranked)]
    distinct = order[diverse_rows([data.proposition_texts[row] for row in order])]
    if settings.unit == "propositions":
        listed = distinct[: settings.top_k]
        passages = passage_of_each(index, listed)
    else:
        listed = distinct[:0]
        passages = first_passages(index, distinct)[: settings.top_k]
    last_step = f"{len(visited)} propositions visited, {len(order) - len(distinct)} duplicates dropped"
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(passage), float(best_N[row])) for passage, row in passages),
        propositions=tuple(Scored(index.proposition(int(row)), float(best_N[row])) for row in listed),
        paths=tuple(describe_path(index, row, best_N[row], path_to) for _, row in passages),
        trace=Trace(settings.mode, (first_step, last_step)),
    )


def describe_path(
    index: Index, row: int, worth: float, path_to: dict[int, tuple[float, tuple[int, ...]]]
) -> tuple[str, ...]:
    """The path to a proposition in words; the proposition alone if its own score is higher than any path's."""
    by_path, steps = path_to.get(row, (-np.inf, ()))
    return tuple(f"“{index.data.proposition_texts[step]}”" for step in (steps if by_path >= worth else (row,)))
