"""Route data of a small world: questions with many links need `hops`, for the others `dense` finds as much for a tenth of the time."""

from typing import Any

import numpy as np

from data_synth.route import ModeRun, RouteRow, route_to_json
from graph.documents.questions import SPLITS
from graph.retrieve.learned.router import QUERY_FEATURES

LINKS, BROAD = QUERY_FEATURES.index("links"), QUERY_FEATURES.index("broad")
SIZES = {"train": 160, "dev": 40, "test": 60}


def make_row(split: str, number: int, name: str) -> RouteRow:
    """Every other question is hard; the clocks of `hops` and `dense` run a little unevenly."""
    random = np.random.default_rng([SPLITS.index(split), number, len(name)])
    hard = number % 2 == 1
    features_F = random.uniform(0, 1, len(QUERY_FEATURES))
    features_F[LINKS], features_F[BROAD] = 3 if hard else 1, 0
    runs = {
        "dense": ModeRun(0.5 if hard else 1.0, round(0.8 + 0.4 * random.random(), 3), 0),
        "hops": ModeRun(1.0, round(9 + 2 * random.random(), 3), 0),
        "hierarchy": ModeRun(0.4, round(1.5 + random.random(), 3), 0),
    }
    return RouteRow(
        id=f"{name}-{split}-{number}",
        question=f"What is {name} {split} {number}?",
        kind="hard" if hard else "easy",
        split=split,
        best_mode="hops" if hard else "dense",
        runs=runs,
        features=tuple(features_F.round(6).tolist()),
        features_ms=0.5,
    )


def small_world(name: str = "a") -> list[dict[str, Any]]:
    """Rows of all splits, as JSON."""
    return [route_to_json(make_row(split, number, name)) for split, size in SIZES.items() for number in range(size)]
