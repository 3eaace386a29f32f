"""`global` (ToPG §2.3.3): a broad question seen from many sides, answered community by community.

Anchors (B.3–B.4, Algorithm 2): every proposition that was kept explores the graph with a query of its own (Rocchio), pruned by the selector.
→ communities that cover them under a budget of tokens (B.5, Algorithm 3) → a model says what each contributes → the best contributions.
Without a model the communities' own passages are the evidence, taken in turn so that each side is heard.

Legend: P passages, N propositions, C communities, n of the pool or of a part of it, l of a subgraph, D dimensions."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Annotated

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from graph.hierarchy.communities import NestedCommunities, nested_communities
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.random_walk import attraction, query_aware_walks, structural_transition
from graph.retrieve.learned.selectors import Select, find_selector, list_statements
from graph.retrieve.parts.query import ModelUnavailable, Query, RetrieveSettings, SuggestSettings
from graph.retrieve.parts.ranking import expand_rows, nearest, top_rows
from graph.retrieve.parts.suggest import SUBGRAPH_PROPOSITIONS, TEMPERATURE, THRESHOLD, extract_subgraph, used_columns
from graph.text.prompting import quote, read_prompt
from graph.text.replies import ReplyModel, Sentence, at_most, plain, sound_items
from graph.types import Evidence, Finding, Floats, Ints, Scored, Trace

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
        with queries_of_threads(questions) as asking:
            visits = list(threads.map(lambda question: _visit_nearest(index, question, select), asking))
        while pool := _add_visits(anchors, visits):
            if len(anchors.rows) >= MIN_ANCHORS or len(anchors.per_round) > MAX_ROUNDS:
                return
            queries_nD = refine_queries(index, pool, visits)
            rows_n = np.array(pool, np.int64)
            parts = partition(index, rows_n, BREADTH)
            explore = partial(_visit_by_walk, index, select, settings, np.array(anchors.rows, np.int64))
            with queries_of_threads([start] * len(parts)) as asking:
                seeds, queries = [rows_n[part] for part in parts], [queries_nD[part] for part in parts]
                visits = list(threads.map(explore, asking, seeds, queries))


@contextmanager
def queries_of_threads(queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
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


def _visit_nearest(index: Index, question: Query, select: Select) -> Visit:
    """The propositions nearest to a question, as the selector keeps them."""
    near, _ = nearest(index.data.proposition_vectors_ND, question.vector_D, SUGGESTED)
    kept = select(index, question, near)
    return Visit(kept, np.tile(question.vector_D, (len(kept), 1)), _mean_vector(index, np.setdiff1d(near, kept)))


def _visit_by_walk(
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
    near_ln = normalised_similarity_to(index, queries_nD, index.data.proposition_vectors_ND[rows_l] @ queries_nD.T)
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


def _add_visits(anchors: Anchors, visits: Sequence[Visit]) -> list[int]:
    """Add what is new in `visits`; returns it."""
    known = set(anchors.rows)
    new = [row for row in dict.fromkeys(row for visit in visits for row in visit.rows.tolist()) if row not in known]
    anchors.rows += new
    anchors.per_round.append(len(new))
    return new


MIN_NODES, MAX_NODES = 10, 150


def candidate_communities(nested: NestedCommunities, propositions: int) -> tuple[Ints, sp.csr_array]:
    """Communities of 10 to 150 nodes (a smaller one only if it is in no other), and their propositions: CSR[C, N] of ones."""
    sizes = np.array([len(members) for members in nested.members], np.int64)
    fits = (sizes <= MAX_NODES) & ((sizes >= MIN_NODES) | (nested.parents < 0))
    rows = np.flatnonzero(fits)
    inside = [nested.members[row][nested.members[row] < propositions] for row in rows]
    columns = np.concatenate([np.zeros(0, np.int64), *inside])
    indptr = np.concatenate([[0], np.cumsum([len(members) for members in inside])])
    return rows, sp.csr_array((np.ones(len(columns), np.float32), columns, indptr), (len(rows), propositions))


def greedy_cover(
    anchors: Ints,
    nested: NestedCommunities,
    rows_C: Ints,
    proposition_CN: sp.csr_array,
    cost: Callable[[int], int],
    budget: int,
) -> list[int]:
    """Rows of `nested`, in the order chosen: always the most uncovered anchors for its size, ties by row.

    A community that costs more than the room left is skipped, and does not end the choice; one that lies within a chosen
    one, or around it, is never chosen. Ends when all anchors that can be covered are.
    """
    uncovered_N = np.zeros(proposition_CN.shape[1], np.float32)
    uncovered_N[anchors] = 1
    size_C = np.array([len(nested.members[row]) for row in rows_C], np.float32)
    open_C = np.ones(len(rows_C), bool)
    lines_C = [enclosing_communities(nested.parents, int(row)) for row in rows_C]
    chosen: list[int] = []
    while open_C.any():
        worth_C: Floats = np.where(open_C, proposition_CN @ uncovered_N / size_C, 0)
        best = int(worth_C.argmax())
        if worth_C[best] <= 0:
            break
        open_C[best] = False
        price = cost(int(rows_C[best]))
        if price > budget:
            continue
        budget -= price
        row = int(rows_C[best])
        chosen.append(row)
        uncovered_N[proposition_CN.indices[proposition_CN.indptr[best] : proposition_CN.indptr[best + 1]]] = 0
        open_C &= np.array(
            [row not in line and int(other) not in lines_C[best] for line, other in zip(lines_C, rows_C, strict=True)]
        )
    return chosen


def enclosing_communities(parents: Ints, row: int) -> frozenset[int]:
    """The communities around one, itself included.

    >>> sorted(enclosing_communities(np.array([-1, 0, 1, 0]), 2))
    [0, 1, 2]
    """
    above: list[int] = []
    while row >= 0:
        above.append(row)
        row = int(parents[row])
    return frozenset(above)


MAX_QUESTIONS = 10
MAX_COMMUNITY_TOKENS, MAX_TOKENS_IN_ALL = 2_000, 16_000
"""Tokens of statements that are read of one community, and of all of them, for one question."""
MAX_REPLY_TOKENS = 600


class SubQuestions(ReplyModel):
    questions: Annotated[list[Sentence], sound_items(str), at_most("maxItems", MAX_QUESTIONS)]


class Contribution(ReplyModel):
    answer: Annotated[str, at_most("maxLength", 500)]
    score: int = Field(ge=0, le=100)


@dataclass(frozen=True)
class Side:
    """What is read of one community: its propositions nearest to the question, and the passages they stand in; best first."""

    propositions: Ints
    passages: Ints


def retrieve_global(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages of the communities around the question's anchors; with a model, what each community contributes, too."""
    select = find_selector(settings.selector, query)
    anchors, findings, stopped = Anchors(), [], ""
    sides: list[Side] = []
    try:
        collect_anchors(index, query, sub_questions(index, query), select, anchors, settings.suggestions)
        sides = choose_sides(index, query, anchors.rows)
        findings = contributions(index, query, sides)
    except ModelUnavailable as gone:
        stopped = str(gone)
        sides = sides or choose_sides(index, query, anchors.rows)
    heard = [side for _, side in findings] or sides
    places = take_turns([side.passages.tolist() for side in heard])
    near, _ = nearest(index.data.passage_vectors_PD, query.vector_D, settings.top_k)
    rows = list(dict.fromkeys([*places, *near.tolist()]))[: settings.top_k]
    rounds = " + ".join(map(str, anchors.per_round))
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), 1 / place) for place, row in enumerate(rows, start=1)),
        paths=tuple(_path_of(row, heard) for row in rows),
        findings=tuple(finding for finding, _ in findings),
        trace=Trace(
            "global",
            (
                f"{len(anchors.rows)} anchors ({rounds})",
                f"{len(sides)} communities, {len(findings)} with a contribution",
            ),
            stopped=stopped,
        ),
    )


