"""`modegraph eval ragas`: write the results of a finished run as files that ragas reads; ragas itself is not needed here.

A row has the fields of ragas's SingleTurnSample (ragas 0.2 to 0.4): user_input, retrieved_contexts, response and reference. All rows of a file have the same two middle fields, because ragas decides by the first row what it can measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.run.cells import CELLS, list_cells, questions_by_id
from eval.run.config import Cell, QuestionResult
from eval.run.run_report import answers_file
from eval.run.runner import read_cells, read_config
from graph.answer.prompt import with_title
from graph.documents.questions import Question
from graph.errors import UserError
from graph.models.encoder import open_encoder
from graph.shared.jsonl import write_jsonl
from graph.types import Excerpt, OpenEncoder


@dataclass(frozen=True)
class RagasFile:
    """The file of one system on one task: `rows` of the task's `questions`."""

    system: str
    task: str
    file: Path
    rows: int
    questions: int


def write_ragas(
    config: Path, overrides: Sequence[str], run: Path, out: Path, encoder: OpenEncoder = open_encoder
) -> list[RagasFile]:
    """Write one file below `out` for every cell of `config`; UserError unless `run` is a finished run of it."""
    if not (run / CELLS).is_dir():
        found = f"{run}: not the folder of a run, it has no {CELLS}/"
        raise UserError(found, "what `modegraph eval run` filled", f"run `modegraph eval run {config}` first")
    matrix = list_cells(read_config(config, overrides), config.parent, run, encoder)
    cells = read_cells(matrix, run)
    missing = [cell for cell in matrix.cells if (cell.task.name, cell.system.name) not in cells]
    if missing:
        first = f"{missing[0].system.name} on {missing[0].task.name}"
        found = f"{run}: {len(missing):,} of {len(matrix.cells):,} cells are not finished, {first} first"
        raise UserError(found, "a finished run of this configuration", f"`modegraph eval run {config}` fills them")
    samples = {cell.key: ragas_rows(cell, cells[cell.task.name, cell.system.name]) for cell in matrix.cells}
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for cell in matrix.cells:
        file = out / answers_file(cell.task.name, cell.system.name)
        rows = write_jsonl(file, samples[cell.key])
        written.append(RagasFile(cell.system.name, cell.task.name, file, rows, len(cell.task.questions)))
    return written


def ragas_rows(cell: Cell, results: Sequence[QuestionResult]) -> list[dict[str, Any]]:
    """The rows of a cell; if the system retrieves, only questions with stored passages. UserError if there are none."""
    retrieves = cell.system.retrieve is not None
    questions = questions_by_id(cell.task)
    rows = [
        _ragas_row(questions, result, retrieves) for result in results if not retrieves or result.id in cell.task.shown
    ]
    if not rows:
        found = f"{cell.system.name} on {cell.task.name}: no passages were stored"
        raise UserError(found, "shown_questions of 1 or more", "set it and run again")
    return rows


def _ragas_row(questions: Mapping[str, Question], result: QuestionResult, retrieves: bool) -> dict[str, Any]:
    """Passages are shown as in a prompt, after their titles; the response is the model's full text; only the first answer counts."""
    question = questions[result.id]
    row: dict[str, Any] = {"user_input": question.text}
    if retrieves:
        row["retrieved_contexts"] = [
            with_title(Excerpt(source, title, text)) for title, source, text in result.evidence
        ]
    if result.text is not None:
        row["response"] = result.text
    if question.answers:
        row["reference"] = question.answers[0]
    return row
