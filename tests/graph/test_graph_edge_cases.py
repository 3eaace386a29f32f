"""Edge cases of the graph: rows without an attractive neighbour, batches of queries, seeds, duplicates, unusual text and summaries of every layer.

docs/developers/behaviours.md, 3–6, 11, 13, 22, 24 and 25.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.answer.context import build_context
from graph.hierarchy.communities import find_communities
from graph.hierarchy.similarity import similarity_graph
from graph.hierarchy.summaries import choose_sentences
from graph.models.encoder import unit_rows
from graph.random_walk import (
    personalised_pagerank,
    query_aware_transition,
    query_aware_walks,
    restart_at,
    row_normalised,
)
from graph.retrieve.modes import paths
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.parts.ranking import top_rows
from graph.retrieve.retrieve import retrieve
from graph.types import CompletionRequest, Document, Floats
from tests.corpora import ISLES
from tests.fakes import HashEncoder, ScriptedModel
from tests.graph.hashed import build


@given(st.integers(0, 10_000), st.floats(0, 1), st.sampled_from([0.5, 0.85]))
@settings(max_examples=25, deadline=None)
def test_a_row_without_attractive_neighbours_keeps_its_structural_part_and_restarts_otherwise(
    seed: int, weight: float, damping: float
) -> None:
    """Such a row of T_n would be 0/0, so its transition is λ T_s + (1 − λ)·restart. The walk is compared with a dense solution."""
    draw = np.random.default_rng(seed)
    linked = (draw.random((8, 8)) < 0.3) & ~np.eye(8, dtype=bool)
    T_s = row_normalised(sp.csr_array(linked.astype(np.float32)))
    attraction = np.where(draw.random(8) < 0.3, draw.random(8) + 0.1, 0).astype(np.float32)
    restart = restart_at(np.array([int(draw.integers(8))]), 8)
    P = np.zeros((8, 8))
    for i in range(8):
        T_n = linked[i] * attraction
        P[i] += weight * T_s.toarray()[i] if linked[i].any() else weight * restart[:, 0]
        P[i] += (1 - weight) * (T_n / T_n.sum() if T_n.any() else restart[:, 0])
    assert np.allclose(P.sum(axis=1), 1)
    exact = np.linalg.solve(np.eye(8) - damping * P.T, (1 - damping) * restart[:, 0])
    alone = personalised_pagerank(query_aware_transition(T_s, attraction, weight), restart, damping)[:, 0]
    together = query_aware_walks(T_s, np.stack([attraction] * 2, axis=1), np.hstack([restart] * 2), weight, damping)
    assert np.allclose(alone, exact, atol=2e-5)
    assert np.allclose(together, exact[:, None], atol=2e-5)


@pytest.mark.parametrize("rows", [[], [-1], [3], [0, 7]])
def test_seeds_that_are_not_vertices_are_refused(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="seed"):
        restart_at(np.array(rows, np.int64), 3)


def test_a_batch_of_several_blocks_equals_single_runs() -> None:
    linked = np.random.default_rng(5).random((70, 70)) < 0.1
    T = row_normalised(sp.csr_array(linked.astype(np.float32)))
    batch = personalised_pagerank(T, np.eye(70, dtype=np.float32), 0.85)
    assert batch.shape == (70, 70)
    for row in (0, 31, 32, 63, 64, 69):
        assert np.allclose(batch[:, [row]], personalised_pagerank(T, restart_at(np.array([row]), 70), 0.85), atol=2e-6)


@pytest.mark.parametrize("method", ["leidenalg", "igraph"])
def test_the_same_seed_gives_the_same_communities_where_many_partitions_are_equally_good(method: str) -> None:
    linked = np.triu(np.random.default_rng(2).random((90, 90)) < 0.06, 1)
    graph = sp.csr_array((linked | linked.T).astype(np.float32))
    found = [find_communities(graph, method, seed).tolist() for seed in (7, 7, 7, 1, 2, 3)]  # type: ignore[arg-type]
    assert found[0] == found[1] == found[2] and found[1:].count(found[0]) < 5, (
        "at least one other seed should give other communities"
    )


KINDS = ("ship", "yard", "boat", "inn", "sail")


class KindEncoder(HashEncoder):
    """Encodes only the kind that a name begins with (one of KINDS), so that all names of a kind get the same vector."""

    def encode(self, texts: Sequence[str]) -> Floats:
        return super().encode([next((kind for kind in KINDS if text.startswith(kind)), text) for text in texts])


def test_synonyms_are_symmetric_independent_of_order_and_never_reflexive_among_duplicates(tmp_path: Path) -> None:
    documents = [
        Document(f"{kind}{n}", "", f"In Tarn we saw {kind.title()} {chr(65 + n)}x.")
        for kind in KINDS
        for n in range(12)
    ]
    values = {"synonym_neighbours": 4, "min_synonym_similarity": 1.0}
    forward, backward = (build(tmp_path / str(step), documents[::step], KindEncoder(), **values) for step in (1, -1))
    synonyms = forward.data.synonym_EE.toarray()
    assert np.array_equal(synonyms, backward.data.synonym_EE.toarray()) and np.array_equal(synonyms, synonyms.T)
    names = list(forward.data.entity_texts)
    for kind in KINDS:
        rows = [row for row, name in enumerate(names) if name.startswith(kind)]
        others = [row for row in range(len(names)) if row not in rows]
        assert len(rows) == 12 and (np.count_nonzero(synonyms[rows], axis=1) >= 4).all(), (
            "names with a cosine of 1 should be synonyms"
        )
        assert not synonyms[np.ix_(rows, others)].any() and not synonyms.diagonal().any()
    assert synonyms.max() <= 1 + 1e-6 and synonyms[synonyms > 0].min() >= 1 - 1e-6, (
        "the weights of a pair found twice should not be added"
    )


def test_an_identical_vector_is_a_neighbour_at_the_highest_threshold() -> None:
    vectors_ND = unit_rows(np.random.default_rng(4).normal(size=(40, 96)).astype(np.float32))
    graph = similarity_graph(np.concatenate([vectors_ND, vectors_ND]), 3, 1.0).toarray()
    assert np.array_equal(graph > 0, np.roll(np.eye(80), 40, axis=1) > 0), (
        "rounding should remove no edge between identical vectors"
    )


AWKWARD_WORDS = (
    "10:30",
    "https://e.org/a_b?c=1&d=(x)",
    "snake_case",
    "(old (nested) form)",
    "<|endoftext|>",
    "a/b",
    "−3.5 %",
)
sentences = st.lists(
    st.lists(st.sampled_from([*AWKWARD_WORDS, "kelp", "and", "bread"]), min_size=1, max_size=8)
    .map(" ".join)
    .map("We saw {} there.".format),
    min_size=1,
    max_size=6,
    # A bag-of-words encoder ignores the order of words.
    unique_by=lambda sentence: tuple(sorted(sentence.split())),
)


@given(chosen=sentences)
@settings(max_examples=8, deadline=None)
def test_awkward_words_survive_from_the_document_to_the_proposition(
    chosen: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = " ".join(chosen)
    index = build(tmp_path_factory.mktemp("awkward"), [Document("d", "", text)], max_passage_tokens=64)
    assert sorted(index.data.proposition_texts) == sorted(chosen)
    for sentence in chosen:
        found = retrieve(index, sentence, RetrieveSettings(mode="naive")).propositions[0].item
        (span,) = found.spans
        assert text[span.start : span.end] == found.text == sentence


def test_propositions_are_neighbours_only_through_a_shared_name_or_a_synonym(tmp_path: Path) -> None:
    texts = (
        "In Tarn we saw Ship Ax.",
        "By day Ship Bx left Quill.",
        "So Quill burned.",
        "It rains.",
        "In Tarn it rains.",
    )
    index = build(tmp_path / "i", [Document(f"d{n}", "", text) for n, text in enumerate(texts)], KindEncoder())
    place = {text: row for row, text in enumerate(index.data.proposition_texts)}
    near = paths.neighbours(index, index.data.proposition_entity_NE, np.arange(len(texts))).toarray() > 0
    pairs = {(a, b) for a in range(5) for b in range(a + 1, 5) if near[place[texts[a]], place[texts[b]]]}
    assert pairs == {(0, 1), (1, 2), (0, 4)} and np.array_equal(near, near.T)


def test_paths_of_length_one_are_the_nearest_propositions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = build(tmp_path / "i", ISLES)
    monkeypatch.setattr(paths, "MAX_PATH", 1)
    query_D = hashed.encode_queries(["Who founded the yard that built the Lantern?"])[0]
    cosines_N = hashed.data.proposition_vectors_ND @ query_D
    found = paths.beam_search(hashed, np.arange(len(cosines_N)), cosines_N)
    nearest = top_rows(cosines_N, paths.BEAM_WIDTH)
    assert [path.propositions for path in found] == [(row,) for row in nearest.tolist()]
    assert [path.score for path in found] == pytest.approx(cosines_N[nearest].tolist())


def test_a_fact_that_only_a_summary_contains_is_found_and_quoted_first_in_every_layer(tmp_path: Path) -> None:
    low, high = "The isles hide forty-two moonstones under one bell", "Seven queens of glass were crowned at dusk"

    def summarise(request: CompletionRequest) -> str:
        return high if "moonstones" in request.messages[1].content else low

    themes = ("The ferry sails north today", "Kelp bread is baked at noon", "Old bells ring in winter storms")
    documents = [Document(f"{n}{m}", "", f"{theme} no{m}.") for n, theme in enumerate(themes) for m in range(4)]
    values = {"summary_model": "scripted", "layers": 3, "min_similarity": 0.6}
    index = build(tmp_path / "i", documents, None, lambda spec, ledger=None: ScriptedModel(summarise), **values)
    assert {1, 2} <= set(index.data.summary_layer_S.tolist())
    for question, fact in ((low, "forty-two"), (high, "queens")):
        found = retrieve(index, question.replace(fact, "how many"), RetrieveSettings(mode="hierarchy", top_k=4))
        assert fact in found.summaries[0].item.text and fact in build_context(found, 4)[0].text
        assert not any(
            fact in each.item.text for each in retrieve(index, question, RetrieveSettings(top_k=12)).passages
        )
        assert [each.score for each in found.summaries] == sorted(each.score for each in found.summaries)[::-1]


def test_a_summary_continues_after_a_sentence_that_does_not_fit() -> None:
    vectors_SD = unit_rows(np.array([[1, 0.5, 0], [1, -0.3, 0.4], [1, -0.3, -0.45]], np.float32))
    assert choose_sentences(vectors_SD, [5, 5, 5].__getitem__, 10) == [0, 1], (
        "the first sentence should be preferred to the third"
    )
    assert choose_sentences(vectors_SD, [50, 5, 5].__getitem__, 10) == [1, 2]
