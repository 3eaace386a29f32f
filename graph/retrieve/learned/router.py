"""A trained router at query time: which mode a question goes to, by what each is expected to find and what it costs.

For every mode boosted trees expect its Recall@5 from QUERY_FEATURES (graph/retrieve/learned/query_features.py). What a mode is worth is
that less the price of its milliseconds and tokens; the question goes to the mode worth most where it is surely worth more than
the default, and to the default elsewhere. `modegraph train router` makes routers, graph/retrieve/learned/router_file.py keeps them.

Legend: Q questions, M modes, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graph.index.index import Index
from graph.retrieve.learned.forest import Forest, check_encoder, forest_logits
from graph.shared.errors import UserError
from graph.shared.modes import Mode
from graph.shared.types import Floats, Ints

Doubles = NDArray[np.float64]
ONE_HOP = ("dense", "lexical", "hybrid", "hierarchy")
"""Modes that look once and stop: they follow nothing from what they have found."""


@dataclass(frozen=True)
class ModeModel:
    """What a router knows of one mode: trees for its Recall@5, and its milliseconds and model tokens a question."""

    mode: Mode
    forest: Forest
    milliseconds: float
    tokens: float


@dataclass(frozen=True)
class Router:
    """The modes to choose from, the first being the default; prices are in Recall@5 a millisecond and a token.

    A question leaves the default only for a mode that is worth more by over `margin`. `encoder` is the fingerprint of that
    whose cosines the trees have learned from.
    """

    modes: tuple[ModeModel, ...]
    price_per_ms: float
    price_per_token: float
    margin: float
    encoder: str


@dataclass(frozen=True)
class Route:
    """Where a question goes, and whether the mode may ask a model there; `why` is for the trace."""

    mode: Mode
    asks_model: bool
    why: str


def expected_recall(modes: Sequence[ModeModel], features_QF: Floats) -> Doubles:
    """The Recall@5 that each mode is expected to reach, from 0 to 1: [Q, M]."""
    return np.clip(np.stack([forest_logits(each.forest, features_QF) for each in modes], axis=1), 0, 1)


def costs(modes: Sequence[ModeModel], price_per_ms: float, price_per_token: float) -> Doubles:
    """What each mode costs a question, in Recall@5: [M]."""
    return np.array([price_per_ms * each.milliseconds + price_per_token * each.tokens for each in modes], np.float64)


def choose(expected_QM: Doubles, cost_M: Doubles, margin: float) -> Ints:
    """The mode of each question: argmax of recall − cost, where that beats the default (mode 0) by over `margin`: int64[Q].

    >>> choose(np.array([[0.9, 0.8], [0.9, 0.4]]), np.array([0.3, 0.1]), 0.05).tolist()
    [1, 0]
    """
    worth_QM = expected_QM - cost_M
    best_Q = worth_QM.argmax(axis=1)
    gain_Q = worth_QM[np.arange(len(worth_QM)), best_Q] - worth_QM[:, 0]
    return np.where(gain_Q > margin, best_Q, 0).astype(np.int64)


def find_route(router: Router, features_F: Floats, has_model: bool) -> Route:
    """Where one question goes. Modes that were measured with a model are left out when there is none.

    UserError when no mode is left.
    """
    modes = [each for each in router.modes if has_model or not each.tokens]
    if not modes:
        raise UserError(
            "every mode of the router asks a model", "a model to ask", "give --model SPEC, or a router made without one"
        )
    [expected_M] = expected_recall(modes, features_F[None])
    [chosen] = choose(expected_M[None], costs(modes, router.price_per_ms, router.price_per_token), router.margin)
    return Route(modes[chosen].mode, modes[chosen].tokens > 0, tell_route(modes, expected_M, int(chosen)))


def tell_route(modes: Sequence[ModeModel], expected_M: Doubles, chosen: int) -> str:
    """The choice in words: against the default, or against the best of the others where the default was kept."""
    others = [place for place in range(len(modes)) if place != chosen]
    own = modes[chosen].mode
    hops = ", one hop is enough" if own in ONE_HOP else ""
    told = f"routed to {own}{hops}: expected recall {expected_M[chosen]:.2f}"
    if not others:
        return f"{told} at {tell_cost(modes[chosen])}; no other mode can be had"
    other = 0 if chosen else max(others, key=lambda place: expected_M[place])
    costs_told = f"at {tell_cost(modes[chosen])} instead of {tell_cost(modes[other])}"
    kept = "" if chosen else "; nothing else is surely worth more than the default"
    return f"{told} against {expected_M[other]:.2f} of {modes[other].mode}, {costs_told}{kept}"


def tell_cost(mode: ModeModel) -> str:
    """Milliseconds and, where there are any, tokens.

    >>> tell_cost(ModeModel("hops", None, 8.25, 0)), tell_cost(ModeModel("plan", None, 9, 412.4))
    ('8.2 ms', '9.0 ms and 412 tokens')
    """
    return f"{mode.milliseconds:.1f} ms" + (f" and {mode.tokens:.0f} tokens" if mode.tokens else "")


def check_same_encoder(router: Router, index: Index) -> None:
    """UserError when the index has another encoder than the one whose cosines the router learned from."""
    check_encoder("router", router.encoder, index, "`modegraph synth route`")
