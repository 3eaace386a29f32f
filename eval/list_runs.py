"""`modegraph runs`: find runs below a folder by the files they leave, and list them in a table. Only these files are read; nothing is written.

run.json, selector.json, verifier.json: finished training; recommended.json: finished `tune`; report.json: finished `eval run`, or `compare`; progress.jsonl: one under way, or stopped (graph/shared/progress.py)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from eval.tables import NONE, Table
from graph.errors import UserError
from graph.shared.console import duration
from graph.shared.progress import PROGRESS, FolderProgress, read_progress

State = Literal["finished", "running", "stopped"]


@dataclass(frozen=True)
class FoundRun:
    """A run as recorded in its folder. `name` is its path below the folder that was searched, `stage` what made it (sft, ms, eval, …).

    `step` of `steps` is the progress of an unfinished run; `seconds` is how long a finished one took, `seconds_left` how long an unfinished
    one will still take; `ended` is when its last file was written (seconds since 1970).
    """

    name: str
    stage: str
    state: State
    ended: float
    settings: Mapping[str, Any]
    figures: Mapping[str, float]
    seconds: float | None = None
    step: int | None = None
    steps: int | None = None
    seconds_left: float | None = None


PARTIAL = ".partial"
TRAINING_RECORDS = {
    "run.json": "",
    "selector.json": "selector",
    "verifier.json": "verifier",
    "recommended.json": "tune",
}
REPORT = "report.json"
FIGURE_KEYS = ("metrics", "figures")
"""Keys of the figures in records of models and in records of selectors."""


def find_runs(folder: Path) -> list[FoundRun]:
    """All runs in `folder` and below it, by name; UserError if there is no such folder."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder", "a folder of runs", "check the path")
    runs = []
    for path, subfolders, files in os.walk(folder):
        subfolders.sort()
        if (run := run_in(Path(path), set(files), folder)) is not None:
            runs.append(run)
    return sorted(runs, key=lambda run: run.name)


def run_in(folder: Path, files: set[str], root: Path) -> FoundRun | None:
    """The run in a folder below `root`, or None. An unfinished run takes precedence over the files of an earlier one."""
    name = folder.relative_to(root).as_posix()
    if PROGRESS in files and (under_way := read_progress(folder)) is not None:
        return unfinished_run(name.removesuffix(PARTIAL), under_way, folder / PROGRESS)
    for record, stage in TRAINING_RECORDS.items():
        if record in files:
            return read_record(folder / record, partial(training_run, name, stage, folder / record))
    if REPORT in files:
        return read_record(folder / REPORT, partial(evaluation_run, name, folder))
    return None


