"""A complete run of `modegraph eval run`: settings, preparation steps, matrix, cells, figures, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eval.run.cells import cell_file, list_cells, read_cell
from eval.run.config import Matrix, MatrixSettings, Outcome
from eval.run.execute import RunContext, fill_cells
from eval.run.run_report import report_json, result_tables, run_headline, write_report
from eval.run.scores import RunFigures, figures_of
from eval.run.steps import Run, expand_steps, run_steps
from eval.tables import as_text
from graph.config import load_settings
from graph.models.encoder import open_encoder
from graph.shared.console import say
from graph.shared.jsonl import write_text
from graph.shared.progress import report_progress
from graph.types import OpenEncoder, OpenModel

DATA_OVERRIDE = "data="
SETTINGS = "settings.yaml"
"""The configuration as run, in the run's folder."""


@dataclass(frozen=True)
class RunReport:
    """A run's result for the terminal."""

    text: str
    json: dict[str, Any]
    failed: bool


def run_matrix(
    config: Path,
    overrides: Sequence[str],
    out: Path,
    open_model: OpenModel,
    run: Run,
    encoder: OpenEncoder = open_encoder,
) -> RunReport:
    """Fill the cells that `config` asks for into `out` and write the report; UserError for invalid settings or data."""
    settings = read_config(config, overrides)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / SETTINGS, yaml.safe_dump(settings.recorded(), sort_keys=False, allow_unicode=True))
    with report_progress(out, {"stage": "eval", "settings": settings.recorded()}):
        return _run(settings, config, out, open_model, run, encoder)


def _run(
    settings: MatrixSettings, config: Path, out: Path, open_model: OpenModel, run: Run, encoder: OpenEncoder
) -> RunReport:
    run_steps(expand_steps(settings.prepare, settings.variables), run, out, settings.workers)
    matrix = list_cells(settings, config.parent, out, encoder)
    context = RunContext(
        out,
        encoder,
        open_model,
        settings.helper,
        settings.max_answer_tokens,
        settings.empty_answers == "wrong",
        tuple(cell_file(out, cell) for cell in matrix.cells),
    )
    outcome = fill_cells(matrix, context, settings.workers)
    for failure in outcome.failures:
        say(f"{failure.task}: {failure.system} failed: {failure.problem}")
    figures = figures_of(matrix, read_cells(matrix, out), settings.baseline or matrix.systems[0].name, settings.seed)
    write_report(matrix, figures, outcome, out)
    return RunReport(_summary(matrix, figures, outcome), report_json(matrix, figures, outcome), bool(outcome.failures))


def read_config(config: Path, overrides: Sequence[str]) -> MatrixSettings:
    """The configuration with `overrides` applied; a data= among them is relative to the working directory."""
    return load_settings(MatrixSettings, config, [_from_here(override) for override in overrides])


def read_cells(matrix: Matrix, out: Path) -> dict[tuple[str, str], Any]:
    """The matrix's finished cells by (task, system), in report order."""
    filled = [cell for cell in matrix.cells if cell_file(out, cell).is_file()]
    return {(cell.task.name, cell.system.name): read_cell(out, cell) for cell in filled}


def _summary(matrix: Matrix, figures: RunFigures, outcome: Outcome) -> str:
    tables = "\n\n".join(as_text(table) for table in result_tables(matrix, figures))
    return f"{tables}\n\n{run_headline(matrix, figures, outcome)}"


def _from_here(override: str) -> str:
    return (
        f"{DATA_OVERRIDE}{Path(override.removeprefix(DATA_OVERRIDE)).absolute()}"
        if override.startswith(DATA_OVERRIDE)
        else override
    )
