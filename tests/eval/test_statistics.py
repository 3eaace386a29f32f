"""Intervals, exact tests and corrections, compared with values computed by hand and slow references; and when a difference may be claimed."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, ttest_1samp

from eval.statistics import (
    bootstrap_difference,
    bootstrap_mean,
    bootstrap_p,
    bootstrap_seeds,
    compare_paired,
    compare_seeds,
    equality_test,
    expanded_level,
    holm,
    holm_intervals,
    sign_flip_test,
    sign_test,
    verdict_text,
)
from graph.errors import UserError


def slow_sign_test(better, worse):
    """Enumerate all outcomes of the coin tosses; p is the share of outcomes at least as unlikely as the observed one."""
    tosses = better + worse
    counts = [sum(way) for way in product((0, 1), repeat=tosses)]
    ways = [math.comb(tosses, heads) for heads in range(tosses + 1)]
    return sum(ways[heads] <= ways[better] for heads in counts) / len(counts)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))
def test_the_sign_test_equals_an_enumeration_of_all_outcomes(better, worse, equal):
    values = [1.0] * better + [0.0] * (worse + equal)
    baseline = [0.0] * better + [1.0] * worse + [0.0] * equal
    if values:
        expected = slow_sign_test(better, worse)
        assert sign_test(values, baseline) == pytest.approx(expected)
        assert sign_test(baseline, values) == pytest.approx(expected)


def test_the_sign_test_on_right_or_wrong_answers_is_mcnemars_exact_test():
    # 8 discordant pairs against 1: 2 (C(9,0) + C(9,1)) / 2⁹ = 20/512.
    assert sign_test([1] * 8 + [0] + [1] * 5, [0] * 8 + [1] + [1] * 5) == pytest.approx(20 / 512)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), min_size=1))
def test_holm_matches_its_definition(p_values):
    """A corrected p is at most α exactly when Holm's step-down procedure rejects the hypothesis at α."""
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


def test_with_more_comparisons_each_needs_a_smaller_p():
    clear = ([1.0] * 9, [0.0] * 9)
    alone = compare_paired({"a": clear})["a"]
    among = compare_paired({"a": clear, **{f"n{i}": ([0.0] * 9, [0.0] * 9) for i in range(19)}})["a"]
    assert alone.p == among.p == pytest.approx(2 / 512)
    assert alone.shown and not among.shown and among.corrected_p == pytest.approx(20 * 2 / 512)
    assert verdict_text(alone, "hops", "dense").startswith(
        "hops is better than dense (+1.000 [+1.000, +1.000], p = 0.0039"
    )
    assert verdict_text(among, "hops", "dense").startswith("no difference shown between hops and dense (+1.000")


def test_a_higher_mean_with_most_questions_worse_is_not_called_better():
    values = [-0.1] * 60 + [2.0] * 25
    verdict = compare_paired({"a": (values, [0.0] * 85)})["a"]
    assert verdict.interval.low > 0 and verdict.p < 0.001 and not verdict.shown
    assert (verdict.better, verdict.worse) == (25, 60)
    worse = compare_paired({"a": ([0.0] * 9, [1.0] * 9)})["a"]
    assert verdict_text(worse, "x", "y").startswith("x is worse than y")


def test_equal_values_show_no_difference():
    verdict = compare_paired({"a": ([0.5, 0.5], [0.5, 0.5])})["a"]
    assert (verdict.p, verdict.corrected_p, verdict.shown) == (1.0, 1.0, False)


def test_bootstrap_mean_is_seeded():
    assert bootstrap_mean([0.0, 1.0, 1.0, 0.5]) == bootstrap_mean([0.0, 1.0, 1.0, 0.5])
    assert bootstrap_mean([0.0, 1.0, 1.0, 0.5]) != bootstrap_mean([0.0, 1.0, 1.0, 0.5], seed=5)


def test_bootstrap_is_seeded_and_contains_the_mean():
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