def sub_questions(index: Index, query: Query) -> list[Query]:
    """The sides of the question as its model names them; the question itself where there is no model or no usable reply."""
    if query.model is None:
        return [query]
    asked = f"Question: {quote(query.text)}"
    reply = query.model.ask(SubQuestions, read_prompt("graph/decompose.txt"), [asked], MAX_REPLY_TOKENS)[0]
    texts = [text for text in map(plain, reply.questions if reply is not None else ()) if text]
    if not texts:
        return [query]
    texts = list(dict.fromkeys(texts))[:MAX_QUESTIONS]
    vectors_QD = index.encode_queries(texts)
    return [Query(text, each_D, query.model) for text, each_D in zip(texts, vectors_QD, strict=True)]


def choose_sides(index: Index, query: Query, anchors: Sequence[int]) -> list[Side]:
    """The communities that cover the anchors, in the order chosen, as far as the token budget goes."""
    around, propositions = np.array(anchors, np.int64), len(index.data.proposition_ids)
    nested = nested_communities(index.hub_graph_VV, index.communities_V, around, MIN_NODES, index.settings.seed)
    rows_C, proposition_CN = candidate_communities(nested, propositions)
    count_tokens = query.model.count_tokens if query.model is not None else index.count_tokens
    cosines_N = index.data.proposition_vectors_ND @ query.vector_D
    read: dict[int, Side] = {}

    def cost(row: int) -> int:
        members = nested.members[row]
        read[row], tokens = read_side(index, members[members < propositions], cosines_N, count_tokens)
        return tokens

    rows = greedy_cover(around, nested, rows_C, proposition_CN, cost, MAX_TOKENS_IN_ALL)
    return [read[row] for row in rows]


