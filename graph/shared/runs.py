"""Training and evaluation runs below a folder, found by the files that they write: their state, figures and curves. This module writes nothing.

run.json, selector.json, verifier.json: finished training; recommended.json: finished `tune`; report.json: finished `eval run`, or `compare`;
progress.jsonl: a run under way, or stopped (graph/shared/progress.py); log.jsonl and, for an unfinished run, the last checkpoint: the rows
logged while training."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graph.errors import UserError
from graph.shared.console import say
from graph.shared.progress import PROGRESS, FolderProgress, parsed_lines, read_progress

State = Literal["finished", "running", "stopped"]


@dataclass(frozen=True)
class FoundRun:
    """A run as recorded in its folder. `name` is its path below the folder that was searched, `stage` the kind of work that made it (sft, tune, eval, …).

    `step` of `steps` is the progress of an unfinished run; `seconds` is how long a finished one took, `seconds_left` an estimate of how
    long an unfinished one will still take; `ended` is when its record, or progress.jsonl, was last written (seconds since 1970).
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
"""The files that record finished training or tuning, and the stage of each; run.json contains its stage."""
REPORT = "report.json"
FIGURE_KEYS = ("metrics", "figures")
"""The keys of the figures: `metrics` in records of models and of `tune`, `figures` in records of selectors and verifiers."""


def find_runs(folder: Path) -> list[FoundRun]:
    """All runs in `folder` and below it, by name; one that cannot be read is skipped with a message. UserError if there is no such folder."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder", "a folder of runs", "check the path")
    runs = []
    for path, subfolders, files in os.walk(folder):
        subfolders.sort()
        try:
            run = run_in(Path(path), files, folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            say(f"{path}: skipped, not the record of a run ({type(problem).__name__}: {problem})")
            continue
        if run is not None:
            runs.append(run)
    return sorted(runs, key=lambda run: run.name)


def run_in(folder: Path, files: Sequence[str], root: Path) -> FoundRun | None:
    """The run in a folder below `root`, or None. An unfinished run takes precedence over the files of an earlier one."""
    name = folder.relative_to(root).as_posix()
    if PROGRESS in files and (progress := read_progress(folder)) is not None:
        return unfinished_run(name.removesuffix(PARTIAL), progress, folder / PROGRESS)
    for record in (*TRAINING_RECORDS, REPORT):
        if record in files:
            return read_record(name, folder / record)
    return None


def read_record(name: str, file: Path) -> FoundRun | None:
    """The run in a JSON record; None for a report that neither `eval run` nor `compare` wrote."""
    record = json.loads(file.read_text(encoding="utf-8"))
    return evaluation_run(name, file, record) if file.name == REPORT else training_run(name, file, record)


def unfinished_run(name: str, progress: FolderProgress, file: Path) -> FoundRun:
    """An unfinished run, from its progress."""
    last = progress.last
    figures = {key: value for key, value in last.items() if key not in ("at", "step", "of")}
    return FoundRun(
        name=name,
        stage=str(progress.about.get("stage", "unknown")),
        state="running" if progress.alive else "stopped",
        ended=file.stat().st_mtime,
        settings=dict(progress.about.get("settings", {})),
        figures=only_numbers(figures),
        step=int(last["step"]) if last else None,
        steps=int(last["of"]) if last else None,
        seconds_left=progress.seconds_left,
    )


def training_run(name: str, file: Path, record: Mapping[str, Any]) -> FoundRun:
    """A finished training run, from its record."""
    figures: Mapping[str, Any] = next((record[key] for key in FIGURE_KEYS if key in record), {})
    return FoundRun(
        name=name,
        stage=TRAINING_RECORDS[file.name] or str(record["stage"]),
        state="finished",
        ended=file.stat().st_mtime,
        settings=dict(record["settings"]),
        figures=only_numbers(figures),
        seconds=float(record["train_seconds"]),
    )


def evaluation_run(name: str, file: Path, report: Mapping[str, Any]) -> FoundRun | None:
    """A finished run of `eval run` or a report of `compare`; None for a report of something else."""
    ended = file.stat().st_mtime
    if "leads" in report:
        return FoundRun(name, "eval", "finished", ended, dict(report["settings"]), dict(eval_figures(report)))
    if "policies" in report:
        models = {policy["name"]: policy["source"] for policy in report["policies"]}
        settings = {key: report[key] for key in ("data", "split", "seed", "max_answer_tokens")} | {"models": models}
        means = {
            f"{measure}, {policy}": mean
            for measure, by_policy in report["measures"].items()
            for policy, mean in by_policy.items()
        }
        return FoundRun(name, "compare", "finished", ended, settings, only_numbers(means))
    return None


def eval_figures(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The leading metric of every system on every task, and the number of failed cells (a system on a task), if any failed."""
    for result in report["results"]:
        lead = report["leads"].get(result["task"])
        if lead in result["metrics"]:
            yield f"{lead}, {result['system']} on {result['task']}", result["metrics"][lead]["mean"]
    if report["failures"]:
        yield "failed cells", float(len(report["failures"]))