def test_copies_of_questions_do_not_narrow_the_interval_if_they_are_clustered():
    rng = np.random.default_rng(5)
    values = rng.normal(0.0, 1.0, 40).tolist()
    once = bootstrap_difference(values, [0.0] * 40)
    tenfold = bootstrap_difference(values * 10, [0.0] * 400, clusters=list(range(40)) * 10)
    assert (tenfold.low, tenfold.high) == pytest.approx((once.low, once.high))
    unclustered = bootstrap_difference(values * 10, [0.0] * 400)
    assert unclustered.high - unclustered.low < 0.5 * (once.high - once.low)


def test_bootstrap_of_uneven_clusters_weighs_rows_not_clusters():
    found = bootstrap_difference([1.0, 1.0, 1.0, 0.0], [0.0] * 4, clusters=["a", "a", "a", "b"])
    # The means of the resamples of two clusters: aa 1, ab and ba 3/4, bb 0.
    assert (found.mean, found.low, found.high) == (0.75, 0.0, 1.0)


def test_bootstrap_refuses_lists_that_are_empty_or_of_different_lengths():
    with pytest.raises(ValueError, match="2 values"):
        bootstrap_difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="0 values"):
        bootstrap_difference([], [])


def all_resampled_means(differences):
    """The mean difference of each resample of seeds and questions; all resamples are equally likely."""
    seeds, questions = range(len(differences)), range(len(differences[0]))
    return [
        np.mean([differences[s][q] for s in seeds_drawn for q in questions_drawn])
        for seeds_drawn in product(seeds, repeat=len(seeds))
        for questions_drawn in product(questions, repeat=len(questions))
    ]


def test_the_bootstrap_resamples_seeds_as_well_as_questions():
    differences = [[0.1, 0.4, 0.3], [0.1, -0.4, 0.1]]
    drawn = [bootstrap_seeds(differences, seed) for seed in range(10)]
    level = 100 * expanded_level(2) / 2
    expected = np.percentile(all_resampled_means(differences), [level, 100 - level])
    assert drawn[0].mean == pytest.approx(np.mean(differences))
    assert np.mean([each.low for each in drawn]) == pytest.approx(expected[0], abs=0.02)
    assert np.mean([each.high for each in drawn]) == pytest.approx(expected[1], abs=0.02)
    alone = bootstrap_seeds(differences[:1])
    paired = bootstrap_difference(differences[0], [0.0] * 3)
    assert (alone.low, alone.high) == (pytest.approx(paired.low, abs=0.02), pytest.approx(paired.high, abs=0.02))


@pytest.mark.long
def test_the_interval_over_seeds_has_its_stated_coverage():
    """400 studies of six paired seeds and 24 questions, with differences that vary with both: about 95 % of the intervals contain the true mean."""
    rng = np.random.default_rng(11)
    covered = widths = 0.0
    for study in range(400):
        seeds_S1, questions_1Q = rng.normal(0, 0.05, (6, 1)), rng.normal(0, 0.1, (1, 24))
        found = bootstrap_seeds((0.1 + seeds_S1 + questions_1Q + rng.normal(0, 0.1, (6, 24))).tolist(), study)
        covered += found.low <= 0.1 <= found.high
        widths += found.high - found.low
    assert 0.93 <= covered / 400 <= 0.995
    assert widths / 400 < 0.2, "the intervals should not be arbitrarily wide"


def slow_sign_flip_test(differences):
    """The p computed by flipping the signs in every way, one by one."""
    flips = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(each >= abs(sum(differences)) - 1e-9 for each in flips) / len(flips)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=8))
def test_the_sign_flip_test_equals_an_enumeration(differences):
    """Equals the slow version, which flips signs one by one, and scipy's exact permutation test."""
    found = sign_flip_test([each / 10 for each in differences])
    assert found == pytest.approx(slow_sign_flip_test([each / 10 for each in differences]))
    assert found == sign_flip_test([-each / 10 for each in differences])
    if len(differences) > 1:
        theirs = permutation_test((differences,), np.sum, permutation_type="samples", n_resamples=np.inf)
        assert found == pytest.approx(theirs.pvalue)


