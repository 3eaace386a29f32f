"""A router's evaluation as tables, as JSON, and as a folder: report.md, report.json and frontier.png."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.compare.report import escape_markdown, markdown_table
from eval.router.figure import draw_frontier
from eval.router.measure import ORACLE, ROUTER
from eval.router.types import Kind, RouterReport
from eval.shared.tables import NONE, Table, as_text, interval_text
from graph.shared.console import say
from graph.shared.jsonl import write_json
from train.router.card import tell_choices
from train.router.types import Point

GOAL_LOSS, GOAL_SHARE = 0.01, 0.6
"""What a router is held to: at most this much Recall@5 lost against the best single mode, at most this share of its milliseconds."""
FIGURE = "frontier.png"


def way_table(report: RouterReport) -> Table:
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
            tell_choices(each),
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


def kind_row(kind: Kind) -> tuple[str, ...]:
    """One kind's cells."""
    recalls = (f"{kind.best.recall:.3f}", f"{kind.router.recall:.3f}")
    return (kind.name, str(kind.questions), *recalls, f"{kind.router.milliseconds:.2f}", tell_choices(kind.router))


def verdict(report: RouterReport) -> str:
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


def to_text(report: RouterReport) -> str:
    """For a terminal."""
    return "\n\n".join([as_text(way_table(report)), as_text(kind_table(report)), verdict(report)])


def to_json(report: RouterReport) -> dict[str, Any]:
    """The whole report."""
    return {**asdict(report), "verdict": verdict(report)}


def write_router_report(report: RouterReport, out: Path) -> None:
    """Write all three files into `out`, which is made if it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    draw_frontier(report, out / FIGURE)
    parts = [
        "# Router",
        escape_markdown(
            f"{report.router} on {report.questions:,} questions of {', '.join(report.data)}, split {report.split}."
        ),
        verdict(report),
    ]
    for table in (way_table(report), kind_table(report)):
        parts += [f"## {table.title}", markdown_table(table), escape_markdown(table.note)]
    parts += ["## Frontier", f"![Recall@5 against milliseconds]({FIGURE})"]
    (out / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    write_json(out / "report.json", to_json(report))
    say(f"wrote {out / 'report.md'}, report.json and {FIGURE}")
