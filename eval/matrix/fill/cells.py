"""Cells on disk: one JSON file each, named by the cell's key and code, written whole or not at all; so a killed run loses only what
was under way, and what other code filled stays beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.matrix.fill.list_cells import CELLS, question_texts
from eval.matrix.fill.types import Cell, QuestionResult
from graph.shared.errors import UserError
from graph.shared.jsonl import write_json


def cell_file(out: Path, cell: Cell) -> Path:
    """Where a cell lies."""
    return out / CELLS / f"{cell.key}-{cell.code}.json"


def was_filled(out: Path, cell: Cell) -> bool:
    """Whether the code of now or of another time filled the cell."""
    return any((out / CELLS).glob(f"{cell.key}-*.json"))


def write_cell(out: Path, cell: Cell, results: Sequence[QuestionResult], seconds: float) -> None:
    """A finished cell, with what a reader needs to know of it."""
    file = cell_file(out, cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    retrieve = cell.system.retrieve
    head: dict[str, Any] = {
        "system": cell.system.name,
        "task": cell.task.name,
        "model": cell.system.model,
        "retrieve": retrieve.model_dump() if retrieve is not None else None,
        "index": cell.system.index.model_dump(),
        "code": cell.code,
        "seconds": round(seconds, 3),
    }
    write_json(file, {**head, "results": [asdict(one) for one in results]})


def read_cell(out: Path, cell: Cell) -> tuple[QuestionResult, ...]:
    """What a finished cell holds, in the order of the task's questions; UserError for a file that is no such cell."""
    file = cell_file(out, cell)
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["results"]
        found = {row["id"]: _result(row) for row in rows}
        return tuple(found[key] for key in question_texts(cell.task))
    except (ValueError, KeyError, TypeError) as problem:
        found_text = f"{file}: {type(problem).__name__} {problem}"
        raise UserError(found_text, "a finished cell", "remove the file and run again") from None


def _result(row: dict[str, Any]) -> QuestionResult:
    evidence = tuple((title, source, text) for title, source, text in row.pop("evidence"))
    lists = {name: tuple(row.get(name, ())) for name in ("ranked", "layers", "steps")}
    return QuestionResult(**{**row, **lists}, evidence=evidence)