def test_the_sign_flip_test_matches_values_computed_by_hand():
    # Six equal differences: 2 of the 2⁶ sums are at least as far from 0 as the observed one. With a seventh of the same size and the opposite sign: 16 of 128.
    assert sign_flip_test([0.1] * 6) == 2 / 64
    assert sign_flip_test([0.1] * 6 + [-0.1]) == 16 / 128
    assert sign_flip_test([0.3, 0.1, -0.1]) == 6 / 8, "sums of ±.5, ±.3, ±.3 and ±.1"


def test_the_sign_flip_test_holds_its_level_and_detects_a_difference():
    rng = np.random.default_rng(5)
    null = [sign_flip_test(rng.standard_t(3, 7)) < 0.05 for _ in range(2000)]
    assert 0.02 < np.mean(null) < 0.06, "even with heavy tails, about 5 % of the tests at most should reject"
    assert np.mean([sign_flip_test(rng.normal(2, 1, 7)) < 0.05 for _ in range(300)]) > 0.9
    for count in (0, 21):
        with pytest.raises(ValueError, match=f"{count} seeds"):
            sign_flip_test([1.0] * count)


def test_the_equality_test_matches_values_computed_by_hand():
    # Mean .01, sd .02, five seeds: t = (.03 − .01) / (.02 / √5) = 2.236 with 4 degrees of freedom, p = .0445.
    differences = [0.01 + 0.02 * each for each in np.array([-2, -1, 0, 1, 2]) / math.sqrt(2.5)]
    assert np.std(differences, ddof=1) == pytest.approx(0.02)
    assert equality_test(differences, 0.03) == pytest.approx(0.0445, abs=1e-4)
    assert equality_test([-each for each in differences], 0.03) == equality_test(differences, 0.03)
    assert equality_test([0.04] * 3, 0.03) == 1.0 and equality_test([0.0] * 3, 0.03) == 0.0
    one_sided = [
        ttest_1samp(differences, bound, alternative=way).pvalue for bound, way in ((-0.03, "greater"), (0.03, "less"))
    ]
    assert equality_test(differences, 0.03) == pytest.approx(max(one_sided))


def test_the_equality_test_holds_its_level_at_the_margin():
    rng = np.random.default_rng(6)
    at_margin = np.mean([equality_test(rng.normal(0.03, 0.01, 6), 0.03) < 0.05 for _ in range(2000)])
    assert 0.035 < at_margin < 0.065
    assert np.mean([equality_test(rng.normal(0, 0.01, 6), 0.03) < 0.05 for _ in range(200)]) > 0.9


def seeds_of(*levels, questions=12):
    """For each seed, one value per question, all equal to the level of the seed."""
    return {seed: [level] * questions for seed, level in enumerate(levels)}


def test_one_seed_never_shows_a_difference_and_six_that_agree_do():
    base = seeds_of(0.5)
    alone = compare_seeds({"dpo": base, "ms": seeds_of(1.0)}, "dpo")["ms"]
    assert (alone.p, alone.shown, alone.by_seed) == (1.0, False, (0.5,)) and alone.interval.low > 0
    five = compare_seeds({"dpo": seeds_of(*[0.5] * 5), "ms": seeds_of(*[1.0] * 5)}, "dpo")["ms"]
    assert five.p == 2 / 32 and not five.shown
    six = compare_seeds({"dpo": seeds_of(*[0.5] * 6), "ms": seeds_of(*[1.0] * 6)}, "dpo")["ms"]
    assert six.p == 2 / 64 and six.shown
    two_systems = {"dpo": seeds_of(*[0.5] * 6), "ms": seeds_of(*[1.0] * 6), "ipo": seeds_of(*[0.5] * 6)}
    assert not compare_seeds(two_systems, "dpo")["ms"].shown, "p should be 4/64 after Holm's correction"


