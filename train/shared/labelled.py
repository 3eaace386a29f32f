"""Folders of labelled training rows, one file per split: reads them, and checks that no two splits overlap and that datasets share an encoder."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from data_synth.rows import MALFORMED, Row, split_files
from graph.errors import UserError
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import read_jsonl

R = TypeVar("R", bound=Row)

MAX_NAMED = 5
"""Maximum number of ids in an error about overlapping splits."""


def read_labelled(
    folder: Path, parse: Callable[[Mapping[str, Any], str], R], problems_of: Callable[[R], Sequence[str]], expected: str
) -> tuple[dict[str, list[R]], str]:
    """The rows of each split in the folder, and the folder's fingerprint. `parse` gets a row's values and its place (file and line).

    UserError names the place of the first row that is malformed, has a problem or is in the file of another split; `expected` describes a valid row.
    """
    files = split_files(folder)
    rows: dict[str, list[R]] = {file.stem: [] for file in files}
    remedy = "make the data again"
    for file in files:
        for number, values in read_jsonl(file):
            where = f"{file} line {number}"
            try:
                row = parse(values, where)
                problems = list(problems_of(row))
            except MALFORMED as problem:
                raise UserError(f"{where}: {type(problem).__name__}: {problem}", expected, remedy) from None
            if row.split != file.stem:
                problems.append(f"split is {row.split!r}, expected {file.stem!r}")
            if problems:
                raise UserError(f"{where}: {problems[0]}", expected, remedy)
            rows[file.stem].append(row)
    return rows, content_id(*map(checksum, files))


def check_apart(what: str, ids: Mapping[str, Mapping[Any, str]], expected: str, remedy: str) -> None:
    """UserError for keys in two splits, with their number and up to MAX_NAMED ids; `what` is the word for one of them, `ids` maps each split's keys to ids."""
    for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if shared := sorted(ids[second][key] for key in ids[first].keys() & ids[second].keys()):
            listed = ", ".join(shared[:MAX_NAMED]) + (", …" if len(shared) > MAX_NAMED else "")
            raise UserError(f"{len(shared):,} {what}s in both {first} and {second}: {listed}", expected, remedy)


def check_one_encoder(sources: str, encoders: Mapping[str, str]) -> None:
    """UserError for several encoders; `encoders` maps the fingerprint of each to the name of a source that uses it, `sources` is the word for these."""
    if len(encoders) > 1:
        listed = ", ".join(f"{name} with {encoder[:12]}" for encoder, name in encoders.items())
        raise UserError(f"{sources} of several encoders ({listed})", "one encoder", "make them with one encoder")
