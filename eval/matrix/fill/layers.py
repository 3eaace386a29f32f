"""Which layers of the hierarchy a system's evidence came from (GraphMPA's Tables 5 and 6), passages standing in layer 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eval.matrix.fill.figures import Scored
from eval.matrix.fill.types import QuestionResult
from eval.shared.tables import Table, figure
from graph.shared.types import Evidence

BINS = ((0, 20), (20, 50), (50, 80), (80, 100))
"""Per cent of what a question found, each without its lower end: 0 to 2, 3 to 5, 6 to 8 and 9 to 10 of 10, as in the paper."""


def count_layers(evidence: Evidence) -> tuple[int, ...]:
    """How many of the passages and summaries are of each layer, from 0 to the highest found; empty for no evidence."""
    found = Counter(one.item.layer for one in evidence.summaries) + Counter({0: len(evidence.passages)})
    return tuple(found[layer] for layer in range(max(found, default=-1) + 1))


def shares(results: Sequence[QuestionResult]) -> list[tuple[float, ...]]:
    """The share of each layer for every question that found something, in per cent, all of one length."""
    filled = [one.layers for one in results if sum(one.layers)]
    depth = max(map(len, filled), default=0)
    return [tuple(100 * count / sum(of) for count in (*of, *[0] * (depth - len(of)))) for of in filled]


def mean_shares(results: Sequence[QuestionResult]) -> tuple[float, ...]:
    """The mean share of each layer, from 0 to 1."""
    found = shares(results)
    return tuple(sum(layer) / len(found) / 100 for layer in zip(*found, strict=True))


def layers_table(task: str, scored: Sequence[Scored]) -> Table | None:
    """One row for each layer of each system that found summaries; None where none did."""
    rows = []
    for one in scored:
        found = shares(one.results) if one.task == task else []
        if any(sum(of[1:]) for of in found):
            for layer, mean in enumerate(mean_shares(one.results)):
                values = [of[layer] for of in found]
                rows.append((one.system, str(layer), figure(mean, True), *_spread(values)))
    if not rows:
        return None
    header = ("system", "layer", "mean share", *(f"{low}–{high} %" for low, high in BINS))
    note = (
        "Layer 0: passages and summaries of chunks; above it, summaries of communities (GraphMPA counts from 1). The right-hand columns: "
        "the share of questions for which so much of what was found is of the layer, each without its lower end but for 0."
    )
    return Table(f"{task}: layers of what was found", header, tuple(rows), note)


def _spread(values: Sequence[float]) -> list[str]:
    """The share of the values in each bin."""
    return [
        figure(sum(low < value <= high or value == low == 0 for value in values) / len(values), True)
        for low, high in BINS
    ]
