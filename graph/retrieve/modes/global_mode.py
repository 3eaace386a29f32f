"""`global` (ToPG §2.3.3): a broad question, answered community by community.

Anchors (B.3–B.4, Algorithm 2): the graph is explored from every selected proposition with a query of its own (Rocchio); the selector prunes the results.
Communities that cover the anchors are chosen within a token budget (B.5, Algorithm 3). A model writes the contribution of each; contributions
become findings, best first. The passages come from the communities that contribute (from all if none does), in turn so that each is represented.

Legend: P passages, N propositions, C communities, n propositions of the pool or of a part of it, l of a subgraph,
D dimensions."""

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

from graph.answer.prompt import is_no_answer
from graph.errors import ModelUnavailable
from graph.hierarchy.communities import NestedCommunities, nested_communities
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.random_walk import attraction, query_aware_walks
from graph.retrieve.learned.selectors import Select, find_selector, further_queries, list_statements
from graph.retrieve.parts.query import Query, RetrieveSettings, SuggestSettings
from graph.retrieve.parts.ranking import first_passages, nearest, top_rows
from graph.retrieve.parts.suggest import TEMPERATURE, THRESHOLD, extract_subgraph, structure_of
from graph.text.prompting import quote, read_prompt
from graph.text.replies import ReplyModel, Sentence, as_one_line, at_most, sound_items
from graph.types import Evidence, Finding, Floats, Ints, Scored, Trace

BREADTH, SUGGESTED = 10, 20
"""The number of parallel explorations, and the number of propositions that each offers to the selector."""
MIN_ANCHORS, MAX_ROUNDS = 200, 5
ORIGIN, POSITIVE, NEGATIVE = 1.0, 0.7, 0.15
"""α, β and γ of Eq. 11."""


@dataclass(frozen=True)
class Visit:
    """The result of one exploration: selected rows, the query [D] that led to each, and the mean vector [D] of the rows that the selector dropped."""

    rows: Ints
    queries_nD: Floats
    pruned_D: Floats


@dataclass
class Anchors:
    """The anchors in the order of discovery, and how many each round added; `collect_anchors` fills both lists."""

    rows: list[int] = field(default_factory=list)
    per_round: list[int] = field(default_factory=list)


def collect_anchors(
    index: Index, start: Query, questions: Sequence[Query], select: Select, anchors: Anchors, settings: SuggestSettings
) -> None:
    """Fill `anchors`: first with the selected propositions among those nearest to each of `questions`, then round by round,
    until there are MIN_ANCHORS, a round adds none, or MAX_ROUNDS have run.

    After ModelUnavailable, `anchors` contains the anchors of the finished rounds.
    """
    _ = index.bipartite_chain  # Each thread would compute it.
    visits = _in_threads(partial(_visit_nearest, index, select), questions)
    while pool := _add_visits(anchors, visits):
        if len(anchors.rows) >= MIN_ANCHORS or len(anchors.per_round) > MAX_ROUNDS:
            return
        queries_nD = refine_queries(index, pool, visits)
        rows_n = np.array(pool, np.int64)
        parts = partition(index, rows_n, BREADTH)
        explore = partial(_visit_by_walk, index, select, settings, np.array(anchors.rows, np.int64))
        seeds, queries = [rows_n[part] for part in parts], [queries_nD[part] for part in parts]
        visits = _in_threads(explore, [start] * len(parts), seeds, queries)


def _in_threads(visit: Callable[..., Visit], queries: Sequence[Query], *parts: Sequence[Ints | Floats]) -> list[Visit]:
    """`visit` of each query and its parts, in parallel threads. All calls of the model are counted, even if one fails; of the durations, only the longest."""
    with queries_of_threads(queries) as thread_queries, ThreadPoolExecutor(max_workers=BREADTH) as threads:
        return list(threads.map(visit, thread_queries, *parts))


