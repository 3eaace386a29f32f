"""All cells of a matrix: what is finished stays, the rest is filled, several indexes at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from eval.matrix.fill.cells import was_filled
from eval.matrix.fill.cores import busy, join_workers, share_cores
from eval.matrix.fill.fill import RunContext, fill_group, missing_cells
from eval.matrix.fill.list_cells import groups_of
from eval.matrix.fill.settings import StepSettings
from eval.matrix.fill.types import Failure, Group, Matrix, Outcome
from graph.shared.console import say
from graph.shared.errors import UserError

THREADS = "OMP_NUM_THREADS"
Run = Callable[[Sequence[str]], int]
"""Runs one command line (without the program's name) and returns its exit status."""


def run_steps(steps: Sequence[StepSettings], run: Run) -> None:
    """Each step in order, unless what it makes is there; UserError when one ends with a status above 0 or does not make it."""
    for step in steps:
        if Path(step.makes).exists():
            continue
        say(f"$ modegraph {step.run}")
        status = run(shlex.split(step.run))
        if status or not Path(step.makes).exists():
            why = f"ended with status {status}" if status else f"did not make {step.makes}"
            raise UserError(f"prepare: `modegraph {step.run}` {why}", "every step to succeed", "see its message above")


def fill_cells(matrix: Matrix, run: RunContext, workers: int) -> Outcome:
    """Fill what is missing. With several workers each group of cells that share an index is one process's work."""
    groups = [some for group in groups_of(matrix.cells, run.out) if (some := missing_cells(group, run.out)).cells]
    left = [cell for group in groups for cell in group.cells]
    again = {(cell.system.name, cell.task.name) for cell in left if was_filled(run.out, cell)}
    changed = f" ({len(again):,} of them again: the code has changed)" if again else ""
    say(
        f"{len(matrix.cells):,} cells: {len(matrix.cells) - len(left):,} are there already, {len(left):,} to fill{changed}"
    )
    failures: list[Failure] = []
    for found in _in_processes(groups, run, workers) if min(workers, len(groups)) > 1 else _here(groups, run):
        failures += found
    again -= {(failure.system, failure.task) for failure in failures}
    return Outcome(len(matrix.cells) - len(left), len(left) - len(failures), len(again), tuple(failures))


def _here(groups: Sequence[Group], run: RunContext) -> Iterator[list[Failure]]:
    for group in groups:
        yield fill_group(group, run)


def _in_processes(groups: Sequence[Group], run: RunContext, workers: int) -> Iterator[list[Failure]]:
    count = min(workers, len(groups))
    threads = max(1, (os.cpu_count() or 1) // count)
    context = multiprocessing.get_context("spawn")
    at_work = context.Value("i", 0)
    with _environment(THREADS, str(threads)), ProcessPoolExecutor(count, context, _start_worker, (at_work,)) as pool:
        for done in as_completed([pool.submit(_fill, group, run) for group in groups]):
            yield done.result()


def _fill(group: Group, run: RunContext) -> list[Failure]:
    with busy():
        share_cores()
        return fill_group(group, run)


def _start_worker(at_work: Synchronized[int]) -> None:
    """A worker shares the cores with the others, and ends when the run that started it is gone (killed, say)."""
    join_workers(at_work)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """An environment variable for the processes started in the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
