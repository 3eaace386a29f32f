"""The mode `global`: anchors, communities that cover them, contributions; formulas are compared with a slow reference or with a case worked by hand."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.answer.context import build_context, in_prompt_order
from graph.build.build import build_index
from graph.hierarchy.communities import NestedCommunities, find_communities, nested_communities
from graph.index.index import Index, open_index
from graph.random_walk import (
    bipartite_transition,
    personalised_pagerank,
    query_aware_transition,
    query_aware_walks,
    row_normalised,
)
from graph.retrieve.modes.global_mode import (
    MAX_COMMUNITY_TOKENS,
    Anchors,
    Visit,
    candidate_communities,
    choose_communities,
    collect_anchors,
    greedy_cover,
    partition,
    refine_queries,
    view_community,
)
from graph.retrieve.parts.query import Query, RetrieveSettings, SuggestSettings
from graph.retrieve.retrieve import retrieve
from graph.store.index_settings import IndexSettings
from graph.types import Document, Evidence, Finding, Ints
from serve.engines.openai_api import open_openai
from tests.corpora import guild_documents
from tests.fakes import HashEncoder, ScriptedModel, chat_server
from tests.graph.hashed import query_of

QUESTION = "How do the guilds of the islands live?"


@pytest.fixture(scope="module")
def guilds(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("guilds") / "index"
    build_index(folder, guild_documents(), IndexSettings(), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0.05, 0.95))
@settings(max_examples=40, deadline=None)
def test_walks_of_many_queries_equal_those_of_each_query_alone(seed: int, weight: float, damping: float) -> None:
    random = np.random.default_rng(seed)
    pattern = (random.random((9, 9)) < 0.3) & ~np.eye(9, dtype=bool)
    structure = row_normalised(sp.csr_array(np.where(pattern, random.random((9, 9)), 0).astype(np.float32)))
    attracted = np.where(random.random((9, 4)) < 0.6, random.random((9, 4)), 0).astype(np.float32)
    restart = np.eye(9, 4, dtype=np.float32)
    together = query_aware_walks(structure, attracted, restart, weight, damping)
    assert np.allclose(together.sum(axis=0), 1, atol=1e-5)
    for q in range(4):
        alone = personalised_pagerank(
            query_aware_transition(structure, attracted[:, q], weight), restart[:, [q]], damping
        )
        assert np.allclose(together[:, q], alone[:, 0], atol=2e-5)


def test_refined_queries_equal_a_calculation_by_hand(guilds: Index) -> None:
    unit = np.eye(guilds.data.proposition_vectors_ND.shape[1], dtype=np.float32)
    visits = [
        Visit(np.array([3, 5]), np.stack([unit[0], unit[1]]), unit[7]),
        Visit(np.array([5]), unit[[2]], np.zeros_like(unit[0])),
    ]
    positive = guilds.data.proposition_vectors_ND
    expected_3 = 1.0 * unit[0] + 0.7 * positive[3] - 0.15 * unit[7]
    expected_5 = 1.0 * (unit[1] + unit[2]) / 2 + 0.7 * positive[5] - 0.15 * unit[7] / 2
    refined = refine_queries(guilds, [5, 3], visits)
    assert np.allclose(refined[0], expected_5 / np.linalg.norm(expected_5), atol=1e-6)
    assert np.allclose(refined[1], expected_3 / np.linalg.norm(expected_3), atol=1e-6)


@given(st.integers(1, 60), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_parts_contain_every_row_once_and_differ_in_size_by_at_most_one(guilds: Index, rows: int, count: int) -> None:
    chosen = np.arange(rows)
    parts = partition(guilds, chosen, count)
    assert sorted(np.concatenate(parts).tolist()) == chosen.tolist()
    assert len(parts) == min(rows, count) and max(map(len, parts)) - min(map(len, parts)) <= 1


def more_similar_half(index: Index, query: Query, rows: Ints) -> Ints:
    """A selector that keeps the half of the given rows that is more similar to the query."""
    similarity_n = index.data.proposition_vectors_ND[rows] @ query.vector_D
    return rows[np.sort(np.argsort(-similarity_n, kind="stable")[: (len(rows) + 1) // 2])]


def test_anchors_are_collected_in_rounds_and_each_occurs_once(guilds: Index) -> None:
    anchors = Anchors()
    query = query_of(guilds, QUESTION)
    collect_anchors(guilds, query, [query], more_similar_half, anchors, SuggestSettings())
    assert len(set(anchors.rows)) == len(anchors.rows) == sum(anchors.per_round)
    assert 0 < anchors.per_round[0] <= 20 and len(anchors.rows) > anchors.per_round[0]
    again = Anchors()
    collect_anchors(guilds, query, [query], more_similar_half, again, SuggestSettings())
    assert again == anchors


def test_communities_nest_and_only_those_around_the_anchors_are_split(guilds: Index) -> None:
    graph, top = guilds.hub_graph_VV, guilds.communities_V
    everything = np.arange(graph.shape[0])
    nested = nested_communities(graph, top, everything, 10, 0)
    roots = np.flatnonzero(nested.parents < 0)
    assert sorted(np.concatenate([nested.members[row] for row in roots]).tolist()) == everything.tolist()
    for row, parent in enumerate(nested.parents):
        assert (np.diff(nested.members[row]) > 0).all()
        if parent >= 0:
            assert parent < row and len(nested.members[parent]) >= 20
            assert set(nested.members[row]) < set(nested.members[parent])
    assert (nested.parents >= 0).any()
    anchors = np.array([4, 17])
    few = nested_communities(graph, top, anchors, 10, 0)
    assert {tuple(m) for m in few.members} == {tuple(m) for m in nested.members if np.isin(anchors, m).any()}


def test_communities_do_not_depend_on_concurrent_searches(guilds: Index) -> None:
    def find(seed: int) -> list[int]:
        return find_communities(guilds.hub_graph_VV, "igraph", seed).tolist()

    seeds = [0, 1, 2, 3] * 4
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(find, seeds)) == [find(seed) for seed in [0, 1, 2, 3]] * 4


def cover(
    anchors: list[int], members: list[list[int]], parents: list[int], cost: dict[int, int], budget: int
) -> list[int]:
    nested = NestedCommunities(tuple(np.array(each) for each in members), np.array(parents))
    block = np.zeros((len(members), 100), np.float32)
    for row, each in enumerate(members):
        block[row, each] = 1
    rows = np.arange(len(members))
    return greedy_cover(
        np.array(anchors, np.int64), nested, rows, sp.csr_array(block), lambda row: cost.get(row, 1), budget
    )


def test_the_cover_chooses_the_community_with_the_most_uncovered_anchors_for_its_size() -> None:
    members = [[0, 1, 2, 3], [0, 1], [4, 5, 6], [7, 8]]
    # The communities are worth 3/4, 2/2, 1/3 and 0, so community 1 is first. Of community 0 only anchor 2 then remains: 1/4, less than community 2's 1/3.
    assert cover([0, 1, 2, 4], members, [-1] * 4, {}, 9) == [1, 2, 0]


def test_a_community_that_costs_too_much_is_skipped_and_the_choice_continues() -> None:
    members = [[0, 1], [2, 3], [4, 5]]
    assert cover([0, 1, 2, 3, 4], members, [-1] * 3, {0: 50}, 9) == [1, 2]
    assert cover([0, 1, 2, 3, 4], members, [-1] * 3, {0: 8, 1: 2}, 9) == [0, 2]


def test_no_ancestor_or_descendant_of_a_chosen_community_is_chosen() -> None:
    members = [[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1]]
    parents = [-1, 0, 0, 1]
    assert cover([0, 1, 4], members, parents, {}, 9) == [3, 2]
    assert cover([0, 1, 2, 3, 4, 5], members[:1] + members[3:], [-1, 0], {}, 9) == [0]


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_cover_stays_within_its_budget_and_omits_no_affordable_community_with_an_uncovered_anchor(
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    members = [sorted(random.choice(30, size=random.integers(1, 8), replace=False).tolist()) for _ in range(12)]
    cost = {row: int(random.integers(1, 6)) for row in range(12)}
    anchors = sorted(random.choice(30, size=10, replace=False).tolist())
    budget = int(random.integers(1, 30))
    chosen = cover(anchors, members, [-1] * 12, cost, budget)
    covered = {each for row in chosen for each in members[row]}
    left = budget - sum(cost[row] for row in chosen)
    assert left >= 0 and len(set(chosen)) == len(chosen)
    for row in set(range(12)) - set(chosen):
        assert cost[row] > left or not set(members[row]) & set(anchors) - covered


def test_candidates_are_of_medium_size_and_contain_only_propositions() -> None:
    sizes, parents = [151, 150, 10, 9, 9], [-1, 0, 1, 1, -1]
    nested = NestedCommunities(tuple(np.arange(size) for size in sizes), np.array(parents))
    rows, block = candidate_communities(nested, 8)
    assert rows.tolist() == [1, 2, 4] and block.toarray().tolist() == [[1] * 8] * 3


def test_a_statement_that_does_not_fit_is_skipped_and_shorter_ones_follow(guilds: Index) -> None:
    members = np.arange(5)
    cosines = np.array([0.1, 0.9, 0.8, 0.7, 0.2], np.float32)
    lengths = {1: 1_500, 2: 600, 3: 500, 4: 1, 0: 1}
    texts = {guilds.data.proposition_texts[row]: tokens for row, tokens in lengths.items()}
    community, tokens = view_community(guilds, members, cosines, texts.__getitem__)
    assert community.propositions.tolist() == [1, 3] and tokens == MAX_COMMUNITY_TOKENS == 2_000


def test_chosen_communities_cover_the_anchors_and_list_their_passages(guilds: Index) -> None:
    anchors = [0, 10, 20, 30]
    communities = choose_communities(guilds, query_of(guilds, QUESTION), anchors)
    assert set(anchors) <= {int(row) for community in communities for row in community.propositions}
    for community in communities:
        linked = guilds.proposition_passage_NP[community.propositions, :].indices
        assert set(community.passages) == set(linked.tolist())


def test_the_best_excerpts_are_moved_to_both_ends_of_the_context() -> None:
    found = Evidence("", findings=(Finding("Who?", "Ada", (), 1.0),))
    assert in_prompt_order((1, 2, 3, 4, 5), found) == (1, 3, 5, 4, 2)  # type: ignore[arg-type, comparison-overlap]
    assert in_prompt_order((), found) == ()


def test_without_a_model_the_passages_come_from_several_guilds(guilds: Index) -> None:
    found = retrieve(guilds, QUESTION, RetrieveSettings(mode="global", top_k=5))
    guilds_found = {passage.item.source.split("-")[0] for passage in found.passages}
    assert len(found.passages) == 5 and len(guilds_found) >= 3
    assert [passage.score for passage in found.passages] == [1 / place for place in range(1, 6)]
    assert len(found.paths) == 5 and found.trace.model_calls == 0
    assert len(retrieve(guilds, QUESTION, RetrieveSettings(mode="global", top_k=40)).passages) == 40


def reply_with_score(score: Callable[[str], int]) -> Callable[[dict[str, Any]], str]:
    def reply_to(body: dict[str, Any]) -> str:
        field = next(iter(body["response_format"]["json_schema"]["schema"]["properties"]))
        user = body["messages"][1]["content"]
        if field == "questions":
            return json.dumps({"questions": ["How do the Netmakers live?", "", "How do the Saltboilers live?"]})
        first = user.split("\n")[2]
        return json.dumps({"answer": f"About {first[4:30]}", "score": score(user)})

    return reply_to


@pytest.mark.long
def test_contributions_come_best_first_and_their_calls_run_concurrently(guilds: Index) -> None:
    reply_to = reply_with_score(
        lambda user: 90 if "Saltboilers" in user.split("\n")[2] else 40 if "Netmakers" in user else 0
    )

    def reply_slowly(body: dict[str, Any], number: int) -> str:
        time.sleep(0.05)
        return reply_to(body)

    with chat_server(reply_slowly) as server:
        found = retrieve(guilds, QUESTION, RetrieveSettings(mode="global", top_k=4), open_openai(f"m@{server.url}"))
        assert server.max_running > 1
    scores = [finding.score for finding in found.findings]
    assert scores == sorted(scores, reverse=True) and set(scores) <= {0.9, 0.4} and len(scores) >= 2
    assert found.trace.model_calls == 1 + int(found.trace.steps[1].split()[0])
    excerpts = build_context(found, 4)
    assert [each.title for each in (excerpts[0], excerpts[-1])] == ["Found on the way"] * 2
    assert excerpts[0].members == found.findings[0].passage_ids and set(excerpts[0].members) <= set(
        guilds.data.passage_ids
    )


def test_without_a_usable_reply_the_result_equals_that_without_a_model(guilds: Index) -> None:
    model = ScriptedModel(lambda request: "no JSON at all")
    found = retrieve(guilds, QUESTION, RetrieveSettings(mode="global", top_k=3), model)
    plain = retrieve(guilds, QUESTION, RetrieveSettings(mode="global", top_k=3))
    assert found.passages == plain.passages and found.findings == () and found.trace.stopped == ""


@pytest.mark.parametrize("reply", ["", "Not in the documents.", "Unknown"])
def test_a_refusal_is_no_contribution(guilds: Index, reply: str) -> None:
    model = ScriptedModel(lambda request: json.dumps({"questions": [QUESTION], "answer": reply, "score": 90}))
    found = retrieve(guilds, QUESTION, RetrieveSettings(mode="global", top_k=3), model)
    assert len(model.requests) > 1 and found.findings == () and ", 0 with a contribution" in found.trace.steps[1]


def test_the_walk_is_prepared_before_threads_need_it(guilds: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on, each thread would prepare its own."""
    fresh, preparing = open_index(guilds.folder, lambda spec: HashEncoder()), list[threading.Thread]()

    def prepare(block: sp.csr_array) -> sp.csr_array:
        preparing.append(threading.current_thread())
        return bipartite_transition(block)

    monkeypatch.setattr("graph.index.index.bipartite_transition", prepare)
    found = retrieve(fresh, QUESTION, RetrieveSettings(mode="global", top_k=5))
    assert preparing == [threading.current_thread()] and "+" in found.trace.steps[0]


def test_in_an_index_without_propositions_passages_are_still_found(tmp_path: Path) -> None:
    build_index(tmp_path / "i", [Document("a", "", "Hm.")], IndexSettings(), lambda spec: HashEncoder())
    index = open_index(tmp_path / "i", lambda spec: HashEncoder())
    rows: Ints = np.zeros(0, np.int64)
    assert choose_communities(index, query_of(index, QUESTION), rows.tolist()) == []
    assert len(retrieve(index, QUESTION, RetrieveSettings(mode="global")).passages) == 1
