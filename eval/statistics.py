"""Is a difference due to more than chance? Intervals, exact tests, the correction for multiple comparisons, and the check that both sides answered
the same questions.

All tests are paired: the same questions under two systems, and if there are several training seeds, the same seeds, which are then the unit of
the test. Legend: Q questions, C clusters, S training seeds, F flips of signs, B resamples."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, norm, t

from graph.errors import UserError

RESAMPLES = 2000
LEVEL = 0.05
MAX_DRAWS = 1_000_000
"""Largest number of sampled clusters held in memory at the same time."""
MAX_SEEDS = 20
"""Largest number of seeds whose sign flips are enumerated."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Interval:
    """A mean, or a mean difference, and its bootstrap interval: 95 %, or wider if it is one of several (`holm_intervals`)."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """The mean and, in brackets, the interval, each number in the format `spec`.

        >>> f"{Interval(0.5, 0.25, 0.75):+.2f}"
        '+0.50 [+0.25, +0.75]'
        """
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


@dataclass(frozen=True)
class Verdict:
    """One comparison among several: the interval of the mean difference, the sign test's p, and that p after Holm's correction.

    A system was better on `better` of the questions and worse on `worse`. A difference is `shown` only when test and interval
    agree: corrected p below 0.05, 0 outside the interval, and more questions on the side of the mean than on the other.
    """

    interval: Interval
    p: float
    corrected_p: float
    questions: int
    better: int
    worse: int

    @property
    def shown(self) -> bool:
        above = self.interval.low > 0 and self.better > self.worse
        below = self.interval.high < 0 and self.better < self.worse
        return self.corrected_p < LEVEL and (above or below)


@dataclass(frozen=True)
class SeedVerdict:
    """One comparison, among several, of two systems trained with the same seeds.

    `by_seed` contains the difference for each seed, the unit of the exact sign-flip test (`p`; `corrected_p` after Holm's correction); `interval` is
    over seeds and questions. `equal_p` is the p of the test for equality within a margin (None without one). A difference is `shown` only when
    test and interval agree, so never with five seeds or fewer, whose p is at least 1/16 (1 for one seed).
    """

    interval: Interval
    p: float
    corrected_p: float
    by_seed: tuple[float, ...]
    equal_p: float | None

    @property
    def shown(self) -> bool:
        return self.corrected_p < LEVEL and (self.interval.low > 0 or self.interval.high < 0)

    @property
    def equal(self) -> bool:
        """Whether the difference is shown to lie within the margin."""
        return self.equal_p is not None and self.equal_p < LEVEL


def bootstrap_difference(
    values_Q: Sequence[float],
    baseline_Q: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Interval:
    """Percentile interval of mean(values − baseline), resampling pairs with replacement (Efron & Tibshirani 1993, §13).

    Rows that share a cluster (several contexts of one question) are resampled together, because they are not independent.
    Raises ValueError when the rows do not pair up or there are none.
    """
    difference_Q = _differences(values_Q, baseline_Q)
    return _percentiles(difference_Q.mean(), _resampled_means(difference_Q, clusters, seed), LEVEL)


def holm_intervals(
    systems: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> dict[str, Interval]:
    """`bootstrap_difference` of several systems, each at its level in Holm's procedure: an interval excludes 0 exactly if the procedure rejects 0."""
    differences = {name: _differences(*pair) for name, pair in systems.items()}
    means = {name: _resampled_means(each_Q, clusters, seed) for name, each_Q in differences.items()}
    levels = holm_levels({name: bootstrap_p(means_B) for name, means_B in means.items()})
    return {name: _percentiles(differences[name].mean(), means[name], levels[name]) for name in systems}


def holm_levels(p_values: Mapping[str, float]) -> dict[str, float]:
    """The level that each p is compared with: 0.05 / (m − i) for the i-th smallest (from 0) of m; constant after the first p that is not rejected.

    >>> holm_levels({"a": 0.03, "b": 0.01, "c": 0.5}), holm_levels({"a": 0.026, "b": 0.027})
    ({'b': 0.016666666666666666, 'a': 0.025, 'c': 0.025}, {'a': 0.025, 'b': 0.025})
    """
    levels: dict[str, float] = {}
    level, stopped = 0.0, False
    for rank, name in enumerate(sorted(p_values, key=lambda name: (p_values[name], name))):
        level = level if stopped else LEVEL / (len(p_values) - rank)
        stopped = stopped or p_values[name] > level
        levels[name] = level
    return levels


def bootstrap_p(means_B: NDArray[np.float64]) -> float:
    """Two-sided p of a bootstrap (Efron & Tibshirani 1993, §15.4), at most 1.

    Twice the share of resampled means that are at or below 0, or at or above 0, whichever share is smaller.

    >>> bootstrap_p(np.array([-0.1, 0.2, 0.3, 0.4])), bootstrap_p(np.array([0.0, 0.0]))
    (0.5, 1.0)
    """
    return min(1.0, 2 * min(float((means_B <= 0).mean()), float((means_B >= 0).mean())))


def bootstrap_mean(values_Q: Sequence[float], clusters: Sequence[Hashable] | None = None, seed: int = 0) -> Interval:
    """A mean and the percentile interval of its bootstrap over clusters (see `bootstrap_difference`)."""
    return bootstrap_difference(values_Q, [0.0] * len(values_Q), clusters, seed=seed)


def bootstrap_seeds(difference_SQ: Sequence[Sequence[float]], seed: int = 0) -> Interval:
    """Interval of the mean difference of systems whose seeds are paired, for conclusions beyond these seeds and questions.

    Seeds and questions are resampled separately, the same questions for all seeds (the bootstrap of crossed factors, Owen 2007). The percentiles are
    moved outwards to correct for few seeds, to Φ(∓ √(S / (S − 1)) t_S−1) (Hesterberg 2015, §3.1); one seed gives an interval over questions alone.
    """
    values_SQ = np.array(difference_SQ, np.float64)
    seeds, questions = values_SQ.shape
    rng = np.random.default_rng(seed)
    seeds_BS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES)
    questions_BQ = rng.multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES)
    means_B = ((seeds_BS @ values_SQ) * questions_BQ).sum(axis=1) / (seeds * questions)
    return _percentiles(values_SQ.mean(), means_B, expanded_level(seeds) if seeds > 1 else LEVEL)


