"""Is a difference more than chance? Intervals, exact tests, the correction for multiple comparisons, and the check that both sides answered the same questions.

All tests are paired: the same questions under two systems. Legend: Q questions, C clusters, S resamples, R and T training seeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from graph.errors import UserError
from graph.types import Ints

RESAMPLES = 2000
LEVEL = 0.05


@dataclass(frozen=True)
class Interval:
    """A mean, or a mean difference, and the 95 % interval of its bootstrap."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """One comparison among several: the interval of the mean difference, the sign test's p, and that p after Holm's correction.

    A system was better on `better` of the questions and worse on `worse`. A difference is `shown` only when test and interval
    agree: corrected p below 0.05, 0 outside the interval, and most questions on the same side as the mean.
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


def bootstrap_difference(
    values_Q: Sequence[float],
    baseline_Q: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile interval of mean(values − baseline), resampling pairs with replacement (Efron & Tibshirani 1993, §16).

    Rows that share a cluster (several contexts of one question) are drawn together, because they are not independent.
    Raises ValueError when the rows do not pair up or there are none.
    """
    difference_Q = _differences(values_Q, baseline_Q)
    sums_C, sizes_C = _cluster_sums(difference_Q, clusters if clusters is not None else range(len(difference_Q)))
    rng = np.random.default_rng(seed)
    means_S = np.empty(resamples)
    for sample in range(resamples):
        drawn_C = rng.integers(len(sums_C), size=len(sums_C))
        means_S[sample] = sums_C[drawn_C].sum() / sizes_C[drawn_C].sum()
    low, high = np.percentile(means_S, [2.5, 97.5])
    return Interval(float(difference_Q.mean()), float(low), float(high))


def bootstrap_mean(values_Q: Sequence[float], clusters: Sequence[Hashable] | None = None, seed: int = 0) -> Interval:
    """A mean and the percentile interval of its bootstrap over clusters (see `bootstrap_difference`)."""
    return bootstrap_difference(values_Q, [0.0] * len(values_Q), clusters, seed=seed)


def bootstrap_seeds(
    values: Sequence[Sequence[float]],
    baseline: Sequence[Sequence[float]],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile interval of mean(values [R][Q]) − mean(baseline [T][Q]), both of several training seeds.

    Questions are drawn in pairs, seeds of each side separately (the bootstrap of crossed factors, Owen 2007). With few seeds it is
    too narrow; with one it covers the questions alone.
    """
    _differences(values[0], baseline[0])
    values_RQ, baseline_TQ = np.array(values, np.float64), np.array(baseline, np.float64)
    rng = np.random.default_rng(seed)

    def drawn(one_RQ: NDArray[np.float64], questions_Q: Ints) -> float:
        return float(one_RQ[rng.integers(len(one_RQ), size=len(one_RQ))][:, questions_Q].mean())

    means_S = np.empty(resamples)
    for sample in range(resamples):
        questions_Q = np.asarray(rng.integers(values_RQ.shape[1], size=values_RQ.shape[1]))
        means_S[sample] = drawn(values_RQ, questions_Q) - drawn(baseline_TQ, questions_Q)
    low, high = np.percentile(means_S, [2.5, 97.5])
    return Interval(float(values_RQ.mean() - baseline_TQ.mean()), float(low), float(high))


def sign_test(values_Q: Sequence[float], baseline_Q: Sequence[float]) -> float:
    """Exact two-sided p of this many questions better and worse under a fair coin; equal ones do not count (Dixon & Mood 1946).

    On right-or-wrong values this is McNemar's exact test: both toss a coin for each question on which one side alone is right.

    >>> sign_test([1, 1, 1, 1, 1, 0.5], [0, 0, 0, 0, 0, 0.5])
    0.0625
    """
    difference_Q = _differences(values_Q, baseline_Q)
    better, worse = int((difference_Q > 0).sum()), int((difference_Q < 0).sum())
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's (1979) corrected p-values: p of rank i (from 0) times (m − i), never below that of a smaller p, at most 1.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: (p_values[name], name))):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = highest
    return {name: corrected[name] for name in p_values}


def compare_paired(systems: Mapping[str, tuple[Sequence[float], Sequence[float]]], seed: int = 0) -> dict[str, Verdict]:
    """Each comparison's (values, baseline values) to its verdict; p-values are corrected over all comparisons given together."""
    return _verdicts(systems, lambda name: bootstrap_difference(*systems[name], seed=seed))


def compare_seeds(
    systems: Mapping[str, tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]], seed: int = 0
) -> dict[str, Verdict]:
    """`compare_paired` of systems trained with several seeds, [seed][question]: the test is of means over seeds, the interval over both."""
    means = {
        name: ([*np.mean(values_RQ, axis=0)], [*np.mean(baseline_TQ, axis=0)])
        for name, (values_RQ, baseline_TQ) in systems.items()
    }
    return _verdicts(means, lambda name: bootstrap_seeds(*systems[name], seed=seed))


