"""Intervals, exact tests and corrections by hand and against slow twins; what may be called a difference."""

import doctest
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval import statistics
from eval.statistics import (
    bootstrap_difference,
    bootstrap_mean,
    bootstrap_seeds,
    compare_paired,
    compare_seeds,
    holm,
    sign_test,
    verdict_text,
)


def test_doctests():
    assert doctest.testmod(statistics).failed == 0


def slow_sign_test(better, worse):
    """Enumerate every way the coins can fall; p is the share of ways at least as unlikely as what was seen."""
    tosses = better + worse
    counts = [sum(way) for way in product((0, 1), repeat=tosses)]
    likely = [math.comb(tosses, heads) for heads in range(tosses + 1)]
    return sum(likely[heads] <= likely[better] for heads in counts) / len(counts)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))
def test_sign_test_enumerated(better, worse, equal):
    values = [1.0] * better + [0.0] * (worse + equal)
    baseline = [0.0] * better + [1.0] * worse + [0.0] * equal
    if values:
        expected = slow_sign_test(better, worse)
        assert sign_test(values, baseline) == pytest.approx(expected)
        assert sign_test(baseline, values) == pytest.approx(expected)


def test_on_right_or_wrong_it_is_mcnemars_by_hand():
    # Discordant 8 against 1: 2 (C(9,0) + C(9,1)) / 2⁹ = 20/512.
    assert sign_test([1] * 8 + [0] + [1] * 5, [0] * 8 + [1] + [1] * 5) == pytest.approx(20 / 512)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), min_size=1))
def test_holm_is_its_definition(p_values):
    """A hypothesis survives level α exactly when Holm's step-down procedure rejects it at α."""
    corrected = holm(p_values)
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for rank, name in enumerate(sorted(p_values, key=lambda n: (p_values[n], n))):
            if p_values[name] > level / (len(p_values) - rank):
                break
            rejected.add(name)
        near = any(abs(value - level) < 1e-12 for value in corrected.values())
        assert near or rejected == {name for name, value in corrected.items() if value <= level}
    assert list(corrected) == list(p_values)


def test_many_comparisons_ask_more_of_each():
    clear = ([1.0] * 9, [0.0] * 9)
    alone = compare_paired({"a": clear})["a"]
    among = compare_paired({"a": clear, **{f"n{i}": ([0.0] * 9, [0.0] * 9) for i in range(19)}})["a"]
    assert alone.p == among.p == pytest.approx(2 / 512)
    assert alone.shown and not among.shown and among.corrected_p == pytest.approx(20 * 2 / 512)
    assert verdict_text(alone, "hops", "dense").startswith(
        "hops is better than dense (+1.000 [+1.000, +1.000], p = 0.0039"
    )
    assert verdict_text(among, "hops", "dense").startswith("no difference shown between hops and dense (+1.000")


def test_a_mean_against_most_questions_is_not_called_better():
    values = [-0.1] * 60 + [2.0] * 25
    verdict = compare_paired({"a": (values, [0.0] * 85)})["a"]
    assert verdict.interval.low > 0 and verdict.p < 0.001 and not verdict.shown
    assert (verdict.better, verdict.worse) == (25, 60)
    worse = compare_paired({"a": ([0.0] * 9, [1.0] * 9)})["a"]
    assert verdict_text(worse, "x", "y").startswith("x is worse than y")


def test_equal_values_show_nothing():
    verdict = compare_paired({"a": ([0.5, 0.5], [0.5, 0.5])})["a"]
    assert (verdict.p, verdict.corrected_p, verdict.shown) == (1.0, 1.0, False)


def test_bootstrap_mean_is_seeded():
    assert bootstrap_mean([0.0, 1.0, 1.0, 0.5]) == bootstrap_mean([0.0, 1.0, 1.0, 0.5])
    assert bootstrap_mean([0.0, 1.0, 1.0, 0.5]) != bootstrap_mean([0.0, 1.0, 1.0, 0.5], seed=5)


def test_bootstrap_is_seeded_and_holds_the_mean():
    rng = np.random.default_rng(7)
    first, second = rng.normal(1.0, 1.0, 60).tolist(), rng.normal(0.0, 1.0, 60).tolist()
    found = bootstrap_difference(first, second)
    assert found == bootstrap_difference(first, second)
    assert found != bootstrap_difference(first, second, seed=1)
    assert found.low < found.mean < found.high
    assert found.mean == pytest.approx(np.mean(first) - np.mean(second))


