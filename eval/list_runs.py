"""`modegraph runs`: the runs below a folder (graph/shared/runs.py) as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from eval.tables import NONE, Table
from graph.shared.console import duration
from graph.shared.runs import FoundRun

SHOWN_FIGURES, SHOWN_SETTINGS = 3, 6
ONLY_RUN_SETTINGS = ("model", "data")
"""Settings shown for a run that differs from no other of its stage."""
UNINFORMATIVE = ("output",)
"""Settings that differ in every run and so are uninformative."""
FIRST_FIGURES = ("eval_loss", "train_loss", "loss")
"""Figures listed before others."""


def runs_table(runs: Sequence[FoundRun]) -> Table:
    """One row per run."""
    rows = []
    for run in runs:
        same_stage = [other for other in runs if other.stage == run.stage]
        written = datetime.fromtimestamp(run.ended, UTC).strftime("%Y-%m-%d %H:%M")
        rows.append((run.name, run.stage, state_text(run), written, figures_text(run), settings_text(run, same_stage)))
    note = "Settings are those in which runs of one stage differ, or else model and data; --json has all settings and figures. Times are UTC."
    return Table(f"{len(runs):,} runs", ("run", "stage", "state", "written", "figures", "settings"), tuple(rows), note)


def state_text(run: FoundRun) -> str:
    """The state; of a finished run, also its duration, and of others, their progress and the time left, as far as they are known."""
    if run.state == "finished":
        return "finished" if run.seconds is None else f"finished in {duration(run.seconds)}"
    progress = f" at {run.step:,} of {run.steps:,}" if run.step is not None and run.steps is not None else ""
    left = f", about {duration(run.seconds_left)} left" if run.state == "running" and run.seconds_left else ""
    return f"{run.state}{progress}{left}"


def figures_text(run: FoundRun) -> str:
    """The first figures, losses before others."""
    first = [name for name in FIRST_FIGURES if name in run.figures]
    names = list(dict.fromkeys([*first, *run.figures]))
    texts = [f"{name} {run.figures[name]:.4g}" for name in names[:SHOWN_FIGURES]]
    more = len(names) - len(texts)
    return ", ".join(texts + [f"{more:,} more"] * (more > 0)) or NONE


def settings_text(run: FoundRun, same_stage: Sequence[FoundRun]) -> str:
    """The settings in which this run differs from another of its stage; if there are none, as for the only run of a stage, its model and data."""
    flat = [dict(flatten(other.settings)) for other in same_stage]
    settings = dict(flatten(run.settings))
    names = [
        name
        for name in dict.fromkeys(name for other in flat for name in other)
        if name not in UNINFORMATIVE and any(other.get(name, "") != settings.get(name, "") for other in flat)
    ] or [name for name in ONLY_RUN_SETTINGS if name in settings]
    texts = [f"{name}={settings[name]}" for name in names if name in settings][:SHOWN_SETTINGS]
    return ", ".join(texts) or NONE


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its key; nested keys are joined by dots.

    >>> dict(flatten({"lora": {"rank": 8}, "seed": 0}))
    {'lora.rank': 8, 'seed': 0}
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