@contextmanager
def queries_of_threads(queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
    """The queries for parallel threads, each with a separate Caller (if there is a model); of the threads' durations, only the longest is counted."""
    model = queries[0].model
    if model is None:
        yield queries
        return
    with model.in_threads(len(queries)) as callers:
        yield [replace(query, model=caller) for query, caller in zip(queries, callers, strict=True)]


def refine_queries(index: Index, rows: Sequence[int], visits: Sequence[Visit]) -> Floats:
    """q_i = α q_i° + β h(u_i) − γ q_i⁻ (Eq. 11) for each of `rows`, unit length: float32[n, D]."""
    origins: dict[int, list[Floats]] = defaultdict(list)
    negatives: dict[int, list[Floats]] = defaultdict(list)
    for visit in visits:
        for row, origin_D in zip(visit.rows.tolist(), visit.queries_nD, strict=True):
            origins[row].append(origin_D)
            negatives[row].append(visit.pruned_D)
    origin_nD = np.stack([np.mean(origins[row], axis=0) for row in rows])
    negative_nD = np.stack([np.mean(negatives[row], axis=0) for row in rows])
    positive_nD = index.data.proposition_vectors_ND[list(rows)]
    queries_nD = ORIGIN * origin_nD + POSITIVE * positive_nD - NEGATIVE * negative_nD
    return np.asarray(queries_nD / np.linalg.norm(queries_nD, axis=1, keepdims=True), np.float32)


def partition(index: Index, rows_n: Ints, count: int) -> list[Ints]:
    """The positions of `rows_n` in document order, in at most `count` parts of about equal size."""
    first_n = index.data.occurrence_passage_M[np.searchsorted(index.data.occurrence_proposition_M, rows_n)]
    order = np.lexsort((rows_n, first_n))
    return [part for part in np.array_split(order, min(count, len(rows_n))) if len(part)]


def _visit_nearest(index: Index, select: Select, question: Query) -> Visit:
    """The propositions nearest to a question, pruned by the selector."""
    near, _ = nearest(index.data.proposition_vectors_ND, question.vector_D, SUGGESTED)
    selected = select(index, question, near)
    queries_nD = np.tile(question.vector_D, (len(selected), 1))
    return Visit(selected, queries_nD, _mean_vector(index, np.setdiff1d(near, selected)))


def _visit_by_walk(
    index: Index,
    select: Select,
    settings: SuggestSettings,
    known: Ints,
    start: Query,
    seeds_n: Ints,
    queries_nD: Floats,
) -> Visit:
    """SuggestGlobal (Eq. 10): one walk from each seed with its own query; the propositions that the walks visit most, pruned by the selector."""
    rows_l = extract_subgraph(index, seeds_n)
    structure_ll = structure_of(index, rows_l)
    near_ln = normalised_similarity_to(index, queries_nD, index.data.proposition_vectors_ND[rows_l] @ queries_nD.T)
    attracted_ln = attraction(near_ln, TEMPERATURE, THRESHOLD)
    restart_ln = np.zeros((len(rows_l), len(seeds_n)), np.float32)
    restart_ln[np.searchsorted(rows_l, seeds_n), np.arange(len(seeds_n))] = 1
    mass_ln = query_aware_walks(structure_ll, attracted_ln, restart_ln, settings.structure_weight, settings.damping)
    mass_ln[np.isin(rows_l, known)] = 0
    total_l = mass_ln.sum(axis=1)
    best = top_rows(total_l, min(SUGGESTED, int((total_l > 0).sum())))
    selected = select(index, start, rows_l[best])
    walker = mass_ln[np.searchsorted(rows_l, selected)].argmax(axis=1) if len(selected) else np.zeros(0, np.int64)
    return Visit(selected, queries_nD[walker], _mean_vector(index, np.setdiff1d(rows_l[best], selected)))


def _mean_vector(index: Index, rows: Ints) -> Floats:
    """The mean vector of some propositions; zeros for none."""
    vectors_nD = index.data.proposition_vectors_ND
    return vectors_nD[rows].mean(axis=0) if len(rows) else np.zeros(vectors_nD.shape[1], np.float32)


def _add_visits(anchors: Anchors, visits: Sequence[Visit]) -> list[int]:
    """Add the new rows of `visits` to `anchors` and return them."""
    known = set(anchors.rows)
    new = [row for row in dict.fromkeys(row for visit in visits for row in visit.rows.tolist()) if row not in known]
    anchors.rows += new
    anchors.per_round.append(len(new))
    return new


MIN_NODES, MAX_NODES = 10, 150


def candidate_communities(nested: NestedCommunities, propositions: int) -> tuple[Ints, sp.csr_array]:
    """Communities of 10 to 150 nodes (smaller ones only at the top level), and their propositions: CSR[C, N] of ones."""
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
    """The chosen rows of `nested`, in the order of choice: each time, the community with the most uncovered anchors per node, ties by row.

    A community that exceeds the remaining budget is skipped; one that encloses a chosen community, or is within one, is
    never chosen. Ends when no community covers another anchor.
    """
    uncovered_N = np.zeros(proposition_CN.shape[1], np.float32)
    uncovered_N[anchors] = 1
    rows = rows_C.tolist()
    size_C = np.array([len(nested.members[row]) for row in rows], np.float32)
    open_C = np.ones(len(rows), bool)
    enclosing_C = [enclosing_communities(nested.parents, row) for row in rows]
    chosen: list[int] = []
    while open_C.any():
        worth_C: Floats = np.where(open_C, proposition_CN @ uncovered_N / size_C, 0)
        best = int(worth_C.argmax())
        if worth_C[best] <= 0:
            break
        open_C[best] = False
        price = cost(rows[best])
        if price > budget:
            continue
        budget -= price
        chosen.append(rows[best])
        uncovered_N[proposition_CN.indices[proposition_CN.indptr[best] : proposition_CN.indptr[best + 1]]] = 0
        pairs = zip(rows, enclosing_C, strict=True)
        open_C &= np.array([rows[best] not in above and row not in enclosing_C[best] for row, above in pairs])
    return chosen


def enclosing_communities(parents: Ints, row: int) -> frozenset[int]:
    """The communities that enclose a community, and that community itself.

    >>> sorted(enclosing_communities(np.array([-1, 0, 1, 0]), 2))
    [0, 1, 2]
    """
    enclosing: list[int] = []
    while row >= 0:
        enclosing.append(row)
        row = int(parents[row])
    return frozenset(enclosing)


MAX_QUESTIONS = 10
MAX_COMMUNITY_TOKENS, MAX_TOKENS_IN_ALL = 2_000, 16_000
"""The maximum numbers of tokens in the statements of one community, and of all communities of a question together."""
MAX_REPLY_TOKENS = 600


class SubQuestions(ReplyModel):
    questions: Annotated[list[Sentence], sound_items(str), at_most("maxItems", MAX_QUESTIONS)]


class Contribution(ReplyModel):
    answer: Annotated[str, at_most("maxLength", 500)]
    score: int = Field(ge=0, le=100)


@dataclass(frozen=True)
class CommunityView:
    """One community's propositions nearest to the question, and their passages; best first."""

    propositions: Ints
    passages: list[int]


def retrieve_global(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages: first those of communities around the question's anchors, then the nearest; with a model, also a finding for each contribution."""
    select = find_selector(settings.selector, query)
    anchors, findings, stopped = Anchors(), [], ""
    communities: list[CommunityView] = []
    try:
        collect_anchors(index, query, sub_questions(index, query), select, anchors, settings.suggestions)
        communities = choose_communities(index, query, anchors.rows)
        findings = contributions(index, query, communities)
    except ModelUnavailable as problem:
        stopped = str(problem)
        communities = communities or choose_communities(index, query, anchors.rows)
    sources = [community for _, community in findings] or communities
    candidates = take_turns([community.passages for community in sources])
    near, _ = nearest(index.data.passage_vectors_PD, query.vector_D, settings.top_k)
    rows = list(dict.fromkeys([*candidates, *near.tolist()]))[: settings.top_k]
    steps = (
        f"{len(anchors.rows)} anchors ({' + '.join(map(str, anchors.per_round))})",
        f"{len(communities)} communities, {len(findings)} with a contribution",
    )
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), 1 / rank) for rank, row in enumerate(rows, start=1)),
        paths=tuple(_path_of(row, sources) for row in rows),
        findings=tuple(finding for finding, _ in findings),
        trace=Trace("global", steps, stopped=stopped),
    )