def test_bootstrap_width_is_close_to_the_normal_interval():
    rng = np.random.default_rng(3)
    difference = rng.normal(0.3, 1.0, 400)
    found = bootstrap_difference(difference.tolist(), [0.0] * 400)
    half = 1.96 * difference.std(ddof=1) / math.sqrt(400)
    assert found.low == pytest.approx(difference.mean() - half, abs=0.02)
    assert found.high == pytest.approx(difference.mean() + half, abs=0.02)


def test_bootstrap_of_a_constant_difference_has_no_width():
    found = bootstrap_difference([1.0, 2.0, 3.0], [0.5, 1.5, 2.5])
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)


def test_copies_of_one_question_do_not_narrow_the_interval():
    rng = np.random.default_rng(5)
    values = rng.normal(0.0, 1.0, 40).tolist()
    once = bootstrap_difference(values, [0.0] * 40)
    tenfold = bootstrap_difference(values * 10, [0.0] * 400, clusters=list(range(40)) * 10)
    assert (tenfold.low, tenfold.high) == pytest.approx((once.low, once.high))
    unclustered = bootstrap_difference(values * 10, [0.0] * 400)
    assert unclustered.high - unclustered.low < 0.5 * (once.high - once.low)


def test_bootstrap_of_uneven_clusters_weighs_rows_not_clusters():
    found = bootstrap_difference([1.0, 1.0, 1.0, 0.0], [0.0] * 4, clusters=["a", "a", "a", "b"])
    # Draws of two clusters: aa -> 1, ab and ba -> 3/4, bb -> 0.
    assert (found.mean, found.low, found.high) == (0.75, 0.0, 1.0)


def test_bootstrap_refuses_rows_that_do_not_pair_up():
    with pytest.raises(ValueError, match="2 values"):
        bootstrap_difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="0 values"):
        bootstrap_difference([], [])


def every_difference(values, baseline):
    """The mean difference under every draw of seeds and questions, all equally likely."""
    questions = range(len(values[0]))
    return [
        np.mean([values[r][q] for r in own for q in drawn]) - np.mean([baseline[t][q] for t in other for q in drawn])
        for own in product(range(len(values)), repeat=len(values))
        for other in product(range(len(baseline)), repeat=len(baseline))
        for drawn in product(questions, repeat=len(questions))
    ]


def test_seeds_are_drawn_as_well_as_questions():
    values, baseline = [[0.1, 0.9, 0.4], [0.3, 0.2, 0.8]], [[0.0, 0.5, 0.1], [0.2, 0.6, 0.7]]
    drawn = [bootstrap_seeds(values, baseline, 4000, seed) for seed in range(5)]
    expected = np.percentile(every_difference(values, baseline), [2.5, 97.5])
    assert drawn[0].mean == pytest.approx(np.mean(values) - np.mean(baseline))
    assert np.mean([each.low for each in drawn]) == pytest.approx(expected[0], abs=0.02)
    assert np.mean([each.high for each in drawn]) == pytest.approx(expected[1], abs=0.02)
    alone = bootstrap_seeds(values[:1], baseline[:1], 4000)
    paired = bootstrap_difference(values[0], baseline[0], resamples=4000)
    assert (alone.low, alone.high) == (pytest.approx(paired.low, abs=0.02), pytest.approx(paired.high, abs=0.02))
    with pytest.raises(ValueError, match="do not pair up"):
        bootstrap_seeds([[1.0]], [[1.0, 2.0]])


def test_one_lucky_seed_shows_nothing():
    """Every question better in the mean of two seeds, and yet another seed may bring the opposite."""
    lucky, unlucky, base = [1.0] * 12, [0.2] * 12, [0.5] * 12
    both = compare_seeds({"ms": ([lucky, unlucky], [base])})["ms"]
    assert (both.better, both.worse) == (12, 0) and both.corrected_p < 0.01
    assert both.interval.low == pytest.approx(-0.3) and not both.shown
    assert compare_seeds({"ms": ([lucky, lucky], [base])})["ms"].shown
