"""The commands that a run needs first: in order, skipping those whose output exists; the commands of one step run in parallel.

A killed run resumes with the first step whose file is missing; steps.jsonl records the duration of each."""

from __future__ import annotations

import multiprocessing
import runpy
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from eval.run.config import StepSettings
from eval.run.workers import start_worker, threads_each
from graph.errors import UserError
from graph.shared.console import say
from graph.shared.jsonl import append_jsonl

STEPS = "steps.jsonl"
Run = Callable[[Sequence[str]], int]
"""Runs one command line (without the program's name) and returns its exit status."""


def expand_steps(steps: Sequence[StepSettings], variables: Mapping[str, str]) -> list[list[StepSettings]]:
    """The commands of each step: one for every combination of its `each`; {name} in a command is replaced by that name's value.

    UserError for a {name} that is in neither `variables` nor `each`.
    """
    return [
        [
            _filled(step, {**variables, **dict(zip(step.each, values, strict=True))})
            for values in product(*step.each.values())
        ]
        for step in steps
    ]


def run_steps(steps: Sequence[Sequence[StepSettings]], run: Run, out: Path, workers: int) -> None:
    """Run every command whose file is missing; UserError when one exits with a status above 0 or does not make its file.

    A step of several commands runs up to `workers` of them at once, each in its own process; when one fails, the others are still finished.
    """
    for commands in steps:
        missing = [command for command in commands if not Path(command.makes).exists()]
        if min(len(missing), workers) > 1:
            _run_apart(missing, out, workers)
            continue
        for command in missing:
            say(f"$ modegraph {command.run}")
            started = time.perf_counter()
            _log_step(command, run(shlex.split(command.run)), time.perf_counter() - started, out)


def _run_apart(commands: Sequence[StepSettings], out: Path, workers: int) -> None:
    problems: list[UserError] = []
    with (
        threads_each(workers),
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), start_worker, max_tasks_per_child=1) as pool,
    ):
        running = {pool.submit(run_here, command.run): command for command in commands}
        for done in as_completed(running):
            status, seconds = done.result()
            try:
                _log_step(running[done], status, seconds, out)
            except UserError as problem:
                say(str(problem))
                problems.append(problem)
    if problems:
        raise problems[0]


def run_here(command: str) -> tuple[int, float]:
    """Run a modegraph command line in this process; returns its exit status and seconds."""
    say(f"$ modegraph {command}")
    started, sys.argv = time.perf_counter(), ["modegraph", *shlex.split(command)]
    try:
        runpy.run_module("modegraph", run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return status, time.perf_counter() - started


def _log_step(step: StepSettings, status: int, seconds: float, out: Path) -> None:
    """Append a line to the log; UserError for a step that failed."""
    made = Path(step.makes).exists()
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"run": step.run, "makes": step.makes, "seconds": round(seconds, 1), "status": status, "ended": ended}
    out.mkdir(parents=True, exist_ok=True)
    append_jsonl(out / STEPS, line)
    if status or not made:
        reason = f"ended with status {status}" if status else f"did not make {step.makes}"
        raise UserError(f"prepare: `modegraph {step.run}` {reason}", "every step to succeed", "see its message above")


def _filled(step: StepSettings, values: Mapping[str, str]) -> StepSettings:
    try:
        return StepSettings(run=step.run.format_map(values), makes=step.makes.format_map(values), each={})
    except (KeyError, ValueError, IndexError, AttributeError) as problem:
        known = ", ".join(values) or "none"
        raise UserError(
            f"prepare: `{step.run}`: {problem} is no variable", f"one of: {known}", "add it to `variables` or `each`"
        ) from None