def _verdicts(
    systems: Mapping[str, tuple[Sequence[float], Sequence[float]]], interval: Callable[[str], Interval]
) -> dict[str, Verdict]:
    p_values = {name: sign_test(*pair) for name, pair in systems.items()}
    corrected = holm(p_values)
    verdicts = {}
    for name, (values_Q, baseline_Q) in systems.items():
        difference_Q = _differences(values_Q, baseline_Q)
        verdicts[name] = Verdict(
            interval=interval(name),
            p=p_values[name],
            corrected_p=corrected[name],
            questions=len(difference_Q),
            better=int((difference_Q > 0).sum()),
            worse=int((difference_Q < 0).sum()),
        )
    return verdicts


def verdict_text(verdict: Verdict, name: str, baseline: str) -> str:
    """A verdict in words, with its figures."""
    interval = verdict.interval
    figures = (
        f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}], p = {verdict.corrected_p:.2g} after Holm, "
        f"better on {verdict.better:,} and worse on {verdict.worse:,} of {verdict.questions:,} questions"
    )
    if not verdict.shown:
        return f"no difference shown between {name} and {baseline} ({figures})"
    return f"{name} is {'better' if interval.mean > 0 else 'worse'} than {baseline} ({figures})"


def _differences(values_Q: Sequence[float], baseline_Q: Sequence[float]) -> NDArray[np.float64]:
    if not len(values_Q) or len(values_Q) != len(baseline_Q):
        raise ValueError(f"{len(values_Q)} values do not pair up with {len(baseline_Q)} baseline values")
    return np.asarray(values_Q, dtype=np.float64) - np.asarray(baseline_Q, dtype=np.float64)


def _cluster_sums(
    difference_Q: NDArray[np.float64], clusters: Sequence[Hashable]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    number = {cluster: row for row, cluster in enumerate(dict.fromkeys(clusters))}
    row_Q = [number[cluster] for cluster in clusters]
    sums_C, sizes_C = np.zeros(len(number)), np.zeros(len(number))
    np.add.at(sums_C, row_Q, difference_Q)
    np.add.at(sizes_C, row_Q, 1.0)
    return sums_C, sizes_C


SAME_QUESTIONS, SAME_QUESTIONS_REMEDY = "the same questions in both", "compare runs over the same questions"


def check_same_questions(a: Mapping[str, str], b: Mapping[str, str]) -> None:
    """UserError naming the first question (id to text) that only one side has, or whose text differs."""
    only = [(key, "B") for key in a if key not in b] + [(key, "A") for key in b if key not in a]
    if only:
        key, lacking = only[0]
        raise UserError(
            f"{len(only):,} questions are on one side only, {key!r} not in {lacking} first",
            SAME_QUESTIONS,
            SAME_QUESTIONS_REMEDY,
        )
    for key, text in a.items():
        if text != b[key]:
            raise UserError(
                f"question {key!r} is {text!r} in A and {b[key]!r} in B", SAME_QUESTIONS, SAME_QUESTIONS_REMEDY
            )
