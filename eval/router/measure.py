"""A router beside every single mode, the rule of thumb and the oracle, from route rows: exact, and nothing is retrieved again.

Legend: Q questions, M modes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.router.types import Kind, RouterReport
from eval.shared.statistics import bootstrap_difference
from graph.documents.questions import SPLITS
from graph.retrieve.learned.router import Router
from graph.retrieve.learned.router_file import open_router
from graph.shared.errors import UserError
from graph.shared.types import Ints
from train.router.data import LABELS, Dataset, fingerprint, questions_of, shared_modes
from train.router.policy import (
    PRICES,
    best_single,
    cost_QM,
    oracle_choice,
    point,
    router_choice,
    routing_ms,
    rule_choice,
    single_choices,
)
from train.router.train import RECORD
from train.router.types import Questions
from train.shared.labelled import NAMED, read_folders

ALL = "all"
RULE, ROUTER, ORACLE = "auto, by rule", "auto, by router", "oracle"


def evaluate_router(folders: Sequence[Path], spec: str, split: str, seed: int) -> RouterReport:
    """The report on the rows of one split, or of "all"; UserError for questions that the router has learned from, naming them,
    for rows of another encoder, and for rows without one of its modes.
    """
    if split not in (*SPLITS, ALL):
        raise UserError(f"--split {split}: no such split", f"one of {', '.join(SPLITS)}, {ALL}", "change the split")
    datasets = read_folders(folders, LABELS)
    router = open_router(spec)
    check_encoder(router, datasets)
    modes = shared_modes(datasets)
    if lacking := [each.mode for each in router.modes if each.mode not in modes]:
        found = f"the rows have no runs of {', '.join(lacking)}, which the router chooses among"
        raise UserError(found, f"runs of {', '.join(each.mode for each in router.modes)}", "make the data again")
    questions = questions_of(datasets, SPLITS if split == ALL else (split,), modes)
    if not questions.ids:
        raise UserError(f"--split {split}: no rows", "rows of that split", "name another split, or other data")
    check_unlearned(Path(spec), questions)
    return measure(router, questions, seed, Path(spec).name, {each.name: each.fingerprint for each in datasets}, split)


def measure(
    router: Router, questions: Questions, seed: int, name: str, data: dict[str, str], split: str
) -> RouterReport:
    """The report of a router on some questions."""
    ms_per_token = router.price_per_token / router.price_per_ms if router.price_per_ms else 0.0
    best, taken_ms = best_single(questions, ms_per_token), routing_ms(router, questions)
    chosen = dict(single_choices(questions))
    if (by_rule_Q := rule_choice(questions)) is not None:
        chosen[RULE] = by_rule_Q
    chosen |= {ROUTER: router_choice(router, questions), ORACLE: oracle_choice(questions, ms_per_token)}
    baseline_Q = recalls(questions, np.full(len(questions.ids), best))
    return RouterReport(
        router=name,
        data=data,
        split=split,
        questions=len(questions.ids),
        best=questions.modes[best],
        points=tuple(
            point(way, questions, chosen_Q, taken_ms if way == ROUTER else 0.0) for way, chosen_Q in chosen.items()
        ),
        differences={
            way: bootstrap_difference(recalls(questions, chosen_Q).tolist(), baseline_Q.tolist(), seed=seed)
            for way, chosen_Q in chosen.items()
            if way != questions.modes[best]
        },
        kinds=kinds_of(router, questions, best, taken_ms),
        curve=curve_of(router, questions, taken_ms),
        routing_ms=taken_ms,
        as_good_share=as_good_share(questions, best, ms_per_token),
        seed=seed,
    )


def recalls(questions: Questions, chosen_Q: Ints) -> NDArray[np.float64]:
    """Recall@5 of each question by the mode chosen for it: [Q]."""
    return questions.recall_QM[np.arange(len(chosen_Q)), chosen_Q]


def as_good_share(questions: Questions, best: int, ms_per_token: float) -> float:
    """The share of questions that a mode cheaper than `best` answers at least as well: what could be saved on at all."""
    cost = cost_QM(questions, ms_per_token)
    saves_QM = (cost < cost[:, [best]]) & (questions.recall_QM >= questions.recall_QM[:, [best]])
    return float(saves_QM.any(axis=1).mean())


def curve_of(router: Router, questions: Questions, taken_ms: float) -> tuple[tuple[float, float], ...]:
    """What the router reaches at every price: (milliseconds, Recall@5), each pair once."""
    tokens_in_ms = router.price_per_token / router.price_per_ms if router.price_per_ms else 0.0
    found = []
    for price in PRICES:
        priced = replace(router, price_per_ms=price, price_per_token=price * tokens_in_ms)
        reached = point(ROUTER, questions, router_choice(priced, questions), taken_ms)
        found.append((reached.milliseconds, reached.recall))
    return tuple(sorted(set(found)))


def kinds_of(router: Router, questions: Questions, best: int, taken_ms: float) -> tuple[Kind, ...]:
    """The questions by kind, the commonest first."""
    kind_Q = np.array(questions.kinds)
    names, counts = np.unique(kind_Q, return_counts=True)
    found = []
    for name in names[np.lexsort((names, -counts))].tolist():
        part = of_questions(questions, kind_Q == name)
        alone = point(questions.modes[best], part, np.full(len(part.ids), best))
        found.append(Kind(name, len(part.ids), alone, point(ROUTER, part, router_choice(router, part), taken_ms)))
    return tuple(found)


def of_questions(questions: Questions, own_Q: NDArray[np.bool_]) -> Questions:
    """Some of the questions."""
    rows = np.flatnonzero(own_Q).tolist()
    return replace(
        questions,
        ids=tuple(questions.ids[row] for row in rows),
        kinds=tuple(questions.kinds[row] for row in rows),
        texts=tuple(questions.texts[row] for row in rows),
        dataset_Q=questions.dataset_Q[own_Q],
        features_QF=questions.features_QF[own_Q],
        recall_QM=questions.recall_QM[own_Q],
        ms_QM=questions.ms_QM[own_Q],
        tokens_QM=questions.tokens_QM[own_Q],
        features_ms_Q=questions.features_ms_Q[own_Q],
    )


def check_encoder(router: Router, datasets: Sequence[Dataset]) -> None:
    """UserError when the rows were made with another encoder than the router's."""
    if datasets[0].encoder != router.encoder:
        raise UserError(
            f"the router was trained with encoder {router.encoder[:12]}, the rows are of {datasets[0].encoder[:12]}",
            "rows of an index with the router's encoder",
            "make them with `modegraph synth route`, or name another router",
        )


def check_unlearned(folder: Path, questions: Questions) -> None:
    """UserError, naming the questions, when the router has learned from some of them."""
    file = folder / RECORD
    if not file.is_file():
        return
    learned = set(json.loads(file.read_text(encoding="utf-8"))["learned_from"])
    texts = zip(questions.ids, questions.texts, strict=True)
    if known := [each for each, text in texts if fingerprint(text) in learned]:
        named = ", ".join(known[:NAMED]) + (", …" if len(known) > NAMED else "")
        raise UserError(
            f"the router has learned from {len(known):,} of these questions: {named}",
            "questions that it has not seen",
            "evaluate on --split test of its data, or on other data",
        )
