"""The features of candidates: computed by hand on a small index, and compared with slow references that use sets instead of arrays."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity
from graph.retrieve.hops import mode
from graph.retrieve.learned.light import (
    FARTHEST_HOPS,
    FEATURES,
    SEEDS,
    WALK,
    entity_counts,
    features_of,
    first_span,
    hops_from,
    lead_in_passage,
    log_ranks,
    named_by_seeds,
    pair_scores,
    shared_entities,
    shares_entity,
    view_of,
)
from graph.retrieve.modes.paths import path_score
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.suggest import suggest
from graph.retrieve.retrieve import retrieve
from graph.types import Document, Floats, Ints
from tests.corpora import ISLES
from tests.graph.hashed import build, query_of
from tests.graph.retrieve.wordless import leave_words_out
from tests.growth import assert_linear

FOG = Document("fog", "Fog", "Fog comes often. Nobody minds.")
QUESTION = "Where was the founder of the yard that built the Lantern (ferry) born?"


def selector_features(index: Index, query: Query, rows: Ints) -> Floats:
    return features_of(index, query, view_of(index, query), rows)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("features") / "index", [*ISLES, FOG])


def row_of(index: Index, words: str) -> int:
    """The row of the proposition that contains these words."""
    rows = [row for row, text in enumerate(index.data.proposition_texts) if words in text]
    assert len(rows) == 1, (words, list(index.data.proposition_texts))
    return rows[0]


def rows_of(index: Index, *words: str) -> np.ndarray:
    return np.array([row_of(index, each) for each in words], np.int64)


def column(values_nF: Floats, name: str) -> list[float]:
    return values_nF[:, FEATURES.index(name)].tolist()


def all_rows(index: Index) -> np.ndarray:
    return np.arange(len(index.data.proposition_ids))


def test_every_feature_is_a_finite_number_for_every_proposition(index: Index) -> None:
    values = selector_features(index, query_of(index, QUESTION), all_rows(index))
    assert values.shape == (len(index.data.proposition_ids), len(FEATURES)) and values.dtype == np.float32
    assert np.isfinite(values).all()


def test_no_candidates_give_no_rows(index: Index) -> None:
    assert selector_features(index, query_of(index, QUESTION), np.zeros(0, np.int64)).shape == (0, len(FEATURES))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_features_of_a_candidate_do_not_depend_on_the_other_candidates(index: Index, data: st.DataObject) -> None:
    query = query_of(index, QUESTION)
    whole = selector_features(index, query, all_rows(index))
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(whole))), min_size=1, unique=True)), np.int64)
    assert np.allclose(selector_features(index, query, rows), whole[rows], atol=1e-6)


def test_similarity_and_rank_match_a_calculation_by_hand(index: Index) -> None:
    query = query_of(index, QUESTION)
    cosines = [float(vector @ query.vector_D) for vector in index.data.proposition_vectors_ND]
    values = selector_features(index, query, all_rows(index))
    assert column(values, "similarity") == pytest.approx(
        normalised_similarity(index, np.array(cosines)).tolist(), abs=1e-6
    )
    nearer = [sum(other > each for other in cosines) for each in cosines]
    assert column(values, "log_rank") == pytest.approx([math.log(1 + count) for count in nearer], abs=1e-6)
    assert min(nearer) == 0


def test_equal_cosines_have_the_same_rank() -> None:
    ranks = log_ranks(np.array([0.1, 0.9, 0.5, 0.5], np.float32), np.array([0.5, 0.5, 0.1], np.float32))
    assert np.exp(ranks).round().tolist() == [2, 2, 4]


def test_lead_in_passage_is_the_margin_over_the_best_neighbour_in_the_passage(index: Index) -> None:
    cosines = np.linspace(-0.5, 0.9, len(index.data.proposition_ids)).astype(np.float32)
    for row in all_rows(index):
        passages = {span.passage_id for span in index.proposition(int(row)).spans}
        others = [
            float(cosines[other])
            for other in all_rows(index)
            if other != row and passages & {span.passage_id for span in index.proposition(int(other)).spans}
        ]
        expected = float(cosines[row]) - max(others) if others else 0.0
        rows = np.array([row])
        assert lead_in_passage(index, cosines, cosines[rows], rows).tolist() == pytest.approx([expected])


def test_pair_scores_are_the_scores_of_paths_of_two() -> None:
    drawn = np.random.default_rng(3).normal(size=(7, 5)).astype(np.float32)
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    query, candidates, seeds = vectors[0], vectors[1:4], vectors[4:]
    ties = np.array([[True, False, True], [False, False, False], [True, True, True]])
    for place, candidate in enumerate(candidates):
        pairs = [
            path_score(np.stack([candidate, seed]), np.stack([candidate, seed]) @ query, 0)
            for seed, is_tied in zip(seeds, ties[place], strict=True)
            if is_tied
        ]
        expected = max([float(candidate @ query), *pairs])
        found = pair_scores(candidates @ query, seeds @ query, candidates @ seeds.T, ties)
        assert found[place] == pytest.approx(expected, abs=1e-5)


def test_pair_scores_of_opposites_stay_finite() -> None:
    scores = pair_scores(np.array([0.4]), np.array([-0.4]), np.array([[-1.0]]), np.array([[True]]))
    assert scores.tolist() == [0.4]


def test_ties_and_shared_entities_match_a_reference_with_sets(index: Index) -> None:
    data, seeds = index.data, rows_of(index, "ferry of Port Ellery", "founded by Ada Marlow")
    entities = [set(data.proposition_entity_NE[[row], :].indices.tolist()) for row in all_rows(index)]
    mentions = [sum(entity in each for each in entities) for entity in range(len(data.entity_ids))]
    ties = shares_entity(index, all_rows(index), seeds)
    shared = shared_entities(index, all_rows(index), seeds)
    for row in all_rows(index):
        assert ties[row].tolist() == [bool(entities[row] & entities[seed]) for seed in seeds]
        others = set().union(*(entities[seed] for seed in seeds if seed != row))
        expected = sum(1 / (1 + math.log(mentions[entity])) for entity in entities[row] & others)
        assert float(shared[row]) == pytest.approx(expected, rel=1e-5)
    assert shared[row_of(index, "was born in Tarn")] > 0 and shared[row_of(index, "Nobody minds")] == 0


def test_entity_counts_count_each_of_the_given_entities(index: Index) -> None:
    entities = index.entity_rows(["tarn", "ada marlow"])
    rows = rows_of(index, "was born in Tarn", "is a village of", "Nobody minds")
    assert entity_counts(index, rows, entities).tolist() == [2, 1, 0]
    assert entity_counts(index, rows, entities[:0]).tolist() == [0, 0, 0]


def test_a_title_counts_only_if_another_document_names_it_and_few_documents_share_it(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = rows_of(index, "built in 1911 by the Marlow Yard", "stands in Quill")
    best = named_by_seeds(index, seeds, np.array([0.7, 0.9], np.float32))
    by_source = {index.passage(row).source: float(value) for row, value in enumerate(best)}
    assert by_source["marlow"] == pytest.approx(0.7)
    assert by_source["lantern"] == by_source["bread"] == 0
    monkeypatch.setattr(mode, "MAX_NAMESAKES", 0)
    assert not named_by_seeds(index, seeds, np.array([0.7, 0.9], np.float32)).any()


def test_hops_match_a_search_with_sets(index: Index) -> None:
    seeds = rows_of(index, "built in 1911 by the Marlow Yard")
    hubs = [set(index.incidence_NB[[row], :].indices.tolist()) for row in all_rows(index)]
    expected = {int(seeds[0]): 0}
    for hop in range(1, FARTHEST_HOPS):
        reached = set().union(*(hubs[row] for row, steps in expected.items() if steps == hop - 1))
        expected |= {int(row): hop for row in all_rows(index) if row not in expected and hubs[row] & reached}
    found = hops_from(index, seeds, all_rows(index))
    assert found.tolist() == [expected.get(int(row), FARTHEST_HOPS) for row in all_rows(index)]
    assert found[row_of(index, "Nobody minds")] == FARTHEST_HOPS
    assert set(found.tolist()) >= {0, 1, FARTHEST_HOPS}


def test_first_span_gives_position_and_length_of_the_first_occurrence(index: Index) -> None:
    text = ISLES[2].text
    place, length = first_span(index, rows_of(index, "was born in Tarn"))
    assert text[int(place[0]) : int(place[0] + length[0])] == "She was born in Tarn and died on 4 May 1931."


def test_document_named_is_set_if_the_question_names_the_document(index: Index) -> None:
    rows = rows_of(index, "ferry of Port Ellery", "Nobody minds")
    assert column(selector_features(index, query_of(index, QUESTION), rows), "document_named") == [1, 0]
    assert column(selector_features(index, query_of(index, "Who minds?"), rows), "document_named") == [0, 0]


def test_seeds_have_full_walk_mass_and_zero_hops_and_are_not_compared_with_themselves(index: Index) -> None:
    query = query_of(index, QUESTION)
    view = view_of(index, query)
    assert len(view.seeds_S) == SEEDS
    values = features_of(index, query, view, view.seeds_S)
    assert column(values, "walk_mass") == [1] * SEEDS and column(values, "hops") == [0] * SEEDS
    assert max(column(values, "seed_similarity")) < 0.999
    assert (view.mass_N <= 1).all() and (view.mass_N >= 0).all()


def test_walk_mass_is_the_square_root_of_the_ratio_to_the_largest_mass(index: Index) -> None:
    view = view_of(index, query_of(index, QUESTION))
    found = suggest(index, view.similarity_N, view.seeds_S, len(view.mass_N), WALK)
    assert len(found.rows) > 1
    expected = {int(row): math.sqrt(mass / found.mass[0]) for row, mass in zip(found.rows, found.mass, strict=True)}
    for row in set(range(len(view.mass_N))) - set(view.seeds_S.tolist()):
        assert float(view.mass_N[row]) == pytest.approx(expected.get(row, 0.0), abs=1e-6)


def test_the_hops_score_equals_the_score_of_the_mode_without_words(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A selector that was trained before `hops` used the question's words therefore still gets the same features."""
    with_words = selector_features(index, query_of(index, QUESTION), all_rows(index))
    leave_words_out(monkeypatch)
    found = retrieve(index, QUESTION, RetrieveSettings.model_validate({"mode": "hops", "top_k": 100}))
    score_of = {scored.item.id: scored.score for scored in found.passages}
    values = selector_features(index, query_of(index, QUESTION), all_rows(index))
    assert np.array_equal(values, with_words)
    for row, value in zip(all_rows(index), column(values, "hops_score"), strict=True):
        expected = max(score_of[span.passage_id] for span in index.proposition(int(row)).spans)
        assert value == pytest.approx(expected, abs=1e-5)


def test_the_time_is_linear_in_the_number_of_candidates(index: Index) -> None:
    def prepare(candidates: int) -> Callable[[], object]:
        query, rows = query_of(index, QUESTION), np.resize(all_rows(index), candidates)
        return lambda: selector_features(index, query, rows)

    assert_linear(prepare, 100)