def expanded_level(seeds: int) -> float:
    """The level whose percentile interval of a bootstrap over this many seeds is about as wide as the 95 % t-interval (Hesterberg 2015).

    >>> round(expanded_level(6), 4), round(expanded_level(1000), 3)
    (0.0049, 0.05)
    """
    return float(2 * norm.cdf(-math.sqrt(seeds / (seeds - 1)) * t.ppf(1 - LEVEL / 2, seeds - 1)))


def sign_flip_test(difference_S: Sequence[float]) -> float:
    """Exact two-sided p of a mean of paired differences: the share of all 2^S flips of their signs that give a mean at least as far from 0.

    Fisher's randomisation test (1935, §21). S seeds give a p of at least 2^(1 − S), so one seed gives 1; ValueError for no seed, or more than MAX_SEEDS.

    >>> sign_flip_test([0.1, 0.2, 0.3]), sign_flip_test([5.0]), sign_flip_test([1.0, 1.0, -1.0])
    (0.25, 1.0, 1.0)
    """
    if not 0 < len(difference_S) <= MAX_SEEDS:
        raise ValueError(f"{len(difference_S)} seeds; expected 1 to {MAX_SEEDS}")
    sums_F = np.abs(sign_flips(len(difference_S)) @ np.asarray(difference_S, np.float64))
    return float((sums_F >= sums_F[0] * (1 - 1e-9)).mean())


