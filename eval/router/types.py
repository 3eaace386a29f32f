"""The nouns of router evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval.shared.statistics import Interval
from train.router.types import Point


@dataclass(frozen=True)
class Kind:
    """Questions of one kind: what the best single mode of all questions and the router reach on them, and where they were sent."""

    name: str
    questions: int
    best: Point
    router: Point


@dataclass(frozen=True)
class RouterReport:
    """Ways of routing on the same questions. `differences` are each way's Recall@5 minus that of `best`, the best single mode.

    `points` are the single modes, the rule of thumb where its modes were run, the router and the oracle. `curve` is the router at
    every price from none to all, as (milliseconds, Recall@5). `routing_ms` is in the router's milliseconds already. `as_good_share`
    is the share of questions that a cheaper mode answers as well as the best one.
    """

    router: str
    data: Mapping[str, str]
    split: str
    questions: int
    best: str
    points: tuple[Point, ...]
    differences: Mapping[str, Interval]
    kinds: tuple[Kind, ...]
    curve: tuple[tuple[float, float], ...]
    routing_ms: float
    as_good_share: float
    seed: int
