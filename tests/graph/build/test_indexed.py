"""An index with ANN indexes and float16: the invariants hold, filters and deletions are respected, damage is named and repaired."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graph.build.build import build_index
from graph.build.lifecycle import compact_index, delete_documents, index_status, repair_index, verify_index
from graph.errors import UserError
from graph.explain import ranks_in_modes
from graph.index.index import Index, open_index
from graph.retrieve.hops import hop_features
from graph.retrieve.hops.hop_features import HOP_FEATURES, hop_rows
from graph.retrieve.hops.mode import search_hops
from graph.retrieve.hops.trained_hop import save_hop
from graph.retrieve.parts import passage_scores
from graph.retrieve.parts.passage_scores import NOT_SCORED, score_alone
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import Mode
from graph.store.arrays import load_arrays
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.index_settings import IndexSettings, VectorType
from graph.store.manifest import read_manifest
from graph.types import Document, Evidence
from tests.corpora import guild_documents
from tests.fakes import HashEncoder
from tests.graph.damage import cut, flip
from tests.graph.hashed import encoder, query_of
from tests.graph.retrieve.hops.test_hop import stump
from tests.graph.same import assert_same_index

GUILDS = guild_documents()
QUESTION = "Who did Member Netmakers3 teach in the Saltboilers Guild in 1705?"
ANN_ROWS = 20
"""In these tests, a kind of vector with at least this many rows has ANN indexes."""


def settings_of(vectors: VectorType = "float16", ann_rows: int = ANN_ROWS, neighbours: int = 3) -> IndexSettings:
    """With these settings an edited index equals one that is built in a single run."""
    return IndexSettings(
        min_similarity=0.2,
        neighbours=neighbours,
        layers_on_edit="now",
        merge_factor=4,
        vectors=vectors,
        ann_rows=ann_rows,
    )


def build_and_open(folder: Path, documents: list[Document], settings: IndexSettings) -> Index:
    build_index(folder, documents, settings, encoder)
    return open_index(folder, encoder)


@pytest.fixture(scope="module")
def exact_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_and_open(tmp_path_factory.mktemp("exact") / "i", GUILDS, settings_of("float32", 100_000))


@pytest.fixture(scope="module")
def ann_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An edited index: it has several segments, with vectors of deleted documents in them."""
    folder, settings = tmp_path_factory.mktemp("indexed") / "i", settings_of("float32")
    build_and_open(folder, [*GUILDS[:30], Document("gone", "Member Gone", QUESTION)], settings)
    for document in GUILDS[30:]:
        build_and_open(folder, [document], settings)
    delete_documents(folder, ["gone"], encoder)
    return open_index(folder, encoder)


@pytest.mark.long
@pytest.mark.parametrize("vectors", ["float32", "float16"])
def test_edits_equal_a_build_from_scratch_and_compact_gives_the_same_bytes(tmp_path: Path, vectors: VectorType) -> None:
    settings = settings_of(vectors)
    for part in (GUILDS[:20], GUILDS[20:21], GUILDS[21:24], GUILDS[24:]):
        build_and_open(tmp_path / "i", part, settings)
    delete_documents(tmp_path / "i", [document.source for document in GUILDS[3:7]], encoder)
    build_and_open(tmp_path / "twin", [*GUILDS[:3], *GUILDS[7:]], settings)
    assert_same_index(load_arrays(tmp_path / "i", IndexData), load_arrays(tmp_path / "twin", IndexData))
    compact_index(tmp_path / "i", encoder)
    a, b = read_manifest(tmp_path / "i"), read_manifest(tmp_path / "twin")
    assert (a.files, a.segments, a.ann) == (b.files, b.segments, b.ann) and len(a.ann) == 3
    names = {file.name for file in (tmp_path / "i/vectors").iterdir()}
    assert names == set().union(*a.segments.values()) | {facts["file"] for facts in a.ann.values()}
    data = load_arrays(tmp_path / "i", IndexData)
    assert {getattr(data, field).segments[0].vectors_RD.dtype for _, field in VECTOR_FIELDS.values()} == {
        np.dtype(vectors)
    }


