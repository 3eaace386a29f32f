"""The quantiles of an index's cosines: close to those of all pairs, and the same to the byte however the vectors are divided into segments."""

from collections.abc import Sequence

import numpy as np
import pytest

from graph.models.encoder import unit_rows
from graph.store.vectors import QUANTILE_LEVELS_Z, SAMPLED_PAIRS, Vectors, cosine_quantiles


def rows(count: int, shift: float = 0.0) -> np.ndarray:
    """Unit vectors in 8 dimensions; the higher `shift`, the more they point in one direction."""
    vectors_ND = np.random.default_rng(count).normal(size=(count, 8)).astype(np.float32)
    vectors_ND[:, 0] += shift
    return unit_rows(vectors_ND)


def in_segments(vectors: np.ndarray, ends: Sequence[int]) -> Vectors:
    """The same rows in segments that contain them in another order."""
    order = np.random.default_rng(0).permutation(len(vectors))
    parts = np.split(vectors[order], ends)
    joined = Vectors.join([Vectors.of(part) for part in parts])
    return Vectors(joined.segments, np.argsort(order))


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_the_quantiles_are_close_to_those_of_all_pairs(shift: float) -> None:
    vectors = rows(300, shift)
    cosines = (vectors @ vectors.T)[~np.eye(300, dtype=bool)]
    found = cosine_quantiles(vectors)
    assert (np.diff(found) >= 0).all() and len(found) == len(QUANTILE_LEVELS_Z) == 111
    middle = (QUANTILE_LEVELS_Z >= 0.01) & (QUANTILE_LEVELS_Z <= 0.99)
    assert found[middle] == pytest.approx(np.quantile(cosines, QUANTILE_LEVELS_Z[middle]), abs=0.03)


def test_no_row_is_paired_with_itself_and_every_row_is_sampled() -> None:
    assert cosine_quantiles(np.eye(5, dtype=np.float32)).tolist() == [0] * len(QUANTILE_LEVELS_Z)
    vectors = np.tile(np.array([[1, 0]], np.float32), (SAMPLED_PAIRS, 1))
    vectors[-1] = [0, 1]
    assert cosine_quantiles(vectors)[0] == 0, "the one vector that differs was not sampled"


@pytest.mark.parametrize("count", [2, 3, 40, SAMPLED_PAIRS + 7])
def test_the_division_into_segments_does_not_change_the_quantiles(count: int) -> None:
    vectors = rows(count)
    whole = cosine_quantiles(Vectors.of(vectors))
    assert whole.dtype == np.float32 and whole.any()
    assert whole.tobytes() == cosine_quantiles(in_segments(vectors, [count // 3, count // 2])).tobytes()


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_vectors_have_quantiles_of_0(count: int) -> None:
    assert cosine_quantiles(rows(count)).tolist() == [0] * len(QUANTILE_LEVELS_Z)
