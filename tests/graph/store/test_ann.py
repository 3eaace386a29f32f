"""ANN indexes of segments compared with exact search, half floats compared with numpy's, and damaged files that faiss must not read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graph.errors import UserError
from graph.hierarchy import similarity
from graph.models.encoder import unit_rows
from graph.retrieve.parts.ranking import nearest, top_rows
from graph.shared.ids import content_id
from graph.store.ann import MIN_RECALL, build_ann, inverted_file, open_ann, write_ann
from graph.store.arrays import save_vectors, segments_to_index, segments_to_merge, with_ann
from graph.store.columns.row_map import RowMap
from graph.store.float16 import as_float32, product
from graph.store.index_settings import VectorType
from graph.store.vectors import Vectors
from tests.graph.damage import cut, flip

DIMENSIONS = 24
DTYPES: tuple[VectorType, ...] = ("float32", "float16")


def clustered_vectors(rows: int, seed: int = 0) -> np.ndarray:
    """Unit rows around centres; one centre for every twenty rows."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(max(1, rows // 20), DIMENSIONS))
    noise = 0.4 * rng.normal(size=(rows, DIMENSIONS))
    return unit_rows((centres[rng.integers(0, len(centres), rows)] + noise).astype(np.float32))


def ids_of(numbers: range) -> list[str]:
    return [content_id(str(number)) for number in numbers]


def in_segments(folder: Path, vectors_ND: np.ndarray, parts: int, ann_rows: int, keep: np.ndarray) -> Vectors:
    """The rows `keep` of a matrix that has been written in `parts` segments, indexed as `ann_rows` requires."""
    segments: list[Vectors] = []
    for part in np.array_split(np.arange(len(vectors_ND)), parts):
        fresh = Vectors.of(vectors_ND[part], ids_of(range(part[0], part[-1] + 1)))
        segments.append(save_vectors(folder, "v", fresh, 99))
    joined = Vectors.join(segments)
    return with_ann(folder, replace(joined, row_N=joined.row_N[keep]), ann_rows, 99)


def test_half_floats_are_widened_as_numpy_widens_them() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)]
    assert as_float32(finite).tobytes() == finite.astype(np.float32).tobytes() and len(finite) == 63_488
    square = finite[:400].reshape(20, 20)
    assert np.array_equal(as_float32(square.T), square.T.astype(np.float32))