def only_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The values that are numbers; booleans do not count as numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


LOG, STATES = "log.jsonl", "checkpoints/checkpoint-*/trainer_state.json"
CHECKPOINT_METRIC = "eval_f1"
"""The metric on dev rows by which `train sft` chooses among checkpoints."""
NOT_PLOTTED = ("_runtime", "_per_second", "_num_tokens")
MAX_POINTS = 400


@dataclass(frozen=True)
class Course:
    """A run's curves, (step, value) of losses and dev figures by name, and the step with the best CHECKPOINT_METRIC, if several steps have one."""

    curves: Mapping[str, Sequence[tuple[int, float]]]
    best_step: int | None


@dataclass(frozen=True)
class BeforeAfter:
    """A figure on a set of questions, for the untuned and for the tuned model."""

    of: str
    figure: str
    before: float
    after: float


def course_of(folder: Path, run: FoundRun) -> Course:
    """The course of a run that `find_runs` found in `folder`; without curves if it logged no rows. Curves longer than MAX_POINTS keep every n-th point."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in logged_rows(folder, run):
        for name, value in only_numbers(row).items():
            if (name == "loss" or name.startswith("eval_")) and not name.endswith(NOT_PLOTTED) and "step" in row:
                curves.setdefault(name, []).append((int(row["step"]), value))
    dev_points = curves.get(CHECKPOINT_METRIC, [])
    best = max(dev_points, key=lambda point: point[1])[0] if len(dev_points) > 1 else None
    return Course({name: points[:: 1 + (len(points) - 1) // MAX_POINTS] for name, points in curves.items()}, best)


def logged_rows(folder: Path, run: FoundRun) -> Iterable[Mapping[str, Any]]:
    """The rows that a run logged, in order."""
    run_folder = folder / run.name
    if run.state == "finished":
        return rows_of(run_folder / LOG, folder)
    partial_folder = run_folder if run.name == "." else run_folder.with_name(run_folder.name + PARTIAL)
    run_folder = partial_folder if (partial_folder / PROGRESS).exists() else run_folder
    states = sorted(run_folder.glob(STATES), key=lambda file: int(file.parent.name.rpartition("-")[2]))
    rows = checkpoint_rows(states[-1], folder) if states else []
    last = max((row["step"] for row in rows if "step" in row), default=-1)
    return [*rows, *(row for row in rows_of(run_folder / PROGRESS, folder) if row.get("step", -1) > last)]


def rows_of(file: Path, root: Path) -> Sequence[Mapping[str, Any]]:
    """The complete rows of a file; none for a missing file or a link that leads out of `root`."""
    if not file.resolve().is_relative_to(root.resolve()) or not file.is_file():
        return []
    return parsed_lines(file.read_text(encoding="utf-8", errors="replace"))


def checkpoint_rows(file: Path, root: Path) -> list[Mapping[str, Any]]:
    """The rows in a checkpoint; none if it is incomplete or outside `root`."""
    try:
        if not file.resolve().is_relative_to(root.resolve()):
            return []
        return list(json.loads(file.read_text(encoding="utf-8"))["log_history"])
    except (OSError, ValueError, KeyError):
        return []


def before_and_after(folder: Path, run: FoundRun) -> list[BeforeAfter]:
    """The figures of the untuned and the tuned model on each set, for a finished `tune`; none for any other run."""
    if run.stage != "tune" or run.state != "finished":
        return []
    record = json.loads((folder / run.name / "recommended.json").read_text(encoding="utf-8"))
    found = []
    for name, models in record.get("answers", {}).items():
        before, after = (flat_means(models[model]["all"]) for model in ("untuned", "tuned"))
        found += [BeforeAfter(name, figure, before[figure], after[figure]) for figure in before if figure in after]
    return found


def flat_means(figures: Mapping[str, Any]) -> dict[str, float]:
    """The figures that are numbers, and the means of those with an interval."""
    means = {name: value.get("mean") if isinstance(value, Mapping) else value for name, value in figures.items()}
    return only_numbers(means)
