"""A check of a server as the terminal shows it: a line for each model and batch, then what is wrong and what was not checked."""

from __future__ import annotations

from eval.served.types import Measured, Report

HEADER = (
    "model",
    "adapter",
    "answers",
    "at once",
    "conversations",
    "tokens",
    "worst conversation",
    "mean token",
    "worst token",
    "first choice",
)


def show(report: Report) -> str:
    """Gaps are nats between the server's log-probabilities and the run's."""
    rows = [HEADER, *map(_row, report.measured)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    allowed = f"{report.tolerance.conversation:g} nats a conversation, {report.tolerance.token:g} a token in the mean"
    lines += ["", f"tolerance: {allowed}"]
    lines += [f"fault: {fault}" for fault in report.faults]
    lines += [f"not checked: {what}" for what in report.unchecked]
    return "\n".join(
        lines if report.faults else [*lines, f"{report.server} gives what {report.run} was trained to give"]
    )


def _row(each: Measured) -> tuple[str, ...]:
    gaps = (each.gaps.conversation, each.gaps.token, each.gaps.largest)
    return (
        each.model,
        "on" if each.adapter else "off",
        each.asked,
        str(each.batch),
        str(each.conversations),
        str(each.tokens),
        *(f"{gap:.2g}" for gap in gaps),
        "–" if each.likeliest is None else f"{each.likeliest:.1%}",
    )
