"""The top k, however many scores there are and however many of them are equal, compared with a full sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.retrieve.parts import ranking
from graph.retrieve.parts.ranking import rank_of, top_rows


@given(st.data(), st.integers(0, 400), st.integers(0, 40), st.sampled_from([1, 3, 1000]))
def test_the_top_rows_equal_those_of_a_full_sort(data: st.DataObject, count: int, top: int, values: int) -> None:
    """Scores with up to `values` distinct values; with few, most scores are equal. A sample of eight scores estimates the lowest of the top scores."""
    draws = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    scores_N = draws.integers(0, values, count).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "SAMPLE_SIZE", 8)
        patch.setattr(ranking, "SPARE", 1)
        found = top_rows(scores_N, top)
    assert found.tolist() == sorted(range(count), key=lambda row: (-scores_N[row], row))[:top]
    assert [rank_of(scores_N, int(row)) for row in found] == list(range(1, len(found) + 1))


def test_an_unrepresentative_sample_does_not_change_the_result() -> None:
    """Every row in the sample has a high score; no other row does."""
    scores_N = np.zeros(4 * ranking.SAMPLE_SIZE, np.float32)
    scores_N[::4] = 1 + np.arange(ranking.SAMPLE_SIZE)
    scores_N[1] = 0.5
    assert top_rows(scores_N, 3).tolist() == [4 * (ranking.SAMPLE_SIZE - 1 - place) for place in range(3)]
    many = top_rows(scores_N, ranking.SAMPLE_SIZE + 2)
    assert many[-2:].tolist() == [1, 2]
