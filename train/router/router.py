"""`modegraph train router`: route rows in, a folder that `--mode auto --router` takes out. Seconds on one core.

Trees that expect a mode's Recall@5 learn on train and dev together; prices and margin are chosen on predictions for questions that they were
not grown on; test is only measured on. Legend: Q questions, M modes, F features."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from graph.documents.questions import SPLITS
from graph.retrieve.learned.router import QUERY_FEATURES, ModeModel, Router, save_router
from graph.shared.console import say
from graph.shared.jsonl import write_json
from graph.trees import Forest, forest_logits
from graph.types import Floats, Ints
from train.router.policy import (
    Policy,
    cost_QM,
    fit_policy,
    oracle_choice,
    point,
    routed,
    router_card,
    router_choice,
    routing_ms,
    single_choices,
)
from train.router.route_data import (
    Doubles,
    Point,
    Questions,
    RouteDataset,
    RouterRecord,
    check_learnable,
    fingerprint,
    questions_of,
    read_datasets,
    shared_modes,
)
from train.run.save import about_run, fresh_folder
from train.run.settings import RouterSettings
from train.shared.trees import to_forest


def fit_forest(features_QF: Floats, recall_Q: Doubles, settings: RouterSettings) -> Forest:
    """The trees of one mode."""
    trees = HistGradientBoostingRegressor(
        learning_rate=settings.learning_rate,
        max_iter=settings.trees,
        max_leaf_nodes=settings.max_leaves,
        min_samples_leaf=settings.min_examples_per_leaf,
        early_stopping=False,
        random_state=settings.seed,
    )
    return to_forest(trees.fit(features_QF, recall_Q), settings.trees, 1.0)


def out_of_fold_recall(features_QF: Floats, recall_QM: Doubles, settings: RouterSettings) -> Doubles:
    """Each question's expected recall from trees that were grown on the other folds: [Q, M]."""
    fold_Q = np.random.default_rng(settings.seed).permutation(len(features_QF)) % settings.folds
    expected_QM = np.zeros_like(recall_QM)
    for fold in range(settings.folds):
        own_Q = fold_Q == fold
        for mode in range(recall_QM.shape[1]):
            forest = fit_forest(features_QF[~own_Q], recall_QM[~own_Q, mode], settings)
            expected_QM[own_Q, mode] = forest_logits(forest, features_QF[own_Q])
    return np.clip(expected_QM, 0, 1)


RECORD, CARD = "router.json", "README.md"
LEARNED = ("train", "dev")
LIBRARIES = ("scikit-learn", "numpy")


def train_router(settings: RouterSettings) -> RouterRecord:
    """Read, train, measure and save; UserError, before training, for data that no router can be learned from."""
    with fresh_folder(Path(settings.output), about=about_run("router", settings)) as folder:
        datasets = read_datasets([Path(each) for each in settings.data])
        check_learnable(datasets)
        modes = shared_modes(datasets)
        learned, test = questions_of(datasets, LEARNED, modes), questions_of(datasets, ("test",), modes)
        say(f"{len(learned.ids):,} questions of train and dev, {len(test.ids):,} of test; {', '.join(modes)}")
        started = time.perf_counter()
        router, unseen = fit(learned, settings, datasets[0].encoder)
        seconds = time.perf_counter() - started
        record = describe(router, datasets, learned, unseen, test, settings, seconds)
        save_router(folder, router)
        (folder / CARD).write_text(router_card(record), encoding="utf-8")
        write_json(folder / RECORD, asdict(record))
    return record


def fit(learned: Questions, settings: RouterSettings, encoder: str) -> tuple[Router, tuple[Point, ...]]:
    """The router, and what its policy reaches on questions that the trees were not grown on."""
    expected_QM = out_of_fold_recall(learned.features_QF, learned.recall_QM, settings)
    policy = fit_policy(learned, expected_QM, settings.ms_per_token, settings.tolerance)
    chosen_Q = routed(expected_QM, cost_QM(learned, settings.ms_per_token).mean(axis=0), policy)
    used = [policy.default, *sorted(set(chosen_Q.tolist()) - {policy.default})]
    router = build_router(learned, policy, used, settings, encoder)
    return router, points(router, learned, chosen_Q, settings.ms_per_token)


def build_router(
    learned: Questions, policy: Policy, used: Sequence[int], settings: RouterSettings, encoder: str
) -> Router:
    """The router of the modes that the policy ever chooses, trees grown on all of `learned`: other modes would only cost time."""
    modes = tuple(
        ModeModel(
            learned.modes[place],
            fit_forest(learned.features_QF, learned.recall_QM[:, place], settings),
            float(learned.ms_QM[:, place].mean()),
            float(learned.tokens_QM[:, place].mean()),
        )
        for place in used
    )
    return Router(modes, policy.price_per_ms, policy.price_per_ms * settings.ms_per_token, policy.margin, encoder)


def describe(
    router: Router,
    datasets: Sequence[RouteDataset],
    learned: Questions,
    unseen: tuple[Point, ...],
    test: Questions,
    settings: RouterSettings,
    seconds: float,
) -> RouterRecord:
    """The record of a run: what it was made from, and its figures."""
    return RouterRecord(
        data={dataset.name: dataset.fingerprint for dataset in datasets},
        encoder=router.encoder,
        features=QUERY_FEATURES,
        settings=settings.recorded(),
        questions=count_questions(datasets),
        modes=tuple(each.mode for each in router.modes),
        default=router.modes[0].mode,
        price_per_ms=router.price_per_ms,
        price_per_token=router.price_per_token,
        margin=router.margin,
        unseen=unseen,
        test=points(router, test, router_choice(router, test), settings.ms_per_token),
        train_seconds=seconds,
        versions={name: version(name) for name in LIBRARIES},
        learned_from=tuple(fingerprint(text) for text in learned.texts),
    )


def points(router: Router, questions: Questions, chosen_Q: Ints, ms_per_token: float) -> tuple[Point, ...]:
    """Every single mode, the router's choice and the oracle's on the same questions."""
    single = [point(mode, questions, chosen) for mode, chosen in single_choices(questions)]
    oracle = point("oracle", questions, oracle_choice(questions, ms_per_token))
    return (*single, point("router", questions, chosen_Q, routing_ms(router, questions)), oracle)


def count_questions(datasets: Sequence[RouteDataset]) -> dict[str, int]:
    """The number of questions in each split of all datasets."""
    return {split: sum(len(dataset.rows[split]) for dataset in datasets) for split in SPLITS}
