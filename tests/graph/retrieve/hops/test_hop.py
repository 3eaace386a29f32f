"""A trained second hop at query time: its features compared with a slow reference, its file, a passage that only this hop ranks first, and other selectors."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from graph.build.build import build_index
from graph.errors import UserError
from graph.index.index import Index, open_index
from graph.retrieve.hops import hop_features
from graph.retrieve.hops.hop_features import HOP_FEATURES, NO_WAY, OF_WAY, HopRows, hop_rows
from graph.retrieve.hops.mode import search_hops
from graph.retrieve.hops.trained_hop import FORMAT, HEADER, HOP_FILE, Hop, find_hop, save_hop, scores_of_all_passages
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import Mode
from graph.store.index_settings import IndexSettings
from graph.trees import Forest
from graph.types import Document, Encoder, Evidence
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.hashed import query_of

QUESTION = "In which village was the founder of the yard that built the Lantern born?"
"""The second hop leads to the passages about the yard, which the Lantern's passage names."""


def stump(feature: str, cut: float, encoder: str) -> Hop:
    """A hop of one tree, whose logit is 2 where the feature is above `cut` and −2 elsewhere."""
    forest = Forest(
        feature_V=np.array([HOP_FEATURES.index(feature), 0, 0]),
        threshold_V=np.array([cut, 0, 0]),
        left_V=np.array([1, 1, 2]),
        right_V=np.array([2, 1, 2]),
        value_V=np.array([0, -2.0, 2.0]),
        root_T=np.array([0]),
        base=0.0,
        depth=1,
    )
    return Hop(forest, encoder)


def rows_of(index: Index, question: str) -> tuple[Query, HopRows]:
    query = query_of(index, question)
    found = search_hops(index, query)
    return query, hop_rows(index, query, found.alone, found.reached_P)


def test_the_composed_cosines_and_links_equal_a_slow_reference(isles: Index) -> None:
    query, rows = rows_of(isles, QUESTION)
    data, ways = isles.data, rows.ways
    column = {name: rows.features_XF[:, place] for place, name in enumerate(HOP_FEATURES)}
    assert np.isfinite(rows.features_XF).all() and (rows.way_X >= 0).sum() > 5
    titles = {source: set(data.entity_document_EU[:, [row]].nonzero()[0]) for row, source in enumerate(isles.sources())}
    titles_D = [
        data.entity_vectors_ED[np.array(sorted(each))].mean(axis=0) if each else np.zeros_like(query.vector_D)
        for each in titles.values()
    ]
    for row, (way, candidate) in enumerate(zip(rows.way_X.tolist(), rows.candidate_X.tolist(), strict=True)):
        passage = int(rows.candidates_C[candidate])
        if way < 0:
            assert (rows.features_XF[row, -len(OF_WAY) :] == NO_WAY).all()
            continue
        bridge = int(rows.candidates_C[ways.bridge_K[way]])
        entity, proposition = int(ways.entity_K[way]), int(ways.proposition_K[way])
        assert entity in data.proposition_entity_NE[[proposition], :].indices
        assert proposition in data.passage_proposition_PN[[bridge], :].indices
        assert data.passage_document_P[bridge] != data.passage_document_P[passage]
        title = titles_D[int(data.passage_document_P[bridge])]
        composed_D = query.vector_D - 0.5 * title + data.entity_vectors_ED[np.array([entity])][0]
        composed_D = composed_D / np.linalg.norm(composed_D)
        here = data.passage_proposition_PN[[passage], :].indices
        vectors = data.proposition_vectors_ND[here]
        proposition_D = data.proposition_vectors_ND[np.array([proposition])][0]
        pairs = [(each + proposition_D) / np.linalg.norm(each + proposition_D) @ query.vector_D for each in vectors]
        source = data.document_sources[int(data.passage_document_P[passage])]
        assert column["composed"][row] == pytest.approx(
            float(data.passage_vectors_PD[np.array([passage])][0] @ composed_D), abs=1e-5
        )
        assert column["best_composed"][row] == pytest.approx(float((vectors @ composed_D).max()), abs=1e-5)
        assert column["best_pair"][row] == pytest.approx(max(map(float, pairs)), abs=1e-5)
        assert column["names_document"][row] == (entity in titles[source])
        assert column["mentions_entity"][row] == any(entity in data.proposition_entity_NE[[n], :].indices for n in here)


def test_every_candidate_has_exactly_one_row_without_a_way(isles: Index) -> None:
    _, rows = rows_of(isles, QUESTION)
    assert sorted(rows.candidate_X[rows.way_X < 0].tolist()) == list(range(len(rows.candidates_C)))
    assert len(set(rows.candidates_C.tolist())) == len(rows.candidates_C)


