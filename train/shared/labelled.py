"""Folders of labelled rows with features, as `synth relevance` and `synth route` write them; what cannot be learned from is refused.

A row has its split, and its features by name. The folder's summary names the encoder that the features were made with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import read_jsonl

SUMMARY = "summary.json"
MAX_NAMED = 5
"""Leaking ids that an error names."""


def check_distinct(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders; ValueError for one that is named twice."""
    if len(set(folders)) < len(folders):
        raise ValueError("each dataset once")
    return folders


def one_or_several(named: object) -> object:
    """A name by itself as a list of one."""
    return [named] if isinstance(named, str) else named


Folders = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(one_or_several), AfterValidator(check_distinct)
]
"""The setting that names the datasets to learn from: a list, or the name of the one."""


class Labelled(Protocol):
    """What every row has."""

    @property
    def split(self) -> str: ...


R = TypeVar("R", bound=Labelled)


@dataclass(frozen=True)
class Labels(Generic[R]):
    """A kind of rows: the command that writes them, the key and the names of their features, how one is read and what is wrong with it."""

    command: str
    key: str
    features: Sequence[str]
    read: Callable[[Mapping[str, Any]], R]
    problems: Callable[[R], list[str]]


@dataclass(frozen=True)
class Dataset(Generic[R]):
    """A folder of rows by split, its fingerprint, the fingerprint of the encoder that its features were made with, and all else that its
    summary tells of its origin.
    """

    name: str
    rows: Mapping[str, Sequence[R]]
    fingerprint: str
    encoder: str
    origin: Mapping[str, str]


def read_folders(folders: Sequence[Path], labels: Labels[R]) -> list[Dataset[R]]:
    """All datasets; UserError for rows that cannot be learned from and for several encoders."""
    datasets = [read_folder(folder, labels) for folder in folders]
    encoders = {dataset.encoder: dataset.name for dataset in datasets}
    if len(encoders) > 1:
        told = ", ".join(f"{name} with {encoder[:12]}" for encoder, name in encoders.items())
        raise UserError(f"datasets of several encoders ({told})", "one encoder", "make them with one encoder")
    return datasets


def read_folder(folder: Path, labels: Labels[R]) -> Dataset[R]:
    """One dataset; UserError with file and line for a row that is malformed or lacks a feature."""
    files = {split: folder / f"{split}.jsonl" for split in SPLITS}
    try:
        origin = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["origin"]
        encoder = origin["Encoder"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        found = f"{folder / SUMMARY}: does not name the encoder ({type(problem).__name__}: {problem})"
        raise UserError(found, f"a folder that `{labels.command}` wrote", "make the data again") from None
    rows = {split: list(read_rows(file, labels)) for split, file in files.items() if file.is_file()}
    fingerprint = content_id(*(checksum(files[split]) for split in rows))
    by_split = {split: rows.get(split, []) for split in SPLITS}
    return Dataset(folder.resolve().name, by_split, fingerprint, str(encoder), origin)


def read_rows(file: Path, labels: Labels[R]) -> Iterator[R]:
    """The rows of one split's file, which must be of that split."""
    expected = f"a row as `{labels.command}` writes it"
    for number, row in read_jsonl(file):
        where = f"{file} line {number}"
        check_features(where, row.get(labels.key), labels.features)
        try:
            read = labels.read(row)
            problems = labels.problems(read)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            found = f"{where}: {type(problem).__name__}: {problem}"
            raise UserError(found, expected, "make the data again") from None
        if read.split != file.stem:
            problems.append(f"split is {read.split!r}, expected {file.stem!r}")
        if problems:
            raise UserError(f"{where}: {problems[0]}", expected, "make the data again")
        yield read


def check_features(where: str, has: object, features: Sequence[str]) -> None:
    """UserError unless a row's features are those of this version."""
    held = has if isinstance(has, dict) else {}
    told = [f"without {name!r}" for name in features if name not in held]
    told += [f"with {name!r}" for name in held if name not in features]
    if told:
        expected = f"the {len(features)} features of this version"
        raise UserError(f"{where}: features " + ", ".join(told), expected, "make the data again")


def check_apart(what: str, ids: Mapping[str, Mapping[str, str]], expected: str, remedy: str) -> None:
    """UserError, naming the `what` by id, for keys that are in two splits; `ids` gives each split's keys their ids."""
    for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if shared := sorted(ids[second][key] for key in ids[first].keys() & ids[second].keys()):
            named = ", ".join(shared[:MAX_NAMED]) + (", …" if len(shared) > MAX_NAMED else "")
            raise UserError(f"{len(shared):,} {what}s in both {first} and {second}: {named}", expected, remedy)
