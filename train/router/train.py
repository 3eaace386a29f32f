"""`modegraph train router`: route rows in, a folder that `--mode auto --router` takes out. Seconds on one core.

Trees learn on train and dev together; prices and margin are chosen on predictions for questions that they were not grown on; test
is only measured on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from graph.documents.questions import SPLITS
from graph.retrieve.learned.query_features import QUERY_FEATURES
from graph.retrieve.learned.router import ModeModel, Router
from graph.retrieve.learned.router_file import save_router
from graph.shared.console import say
from graph.shared.jsonl import write_json
from graph.shared.types import Ints
from train.router.card import router_card
from train.router.data import Dataset, check_learnable, fingerprint, questions_of, read_datasets, shared_modes
from train.router.policy import (
    Policy,
    cost_QM,
    fit_policy,
    oracle_choice,
    point,
    routed,
    router_choice,
    routing_ms,
    single_choices,
)
from train.router.settings import RouterSettings
from train.router.trees import fit_forest, unseen_recall
from train.router.types import Point, Questions, RouterRecord
from train.run.save import about_run, fresh_folder

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
    expected_QM = unseen_recall(learned.features_QF, learned.recall_QM, settings)
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
    datasets: Sequence[Dataset],
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


def count_questions(datasets: Sequence[Dataset]) -> dict[str, int]:
    """The number of questions in each split of all datasets."""
    return {split: sum(len(dataset.rows[split]) for dataset in datasets) for split in SPLITS}