def planted_index(folder: Path, minilm: Encoder) -> Index:
    """An index whose gold passage shares no word with the question and is dissimilar to it; ten other passages are more similar to the question."""
    near = [
        Document(
            f"near-{i}", f"Song {i}", f"Song {i} is a song about a town. Its performer was born in a town in 19{i}0."
        )
        for i in range(10)
    ]
    bridge = Document("bridge", "Quillow", "Quillow is a song performed by Orsa Bell.")
    gold = Document("gold", "Orsa Bell", "Orsa Bell grew up on Tarn. She kept bees.")
    build_index(folder, [*near, bridge, gold], IndexSettings(), lambda spec: minilm)
    return open_index(folder, lambda spec: minilm)


def test_only_the_trained_hop_ranks_a_planted_gold_passage_first(tmp_path: Path, minilm: Encoder) -> None:
    index = planted_index(tmp_path / "index", minilm)
    save_hop(tmp_path, stump("names_document", 0.5, index.encoder_source.fingerprint))
    search = partial(retrieve, index, "In which town was the performer of the song Quillow born?")
    plain = search(RetrieveSettings(mode="hops", top_k=12))
    learned = search(RetrieveSettings(mode="hops", top_k=12, selector=f"{tmp_path}/"))
    before = [found.item.source for found in plain.passages]
    after = [found.item.source for found in learned.passages]
    assert before.index("gold") > 0 and after[0] == "gold"
    assert sorted(before) == sorted(after), "no passage should be lost"
    assert learned.paths[0][:2] == ("“Quillow is a song performed by Orsa Bell.”", "mentions “Orsa Bell”")
    scores = [found.score for found in learned.passages]
    assert scores == sorted(scores, reverse=True) and scores[0] == pytest.approx(1 / (1 + np.exp(-2)))
    assert learned.trace.steps[-1].startswith("a trained hop scored ")
    automatic = search(RetrieveSettings(mode="auto", top_k=12, selector=f"{tmp_path}/"))
    assert automatic.passages == learned.passages


def test_a_large_index_is_searched_in_part(isles: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = rows_of(isles, QUESTION)
    monkeypatch.setattr(hop_features, "MAX_SEARCHED", 1)
    monkeypatch.setattr(hop_features, "POOL", 2)
    _, part = rows_of(isles, QUESTION)
    shared = isles.entity_proposition_EN[part.ways.entity_K, :].nonzero()[1]
    near = set(isles.proposition_passage_NP[shared, :].nonzero()[1].tolist())
    assert set(part.candidates_C[2:].tolist()) <= near <= set(whole.candidates_C.tolist())


@pytest.mark.parametrize("question", ["?", "Who", "東京", "the of and"])
def test_questions_without_known_content_words_get_finite_features_for_every_passage(
    isles: Index, question: str
) -> None:
    _, rows = rows_of(isles, question)
    assert np.isfinite(rows.features_XF).all() and len(rows.candidates_C) == 5


def test_a_trained_hop_finds_the_only_passage_of_an_index(tmp_path: Path, minilm: Encoder) -> None:
    build_index(tmp_path / "index", [Document("a", "A", "A is b.")], IndexSettings(), lambda spec: minilm)
    index = open_index(tmp_path / "index", lambda spec: minilm)
    save_hop(tmp_path, stump("own", 0.5, index.encoder_source.fingerprint))
    found = retrieve(index, "What is A?", RetrieveSettings(mode="hops", selector=f"{tmp_path}/"))
    assert [each.item.source for each in found.passages] == ["a"]


@given(st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=8), st.data())
def test_passages_outside_the_pool_follow_in_their_order(reached: list[float], data: st.DataObject) -> None:
    reached_P = np.array(reached, np.float32)
    chosen = data.draw(st.sets(st.integers(0, len(reached) - 1), min_size=1))
    candidates_C = np.array(sorted(chosen))
    logits_C = np.array(data.draw(st.lists(st.floats(-9, 9), min_size=len(chosen), max_size=len(chosen))))
    scores_P = scores_of_all_passages(reached_P, candidates_C, logits_C)
    others = np.setdiff1d(np.arange(len(reached)), candidates_C)
    assert np.allclose(scores_P[candidates_C], logits_C)
    assert (scores_P[others] <= logits_C.min() + 1e-5).all()
    order = others[np.argsort(-scores_P[others], kind="stable")]
    assert (np.diff(reached_P[order]) <= 1e-5).all()