def read_side(index: Index, members: Ints, cosines_N: Floats, count_tokens: Callable[[str], int]) -> tuple[Side, int]:
    """The members nearest to the question, MAX_COMMUNITY_TOKENS at most, and their tokens; one too long is skipped."""
    kept, tokens = [], 0
    for row in members[np.argsort(-cosines_N[members], kind="stable")].tolist():
        length = count_tokens(index.data.proposition_texts[row])
        if tokens + length <= MAX_COMMUNITY_TOKENS:
            kept.append(row)
            tokens += length
    rows = np.array(kept, np.int64)
    _, passages = expand_rows(index.proposition_passage_NP, rows)
    return Side(rows, np.array(list(dict.fromkeys(passages.tolist())), np.int64)), tokens


def contributions(index: Index, query: Query, sides: Sequence[Side]) -> list[tuple[Finding, Side]]:
    """What each side contributes as the model says, best first; sides that it finds nothing in are left out."""
    if query.model is None:
        return []
    texts = index.data.proposition_texts
    users = [list_statements(query.text, [texts[row] for row in side.propositions]) for side in sides]
    replies = query.model.ask(Contribution, read_prompt("graph/facet.txt"), users, MAX_REPLY_TOKENS)
    found = [
        (Finding(query.text, plain(reply.answer), _passage_ids(index, side), reply.score / 100), side)
        for reply, side in zip(replies, sides, strict=True)
        if reply is not None and reply.score > 0 and plain(reply.answer)
    ]
    return sorted(found, key=lambda pair: -pair[0].score)


def take_turns(lists: Sequence[Sequence[int]]) -> list[int]:
    """The first of each list, then the second of each, and so on; each item once.

    >>> take_turns([[1, 2, 3], [4, 1], [5]])
    [1, 4, 5, 2, 3]
    """
    turns = (item for turn in zip_longest(*lists) for item in turn if item is not None)
    return list(dict.fromkeys(turns))


def _passage_ids(index: Index, side: Side) -> tuple[str, ...]:
    return tuple(index.data.passage_ids[row] for row in side.passages)


def _path_of(row: int, sides: Sequence[Side]) -> tuple[str, ...]:
    for number, side in enumerate(sides, start=1):
        if row in side.passages:
            return (f"community {number} of {len(sides)} around the question's anchors",)
    return ("near to the question by itself",)
