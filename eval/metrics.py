"""Measures as pure functions: answers against gold, ranked sources against gold sources, and the interval of a difference.

Everything the comparisons print is a mean of one of these over questions. Array legend: Q questions, C clusters, S resamples.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_synth.rewards import word_f1
from graph.answer import parse_answer

CHOICES = ("yes", "no", "maybe")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """SQuAD's form of an answer (Rajpurkar et al. 2016, evaluate-v1.1): lower case, no punctuation, no articles.

    >>> normalise("The  Grey-Heron!")
    'greyheron'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1.0 when the normalised answer equals a normalised gold answer, else 0.0."""
    return float(any(normalise(answer) == normalise(gold) for gold in golds))


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """The best F1 over gold answers of the bags of normalised words (SQuAD); two empty bags agree fully.

    >>> token_f1("built in 1911 in Saltmere", ["in 1911"])
    0.5714285714285714
    """
    return max((_bag_f1(normalise(answer).split(), normalise(gold).split()) for gold in golds), default=0.0)


def _bag_f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    return word_f1(answer, gold) if answer and gold else float(answer == gold)


def read_choice(answer: str, choices: Sequence[str] = CHOICES) -> str:
    """The choice that an answer opens with, or "" when its first word is none of them (counted as wrong).

    >>> read_choice("Yes, since 1911."), read_choice("yesterday")
    ('yes', '')
    """
    first = (normalise(answer).split() or [""])[0]
    return first if first in choices else ""


def majority_class(train_labels: Sequence[str]) -> str:
    """The commonest label of the TRAIN split, to be applied to the test split; ties go to the alphabetically first.

    Taking the majority of the test split itself would let the baseline see the answers. "" when there are no labels.
    """
    counts = Counter(train_labels)
    return min(counts, key=lambda label: (-counts[label], label)) if counts else ""


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of equal labels; nan for no labels."""
    pairs = list(zip(predicted, gold, strict=True))
    return sum(p == g for p, g in pairs) / len(pairs) if pairs else math.nan


def accuracy_per_class(predicted: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """For each gold label (sorted), the share of its rows predicted right: a majority guesser shows 1, 0, 0."""
    found: dict[str, float] = {}
    for label in sorted(set(gold)):
        own = [p for p, g in zip(predicted, gold, strict=True) if g == label]
        found[label] = accuracy(own, [label] * len(own))
    return found


def well_formed(text: str) -> float:
    """1.0 when a text reads "###Reason: … ###Answer: …" (graph.answer.parse_answer); its mean is the share that does."""
    return float(parse_answer(text).well_formed)


def recall_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """The share of the gold sources among the first `k` ranked ones; `ranked` holds no source twice."""
    return len(set(ranked[:k]) & set(gold)) / len(set(gold))


def all_gold_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """1.0 when every gold source is among the first `k`: what a multi-hop question needs."""
    return float(set(gold) <= set(ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], gold: Sequence[str]) -> float:
    """1 / rank of the first gold source, 0.0 when none is ranked; its mean over questions is the MRR."""
    wanted = set(gold)
    return next((1.0 / rank for rank, source in enumerate(ranked, start=1) if source in wanted), 0.0)


def ndcg_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """Normalised discounted cumulative gain, binary gains: Σ 1/log2(rank + 1) over the same sum of a perfect ranking."""
    wanted = set(gold)
    gained = sum(1.0 / math.log2(rank + 1) for rank, source in enumerate(ranked[:k], start=1) if source in wanted)
    return gained / sum(1.0 / math.log2(rank + 1) for rank in range(1, min(len(wanted), k) + 1))


@dataclass(frozen=True)
class Interval:
    """A mean, or a mean difference, and the 95 % interval of its bootstrap."""

    mean: float
    low: float
    high: float


def bootstrap_difference(
    values_Q: Sequence[float],
    baseline_Q: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of mean(values − baseline), resampling pairs with replacement (Efron & Tibshirani 1993, §16).

    Rows that share a cluster (several contexts of one question) are drawn together, because they are not independent.
    Raises ValueError when the rows do not pair up or there are none.
    """
    if not values_Q or len(values_Q) != len(baseline_Q):
        raise ValueError(f"{len(values_Q)} values do not pair up with {len(baseline_Q)} baseline values")
    difference_Q = np.asarray(values_Q, dtype=np.float64) - np.asarray(baseline_Q, dtype=np.float64)
    sums_C, sizes_C = _cluster_sums(difference_Q, clusters if clusters is not None else range(len(difference_Q)))
    rng = np.random.default_rng(seed)
    means_S = np.empty(resamples)
    for sample in range(resamples):
        drawn_C = rng.integers(len(sums_C), size=len(sums_C))
        means_S[sample] = sums_C[drawn_C].sum() / sizes_C[drawn_C].sum()
    low, high = np.percentile(means_S, [2.5, 97.5])
    return Interval(float(difference_Q.mean()), float(low), float(high))


def bootstrap_mean(values_Q: Sequence[float], clusters: Sequence[Hashable] | None = None) -> Interval:
    """A mean and the percentile interval of its bootstrap over clusters (see `bootstrap_difference`)."""
    return bootstrap_difference(values_Q, [0.0] * len(values_Q), clusters)


def _cluster_sums(
    difference_Q: NDArray[np.float64], clusters: Sequence[Hashable]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    number = {cluster: row for row, cluster in enumerate(dict.fromkeys(clusters))}
    row_Q = [number[cluster] for cluster in clusters]
    sums_C, sizes_C = np.zeros(len(number)), np.zeros(len(number))
    np.add.at(sums_C, row_Q, difference_Q)
    np.add.at(sizes_C, row_Q, 1.0)
    return sums_C, sizes_C
