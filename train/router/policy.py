"""Ways of routing, measured: every single mode, the oracle, the rule of thumb, a router's choice; the best prices; and the model card.

Legend: Q questions, M modes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from graph.retrieve.learned.router import QUERY_FEATURES, Router, choose, costs, expected_recall, find_route
from graph.retrieve.retrieve import mode_by_rule
from graph.types import Ints
from train.router.route_data import Doubles, Point, Questions, RouterRecord
from train.run.record import markdown_table

PRICES = (0.0, *np.geomspace(1e-4, 1.0, 81).tolist())
"""Of a millisecond, in Recall@5: from nothing to so much that the cheapest mode always wins."""
MARGINS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.0)
"""Wide first: of prices and margins that reach the same, the one that leaves the default less easily is taken."""
TIMED = 200
"""Questions that the choice is timed on."""
BROAD = QUERY_FEATURES.index("broad")


@dataclass(frozen=True)
class Policy:
    """The mode to stay with when in doubt (a place among the modes), what a millisecond costs, and how sure to be."""

    default: int
    price_per_ms: float
    margin: float


def cost_QM(questions: Questions, ms_per_token: float) -> Doubles:
    """What each mode costs each question, tokens counted in milliseconds: [Q, M]."""
    return questions.ms_QM + ms_per_token * questions.tokens_QM


def best_single(questions: Questions, ms_per_token: float) -> int:
    """The mode with the highest mean recall; of equals the cheapest."""
    recall_M, cost_M = questions.recall_QM.mean(axis=0), cost_QM(questions, ms_per_token).mean(axis=0)
    return int(np.lexsort((cost_M, -recall_M))[0])


def routed(expected_QM: Doubles, cost_M: Doubles, policy: Policy) -> Ints:
    """The mode that a policy sends each question to, as places among the modes: int64[Q]."""
    modes = len(cost_M)
    order = np.array([policy.default, *(place for place in range(modes) if place != policy.default)])
    return order[choose(expected_QM[:, order], policy.price_per_ms * cost_M[order], policy.margin)]


def fit_policy(questions: Questions, expected_QM: Doubles, ms_per_token: float, tolerance: float) -> Policy:
    """Of all prices and margins the one with the least cost whose recall is at most `tolerance` below the best single mode's.

    Where none reaches that, the policy that always stays with the best single mode.
    """
    cost = cost_QM(questions, ms_per_token)
    rows_Q, default = np.arange(len(cost)), best_single(questions, ms_per_token)
    least = questions.recall_QM[:, default].mean() - tolerance
    found: tuple[float, float, Policy] | None = None
    for margin in MARGINS:
        for price in PRICES:
            policy = Policy(default, price, margin)
            chosen_Q = routed(expected_QM, cost.mean(axis=0), policy)
            recall = questions.recall_QM[rows_Q, chosen_Q].mean()
            reached = (cost[rows_Q, chosen_Q].mean(), -recall)
            if recall >= least and (found is None or reached < found[:2]):
                found = (*reached, policy)
    return found[2] if found is not None else Policy(default, 0.0, 1.0)


def point(name: str, questions: Questions, chosen_Q: Ints, routing_ms: float = 0.0) -> Point:
    """What choosing these modes reaches, when choosing takes `routing_ms` a question."""
    rows_Q = np.arange(len(chosen_Q))
    return Point(
        name,
        float(questions.recall_QM[rows_Q, chosen_Q].mean()),
        float(questions.ms_QM[rows_Q, chosen_Q].mean() + routing_ms),
        float(questions.tokens_QM[rows_Q, chosen_Q].mean()),
        dict(Counter(questions.modes[place] for place in chosen_Q.tolist()).most_common()),
    )


def router_choice(router: Router, questions: Questions) -> Ints:
    """The mode that a router sends each question to, as places among the questions' modes: int64[Q]."""
    places = np.array([questions.modes.index(each.mode) for each in router.modes])
    cost_M = costs(router.modes, router.price_per_ms, router.price_per_token)
    return places[choose(expected_recall(router.modes, questions.features_QF), cost_M, router.margin)]


