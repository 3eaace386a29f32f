"""`modegraph eval router`: a router beside every single mode, the rule of thumb and the oracle, from route rows; its tables, frontier and files. Nothing is retrieved again.

Legend: Q questions, M modes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from eval.plots import save_figure
from eval.report import escape_markdown, markdown_table
from eval.statistics import Interval, bootstrap_difference
from eval.tables import NONE, Table, as_text, interval_text
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.retrieve.learned.router import Router, open_router
from graph.shared.console import say
from graph.shared.jsonl import write_json
from graph.types import Ints
from train.router.policy import (
    PRICES,
    best_single,
    cost_QM,
    describe_choices,
    oracle_choice,
    point,
    router_choice,
    routing_ms,
    rule_choice,
    single_choices,
)
from train.router.route_data import LABELS, Point, Questions, RouteDataset, fingerprint, questions_of, shared_modes
from train.router.router import RECORD
from train.shared.labelled import MAX_NAMED, read_folders


@dataclass(frozen=True)
class KindResult:
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
    kinds: tuple[KindResult, ...]
    curve: tuple[tuple[float, float], ...]
    routing_ms: float
    as_good_share: float
    seed: int


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
    return measure_router(
        router, questions, seed, Path(spec).name, {each.name: each.fingerprint for each in datasets}, split
    )


def measure_router(
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


def kinds_of(router: Router, questions: Questions, best: int, taken_ms: float) -> tuple[KindResult, ...]:
    """The questions by kind, the commonest first."""
    kind_Q = np.array(questions.kinds)
    names, counts = np.unique(kind_Q, return_counts=True)
    found = []
    for name in names[np.lexsort((names, -counts))].tolist():
        part = subset_of(questions, kind_Q == name)
        alone = point(questions.modes[best], part, np.full(len(part.ids), best))
        found.append(KindResult(name, len(part.ids), alone, point(ROUTER, part, router_choice(router, part), taken_ms)))
    return tuple(found)


def subset_of(questions: Questions, own_Q: NDArray[np.bool_]) -> Questions:
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


def check_encoder(router: Router, datasets: Sequence[RouteDataset]) -> None:
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
        named = ", ".join(known[:MAX_NAMED]) + (", …" if len(known) > MAX_NAMED else "")
        raise UserError(
            f"the router has learned from {len(known):,} of these questions: {named}",
            "questions that it has not seen",
            "evaluate on --split test of its data, or on other data",
        )


COLOURS = {ROUTER: "#c03028", RULE: "#7a4fa3", ORACLE: "#4a4a4a"}
MARKS = {ROUTER: "*", RULE: "D", ORACLE: "^"}
MODE_COLOUR = "#2b7bba"


def draw_frontier(report: RouterReport, file: Path) -> None:
    """Write a PNG: single modes, rule, router and oracle as points; the line is the router at every price."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        *zip(*report.curve, strict=True), color=COLOURS[ROUTER], linewidth=1.2, alpha=0.7, label="router, every price"
    )
    for each in report.points:
        colour, mark = COLOURS.get(each.name, MODE_COLOUR), MARKS.get(each.name, "o")
        axes.plot([each.milliseconds], [each.recall], mark, color=colour, markersize=12 if mark == "*" else 7)
        label = axes.annotate(
            each.name, (each.milliseconds, each.recall), (7, 5), textcoords="offset points", color=colour, fontsize=9
        )
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds a question without the encoder (mean of typical times, log scale)")
    axes.set_ylabel("Recall@5 (mean)")
    axes.set_title(f"{report.questions:,} held-out questions of {', '.join(report.data)}", fontsize=10)
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, file)


GOAL_LOSS, GOAL_SHARE = 0.01, 0.6
"""What a router is held to: at most this much Recall@5 lost against the best single mode, at most this share of its milliseconds."""
FRONTIER_FIGURE = "frontier.png"