def test_float16_vectors_are_rounded_and_take_half_the_space(tmp_path: Path, exact_index: Index) -> None:
    halves = build_and_open(tmp_path / "i", GUILDS, settings_of("float16")).data.proposition_vectors_ND
    whole = exact_index.data.proposition_vectors_ND
    assert np.array_equal(np.asarray(halves), np.asarray(whole).astype(np.float16).astype(np.float32))
    assert halves.nbytes * 2 == whole.nbytes and halves[3].dtype == np.float32
    with pytest.raises(UserError, match="vectors = 'float32', but this index was made with vectors = 'float16'"):
        build_and_open(tmp_path / "i", GUILDS[:1], settings_of("float32"))


def test_an_edit_does_not_rebuild_ann_indexes(tmp_path: Path) -> None:
    build_and_open(tmp_path / "i", GUILDS[:30], settings_of())
    before = read_manifest(tmp_path / "i").ann
    build_and_open(tmp_path / "i", [GUILDS[30]], settings_of())
    after = read_manifest(tmp_path / "i")
    assert after.ann == before and len(after.segments["passage_vectors_PD"]) == 2


def test_compact_adds_or_removes_ann_indexes_according_to_ann_rows(tmp_path: Path) -> None:
    build_and_open(tmp_path / "i", GUILDS[:30], settings_of(ann_rows=1_000))
    assert not read_manifest(tmp_path / "i").ann and index_status(tmp_path / "i").ann_recall == {}
    build_and_open(tmp_path / "i", GUILDS[:30], settings_of(ann_rows=30))
    compact_index(tmp_path / "i", encoder)
    assert set(index_status(tmp_path / "i").ann_recall) >= {"passages", "propositions"}
    build_and_open(tmp_path / "i", GUILDS[:30], settings_of(ann_rows=1_000))
    compact_index(tmp_path / "i", encoder)
    assert not read_manifest(tmp_path / "i").ann and not list((tmp_path / "i/vectors").glob("*.ann"))


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_damaged_ann_index_is_named_and_rebuilt_from_its_segment(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "i"
    build_and_open(folder, GUILDS, settings_of())
    before = read_manifest(folder)
    status = index_status(folder)
    assert all(0.98 <= recall <= 1 for recall in status.ann_recall.values()) and set(status.ann_recall) == {
        "passages",
        "propositions",
        "entities",
    }
    (file,) = (folder / "vectors").glob("proposition_vectors_ND-*.ann")
    damage(file)
    (found,) = verify_index(folder)
    assert (found.file, found.repair) == (f"vectors/{file.name}", f"modegraph repair {folder}")
    with pytest.raises(UserError, match=r"\.ann: .*Run: modegraph repair"):
        retrieve(open_index(folder, encoder), QUESTION, RetrieveSettings(mode="naive"))
    working = HashEncoder()
    assert repair_index(folder, lambda spec: working) == [found]
    after = read_manifest(folder)
    assert working.encoded == [] and verify_index(folder) == []
    assert (after.files, after.segments, after.ann) == (before.files, before.segments, before.ann)
    assert retrieve(open_index(folder, encoder), QUESTION, RetrieveSettings(mode="naive")).passages


def ranking_of(found: Evidence) -> list[tuple[str, float]]:
    return [(each.item.source, round(each.score, 4)) for each in found.passages]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["dense", "naive", "hybrid", "hops", "global", "local", "statements"])
def test_a_mode_finds_the_same_passages_as_an_exact_search(ann_index: Index, exact_index: Index, mode: Mode) -> None:
    ours, theirs = (
        retrieve(index, QUESTION, RetrieveSettings(mode=mode, top_k=5)) for index in (ann_index, exact_index)
    )
    assert any(segment.ann for segment in ann_index.data.passage_vectors_PD.segments)
    assert len(ann_index.data.passage_vectors_PD.segments) > 1
    assert ranking_of(ours) == ranking_of(theirs) and len(ours.passages) == 5


@pytest.mark.parametrize("mode", ["dense", "naive", "hybrid", "hops"])
def test_neither_deleted_documents_nor_those_outside_a_filter_are_found(
    ann_index: Index, exact_index: Index, mode: Mode
) -> None:
    for where in (("source=saltboilers-*",), ("source!=netmakers-3",)):
        settings = RetrieveSettings(mode=mode, top_k=40, where=where)
        ours, theirs = retrieve(ann_index, QUESTION, settings), retrieve(exact_index, QUESTION, settings)
        allowed = set(exact_index.where(settings.conditions).sources())
        assert {each.item.source for each in ours.passages} <= allowed
        assert ranking_of(ours) == ranking_of(theirs) and len(ours.passages) > 4