def sign_flips(seeds: int) -> NDArray[np.int64]:
    """All flips of the signs of S differences, a flip and its opposite counted once; the first row flips none: ±1 [2^(S − 1), S].

    >>> sign_flips(2).tolist()
    [[1, 1], [-1, 1]]
    """
    signs_FS: NDArray[np.int64] = 1 - 2 * (np.arange(2 ** (seeds - 1))[:, None] >> np.arange(seeds) & 1)
    return signs_FS


def equality_test(difference_S: Sequence[float], margin: float) -> float:
    """p for the hypothesis that a mean of paired differences lies outside ±margin; 1 for one seed.

    The larger p of two one-sided t-tests (TOST, Schuirmann 1987).

    >>> round(equality_test([0.01, -0.01, 0.0], 0.03), 3), equality_test([0.0], 0.03)
    (0.018, 1.0)
    """
    if len(difference_S) < 2:
        return 1.0
    mean, deviation = float(np.mean(difference_S)), float(np.std(difference_S, ddof=1))
    if deviation == 0:
        return float(abs(mean) >= margin)
    return float(t.sf((margin - abs(mean)) / (deviation / math.sqrt(len(difference_S))), len(difference_S) - 1))


def sign_test(values_Q: Sequence[float], baseline_Q: Sequence[float]) -> float:
    """Exact two-sided p of the numbers of better and worse questions under a fair coin (Dixon & Mood 1946).

    Ties do not count; if all questions are ties, p is 1.

    On right-or-wrong values this is McNemar's exact test, which also counts only the questions on which one side alone is right.

    >>> sign_test([1, 1, 1, 1, 1, 0.5], [0, 0, 0, 0, 0, 0.5])
    0.0625
    """
    difference_Q = _differences(values_Q, baseline_Q)
    better, worse = int((difference_Q > 0).sum()), int((difference_Q < 0).sum())
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Holm's (1979) corrected p-values: p of rank i (from 0) times (m − i), never below that of a smaller p, at most 1.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected: dict[Name, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: (p_values[name], name))):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = highest
    return {name: corrected[name] for name in p_values}


def compare_paired(
    systems: Mapping[Name, tuple[Sequence[float], Sequence[float]]], seed: int = 0
) -> dict[Name, Verdict]:
    """The verdict on each comparison of (values, baseline values); p-values are corrected over all comparisons given together."""
    p_values = {name: sign_test(*pair) for name, pair in systems.items()}
    corrected = holm(p_values)
    verdicts = {}
    for name, pair in systems.items():
        difference_Q = _differences(*pair)
        verdicts[name] = Verdict(
            interval=bootstrap_difference(*pair, seed=seed),
            p=p_values[name],
            corrected_p=corrected[name],
            questions=len(difference_Q),
            better=int((difference_Q > 0).sum()),
            worse=int((difference_Q < 0).sum()),
        )
    return verdicts


def compare_seeds(
    systems: Mapping[str, Mapping[int, Sequence[float]]], baseline: str, margin: float | None = None, seed: int = 0
) -> dict[str, SeedVerdict]:
    """Every other system minus `baseline`, seeds paired; p-values are corrected over the systems. UserError as in `check_paired_seeds`.

    `systems` contains the values by system and training seed, each in the order of the questions.
    """
    check_paired_seeds(systems, baseline)
    differences = {
        name: np.array([_differences(values[one], systems[baseline][one]) for one in sorted(values)])
        for name, values in systems.items()
        if name != baseline
    }
    by_seed = {name: tuple(each_SQ.mean(axis=1).tolist()) for name, each_SQ in differences.items()}
    p_values = {name: sign_flip_test(each_S) for name, each_S in by_seed.items()}
    corrected = holm(p_values)
    return {
        name: SeedVerdict(
            bootstrap_seeds(each_SQ.tolist(), seed=seed),
            p_values[name],
            corrected[name],
            by_seed[name],
            None if margin is None else equality_test(by_seed[name], margin),
        )
        for name, each_SQ in differences.items()
    }


