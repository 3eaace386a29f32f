"""The vectors of an unfinished run, stored in batches and read by the same run or another, in any order, equal those that were stored."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.shared.ids import content_id
from graph.store.arrays import save_vectors
from graph.store.embedding_cache import PendingVectors
from graph.store.vectors import Vectors
from tests.disks import mounted_disk
from tests.graph.damage import cut, flip

numbers = st.lists(st.integers(0, 30), max_size=8, unique=True)


def vectors_of(numbers: list[int]) -> np.ndarray:
    return np.array([[number, 1 / (1 + number)] for number in numbers], np.float32).reshape(-1, 2)


def ids_of(numbers: list[int]) -> np.ndarray:
    return np.array([content_id(str(number)) for number in numbers], "S32")


@settings(max_examples=40, deadline=None)
@given(batches=st.lists(numbers, max_size=5), adopted=numbers, requested=numbers, dtype=st.sampled_from(["<f4", "<f2"]))
def test_pending_vectors_equal_the_stored_vectors(
    batches: list[list[int]],
    adopted: list[int],
    requested: list[int],
    dtype: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("pending")
    pending = PendingVectors(folder)
    for batch in batches:
        pending.put(ids_of(batch), vectors_of(batch))
    if adopted:
        saved = save_vectors(folder, "v", Vectors.of(vectors_of(adopted), ids_of(adopted)), 8)
        pending.adopt(folder / "vectors" / saved.segments[0].name)
    stored = {*adopted, *(number for batch in batches for number in batch)}
    for each in (pending, PendingVectors(folder)):
        assert each.ids == {content_id(str(number)) for number in stored}
        assert each.has(ids_of(requested)).tolist() == [number in stored for number in requested]
        known = [number for number in requested if number in stored]
        if known:
            taken = each.take(ids_of(known), np.dtype(dtype))
            assert taken.dtype == dtype and np.array_equal(taken, vectors_of(known).astype(dtype))
    pending.drop()
    assert not pending.ids and not PendingVectors(folder).ids


def test_two_open_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    one, two = PendingVectors(tmp_path), PendingVectors(tmp_path)
    one.put(ids_of([1, 2]), vectors_of([1, 2]))
    two.put(ids_of([3, 4]), vectors_of([3, 4]))
    assert np.array_equal(one.take(ids_of([2]), np.dtype("<f4")), vectors_of([2]))
    assert len(PendingVectors(tmp_path).ids) == 4


@pytest.mark.parametrize("damage", [flip, cut])
def test_damaged_batches_and_segments_do_not_count(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    pending = PendingVectors(tmp_path)
    pending.put(ids_of([1, 2]), vectors_of([1, 2]))
    pending.put(ids_of([3]), vectors_of([3]))
    saved = save_vectors(tmp_path, "v", Vectors.of(vectors_of([4]), ids_of([4])), 8)
    pending.adopt(tmp_path / "vectors" / saved.segments[0].name)
    first, _, segment = sorted((tmp_path / "pending").iterdir())
    damage(first)
    damage(segment)
    assert PendingVectors(tmp_path).ids == {content_id("3")}


def test_without_a_check_all_batches_count(tmp_path: Path) -> None:
    PendingVectors(tmp_path).put(ids_of([1]), vectors_of([1]))
    (file,) = (tmp_path / "pending").iterdir()
    flip(file, -1)
    assert len(PendingVectors(tmp_path, check=False).ids) == 1 and not PendingVectors(tmp_path).ids


def test_a_batch_for_which_the_disk_has_no_space_leaves_no_file(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        pending = PendingVectors(disk.folder)
        pending.put(ids_of([1]), vectors_of([1]))
        disk.leave_free(0)
        with pytest.raises(OSError, match="No space left"):
            pending.put(ids_of([2] * 500), vectors_of([2] * 500))
        assert len(list((disk.folder / "pending").iterdir())) == 1 and pending.ids == {content_id("1")}


def test_a_batch_that_a_writer_deletes_meanwhile_does_not_count(tmp_path: Path) -> None:
    PendingVectors(tmp_path).put(ids_of([1, 2]), vectors_of([1, 2]))
    (tmp_path / "pending/00000001-deleted.npy").symlink_to("deleted")
    assert len(PendingVectors(tmp_path).ids) == 2