@pytest.mark.parametrize("rows", [0, 1, 1_023, 2_050])
def test_products_of_half_floats_equal_those_of_the_widened_floats(rows: int) -> None:
    stored_RD = clustered_vectors(rows).astype(np.float16) if rows else np.zeros((0, DIMENSIONS), np.float16)
    right_DQ = clustered_vectors(3, 1).T
    assert np.allclose(product(stored_RD, right_DQ), stored_RD.astype(np.float32) @ right_DQ, atol=1e-6)
    found = product(stored_RD, right_DQ[:, 0])
    assert found.dtype == np.float32 and found.shape == (rows,)
    assert np.allclose(found, stored_RD.astype(np.float32) @ right_DQ[:, 0], atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 400),
    parts=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    ann_rows=st.sampled_from([1, 100]),
    seed=st.integers(0, 9),
    count=st.integers(1, 30),
)
# The lists nearest to this query contain only one row in use.
@example(rows=304, parts=1, dtype="float32", ann_rows=1, seed=3, count=2)
def test_a_search_returns_rows_in_use_with_exact_cosines_and_a_full_search_returns_all(
    rows: int,
    parts: int,
    dtype: VectorType,
    ann_rows: int,
    seed: int,
    count: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rng, vectors_ND = np.random.default_rng(seed), clustered_vectors(rows, seed).astype(dtype)
    keep = np.flatnonzero(rng.random(rows) < 0.7)
    folder = tmp_path_factory.mktemp("ann")
    vectors = in_segments(folder, vectors_ND, min(parts, rows), ann_rows, keep)
    query_D = clustered_vectors(20, seed + 50)[-1]
    exact_N = vectors_ND[keep].astype(np.float32) @ query_D
    found, cosines = nearest(vectors, query_D, count)
    assert len(found) == min(count, len(keep)) and len(set(found.tolist())) == len(found)
    assert np.allclose(cosines, exact_N[found], atol=1e-6) and (np.diff(cosines) <= 0).all()
    every, _ = nearest(vectors, query_D, rows)
    assert np.allclose(exact_N[every], exact_N[top_rows(exact_N, rows)], atol=1e-6) and len(every) == len(keep)
    part = vectors.only(np.arange(len(keep))[::3])
    assert part.candidates(query_D, count) is None, (
        "some of the rows should be compared one by one, without an ANN index"
    )
    assert part.segments[0].vectors_RD.dtype == dtype


def test_searches_find_the_nearest_rows_and_the_index_stores_its_recall(tmp_path: Path) -> None:
    vectors_ND = clustered_vectors(4_000)
    vectors = in_segments(tmp_path, vectors_ND, 1, 1, np.arange(4_000))
    (ann,) = [segment.ann for segment in vectors.segments]
    assert ann is not None and MIN_RECALL <= ann.recall <= 1 and ann.probes < ann.inverted.nlist == 126
    recalls = []
    noise = np.random.default_rng(1).normal(size=(50, DIMENSIONS)).astype(np.float32)
    for query_D in unit_rows(vectors_ND[::80] + 0.1 * noise):
        best = top_rows(vectors_ND @ query_D, 10)
        recalls.append(len(np.intersect1d(best, nearest(vectors, query_D, 10)[0])) / 10)
    assert np.mean(recalls) > 0.95
    assert ann.search(vectors_ND[:3], 5)[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("rows", "seed"), [(4_000, 0), (4_000, 1), (9_000, 2), (700, 3), (40, 4), (2, 5)])
def test_the_fewest_lists_that_find_enough_are_searched(tmp_path: Path, rows: int, seed: int) -> None:
    """The slow reference probes 1, 2, 4, … lists, through the public `search`, until it finds .99 of the rows that exact search finds."""
    vectors_ND = clustered_vectors(rows, seed)
    ann = build_ann(tmp_path, "v-0.segment", vectors_ND)
    sampled = np.unique(np.linspace(0, rows - 1, min(rows, 100)).astype(np.int64))
    exact = vectors_ND[sampled] @ vectors_ND.T
    exact[np.arange(len(sampled)), sampled] = -1
    nearest_sets = [set(top_rows(row, min(10, rows - 1)).tolist()) for row in exact]
    for probes in (1, 2, 4, 8, 16, 32, 64):
        found = replace(ann, probes=probes).search(vectors_ND[sampled], 11)
        both = [len(near & set(row.tolist())) for near, row in zip(nearest_sets, found, strict=True)]
        if sum(both) >= 0.99 * sum(map(len, nearest_sets)):
            break
    assert ann.probes == min(probes, ann.inverted.nlist)
    assert ann.recall == pytest.approx(sum(both) / sum(map(len, nearest_sets)), abs=1e-3)


def test_a_recall_below_the_minimum_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scattered = unit_rows(np.random.default_rng(0).normal(size=(3_000, 96)).astype(np.float32))
    ann = build_ann(tmp_path, "v-0.segment", scattered)
    assert ann.recall < MIN_RECALL
    assert (
        f"v-0.segment: its ANN index finds {ann.recall:.3f} of the 10 nearest vectors, less than 0.98"
        in capsys.readouterr().err
    )
    exact = scattered[:200] @ scattered.T
    exact[np.arange(200), np.arange(200)] = -1
    found = ann.search(scattered[:200], 11)
    recalls = [len(np.intersect1d(top_rows(row, 10), near)) / 10 for row, near in zip(exact, found, strict=True)]
    assert abs(np.mean(recalls) - ann.recall) < 0.03


def test_the_same_vectors_give_the_same_file(tmp_path: Path) -> None:
    first, again = (build_ann(tmp_path, "v-0.segment", clustered_vectors(500)) for _ in range(2))
    assert first == again and [file.name for file in tmp_path.iterdir()] == [first.file.name]
    assert build_ann(tmp_path, "v-0.segment", clustered_vectors(501)).file != first.file


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_faiss_reads_no_file_that_is_damaged(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    ann = build_ann(tmp_path, "v-0.segment", clustered_vectors(50))
    damage(ann.file)
    with pytest.raises(
        UserError, match=r"its contents have changed\. Expected an intact ANN index\. Run: modegraph repair"
    ):
        open_ann(ann.file, ann.probes, ann.recall).search(clustered_vectors(1), 3)


def test_a_reader_whose_ann_index_an_edit_has_removed_compares_all_rows(tmp_path: Path) -> None:
    vectors_ND = clustered_vectors(4_000)
    vectors, used = (in_segments(tmp_path, vectors_ND, 1, 1, np.arange(4_000)) for _ in range(2))
    query_D = clustered_vectors(20, 1)[0]
    before, _ = nearest(used, query_D, 10)
    for file in (tmp_path / "vectors").glob("*.ann"):
        file.unlink()
    assert nearest(used, query_D, 10)[0].tolist() == before.tolist()
    assert nearest(vectors, query_D, 10)[0].tolist() == top_rows(vectors_ND @ query_D, 10).tolist()


def test_open_generations_share_an_ann_index_and_an_unused_one_is_released(tmp_path: Path) -> None:
    ann = build_ann(tmp_path, "v-0.segment", clustered_vectors(50))
    first = open_ann(ann.file, ann.probes, ann.recall)
    assert open_ann(ann.file, ann.probes, ann.recall) is first and first.inverted is first.inverted
    del first
    assert "inverted" not in vars(open_ann(ann.file, ann.probes, ann.recall))


@settings(max_examples=40, deadline=None)
@given(
    adds=st.lists(st.integers(1, 9), min_size=1, max_size=200), factor=st.integers(2, 8), ann_rows=st.integers(1, 99)
)
def test_few_vectors_are_outside_ann_indexes(adds: list[int], factor: int, ann_rows: int) -> None:
    rows: list[int] = []
    for added in adds:
        every = [*rows, added]
        again = {len(rows), *segments_to_merge(every, every, {len(rows)}, factor)}
        rows = [each for place, each in enumerate(every) if place not in again] + [sum(every[each] for each in again)]
        due = segments_to_index(rows, sum(rows), ann_rows, factor)
        assert bool(due) == (sum(rows) >= ann_rows)
        outside = sum(each for place, each in enumerate(rows) if place not in due)
        assert outside <= ann_rows


def test_new_nodes_of_a_large_graph_get_edges_to_nodes_found_by_ann_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edges equal those found among all vectors, for segments with and without an ANN index, some of whose rows are deleted."""
    monkeypatch.setattr(similarity, "FLAT_LIMIT", 100)
    vectors_ND = clustered_vectors(900, 3)
    keep = np.delete(np.arange(900), np.arange(5, 600, 40))
    vectors = in_segments(tmp_path, vectors_ND, 3, 300, keep)
    assert [segment.ann is not None for segment in vectors.segments] == [True] * 3
    new = Vectors.of(clustered_vectors(7, 4), ids_of(range(900, 907)))
    joined, count = Vectors.join([vectors, new]), len(keep) + 7
    first = similarity.similarity_graph(np.asarray(vectors), 6, 0.3)
    merge = RowMap.of(len(keep), np.zeros(0, np.int64), np.full(7, len(keep)))
    known = similarity.KnownGraph(first, merge)
    found = similarity.edit_graph(joined, 6, 0.3, known)
    with monkeypatch.context() as patch:
        patch.setattr(Vectors, "candidates", lambda self, query_QD, count: None)
        among_all = similarity.edit_graph(joined, 6, 0.3, known)
    assert found is not None and among_all is not None and len(among_all.added.row_X) >= 7
    assert found.replaced_R.tolist() == list(range(count - 7, count)) == among_all.replaced_R.tolist()
    for name, values in vars(among_all.added).items():
        assert np.array_equal(getattr(found.added, name), values), name


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("rows", [3, 4_000])
def test_a_full_disk_is_reported_however_little_is_left_to_write(tmp_path: Path, rows: int) -> None:
    inverted, file, twin = inverted_file(clustered_vectors(rows)), tmp_path / "a.ann", tmp_path / "twin.ann"
    write_ann(inverted, file)
    faiss.write_index(inverted, str(twin))
    assert file.read_bytes() == twin.read_bytes()
    assert (file.stat().st_size < 4096) == (rows == 3), (
        "only the file of 3 rows should be shorter than the 4 KiB that faiss would lose without an error"
    )
    with pytest.raises(OSError, match="No space left on device"):
        write_ann(inverted, Path("/dev/full"))
