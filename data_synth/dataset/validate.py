"""`modegraph data validate`: reads and checks every row of a file, or of the files of a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from data_synth.claims.claims import CLAIMS, LABELLED_CLAIMS
from data_synth.preferences.preference_form import PLAIN_PREFERENCES, PREFERENCES
from data_synth.questions.question_form import QUESTIONS
from data_synth.reading.reading_form import READING
from data_synth.relevance.relevance_form import RELEVANCE
from data_synth.responses.rewards import RESPONSES
from data_synth.rows import MALFORMED, Form, split_files
from graph.documents.questions import question_problems
from graph.errors import UserError, unreadable

FORM_BY_COLUMN: dict[str, Form[Any]] = {
    "chosen": PREFERENCES,
    "completion": READING,
    "responses": RESPONSES,
    "bridges": QUESTIONS,
    "proposition_id": RELEVANCE,
    "claim": CLAIMS,
}
"""Each form by a column that only its rows have."""

Problems = Callable[[Mapping[str, Any]], Sequence[str]]
"""Lists the problems of a row; raises the errors of `Form.from_json`."""


def form_of(row: Mapping[str, Any], where: str, others: str = "") -> Form[Any]:
    """The form of a row; UserError naming the columns if no form matches, and the `others` that the caller accepts."""
    if isinstance(row.get("chosen"), str):
        return PLAIN_PREFERENCES
    if "claim" in row and row.get("dataset"):
        return LABELLED_CLAIMS
    for column, form in FORM_BY_COLUMN.items():
        if column in row:
            return form
    raise UserError(
        f"{where}: columns {', '.join(map(repr, row)) or 'none'}",
        f"one of {', '.join(map(repr, FORM_BY_COLUMN))}, which identify the kind of data{others}",
        "give rows made by `modegraph synth` or `modegraph data import`",
    )


def checks_of(row: Mapping[str, Any], where: str) -> tuple[str, Problems]:
    """The name and the checks of the row's form; plain questions have no form, but checks of their own. UserError as in `form_of`."""
    if "question" in row and not any(column in row for column in FORM_BY_COLUMN):
        return "questions", question_problems
    form = form_of(row, where, ", or 'question' and 'answers'")
    return form.name, lambda values: form.problems(form.from_json(values))


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used for training: its line (or its number in a .parquet file), its id if it has one, and all its problems."""

    line: int
    id: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """The result for one file: the form of its rows, their number, and the bad ones."""

    form: str
    rows: int
    bad: tuple[BadRow, ...]

    @property
    def share_good(self) -> float:
        return 1 - len(self.bad) / self.rows if self.rows else 0.0


def files_to_check(path: Path) -> list[Path]:
    """The file itself; for a folder, its train.jsonl, dev.jsonl and test.jsonl, or else all its .jsonl files; UserError if there are none."""
    if not path.is_dir():
        return [path]
    files = split_files(path) or sorted(file for file in path.glob("*.jsonl") if file.is_file())
    if not files:
        raise UserError(f"{path}: no .jsonl file in it", "a folder of training data or questions", "check the path")
    return files


def validate_file(file: Path) -> Validation:
    """Check every row of a .jsonl or .parquet file; UserError if it cannot be read, contains no JSON object, or contains no object of a known form."""
    form, checks = checks_of_file(file)
    ids: set[str] = set()
    bad: list[BadRow] = []
    rows = 0
    for line, values in read_rows(file):
        rows += 1
        if isinstance(values, str):
            bad.append(BadRow(line, "", (values,)))
            continue
        problems = problems_of(values, checks)
        row_id = "" if values.get("id") is None else str(values["id"])
        if row_id and row_id in ids:
            problems.append(f"id {row_id!r} also appears above")
        ids.add(row_id)
        if problems:
            bad.append(BadRow(line, row_id, tuple(problems)))
    return Validation(form, rows, tuple(bad))


def checks_of_file(file: Path) -> tuple[str, Problems]:
    """The name and the checks of the form of the first row that has a form, or else of the first row; UserError as in `validate_file`."""
    rows = ((f"{file} line {line}", values) for line, values in read_rows(file) if not isinstance(values, str))
    first = next(rows, None)
    if first is None:
        raise UserError(f"{file}: no rows that can be read", "one JSON object per line", "make the file again")
    formed = (each for each in chain([first], rows) if not FORM_BY_COLUMN.keys().isdisjoint(each[1]))
    where, values = next(formed, first)
    return checks_of(values, where)


def problems_of(values: Mapping[str, Any], problems: Problems) -> list[str]:
    """The problems of one row: a missing or malformed column, else those that the checks find."""
    try:
        return list(problems(values))
    except KeyError as missing:
        return [f"no column {missing}"]
    except MALFORMED as problem:
        return [f"a malformed column ({problem})"]


def read_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(line, row) of a .jsonl file, or (row number, row) of a .parquet file; for a line that is not a JSON object, the reason instead of the row."""
    if file.suffix == ".parquet":
        yield from _read_parquet(file)
        return
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _parse_line(line)
    except OSError as problem:
        raise unreadable(file, problem, "a .jsonl or .parquet file") from None
    except UnicodeDecodeError as problem:
        found, expected = f"{file}: not UTF-8 ({problem.reason})", "a .jsonl file in UTF-8, or a .parquet file"
        raise UserError(found, expected, "convert the file to UTF-8") from None


def _parse_line(line: str) -> dict[str, Any] | str:
    try:
        row = json.loads(line)
    except ValueError as problem:
        return f"not JSON ({problem})"
    return row if isinstance(row, dict) else "JSON, but not an object"


def _read_parquet(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as parquet:
            rows = chain.from_iterable(batch.to_pylist() for batch in parquet.iter_batches())
            yield from enumerate(rows, start=1)
    except (OSError, ArrowInvalid) as problem:
        raise UserError(f"{file}: cannot be read ({problem})", "a .jsonl or .parquet file", "check the path") from None