def test_pairing_seeds_cancels_differences_between_seeds():
    """Results differ far more between seeds than between systems; comparing them seed by seed shows the difference, whatever the order of the seeds."""
    shared = [0.1, 0.9, 0.4, 0.7, 0.2, 0.5]
    better = [level + 0.02 + 0.001 * number for number, level in enumerate(shared)]
    verdict = compare_seeds({"ms": seeds_of(*better), "dpo": dict(reversed(seeds_of(*shared).items()))}, "dpo")["ms"]
    assert verdict.shown and verdict.interval.low == pytest.approx(0.02, abs=0.002)


def test_equality_needs_a_margin_and_more_than_one_seed():
    systems = {"dpo": seeds_of(*[0.5] * 6), "ms": seeds_of(0.51, 0.49, 0.5, 0.5, 0.51, 0.49)}
    assert compare_seeds(systems, "dpo")["ms"].equal_p is None
    assert compare_seeds(systems, "dpo", margin=0.03)["ms"].equal
    assert not compare_seeds(systems, "dpo", margin=0.005)["ms"].equal
    assert not compare_seeds({"dpo": seeds_of(0.5), "ms": seeds_of(0.5)}, "dpo", margin=0.03)["ms"].equal


def test_an_unpaired_seed_is_refused_with_an_error_that_names_it():
    systems = {"dpo": seeds_of(0.5, 0.5, 0.5), "ms": seeds_of(1.0, 1.0)}
    with pytest.raises(UserError, match=r"seed 2 is unpaired: ms has no run with it \(ms: 0, 1; dpo: 0, 1, 2\)"):
        compare_seeds(systems, "dpo")
    with pytest.raises(UserError, match="seed 2 is unpaired: ms has no run"):
        compare_seeds(systems, "ms")


def test_more_seeds_than_the_test_can_enumerate_are_refused_unless_there_is_one_system():
    many = seeds_of(*[0.5] * 21, questions=2)
    with pytest.raises(UserError, match=r"21 seeds of every system\. Expected at most 20\. Leave out the runs of some"):
        compare_seeds({"dpo": many, "ms": many}, "dpo")
    assert compare_seeds({"dpo": many}, "dpo") == {}


def test_the_width_of_intervals_follows_holms_procedure():
    """An interval excludes 0 exactly if Holm's procedure on the bootstrap p-values rejects its hypothesis; a single system has the plain 95 % interval."""
    rng = np.random.default_rng(8)
    baseline = [0.0] * 40
    systems = {f"s{number}": (rng.normal(0.07 * number, 0.5, 40).tolist(), baseline) for number in range(6)}
    found = holm_intervals(systems)
    p_values = {}
    for name, (values, _) in systems.items():
        drawn = np.random.default_rng(0)
        p_values[name] = bootstrap_p(
            np.array([np.mean(np.array(values)[drawn.integers(40, size=40)]) for _ in range(2000)])
        )
    rejected = {name for name, p in holm(p_values).items() if p <= 0.05}
    assert rejected == {name for name, each in found.items() if each.low > 0 or each.high < 0}
    assert rejected and len(rejected) < 6, "the test needs hypotheses that are rejected and others that are not"
    for name, pair in systems.items():
        plain = bootstrap_difference(*pair)
        assert found[name].low <= plain.low and found[name].high >= plain.high and found[name].mean == plain.mean
    assert holm_intervals({"s5": systems["s5"]}) == {"s5": bootstrap_difference(*systems["s5"])}


def test_holms_intervals_hold_the_level_of_the_family():
    """100 families of five systems without a difference: in about 5 % some interval excludes 0, and in about 20 % some plain interval does."""
    rng = np.random.default_rng(9)
    wrong = plain = 0
    for study in range(100):
        systems = {str(number): (rng.normal(0, 1, 20).tolist(), [0.0] * 20) for number in range(5)}
        wrong += any(each.low > 0 or each.high < 0 for each in holm_intervals(systems, seed=study).values())
        plain_intervals = [bootstrap_difference(*pair, seed=study) for pair in systems.values()]
        plain += any(each.low > 0 or each.high < 0 for each in plain_intervals)
    assert wrong <= 10 < plain
