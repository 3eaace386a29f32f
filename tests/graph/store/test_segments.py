"""Vectors in segments compared with one matrix in memory, the policy that merges segments, and damage that must not be copied."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.errors import UserError
from graph.models.encoder import unit_rows
from graph.shared.ids import ID_BYTES, content_id
from graph.store.arrays import open_vectors, save_vectors, segments_to_merge
from graph.store.columns.column_files import write_array
from graph.store.vectors import Vectors
from tests.graph.damage import flip

DIMENSIONS = 24


def vector_of(identity: str) -> np.ndarray:
    return unit_rows(np.random.default_rng(int(identity[:8], 16)).normal(size=(1, DIMENSIONS)).astype(np.float32))[0]


def in_memory(ids: list[str]) -> Vectors:
    return Vectors.of(np.array([vector_of(each) for each in ids], np.float32).reshape(-1, DIMENSIONS), ids)


def of_ids(known: Vectors, ids: list[str]) -> Vectors:
    """The vectors of these ids in this order: taken from `known` if it contains them, otherwise created."""
    row_of = {each.decode(): row for row, each in enumerate(known.ids(np.arange(len(known))).tolist())}
    new = [each for each in ids if each not in row_of]
    joined = Vectors.join([known, in_memory(new)]) if new else known
    row_of |= {each: len(known) + place for place, each in enumerate(new)}
    return Vectors(joined.segments, joined.row_N[[row_of[each] for each in ids]])


numbers = st.lists(st.integers(0, 40), max_size=12, unique=True)
histories = st.lists(numbers, min_size=1, max_size=8)
"""Which vectors, by number, are in the index after each edit."""


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(history=histories, factor=st.integers(2, 4), seed=st.integers(0, 99))
def test_segments_equal_one_matrix_and_compaction_equals_a_single_write(
    history: list[list[int]], factor: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, rng = tmp_path_factory.mktemp("segments"), np.random.default_rng(seed)
    vectors = save_vectors(folder, "v", in_memory([]), factor)
    for present in history:
        ids = sorted(content_id(str(number)) for number in present)
        vectors = save_vectors(folder, "v", of_ids(vectors, ids), factor)
        vectors = open_vectors(folder, [segment.name for segment in vectors.segments], vectors.row_N)
        matrix_ND, query_D = np.array([vector_of(each) for each in ids]).reshape(-1, DIMENSIONS), vector_of("5" * 8)
        assert vectors.shape == matrix_ND.shape and len(vectors) == len(ids)
        assert np.array_equal(vectors, matrix_ND) and np.array_equal(vectors[1:4], matrix_ND[1:4])
        assert vectors.ids(np.arange(len(ids))).astype(str).tolist() == ids
        assert np.allclose(vectors @ query_D, matrix_ND @ query_D, atol=1e-6)
        assert np.allclose(vectors @ matrix_ND.T, matrix_ND @ matrix_ND.T, atol=1e-6)
        if ids:
            rows_XY = rng.integers(0, len(ids), (2, 5))
            assert np.array_equal(vectors[rows_XY], matrix_ND[rows_XY]) and np.array_equal(vectors[-1], matrix_ND[-1])
            assert np.array_equal(vectors[matrix_ND[:, 0] > 0], matrix_ND[matrix_ND[:, 0] > 0])
            assert np.array_equal(vectors.only(rows_XY[0]), matrix_ND[rows_XY[0]])
            a, b = (np.einsum("xd,xd->x", each[rows_XY[0]], each[rows_XY[1]]) for each in (vectors, matrix_ND))
            assert np.array_equal(a, b), "cosines pair by pair should have the same bits"
    (one,) = save_vectors(folder, "v", vectors, factor, compact=True).segments
    other = tmp_path_factory.mktemp("single")
    (single,) = save_vectors(other, "v", in_memory(ids), factor).segments
    assert one.name == single.name
    assert (folder / "vectors" / one.name).read_bytes() == (other / "vectors" / one.name).read_bytes()


@settings(max_examples=40, deadline=None)
@given(adds=st.lists(st.integers(1, 5), min_size=1, max_size=300), factor=st.integers(2, 8))
def test_the_numbers_of_segments_and_of_writes_per_row_grow_at_most_logarithmically(
    adds: list[int], factor: int
) -> None:
    rows: list[int] = []
    rows_written = 0
    for added in adds:
        every = [*rows, added]
        again = {len(rows), *segments_to_merge(every, every, {len(rows)}, factor)}
        rows_written += sum(every[place] for place in again)
        rows = [each for place, each in enumerate(every) if place not in again] + [sum(every[each] for each in again)]
        orders = 1 + math.log(sum(rows), factor)
        assert len(rows) <= (factor - 1) * orders + 1
    assert sum(rows) == sum(adds) and rows_written <= sum(adds) * (2 + math.log(sum(adds), factor))


def test_a_segment_is_written_again_when_more_than_half_of_its_vectors_are_deleted(tmp_path: Path) -> None:
    ids = [content_id(str(number)) for number in range(10)]
    first = save_vectors(tmp_path, "v", in_memory(ids), 8)
    half = save_vectors(tmp_path, "v", of_ids(first, ids[:5]), 8)
    assert half.segments == first.segments and len(half) == 5
    less = save_vectors(tmp_path, "v", of_ids(half, ids[:4]), 8)
    assert [len(segment.ids_R) for segment in less.segments] == [4]


def test_vectors_of_a_damaged_segment_are_not_copied(tmp_path: Path) -> None:
    ids = [content_id(str(number)) for number in range(6)]
    vectors = save_vectors(tmp_path, "v", in_memory(ids), 8)
    flip(tmp_path / "vectors" / vectors.segments[0].name)
    more = save_vectors(tmp_path, "v", of_ids(vectors, [*ids, content_id("new")]), 8)
    assert more.segments[0].name == vectors.segments[0].name, "an unchanged segment should keep its checksum"
    with pytest.raises(
        UserError, match=r"its contents have changed\. Expected an intact segment\. Run: modegraph repair"
    ):
        save_vectors(tmp_path, "v", more, 8, compact=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "array", [np.arange(5), np.array([b"ab", b"c"], ID_BYTES), np.zeros((0, 3)), np.eye(90)[:, 1:]]
)
def test_an_array_is_written_as_numpy_writes_it_and_a_full_disk_is_reported(tmp_path: Path, array: np.ndarray) -> None:  # type: ignore[type-arg]
    np.save(tmp_path / "twin.npy", array)
    with (tmp_path / "a.npy").open("wb") as file:
        write_array(file, array)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "twin.npy").read_bytes()
    with pytest.raises(OSError, match="No space left"), Path("/dev/full").open("wb") as full:
        write_array(full, array)
