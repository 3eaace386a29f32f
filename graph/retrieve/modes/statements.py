"""`statements` (HLG §4.1, StatementGraphRAG): keywords and nearness give the first propositions, a beam over shared entities more.

Where the published method reranks statements by a cross-encoder, a statement is worth the mean of its own nearness and its passage's
score here, or what the best path that ends in it is; `--reranker` adds a cross-encoder. Twins are dropped (diversity.py). Passages
are ranked by the best statement in them (the "chunk variant"), or statements are returned themselves with `--as propositions`.

Legend: P passages, N propositions, D dimensions, F paths of the frontier, X ways on (path, next proposition), R distinct next ones.
"""

from functools import partial

import numpy as np

from graph.index.index import Index
from graph.index.nearness import nearness_to, square_of_sum, usual_cosine
from graph.retrieve.parts.beam import Judge, best_paths, search_paths
from graph.retrieve.parts.diversity import diverse_rows
from graph.retrieve.parts.gather import expand_rows, worth_of_propositions
from graph.retrieve.parts.keywords import keyword_propositions, keywords_of
from graph.retrieve.parts.passage_scores import own_scores, score_passages
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.parts.titles import named_documents
from graph.shared.types import Evidence, Floats, Ints, Scored, Trace
from graph.store.vectors.matrix import Rows

INITIAL = 100
"""Propositions by keywords, and as many by nearness, that paths start from."""
STEP_LOSS = 0.1
"""What a path loses for each step: the nearness of a sum of vectors is higher than theirs."""


def retrieve_statements(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages (or propositions), each with the path of propositions that led to it."""
    near_N = nearness_to(index, query.vector_D, index.data.proposition_vectors_ND @ query.vector_D)
    worth_N = worth_of_statements(index, query, near_N)
    keywords = keywords_of(index, query.text)
    by_keyword = keyword_propositions(index, keywords, near_N, INITIAL)
    starts = np.union1d(by_keyword, top_rows(near_N, max(INITIAL, settings.top_k)))
    judge = partial(judge_by_meaning, index.data.proposition_vectors_ND, near_N, worth_N, usual_cosine(index))
    first = f"{len(keywords)} keywords, {len(starts)} propositions to start from"
    return rank_statements(index, query, settings, starts, worth_N, judge, ("statements", first))


def worth_of_statements(index: Index, query: Query, near_N: Floats) -> Floats:
    """What each proposition is worth by itself: the mean of its nearness and of its best passage's own score: float32[N]."""
    named = [document for _, document in named_documents(index, query.text)]
    own_P = own_scores(index, score_passages(index, query.vector_D), near_N, named)
    return worth_of_propositions(index, near_N, own_P)


def judge_by_meaning(
    vectors_ND: Rows, near_N: Floats, worth_N: Floats, usual: float, steps_FL: Ints, path_X: Ints, next_X: Ints
) -> Floats:
    """Mean of a longer path's score (Eq. 7) and what its first proposition is worth, less STEP_LOSS a step (a Judge): [X]."""
    scores_X = longer_path_scores(vectors_ND, near_N, usual, steps_FL, path_X, next_X)
    worth_X = (scores_X + worth_N[steps_FL[path_X, 0]]) / 2 - STEP_LOSS * steps_FL.shape[1]
    return np.asarray(worth_X, np.float32)


def longer_path_scores(
    vectors_ND: Rows, near_N: Floats, usual: float, steps_FL: Ints, path_X: Ints, next_X: Ints
) -> Floats:
    """Nearness of the question to Σ α_i e_i, α = softmax of nearness, of each path with its next proposition (Eq. 6–7): [X].

    It does not see the softmax's denominator, so the sums stay unscaled and one term is added to each.
    """
    weights_FL = np.exp(near_N[steps_FL])
    sum_FD = np.einsum("fl,fld->fd", weights_FL, vectors_ND[steps_FL])
    weighted_F, total_F = (weights_FL * near_N[steps_FL]).sum(axis=1), weights_FL.sum(axis=1)
    next_R, place_X = np.unique(next_X, return_inverse=True)
    overlap_X = (vectors_ND[next_R] @ sum_FD.T)[place_X, path_X]
    weight_X = np.exp(near_N[next_X])
    square_X = np.square(sum_FD).sum(axis=1)[path_X] + 2 * weight_X * overlap_X + weight_X**2
    square_X = square_of_sum(square_X, total_F[path_X] + weight_X, usual)
    scores_X = (weighted_F[path_X] + weight_X * near_N[next_X]) / np.sqrt(square_X)
    return np.asarray(scores_X, np.float32)


def rank_statements(
    index: Index,
    query: Query,
    settings: RetrieveSettings,
    starts: Ints,
    worth_N: Floats,
    judge: Judge,
    told: tuple[str, str],
) -> Evidence:
    """Search paths from `starts` and rank what they visit; `told` are the mode and its first step in words."""
    data = index.data
    frontiers = search_paths(index, starts, worth_N, judge)
    led = best_paths(frontiers)
    best_N = worth_N.copy()
    for row, (worth, _) in led.items():
        best_N[row] = max(best_N[row], worth)
    visited = np.union1d(starts, np.array(list(led), np.int64))
    order = visited[top_rows(best_N[visited], max(INITIAL, settings.top_k))]
    kept = order[diverse_rows([data.proposition_texts[row] for row in order])]
    if settings.unit == "propositions":
        listed = kept[: settings.top_k]
        stands = first_passages(index, listed)
    else:
        listed = kept[:0]
        stands = first_passages(index, kept)[: settings.top_k]
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(passage), float(best_N[row])) for passage, row in stands),
        propositions=tuple(Scored(index.proposition(int(row)), float(best_N[row])) for row in listed),
        paths=tuple(tell_path(index, row, best_N[row], led) for _, row in stands),
        trace=Trace(told[0], (told[1], f"{len(visited)} visited, {len(order) - len(kept)} twins dropped")),
    )


def first_passages(index: Index, rows: Ints) -> list[tuple[int, int]]:
    """(passage, the first of the given propositions that stands in it) for every passage that one stands in, in their order."""
    place_X, passage_X = expand_rows(index.proposition_passage_NP, rows)
    first: dict[int, int] = {}
    for place, passage in zip(place_X.tolist(), passage_X.tolist(), strict=True):
        first.setdefault(passage, int(rows[place]))
    return list(first.items())


def tell_path(index: Index, row: int, worth: float, led: dict[int, tuple[float, tuple[int, ...]]]) -> tuple[str, ...]:
    """The path to a proposition in words; only itself when it is worth more than any path to it."""
    by_path, steps = led.get(row, (-np.inf, ()))
    return tuple(f"“{index.data.proposition_texts[step]}”" for step in (steps if by_path >= worth else (row,)))
