"""Runs as a table for people: what they reached, and the settings by which runs of one stage differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from eval.runs.types import FoundRun
from eval.shared.tables import NONE, Table
from graph.shared.console import duration

SHOWN_FIGURES, SHOWN_SETTINGS = 3, 6
ALWAYS = ("model", "data")
"""Settings that are told of a stage's only run."""
PLACES = ("output",)
"""Settings that differ for every run and say nothing."""
FIRST = ("eval_loss", "train_loss", "loss")
"""Figures that stand before others."""


def runs_table(runs: Sequence[FoundRun]) -> Table:
    """One row a run."""
    rows = []
    for run in runs:
        alike = [other for other in runs if other.stage == run.stage]
        rows.append(
            (run.name, run.stage, told_state(run), told_when(run), told_figures(run), told_settings(run, alike))
        )
    note = "Settings are those in which runs of one stage differ; --json has all settings and figures. Times are UTC."
    return Table(f"{len(runs):,} runs", ("run", "stage", "state", "written", "figures", "settings"), tuple(rows), note)


def told_state(run: FoundRun) -> str:
    """The state, and how far or how long."""
    if run.state == "finished":
        return "finished" if run.seconds is None else f"finished in {duration(run.seconds)}"
    how_far = f" at {run.step:,} of {run.steps:,}" if run.step is not None and run.steps is not None else ""
    left = f", about {duration(run.seconds_left)} left" if run.state == "running" and run.seconds_left else ""
    return f"{run.state}{how_far}{left}"


def told_when(run: FoundRun) -> str:
    """When its last file was written."""
    return datetime.fromtimestamp(run.ended, UTC).strftime("%Y-%m-%d %H:%M")


def told_figures(run: FoundRun) -> str:
    """The first figures, losses before others."""
    names = sorted(run.figures, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    shown = [f"{name} {run.figures[name]:.4g}" for name in names[:SHOWN_FIGURES]]
    more = len(names) - len(shown)
    return ", ".join(shown + [f"{more:,} more"] * (more > 0)) or NONE


def told_settings(run: FoundRun, alike: Sequence[FoundRun]) -> str:
    """The settings in which this run differs from another of its stage; of the only one, what it was made from."""
    flat = [dict(flattened(other.settings)) for other in alike]
    own = dict(flattened(run.settings))
    names = [
        name
        for name in dict.fromkeys(name for other in flat for name in other)
        if name not in PLACES and any(other.get(name, "") != own.get(name, "") for other in flat)
    ] or [name for name in ALWAYS if name in own]
    shown = [f"{name}={own[name]}" for name in names if name in own][:SHOWN_SETTINGS]
    return ", ".join(shown) or NONE


def flattened(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its key, inner keys behind dots.

    >>> dict(flattened({"lora": {"rank": 8}, "seed": 0}))
    {'lora.rank': 8, 'seed': 0}
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
