"""Anchors of a broad question (ToPG §2.3.3 and B.3–B.4, Algorithm 2): propositions from many sides of it.

Every proposition that was kept explores the graph with a query of its own, drawn to what was kept and away from what was
pruned (Rocchio). What is new is pruned by the selector and explores in its turn, until there is enough.

Legend: N propositions of the index, n of the pool or of a part of it, l of a subgraph, D dimensions.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from graph.index.index import Index
from graph.index.nearness import nearness_to
from graph.retrieve.parts.near import nearest
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import SuggestSettings
from graph.retrieve.parts.suggest import (
    SUBGRAPH_PROPOSITIONS,
    TEMPERATURE,
    THRESHOLD,
    extract_subgraph,
    used_columns,
)
from graph.retrieve.selection.select import Select
from graph.shared.types import Floats, Ints
from graph.walks.random_walk import attraction, query_aware_walks, structural_transition

BREADTH, SUGGESTED = 10, 20
MIN_ANCHORS, MAX_ROUNDS = 200, 5
ORIGIN, POSITIVE, NEGATIVE = 1.0, 0.7, 0.15


@dataclass(frozen=True)
class Visit:
    """What one exploration kept: rows, the query [D] that led to each, and the mean vector [D] of what was pruned beside them."""

    rows: Ints
    led_nD: Floats
    pruned_D: Floats


@dataclass
class Anchors:
    """The anchors in the order in which they were found, and how many each round brought. Grows while they are collected."""

    rows: list[int] = field(default_factory=list)
    per_round: list[int] = field(default_factory=list)


def collect_anchors(
    index: Index,
    start: Query,
    questions: Sequence[Query],
    select: Select,
    anchors: Anchors,
    settings: SuggestSettings,
) -> None:
    """Fill `anchors`: first from what is nearest to each of `questions`, then round by round, until MIN_ANCHORS are found.

    What is found before the model goes away (ModelGone) stays in `anchors`.
    """
    with ThreadPoolExecutor(max_workers=BREADTH) as threads:
        with askers(questions) as asking:
            visits = list(threads.map(lambda question: _nearest(index, question, select), asking))
        while pool := _add(anchors, visits):
            if len(anchors.rows) >= MIN_ANCHORS or len(anchors.per_round) > MAX_ROUNDS:
                return
            queries_nD = refine_queries(index, pool, visits)
            rows_n = np.array(pool, np.int64)
            parts = partition(index, rows_n, BREADTH)
            explore = partial(_explore, index, select, settings, np.array(anchors.rows, np.int64))
            with askers([start] * len(parts)) as asking:
                seeds, queries = [rows_n[part] for part in parts], [queries_nD[part] for part in parts]
                visits = list(threads.map(explore, asking, seeds, queries))


@contextmanager
def askers(queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
    """The queries as threads side by side ask them, all of one question: the time of the slowest counts."""
    model = queries[0].model
    if model is None:
        yield queries
        return
    with model.in_threads(len(queries)) as callers:
        yield [replace(query, model=caller) for query, caller in zip(queries, callers, strict=True)]


def refine_queries(index: Index, rows: Sequence[int], visits: Sequence[Visit]) -> Floats:
    """q_i = α q_i° + β h(u_i) − γ q_i⁻ (Eq. 11) for each of `rows`, unit length: float32[n, D]."""
    led: dict[int, list[Floats]] = defaultdict(list)
    pruned: dict[int, list[Floats]] = defaultdict(list)
    for visit in visits:
        for row, led_D in zip(visit.rows.tolist(), visit.led_nD, strict=True):
            led[row].append(led_D)
            pruned[row].append(visit.pruned_D)
    origin_nD = np.stack([np.mean(led[row], axis=0) for row in rows])
    negative_nD = np.stack([np.mean(pruned[row], axis=0) for row in rows])
    positive_nD = index.data.proposition_vectors_ND[list(rows)]
    queries_nD = ORIGIN * origin_nD + POSITIVE * positive_nD - NEGATIVE * negative_nD
    return np.asarray(queries_nD / np.linalg.norm(queries_nD, axis=1, keepdims=True), np.float32)


def partition(index: Index, rows_n: Ints, count: int) -> list[Ints]:
    """Positions of `rows_n` in at most `count` parts of about one size; propositions of one document keep together."""
    first_n = index.data.occurrence_passage_M[np.searchsorted(index.data.occurrence_proposition_M, rows_n)]
    order = np.lexsort((rows_n, first_n))
    return [part for part in np.array_split(order, min(count, len(rows_n))) if len(part)]


def _nearest(index: Index, question: Query, select: Select) -> Visit:
    """The propositions nearest to a question, as the selector keeps them."""
    near, _ = nearest(index.data.proposition_vectors_ND, question.vector_D, SUGGESTED)
    kept = select(index, question, near)
    return Visit(kept, np.tile(question.vector_D, (len(kept), 1)), _mean_vector(index, np.setdiff1d(near, kept)))


def _explore(
    index: Index,
    select: Select,
    settings: SuggestSettings,
    known: Ints,
    start: Query,
    seeds_n: Ints,
    queries_nD: Floats,
) -> Visit:
    """SuggestGlobal (Eq. 10): one walk from each seed with its own query; what they visit most together, as selected."""
    rows_l = extract_subgraph(index, seeds_n, SUBGRAPH_PROPOSITIONS)
    structure_ll = structural_transition(used_columns(index.incidence_NB[rows_l, :]))
    near_ln = nearness_to(index, queries_nD, index.data.proposition_vectors_ND[rows_l] @ queries_nD.T)
    attracted_ln = attraction(near_ln, TEMPERATURE, THRESHOLD)
    restart_ln = np.zeros((len(rows_l), len(seeds_n)), np.float32)
    restart_ln[np.searchsorted(rows_l, seeds_n), np.arange(len(seeds_n))] = 1
    mass_ln = query_aware_walks(structure_ll, attracted_ln, restart_ln, settings.structure_weight, settings.damping)
    mass_ln[np.isin(rows_l, known)] = 0
    total_l = mass_ln.sum(axis=1)
    places = top_rows(total_l, min(SUGGESTED, int((total_l > 0).sum())))
    kept = select(index, start, rows_l[places])
    walker = mass_ln[np.searchsorted(rows_l, kept)].argmax(axis=1) if len(kept) else np.zeros(0, np.int64)
    return Visit(kept, queries_nD[walker], _mean_vector(index, np.setdiff1d(rows_l[places], kept)))


def _mean_vector(index: Index, rows: Ints) -> Floats:
    """The mean vector of some propositions; zeros for none."""
    vectors_nD = index.data.proposition_vectors_ND
    return vectors_nD[rows].mean(axis=0) if len(rows) else np.zeros(vectors_nD.shape[1], np.float32)


def _add(anchors: Anchors, visits: Sequence[Visit]) -> list[int]:
    """Add what is new in `visits`; returns it."""
    known = set(anchors.rows)
    new = [row for row in dict.fromkeys(row for visit in visits for row in visit.rows.tolist()) if row not in known]
    anchors.rows += new
    anchors.per_round.append(len(new))
    return new