def test_an_index_uses_the_shipped_hop_of_its_encoder_unless_the_selector_is_none(
    isles: Index, hashed_isles: Path
) -> None:
    def search(index: Index, selector: str) -> Evidence:
        return retrieve(index, QUESTION, RetrieveSettings(mode="hops", selector=selector))

    shipped, plain = search(isles, "threshold"), search(isles, "none")
    assert any("a trained hop scored" in step for step in shipped.trace.steps)
    assert not any("trained hop" in step for step in plain.trace.steps)
    assert [each.score for each in shipped.passages] != [each.score for each in plain.passages]
    other = open_index(hashed_isles, lambda spec: HashEncoder())
    assert search(other, "threshold").passages == search(other, "none").passages


@pytest.mark.parametrize("count", [0, 1])
def test_the_shipped_hop_works_on_an_index_of_no_or_one_document(count: int, minilm: Encoder, tmp_path: Path) -> None:
    """Such an index remains when all documents, or all but one, are deleted."""
    build_index(tmp_path / "i", ISLES[:count], IndexSettings(), lambda spec: minilm)
    index = open_index(tmp_path / "i", lambda spec: minilm)
    for mode in ("hops", "plan", "auto"):
        assert len(retrieve(index, QUESTION, RetrieveSettings(mode=mode)).passages) == count


def test_in_local_the_selector_none_equals_the_selector_threshold(isles: Index) -> None:
    found = [
        retrieve(isles, QUESTION, RetrieveSettings(mode="local", selector=selector))
        for selector in ("none", "threshold")
    ]
    assert found[0].passages == found[1].passages


def test_a_hop_of_another_encoder_is_refused(isles: Index, tmp_path: Path) -> None:
    save_hop(tmp_path, stump("own", 0.5, "another-encoder"))
    with pytest.raises(UserError, match="the selector was trained with encoder another-enc"):
        retrieve(isles, QUESTION, RetrieveSettings(mode="hops", selector=f"{tmp_path}/"))


def test_a_broken_hop_file_is_reported(tmp_path: Path) -> None:
    save_hop(tmp_path, stump("own", 0.5, "any"))
    assert find_hop(f"{tmp_path}/", "any") == find_hop(f"{tmp_path}/", "other")
    arrays = load_file(tmp_path / HOP_FILE)
    save_file(arrays, tmp_path / HOP_FILE, {"other": "{}"})
    with pytest.raises(UserError, match="not a hop file"):
        find_hop(f"{tmp_path}/", "any")
    header = {"format": FORMAT, "features": HOP_FEATURES[1:]}
    save_file(arrays, tmp_path / HOP_FILE, {HEADER: json.dumps(header)})
    with pytest.raises(
        UserError, match=r"features of this version\. Train it again with this version, or name another"
    ):
        find_hop(f"{tmp_path}/", "any")
    (tmp_path / HOP_FILE).write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a hop file"):
        find_hop(f"{tmp_path}/", "any")


def test_hops_ignores_a_light_selector_and_local_refuses_a_hop(isles: Index, tmp_path: Path) -> None:
    (tmp_path / "selector.safetensors").write_bytes(b"a light selector, for another mode")
    plain = retrieve(isles, QUESTION, RetrieveSettings(mode="hops"))
    other = retrieve(isles, QUESTION, RetrieveSettings(mode="hops", selector=f"{tmp_path}/"))
    assert plain.passages == other.passages
    (tmp_path / "selector.safetensors").unlink()
    save_hop(tmp_path, stump("own", 0.5, "any"))
    message = r"a hop, which only mode hops uses\. Expected a folder with selector\.safetensors"
    with pytest.raises(UserError, match=message):
        retrieve(isles, QUESTION, RetrieveSettings(mode="local", selector=f"{tmp_path}/"))


@pytest.mark.parametrize("mode", ["hops", "auto", "plan", "local"])
def test_a_folder_without_a_selector_is_refused(isles: Index, tmp_path: Path, mode: Mode) -> None:
    with pytest.raises(UserError, match=r"no selector\.safetensors\. Expected the folder that .* made"):
        retrieve(isles, QUESTION, RetrieveSettings(mode=mode, selector=f"{tmp_path}/"))


@given(st.integers(0, 5000), st.integers(1, 6), st.integers(1, 4))
def test_the_highest_values_of_each_column_equal_those_of_a_sort(seed: int, rows: int, count: int) -> None:
    values_RK = np.random.default_rng(seed).permutation(rows * 3).reshape(rows, 3).astype(np.float32)
    found = hop_features.highest(values_RK, count).reshape(-1, 3)
    assert np.array_equal(found, np.argsort(-values_RK, axis=0)[:count])