def check_paired_seeds(seeds: Mapping[str, Collection[int]], baseline: str) -> None:
    """UserError naming the first system whose seeds are not those of `baseline`, and a seed that only one of the two has.

    Also UserError for several systems with more than MAX_SEEDS seeds.
    """
    for name, system_seeds in seeds.items():
        unpaired = sorted(set(system_seeds) ^ set(seeds[baseline]))
        if unpaired:
            lacking = baseline if unpaired[0] in system_seeds else name
            raise UserError(
                f"seed {unpaired[0]} is unpaired: {lacking} has no run with it "
                f"({name}: {_seeds_text(system_seeds)}; {baseline}: {_seeds_text(seeds[baseline])})",
                "the same seeds for every system, because seeds are compared in pairs",
                "train the missing runs, or leave out the other runs of that seed",
            )
    if len(seeds) > 1 and (count := len(set(seeds[baseline]))) > MAX_SEEDS:
        raise UserError(f"{count} seeds of every system", f"at most {MAX_SEEDS}", "leave out the runs of some seeds")


def _seeds_text(seeds: Collection[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def verdict_text(verdict: Verdict, name: str, baseline: str) -> str:
    """A verdict in words, with its figures."""
    figures = (
        f"{verdict.interval:+.3f}, p = {verdict.corrected_p:.2g} after Holm, "
        f"better on {verdict.better:,} and worse on {verdict.worse:,} of {verdict.questions:,} questions"
    )
    if not verdict.shown:
        return f"no difference shown between {name} and {baseline} ({figures})"
    return f"{name} is {'better' if verdict.interval.mean > 0 else 'worse'} than {baseline} ({figures})"


def _differences(values_Q: Sequence[float], baseline_Q: Sequence[float]) -> NDArray[np.float64]:
    if not len(values_Q) or len(values_Q) != len(baseline_Q):
        raise ValueError(
            f"{len(values_Q)} values and {len(baseline_Q)} baseline values; expected equal numbers, at least 1"
        )
    return np.asarray(values_Q, dtype=np.float64) - np.asarray(baseline_Q, dtype=np.float64)


def _resampled_means(
    difference_Q: NDArray[np.float64], clusters: Sequence[Hashable] | None, seed: int
) -> NDArray[np.float64]:
    """Means of RESAMPLES draws of clusters with replacement: float64[B]."""
    clusters = range(len(difference_Q)) if clusters is None else clusters
    number = {cluster: row for row, cluster in enumerate(dict.fromkeys(clusters))}
    row_Q = [number[cluster] for cluster in clusters]
    sums_C, sizes_C = np.bincount(row_Q, difference_Q), np.bincount(row_Q)
    rng = np.random.default_rng(seed)
    at_once = max(1, MAX_DRAWS // len(sums_C))
    means = []
    for start in range(0, RESAMPLES, at_once):
        clusters_BC = rng.integers(len(sums_C), size=(min(at_once, RESAMPLES - start), len(sums_C)))
        means.append(sums_C[clusters_BC].sum(axis=1) / sizes_C[clusters_BC].sum(axis=1))
    return np.concatenate(means)


def _percentiles(mean: float, means_B: NDArray[np.float64], level: float) -> Interval:
    low, high = np.percentile(means_B, [100 * level / 2, 100 * (1 - level / 2)])
    return Interval(float(mean), float(low), float(high))


def check_same_questions(a: Mapping[str, str], b: Mapping[str, str]) -> None:
    """UserError naming the first question (id to text) that only one side has, or whose text differs."""
    only = [(key, "B") for key in a if key not in b] + [(key, "A") for key in b if key not in a]
    changed = [key for key, text in a.items() if b.get(key, text) != text]
    if only:
        key, lacking = only[0]
        found = f"{len(only):,} questions are in only one of A and B; the first, {key!r}, is not in {lacking}"
    elif changed:
        key = changed[0]
        found = f"question {key!r} is {a[key]!r} in A and {b[key]!r} in B"
    else:
        return
    raise UserError(found, "the same questions in both", "compare A and B on the same questions")
