"""`modegraph data validate`: every row of a file, or of the files of a folder, read and checked, with the line, what is wrong with it, and how to fix it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_synth.dataset.kinds import Checks, checks_of
from graph.documents.questions import SPLITS
from graph.shared.errors import UserError, unreadable

MALFORMED = (KeyError, TypeError, IndexError, AttributeError, ValueError)


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be learned from: its line, its id if it has one, and everything that is wrong with it."""

    line: int
    id: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """What a file holds: the form of its rows, how many there are, and the bad ones."""

    form: str
    rows: int
    bad: tuple[BadRow, ...]

    @property
    def share_good(self) -> float:
        return 1 - len(self.bad) / self.rows if self.rows else 0.0


def files_to_check(given: Path) -> list[Path]:
    """A file itself; of a folder train.jsonl, dev.jsonl and test.jsonl, or, without these, all its .jsonl files; UserError for none."""
    if not given.is_dir():
        return [given]
    splits = [file for split in SPLITS if (file := given / f"{split}.jsonl").is_file()]
    files = splits or sorted(file for file in given.glob("*.jsonl") if file.is_file())
    if not files:
        raise UserError(f"{given}: no .jsonl file in it", "a folder of training data or questions", "check the path")
    return files


def validate_file(file: Path) -> Validation:
    """Check every row of a .jsonl or .parquet file; UserError for a file that is neither, or whose first row has no known form."""
    checks: Checks | None = None
    seen: set[str] = set()
    bad: list[BadRow] = []
    rows = 0
    for line, values in read_rows(file):
        rows += 1
        if isinstance(values, str):
            bad.append(BadRow(line, "", (values,)))
            continue
        checks = checks or checks_of(values, f"{file} line {line}")
        problems = problems_of(values, checks)
        own_id = str(values.get("id", ""))
        if own_id in seen:
            problems.append(f"id {own_id!r} appears above too")
        seen.add(own_id)
        if problems:
            bad.append(BadRow(line, own_id, tuple(problems)))
    if checks is None:
        raise UserError(f"{file}: no rows that can be read", "one JSON object a line", "write it again")
    return Validation(checks.kind, rows, tuple(bad))


def problems_of(values: Mapping[str, Any], checks: Checks) -> list[str]:
    """What is wrong with one row: a missing or malformed column, else what the checks find."""
    try:
        return checks.problems(values)
    except KeyError as missing:
        return [f"no column {missing}"]
    except MALFORMED as problem:
        return [f"a malformed column ({problem})"]


def read_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(line, row) of a .jsonl file, or (row number, row) of a .parquet file; for a line that is no JSON object, why."""
    if file.suffix == ".parquet":
        yield from _read_parquet(file)
        return
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _parsed(line)
    except OSError as problem:
        raise unreadable(file, problem, "a .jsonl or .parquet file") from None
    except UnicodeDecodeError as problem:
        raise UserError(
            f"{file}: not UTF-8 ({problem.reason})", "a .jsonl or .parquet file", "convert the file"
        ) from None


def _parsed(line: str) -> dict[str, Any] | str:
    try:
        row = json.loads(line)
    except ValueError as problem:
        return f"no JSON ({problem})"
    return row if isinstance(row, dict) else f"a JSON {type(row).__name__}, expected an object"


def _read_parquet(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as parquet:
            number = 0
            for batch in parquet.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (OSError, ArrowInvalid) as problem:
        raise UserError(f"{file}: cannot be read ({problem})", "a .jsonl or .parquet file", "check the path") from None
