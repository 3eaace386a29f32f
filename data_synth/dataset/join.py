"""Several folders of training data as one: rows of the same kind, folder after folder, each in the split that it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from data_synth.dataset.kinds import form_of
from data_synth.forms import Form
from graph.documents.questions import SPLITS
from graph.shared.errors import UserError
from graph.shared.jsonl import read_jsonl

MISSHAPEN = (KeyError, TypeError, IndexError, AttributeError, ValueError)


def join_rows(folders: Sequence[Path]) -> tuple[Form[Any], Iterator[Any]]:
    """The kind of the rows, and all of them as they are read; UserError for a folder without rows, for rows of two kinds or a repeated id."""
    files = [file for folder in folders for file in files_of(folder)]
    first_row = next(read_jsonl(files[0]), None)
    if first_row is None:
        raise UserError(f"{files[0]}: no rows", "training data", "name folders that `modegraph synth` made")
    form = form_of(first_row[1], str(files[0]))
    return form, _distinct(chain.from_iterable(_rows(form, file) for file in files))


def files_of(folder: Path) -> list[Path]:
    """train.jsonl, dev.jsonl and test.jsonl of a folder, those that are there."""
    files = [folder / f"{split}.jsonl" for split in SPLITS if (folder / f"{split}.jsonl").is_file()]
    if not files:
        raise UserError(f"{folder}: no train, dev or test.jsonl", "a folder of training data", "check the path")
    return files


def _rows(form: Form[Any], file: Path) -> Iterator[tuple[str, Any]]:
    for line, values in read_jsonl(file):
        where = f"{file} line {line}"
        found = form_of(values, where)
        if found is not form:
            raise UserError(f"{where}: a row of {found.name}", f"one of {form.name}", "join data of one kind")
        try:
            yield where, form.from_json(values)
        except MISSHAPEN as problem:
            told = f"{where}: {type(problem).__name__} {problem}"
            raise UserError(told, f"a row of {form.name}", "see `modegraph data validate`") from None


def _distinct(rows: Iterator[tuple[str, Any]]) -> Iterator[Any]:
    seen: dict[str, str] = {}
    for where, row in rows:
        if row.id in seen:
            raise UserError(f"{where}: id {row.id!r} appears twice", "unique ids", f"it is at {seen[row.id]} too")
        seen[row.id] = where
        yield row
