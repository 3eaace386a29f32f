"""All cells of a matrix: what is finished stays, the rest is filled, several indexes at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.sharedctypes import Synchronized

from eval.matrix.fill.cells import was_filled
from eval.matrix.fill.cores import busy, join_workers, share_cores
from eval.matrix.fill.fill import RunContext, fill_group, missing_cells
from eval.matrix.fill.list_cells import groups_of
from eval.matrix.fill.types import Failure, Group, Matrix, Outcome
from eval.matrix.workers import start_worker, threads_each
from graph.shared.console import say


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
    context = multiprocessing.get_context("spawn")
    at_work = context.Value("i", 0)
    with threads_each(count), ProcessPoolExecutor(count, context, _start_worker, (at_work,)) as pool:
        for done in as_completed([pool.submit(_fill, group, run) for group in groups]):
            yield done.result()


def _fill(group: Group, run: RunContext) -> list[Failure]:
    with busy():
        share_cores()
        return fill_group(group, run)


def _start_worker(at_work: Synchronized[int]) -> None:
    """A worker shares the cores with the others."""
    join_workers(at_work)
    start_worker()