def sub_questions(index: Index, query: Query) -> list[Query]:
    """The model's sub-questions; the question itself without a model or a usable reply."""
    if query.model is None:
        return [query]
    prompt = f"Question: {quote(query.text)}"
    reply = query.model.ask(SubQuestions, read_prompt("graph/decompose.txt"), [prompt], MAX_REPLY_TOKENS)[0]
    return further_queries(index, query, reply.questions if reply is not None else (), MAX_QUESTIONS) or [query]


def choose_communities(index: Index, query: Query, anchors: Sequence[int]) -> list[CommunityView]:
    """Communities that cover the anchors, in the order chosen, within the token budget."""
    anchor_rows, propositions = np.array(anchors, np.int64), len(index.data.proposition_ids)
    nested = nested_communities(index.hub_graph_VV, index.communities_V, anchor_rows, MIN_NODES, index.settings.seed)
    rows_C, proposition_CN = candidate_communities(nested, propositions)
    count_tokens = query.model.count_tokens if query.model is not None else index.count_tokens
    cosines_N = index.data.proposition_vectors_ND @ query.vector_D
    views: dict[int, CommunityView] = {}

    def cost(row: int) -> int:
        members = nested.members[row]
        views[row], tokens = view_community(index, members[members < propositions], cosines_N, count_tokens)
        return tokens

    rows = greedy_cover(anchor_rows, nested, rows_C, proposition_CN, cost, MAX_TOKENS_IN_ALL)
    return [views[row] for row in rows]


