"""`paths` and `local`: links between the propositions of a path, hand-worked scores, selection and suggestions (docs/developers/behaviours.md, 22)."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity
from graph.retrieve.learned.selectors import select_by_threshold
from graph.retrieve.modes.paths import beam_search, min_max, neighbours, path_score
from graph.retrieve.parts.query import Query, RetrieveSettings, SuggestSettings
from graph.retrieve.parts.ranking import top_rows
from graph.retrieve.parts.suggest import suggest
from graph.retrieve.retrieve import retrieve


def test_min_max_of_a_constant_list_is_1() -> None:
    assert min_max(np.array([2.0, 2.0], np.float32)).tolist() == [1, 1]
    assert min_max(np.array([1.0, 3.0, 2.0], np.float32)).tolist() == [0, 1, 0.5]


def test_the_score_of_a_path_of_one_proposition_is_its_cosine_and_all_lengths_share_one_scale() -> None:
    vectors = np.array([[1, 0], [0, 1]], np.float32)
    query = np.array([0.6, 0.8], np.float32)
    assert path_score(vectors[:1], vectors[:1] @ query, 0) == pytest.approx(0.6)
    assert path_score(vectors, vectors @ query, 0) == pytest.approx(1.4 / np.sqrt(2))


def test_each_proposition_of_a_path_shares_an_entity_with_the_one_before_or_is_one_of_the_three_best(
    isles: Index,
) -> None:
    rows = np.arange(len(isles.data.proposition_ids))
    near = neighbours(isles, isles.data.proposition_entity_NE, rows).toarray() > 0
    assert (near & ~np.eye(len(rows), dtype=bool)).any()
    questions = ["Who founded the yard that built the Lantern?", *isles.data.proposition_texts]
    for query in isles.encode_queries(questions):
        similarity_N = normalised_similarity(isles, isles.data.proposition_vectors_ND @ query)
        found = beam_search(isles, rows, similarity_N)
        starts = set(top_rows(similarity_N, 3).tolist())
        assert any(len(path.propositions) == 3 for path in found)
        for path in found:
            assert len(set(path.propositions)) == len(path.propositions)
            assert all(near[a, b] or b in starts for a, b in pairwise(path.propositions))
        assert [path.score for path in found] == sorted((path.score for path in found), reverse=True)


@pytest.mark.long
def test_the_memory_of_a_search_for_paths_does_not_grow_with_the_number_of_linked_pairs(isles: Index) -> None:
    """Two thousand propositions that all mention Tarn; half the pairs would need 16 MB."""
    tarn = list(isles.data.entity_texts).index("tarn")
    rows = isles.entity_proposition_EN[[tarn], :].indices.repeat(500)
    tracemalloc.start()
    found = beam_search(isles, rows, isles.data.proposition_vectors_ND @ isles.encode_queries(["Tarn"])[0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) >= 2000 and found and peak < 16e6, (len(rows), peak)


def test_selection_by_threshold_keeps_similar_propositions_in_order_and_without_repeats(isles: Index) -> None:
    similarity_N = normalised_similarity(
        isles, isles.data.proposition_vectors_ND @ (query_D := isles.data.proposition_vectors_ND[0])
    )
    rows = np.argsort(-similarity_N, kind="stable")
    selected = select_by_threshold(isles, Query("", query_D), np.concatenate([rows, rows[:2]]))
    assert selected.tolist() == [row for row in rows if similarity_N[row] >= 0.6] and 0 < len(selected) < len(rows)
    assert select_by_threshold(isles, Query("", query_D), np.array([], np.int64)).tolist() == []


def test_suggestions_are_new_and_follow_shared_names(isles: Index) -> None:
    texts = [isles.data.proposition_texts[row] for row in range(len(isles.data.proposition_ids))]
    known = np.array([texts.index("Lantern was built in 1911 by the Marlow Yard.")])
    cosines = isles.data.proposition_vectors_ND @ isles.encode_queries(["Who founded the Marlow Yard?"])[0]
    found = suggest(isles, cosines, known, 3, SuggestSettings())
    assert known[0] not in found.rows and found.mass.min() > 0
    assert any("Marlow Yard" in texts[row] for row in found.rows)
    assert len(suggest(isles, cosines, np.array([], np.int64), 3, SuggestSettings()).rows) == 0


def test_local_without_a_selector_selects_by_the_threshold(isles: Index) -> None:
    """The question is similar to more propositions than the walk starts from."""
    question = " ".join(isles.data.proposition_texts[row] for row in range(10))
    without, threshold = (
        retrieve(isles, question, RetrieveSettings(mode="local", selector=name)) for name in ("none", "threshold")
    )
    assert threshold.trace.steps[0] == "3 propositions to start from"
    assert (without.passages, without.trace.steps) == (threshold.passages, threshold.trace.steps)


@pytest.mark.parametrize("mode", ["paths", "local"])
def test_a_single_hop_question_finds_its_passage_first(isles: Index, mode: str) -> None:
    settings = RetrieveSettings(mode=mode, top_k=5)  # type: ignore[arg-type]
    found = retrieve(isles, "From what is kelp bread baked?", settings)
    assert found.passages[0].item.source == "bread"
    assert len({passage.item.id for passage in found.passages}) == len(found.passages)