def test_candidate_passages_score_as_in_an_exact_search(
    ann_index: Index, exact_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_of(ann_index, QUESTION)
    monkeypatch.setattr(passage_scores, "BM25_CANDIDATES", 3)
    monkeypatch.setattr("graph.store.vectors.Vectors.candidates", lambda self, query_QD, count: [np.arange(4)])
    some, every = score_alone(ann_index, query), score_alone(exact_index, query, score_all=True)
    scored = some.own_P != NOT_SCORED
    assert 4 < scored.sum() < len(scored), (
        "candidates should be passages similar to the question, passages with its words and passages of documents that it names"
    )
    named = np.isin(exact_index.data.passage_document_P, [document for _, document in every.named])
    assert named.any() and scored[named].all() and scored[:4].all()
    assert np.allclose(some.own_P[scored], every.own_P[scored], atol=1e-5)
    assert np.allclose(some.lift_P[scored], every.lift_P[scored], atol=1e-5)
    some.add_passages(np.arange(len(scored)))
    assert np.allclose(some.own_P, every.own_P, atol=1e-5) and np.allclose(some.scores_N, every.scores_N, atol=1e-5)
    all_at_once = score_alone(ann_index, query, score_all=True)
    assert np.allclose(all_at_once.own_P, every.own_P, atol=1e-5)


@pytest.fixture
def four_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ANN index returns the first four passages; none are added for their words."""
    monkeypatch.setattr(passage_scores, "BM25_CANDIDATES", 0)
    monkeypatch.setattr("graph.store.vectors.Vectors.candidates", lambda self, query_QD, count: [np.arange(4)])


@pytest.mark.usefixtures("four_candidates")
@pytest.mark.parametrize("trained", [False, True])
def test_hops_ranks_only_passages_that_were_scored(
    ann_index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: bool
) -> None:
    monkeypatch.setattr(hop_features, "POOL", 3)
    save_hop(tmp_path, stump("own", 0.5, ann_index.encoder_source.fingerprint))
    selector = f"{tmp_path}/" if trained else "none"
    settings = RetrieveSettings(mode="hops", top_k=40, selector=selector)
    question = "Whom did Kelpburners2 teach?"
    found = retrieve(ann_index, question, settings).passages
    assert 4 <= len(found) < 40 and all(np.isfinite(each.score) and each.score != 0 for each in found)
    missing = set(ann_index.data.passage_ids) - {each.item.id for each in found}
    rank, _ = next(ranks_in_modes(ann_index, question, min(missing), settings.model_copy(update={"top_k": 3})))
    assert (rank.rank, rank.score, rank.ranked) == (None, None, len(found))


@pytest.mark.usefixtures("four_candidates")
def test_a_candidate_of_the_trained_hop_that_was_not_scored_before_has_the_features_of_an_exact_search(
    ann_index: Index, exact_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hop_features, "POOL", 3)
    monkeypatch.setattr(hop_features, "BRIDGES", 3)
    query = query_of(ann_index, QUESTION)
    search = search_hops(ann_index, query)
    before = search.alone.own_P.copy()
    rows = hop_rows(ann_index, query, search.alone, search.reached_P)
    new_C = before[rows.candidates_C] == NOT_SCORED
    assert new_C.any() and not new_C[:3].any()
    reached_X = rows.features_XF[:, HOP_FEATURES.index("reached")]
    own_P = score_alone(exact_index, query, score_all=True).own_P
    assert np.allclose(
        reached_X[new_C[rows.candidate_X]],
        own_P[rows.candidates_C[rows.candidate_X]][new_C[rows.candidate_X]],
        atol=1e-5,
    )
    assert np.isfinite(rows.features_XF).all()


def test_links_lead_to_passages_that_were_not_candidates(
    ann_index: Index, exact_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With only the five nearest passages as candidates, links find others, with the scores of an exact search."""
    settings = RetrieveSettings(mode="hops", top_k=8)
    whole = retrieve(exact_index, "Whom did Member Kelpburners2 teach?", settings)
    monkeypatch.setattr(passage_scores, "NEAREST_CANDIDATES", 5)
    monkeypatch.setattr(passage_scores, "BM25_CANDIDATES", 0)
    part = retrieve(ann_index, "Whom did Member Kelpburners2 teach?", settings)
    linked = {each for each, path in zip(ranking_of(whole), whole.paths, strict=True) if "mentions" in " ".join(path)}
    assert linked and linked <= set(ranking_of(part))