def routing_ms(router: Router, questions: Questions) -> float:
    """Milliseconds of routing a question: making its features (the mean, of datasets' medians) and the choice (the median here)."""
    taken = []
    for features_F in questions.features_QF[:TIMED]:
        started = time.perf_counter()
        find_route(router, features_F, has_model=True)
        taken.append(time.perf_counter() - started)
    return float(questions.features_ms_Q.mean()) + 1000 * median(taken)


def single_choices(questions: Questions) -> Iterator[tuple[str, Ints]]:
    """Each mode for all questions."""
    for place, mode in enumerate(questions.modes):
        yield mode, np.full(len(questions.ids), place, np.int64)


def oracle_choice(questions: Questions, ms_per_token: float) -> Ints:
    """For each question the cheapest of the modes with its highest recall: what no router can beat: int64[Q]."""
    best_QM = questions.recall_QM == questions.recall_QM.max(axis=1, keepdims=True)
    cheapest_Q: Ints = np.where(best_QM, cost_QM(questions, ms_per_token), np.inf).argmin(axis=1).astype(np.int64)
    return cheapest_Q


def rule_choice(questions: Questions) -> Ints | None:
    """What the rule of thumb chooses: int64[Q]; None where one of its modes was not run."""
    by_sign = {broad: mode_by_rule(broad) for broad in (False, True)}
    if not set(by_sign.values()) <= set(questions.modes):
        return None
    broad_Q = questions.features_QF[:, BROAD] > 0
    return np.array([questions.modes.index(by_sign[bool(broad)]) for broad in broad_Q], np.int64)


ABOUT = """Chooses the retrieval mode of a question: gradient-boosted trees expect each mode's Recall@5 from what is known of the \
question before anything is retrieved, a price stands for milliseconds and tokens, and where no mode is surely worth more the \
default stays. Made by `modegraph train router`; no language model is called. Test was used for nothing but its table."""
USE = """## Use

`modegraph ask INDEX "question" --mode auto --router FOLDER` (and `eval retrieval --modes auto --router FOLDER`), with an index \
of the same encoder. The trace tells which mode was chosen and why. `router.safetensors` holds the trees as plain arrays, all \
settings and figures stand in `router.json`."""
COSTS = """Milliseconds are medians of each dataset, without the encoder; the router's include making the features. The oracle \
knows every question's result and takes the cheapest best mode."""


def router_card(record: RouterRecord) -> str:
    """Markdown with the front matter that model hubs read."""
    facts = [
        ("encoder", record.encoder),
        *((f"data, {name}", fingerprint) for name, fingerprint in record.data.items()),
        *((f"questions of {split}", f"{count:,}") for split, count in record.questions.items()),
        ("modes", ", ".join(record.modes)),
        ("default", record.default),
        ("price of a millisecond, in Recall@5", f"{record.price_per_ms:.3g}"),
        ("price of a token", f"{record.price_per_token:.3g}"),
        ("margin", f"{record.margin:g}"),
        ("tolerance", f"{record.settings['tolerance']:g}"),
        ("seconds of training", f"{record.train_seconds:.1f}"),
    ]
    sections = [
        "---\nlibrary_name: modegraph\n---",
        "# A router of questions to retrieval modes",
        ABOUT,
        markdown_table(("what", "value"), facts),
        "## Test",
        COSTS,
        point_table(record.test),
        "## Train and dev, each question by trees grown on others\n\nWhat prices and margin were chosen by.",
        point_table(record.unseen),
        "## Features\n\n" + ", ".join(f"`{name}`" for name in record.features) + ".",
        USE,
        "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in record.versions.items()),
    ]
    return "\n\n".join(sections) + "\n"


def point_table(points: Sequence[Point]) -> str:
    """Ways of routing, a line each."""
    rows = [
        (each.name, f"{each.recall:.3f}", f"{each.milliseconds:.2f}", f"{each.tokens:.0f}", describe_choices(each))
        for each in points
    ]
    return markdown_table(("routing", "Recall@5", "milliseconds", "tokens", "questions by mode"), rows)


def describe_choices(point: Point) -> str:
    """How many questions went where."""
    return ", ".join(f"{mode} {count:,}" for mode, count in point.chosen.items())
