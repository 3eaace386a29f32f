"""Tests `assert_linear` itself: linear time passes, and quadratic time is detected even if the calls are very short."""

import pytest

from tests.growth import assert_linear


@pytest.mark.long
def test_linear_time_passes() -> None:
    assert_linear(lambda size: lambda: sum(range(size)), 2_000)


@pytest.mark.long
@pytest.mark.parametrize("size", [20, 200])
def test_quadratic_time_is_detected(size: int) -> None:
    with pytest.raises(AssertionError, match=r" s, size \d+: "):
        assert_linear(lambda n: lambda: [0 for _ in range(n) for _ in range(n)], size)
