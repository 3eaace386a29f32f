"""Runs below a folder, found by the files that they leave: nothing is opened but these, and nothing is written.

| file | run |
|---|---|
| run.json | finished training of a model |
| selector.json, router.json | finished training of a selector, a router |
| report.json | finished `eval run` (`settings.yaml` beside it), or `compare` |
| progress.jsonl | one that is under way, or was stopped (graph/shared/watch.py) |
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from eval.runs.types import FoundRun
from graph.shared.errors import UserError
from graph.shared.watch import PROGRESS, Watched, read_watched

PARTIAL = ".partial"
TRAINED = {"run.json": "", "selector.json": "selector", "router.json": "router", "verifier.json": "verifier"}
REPORT, SETTINGS = "report.json", "settings.yaml"
FIGURES = ("metrics", "figures")
"""Where records keep them: those of models, of selectors."""


def find_runs(folder: Path) -> list[FoundRun]:
    """All runs in `folder` and below it, by name; UserError where there is no such folder."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder", "a folder of runs", "check the path")
    found = []
    for here, below, files in os.walk(folder):
        below.sort()
        if (run := run_in(Path(here), set(files), folder)) is not None:
            found.append(run)
    return sorted(found, key=lambda run: run.name)


def run_in(here: Path, files: set[str], folder: Path) -> FoundRun | None:
    """The run that a folder is, None where it is none. What is under way goes before what an earlier run left there."""
    name = here.relative_to(folder).as_posix()
    if PROGRESS in files and (under_way := read_watched(here)) is not None:
        return unfinished(name.removesuffix(PARTIAL), under_way, here / PROGRESS)
    for record, stage in TRAINED.items():
        if record in files:
            return read_as(here / record, partial(trained, name, stage, here / record))
    if REPORT in files:
        return read_as(here / REPORT, partial(measured, name, here))
    return None


def read_as(file: Path, kind: Callable[[dict[str, Any]], FoundRun | None]) -> FoundRun | None:
    """What a file of JSON says; UserError for one that cannot be read as what its name says."""
    try:
        return kind(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        found = f"{file}: not the record of a run ({type(problem).__name__}: {problem})"
        raise UserError(found, "the file as it was written", "remove it, or run again") from None


def unfinished(name: str, under_way: Watched, file: Path) -> FoundRun:
    """A run that is not whole, as its progress tells it."""
    last = under_way.last
    figures = {key: value for key, value in last.items() if key not in ("at", "step", "of")}
    return FoundRun(
        name=name,
        stage=str(under_way.about.get("stage", "unknown")),
        state="running" if under_way.alive else "stopped",
        ended=file.stat().st_mtime,
        settings=under_way.about.get("settings", {}),
        figures=numbers(figures),
        step=last.get("step"),
        steps=last.get("of"),
        seconds_left=under_way.seconds_left,
    )


def trained(name: str, stage: str, file: Path, record: Mapping[str, Any]) -> FoundRun:
    """A finished training run, by its record."""
    figures: Mapping[str, Any] = next((record[key] for key in FIGURES if key in record), {})
    reached = {f"test Recall@5, {point['name']}": point["recall"] for point in record.get("test", ())}
    return FoundRun(
        name=name,
        stage=stage or record["stage"],
        state="finished",
        ended=file.stat().st_mtime,
        settings=record["settings"],
        figures=numbers({**figures, **reached}),
        seconds=record["train_seconds"],
    )


def measured(name: str, here: Path, report: Mapping[str, Any]) -> FoundRun | None:
    """A finished run of `eval run` or a report of `compare`; None for a report of something else."""
    ended = (here / REPORT).stat().st_mtime
    if "leads" in report:
        kept = here / SETTINGS
        settings = yaml.safe_load(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
        return FoundRun(name, "eval", "finished", ended, settings, dict(eval_figures(report)))
    if "policies" in report:
        models = {policy["name"]: policy["source"] for policy in report["policies"]}
        settings = {key: report[key] for key in ("data", "split", "seed", "max_answer_tokens")} | {"models": models}
        means = {
            f"{measure}, {policy}": mean for measure, of in report["measures"].items() for policy, mean in of.items()
        }
        return FoundRun(name, "compare", "finished", ended, settings, numbers(means))
    return None


def eval_figures(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The leading metric of every system and task, and how many cells could not be filled."""
    for result in report["results"]:
        lead = report["leads"].get(result["task"])
        if lead in result["metrics"]:
            yield f"{lead}, {result['system']} on {result['task']}", result["metrics"][lead]["mean"]
    if report["failures"]:
        yield "failed cells", float(len(report["failures"]))


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are numbers."""
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