def read_record(file: Path, kind: Callable[[dict[str, Any]], FoundRun | None]) -> FoundRun | None:
    """Parse a JSON record with `kind`; UserError for a file that is not the record its name promises."""
    try:
        return kind(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        found = f"{file}: not the record of a run ({type(problem).__name__}: {problem})"
        raise UserError(found, "the file as it was written", "remove it, or run again") from None


def unfinished_run(name: str, under_way: FolderProgress, file: Path) -> FoundRun:
    """An unfinished run, from its progress."""
    last = under_way.last
    figures = {key: value for key, value in last.items() if key not in ("at", "step", "of")}
    return FoundRun(
        name=name,
        stage=str(under_way.about.get("stage", "unknown")),
        state="running" if under_way.alive else "stopped",
        ended=file.stat().st_mtime,
        settings=under_way.about.get("settings", {}),
        figures=only_numbers(figures),
        step=last.get("step"),
        steps=last.get("of"),
        seconds_left=under_way.seconds_left,
    )


def training_run(name: str, stage: str, file: Path, record: Mapping[str, Any]) -> FoundRun:
    """A finished training run, from its record."""
    figures: Mapping[str, Any] = next((record[key] for key in FIGURE_KEYS if key in record), {})
    return FoundRun(
        name=name,
        stage=stage or record["stage"],
        state="finished",
        ended=file.stat().st_mtime,
        settings=record["settings"],
        figures=only_numbers(figures),
        seconds=record["train_seconds"],
    )


def evaluation_run(name: str, folder: Path, report: Mapping[str, Any]) -> FoundRun | None:
    """A finished run of `eval run` or a report of `compare`; None for a report of something else."""
    ended = (folder / REPORT).stat().st_mtime
    if "leads" in report:
        return FoundRun(name, "eval", "finished", ended, report["settings"], dict(eval_figures(report)))
    if "policies" in report:
        models = {policy["name"]: policy["source"] for policy in report["policies"]}
        settings = {key: report[key] for key in ("data", "split", "seed", "max_answer_tokens")} | {"models": models}
        means = {
            f"{measure}, {policy}": mean for measure, of in report["measures"].items() for policy, mean in of.items()
        }
        return FoundRun(name, "compare", "finished", ended, settings, only_numbers(means))
    return None


def eval_figures(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The leading metric of every system and task, and how many cells could not be filled."""
    for result in report["results"]:
        lead = report["leads"].get(result["task"])
        if lead in result["metrics"]:
            yield f"{lead}, {result['system']} on {result['task']}", result["metrics"][lead]["mean"]
    if report["failures"]:
        yield "failed cells", float(len(report["failures"]))


def only_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are numbers."""
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


SHOWN_FIGURES, SHOWN_SETTINGS = 3, 6
SHOWN_ALWAYS = ("model", "data")
"""Settings shown for the only run of a stage."""
UNINFORMATIVE = ("output",)
"""Settings that differ for every run and so say nothing."""
FIRST_FIGURES = ("eval_loss", "train_loss", "loss")
"""Figures listed before others."""


def runs_table(runs: Sequence[FoundRun]) -> Table:
    """One row per run."""
    rows = []
    for run in runs:
        alike = [other for other in runs if other.stage == run.stage]
        rows.append(
            (run.name, run.stage, state_text(run), time_text(run), figures_text(run), settings_text(run, alike))
        )
    note = "Settings are those in which runs of one stage differ; --json has all settings and figures. Times are UTC."
    return Table(f"{len(runs):,} runs", ("run", "stage", "state", "written", "figures", "settings"), tuple(rows), note)


def state_text(run: FoundRun) -> str:
    """The state, with the progress or the duration."""
    if run.state == "finished":
        return "finished" if run.seconds is None else f"finished in {duration(run.seconds)}"
    how_far = f" at {run.step:,} of {run.steps:,}" if run.step is not None and run.steps is not None else ""
    left = f", about {duration(run.seconds_left)} left" if run.state == "running" and run.seconds_left else ""
    return f"{run.state}{how_far}{left}"


def time_text(run: FoundRun) -> str:
    """When its last file was written."""
    return datetime.fromtimestamp(run.ended, UTC).strftime("%Y-%m-%d %H:%M")


def figures_text(run: FoundRun) -> str:
    """The first figures, losses before others."""
    names = sorted(
        run.figures, key=lambda name: FIRST_FIGURES.index(name) if name in FIRST_FIGURES else len(FIRST_FIGURES)
    )
    shown = [f"{name} {run.figures[name]:.4g}" for name in names[:SHOWN_FIGURES]]
    more = len(names) - len(shown)
    return ", ".join(shown + [f"{more:,} more"] * (more > 0)) or NONE


def settings_text(run: FoundRun, alike: Sequence[FoundRun]) -> str:
    """The settings in which this run differs from another of its stage; for the only one, its model and data."""
    flat = [dict(flattened(other.settings)) for other in alike]
    settings = dict(flattened(run.settings))
    names = [
        name
        for name in dict.fromkeys(name for other in flat for name in other)
        if name not in UNINFORMATIVE and any(other.get(name, "") != settings.get(name, "") for other in flat)
    ] or [name for name in SHOWN_ALWAYS if name in settings]
    shown = [f"{name}={settings[name]}" for name in names if name in settings][:SHOWN_SETTINGS]
    return ", ".join(shown) or NONE


def flattened(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its key; nested keys are joined by dots.

    >>> dict(flattened({"lora": {"rank": 8}, "seed": 0}))
    {'lora.rank': 8, 'seed': 0}
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
