"""Checks that held-out rows were not trained on: compares their prompts and questions with the training data of the measured runs and of the runs that
these started from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_synth.rows import PreferenceRow, ResponseRow
from graph.errors import UserError
from graph.models.checkpoint import RUN_RECORD
from graph.shared.console import say
from graph.shared.jsonl import read_jsonl
from train.run.record import read_run


def check_held_out(runs: Sequence[Path], rows: Sequence[PreferenceRow | ResponseRow], file: Path) -> None:
    """UserError if the prompt or question of a row is in the training data of one of `runs`, or of a run that one of them started from.

    The message names the row and its `file`.
    """
    first_run: dict[Path, str] = {}
    for run, data in training_data(runs):
        first_run.setdefault(data, str(run))
    check_unseen([(run, data) for data, run in first_run.items()], rows, file)


def check_unseen(
    training_folders: Sequence[tuple[str, Path]], rows: Sequence[PreferenceRow | ResponseRow], file: Path
) -> None:
    """UserError if the prompt or question of a row is in one of the training folders, each given as (name for messages, folder).

    The message names the row and its `file`. A folder without train.jsonl is reported and skipped.
    """
    prompts = {tuple(turn.content for turn in row.prompt): row.id for row in rows}
    questions = {(row.question_id, row.question): row.id for row in rows}
    for run, data in training_folders:
        train_file = data / "train.jsonl"
        if not train_file.is_file():
            say(f"{run}: {train_file} is missing, so {file} is not checked against that training data")
            continue
        for line, values in read_jsonl(train_file):
            question = (values.get("question_id"), values.get("question"))
            row = prompts.get(prompt_contents(values)) or questions.get(question)  # type: ignore[arg-type]
            if row is not None:
                found = f"{file}: row {row!r} is in the training data of {run} ({train_file} line {line})"
                remedy = "measure on another split, or train again without these rows"
                raise UserError(found, "rows that no run was trained on", remedy)


def training_data(runs: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """(run, folder of its training data) of each run and of the runs that it started from, except those of `train tiny`."""
    for run in runs:
        visited: set[Path] = set()
        while (run / RUN_RECORD).is_file() and run.resolve() not in visited:
            visited.add(run.resolve())
            record = read_run(run)
            if record.stage != "tiny":
                yield run, Path(record.data)
            run = Path(record.base_model)


def prompt_contents(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of a training row's prompt, turn by turn: its `prompt`, or its `messages` without the last; () without either field."""
    prompt = row.get("prompt") or (row.get("messages") or [])[:-1]
    if isinstance(prompt, str):
        return (prompt,)
    return tuple(str(turn.get("content", "")) for turn in prompt if isinstance(turn, Mapping))
