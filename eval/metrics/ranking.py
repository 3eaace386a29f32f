"""Metrics that compare ranked sources with gold sources. `ranked` contains no source twice, and `gold` is not empty."""

import math
from collections.abc import Sequence


def recall_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """The share of the gold sources that are among the first `k` of `ranked`."""
    return len(set(ranked[:k]) & set(gold)) / len(set(gold))


def all_gold_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """1.0 if every gold source is among the first `k`, as a multi-hop question requires; 0.0 if not."""
    return float(set(gold) <= set(ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], gold: Sequence[str]) -> float:
    """1 / rank of the first gold source, 0.0 when none is ranked; its mean over questions is the MRR."""
    relevant = set(gold)
    return next((1.0 / rank for rank, source in enumerate(ranked, start=1) if source in relevant), 0.0)


def average_precision(relevant: Sequence[bool], total_relevant: int) -> float:
    """The sum of precision at k over the ranks k of relevant items, divided by the number of relevant items, ranked or not.

    >>> average_precision([True, False, True], 2)
    0.8333333333333333
    >>> average_precision([True], 2)
    0.5
    """
    ranks = [rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant]
    return sum(hits / rank for hits, rank in enumerate(ranks, start=1)) / total_relevant


def ndcg_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """Normalised discounted cumulative gain, binary gains: Σ 1/log2(rank + 1), divided by the same sum for a perfect ranking."""
    relevant = set(gold)
    gain = sum(1.0 / math.log2(rank + 1) for rank, source in enumerate(ranked[:k], start=1) if source in relevant)
    return gain / sum(1.0 / math.log2(rank + 1) for rank in range(1, min(len(relevant), k) + 1))