def view_community(
    index: Index, members: Ints, cosines_N: Floats, count_tokens: Callable[[str], int]
) -> tuple[CommunityView, int]:
    """The members nearest to the question, up to MAX_COMMUNITY_TOKENS, and the number of their tokens; a member that does not fit is skipped."""
    selected, tokens = [], 0
    for row in members[np.argsort(-cosines_N[members], kind="stable")].tolist():
        length = count_tokens(index.data.proposition_texts[row])
        if tokens + length <= MAX_COMMUNITY_TOKENS:
            selected.append(row)
            tokens += length
    rows = np.array(selected, np.int64)
    return CommunityView(rows, [passage for passage, _ in first_passages(index, rows)]), tokens


def contributions(
    index: Index, query: Query, communities: Sequence[CommunityView]
) -> list[tuple[Finding, CommunityView]]:
    """The model's contribution from each community, best first, without communities that contribute nothing."""
    if query.model is None:
        return []
    texts = index.data.proposition_texts
    prompts = [list_statements(query.text, [texts[row] for row in community.propositions]) for community in communities]
    replies = query.model.ask(Contribution, read_prompt("graph/facet.txt"), prompts, MAX_REPLY_TOKENS)
    pairs = [
        (Finding(query.text, answer, _passage_ids(index, community), reply.score / 100), community)
        for reply, community in zip(replies, communities, strict=True)
        if reply is not None and reply.score > 0 and not is_no_answer(answer := as_one_line(reply.answer))
    ]
    return sorted(pairs, key=lambda pair: -pair[0].score)


def take_turns(lists: Sequence[Sequence[int]]) -> list[int]:
    """The first of each list, then the second of each, and so on; each item once.

    >>> take_turns([[1, 2, 3], [4, 1], [5]])
    [1, 4, 5, 2, 3]
    """
    turns = (item for turn in zip_longest(*lists) for item in turn if item is not None)
    return list(dict.fromkeys(turns))


def _passage_ids(index: Index, community: CommunityView) -> tuple[str, ...]:
    return tuple(index.data.passage_ids[row] for row in community.passages)


def _path_of(row: int, communities: Sequence[CommunityView]) -> tuple[str, ...]:
    for number, community in enumerate(communities, start=1):
        if row in community.passages:
            return (f"community {number} of {len(communities)} around the question's anchors",)
    return ("similar to the question",)