def routing_table(report: RouterReport) -> Table:
    """Every way of routing."""
    best = point_named(report, report.best)
    rows = tuple(
        (
            each.name,
            f"{each.recall:.3f}",
            interval_text(report.differences[each.name], 100) if each.name in report.differences else NONE,
            f"{each.milliseconds:.2f}",
            f"{each.milliseconds / best.milliseconds:.0%}",
            f"{each.tokens:.0f}",
            describe_choices(each),
        )
        for each in report.points
    )
    note = (
        f"Difference: Recall@5 minus that of {report.best}, in points, with the 95 % interval of its paired bootstrap over questions "
        f"(seed {report.seed}); * marks intervals that leave out 0. Milliseconds are without the encoder: of each mode its median over "
        f"a dataset, averaged over the questions; the router's include {report.routing_ms:.2f} for features and choice."
    )
    header = (
        "routing",
        "Recall@5",
        f"minus {report.best}",
        "ms",
        f"ms of {report.best}",
        "tokens",
        "questions by mode",
    )
    return Table("Ways of routing", header, rows, note)


def kind_table(report: RouterReport) -> Table:
    """The router beside the best single mode, by kind of question."""
    header = ("kind", "questions", f"{report.best} Recall@5", "router Recall@5", "router ms", "questions by mode")
    rows = tuple(kind_row(each) for each in report.kinds)
    return Table("By kind of question", header, rows, "Kinds are those that the questions' files state.")


def kind_row(kind: KindResult) -> tuple[str, ...]:
    """One kind's cells."""
    recalls = (f"{kind.best.recall:.3f}", f"{kind.router.recall:.3f}")
    return (kind.name, str(kind.questions), *recalls, f"{kind.router.milliseconds:.2f}", describe_choices(kind.router))


def router_verdict(report: RouterReport) -> str:
    """Whether the goal is reached, and if not, what stands in the way, in figures."""
    best, router, oracle = (point_named(report, name) for name in (report.best, ROUTER, ORACLE))
    share, lost = router.milliseconds / best.milliseconds, best.recall - router.recall
    reached = lost <= GOAL_LOSS and share <= GOAL_SHARE
    told = (
        f"The router's Recall@5 is {100 * abs(lost):.1f} points {'below' if lost > 0 else 'above'} {best.name}'s, the best single mode's, "
        f"at {share:.0%} of its milliseconds: the goal (at most {100 * GOAL_LOSS:g} point less at {GOAL_SHARE:.0%}) is "
    )
    if reached:
        return told + "reached."
    kept = router.chosen.get(best.name, 0) / report.questions
    return told + (
        f"missed. A cheaper mode does as well on {report.as_good_share:.0%} of the questions, so that an oracle comes to "
        f"{oracle.milliseconds / best.milliseconds:.0%}; the router keeps {kept:.0%} of all with {best.name} since it cannot tell "
        f"them apart well enough, and routing itself takes {report.routing_ms / best.milliseconds:.0%}."
    )


def point_named(report: RouterReport, name: str) -> Point:
    """One of the ways."""
    return next(each for each in report.points if each.name == name)


def router_text(report: RouterReport) -> str:
    """For a terminal."""
    return "\n\n".join([as_text(routing_table(report)), as_text(kind_table(report)), router_verdict(report)])


def router_json(report: RouterReport) -> dict[str, Any]:
    """The whole report."""
    return {**asdict(report), "verdict": router_verdict(report)}


def write_router_report(report: RouterReport, out: Path) -> None:
    """Write all three files into `out`, which is made if it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    draw_frontier(report, out / FRONTIER_FIGURE)
    parts = [
        "# Router",
        escape_markdown(
            f"{report.router} on {report.questions:,} questions of {', '.join(report.data)}, split {report.split}."
        ),
        router_verdict(report),
    ]
    for table in (routing_table(report), kind_table(report)):
        parts += [f"## {table.title}", markdown_table(table), escape_markdown(table.note)]
    parts += ["## Frontier", f"![Recall@5 against milliseconds]({FRONTIER_FIGURE})"]
    (out / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    write_json(out / "report.json", router_json(report))
    say(f"wrote {out / 'report.md'}, report.json and {FRONTIER_FIGURE}")
