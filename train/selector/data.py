"""Relevance datasets as `synth relevance` wrote them, to arrays; what cannot be learned from is refused before training.

Legend: n examples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_synth.relevance.types import RelevanceRow, relevance_from_json, relevance_problems
from graph.arrays import checksum
from graph.errors import UserError
from graph.ids import content_id
from graph.jsonl import read_jsonl
from graph.questions import SPLITS
from graph.retrieve.features import FEATURES
from train.selector.types import Examples

SUMMARY = "summary.json"
OWN = ("gold", "own")
"""`found_by` of propositions that stand in a passage that the question was published with."""
NAMED = 5
"""Leaking ids that an error names."""


@dataclass(frozen=True)
class Dataset:
    """A folder of rows by split, its fingerprint, and the fingerprint of the encoder that its features were made with."""

    name: str
    rows: Mapping[str, Sequence[RelevanceRow]]
    fingerprint: str
    encoder: str


def read_datasets(folders: Sequence[Path]) -> list[Dataset]:
    """All datasets; UserError for rows that cannot be learned from, for several encoders, and for splits that share anything."""
    datasets = [read_dataset(folder) for folder in folders]
    encoders = {dataset.encoder: dataset.name for dataset in datasets}
    if len(encoders) > 1:
        told = ", ".join(f"{name} with {encoder[:12]}" for encoder, name in encoders.items())
        raise UserError(f"datasets of several encoders ({told})", "one encoder", "make them with one encoder")
    rows = {split: [row for dataset in datasets for row in dataset.rows[split]] for split in SPLITS}
    for split in SPLITS:
        check_classes(split, rows[split])
    check_apart(rows)
    return datasets


def read_dataset(folder: Path) -> Dataset:
    """One dataset; UserError with file and line for a row that is malformed or lacks a feature."""
    files = {split: folder / f"{split}.jsonl" for split in SPLITS}
    try:
        origin = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["origin"]
        encoder = origin["Encoder"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        found = f"{folder / SUMMARY}: does not name the encoder ({type(problem).__name__}: {problem})"
        raise UserError(found, "a folder that `synth relevance` wrote", "make the data again") from None
    rows = {split: list(read_rows(file)) for split, file in files.items() if file.is_file()}
    fingerprint = content_id(*(checksum(files[split]) for split in rows))
    return Dataset(folder.resolve().name, {split: rows.get(split, []) for split in SPLITS}, fingerprint, str(encoder))


def read_rows(file: Path) -> Iterator[RelevanceRow]:
    """The rows of one split's file, which must be of that split."""
    for number, row in read_jsonl(file):
        where = f"{file} line {number}"
        has = row.get("features")
        missing = [name for name in FEATURES if not isinstance(has, dict) or name not in has]
        other = [name for name in has if name not in FEATURES] if isinstance(has, dict) else []
        if missing or other:
            found = f"{where}: features " + ", ".join(
                [f"without {n!r}" for n in missing] + [f"with {n!r}" for n in other]
            )
            raise UserError(found, f"the {len(FEATURES)} features of this version", "make the data again")
        try:
            read = relevance_from_json(row)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            found = f"{where}: {type(problem).__name__}: {problem}"
            raise UserError(found, "a row as `synth relevance` writes it", "make the data again") from None
        problems = relevance_problems(read)
        if read.split != file.stem:
            problems.append(f"split is {read.split!r}, expected {file.stem!r}")
        if problems:
            raise UserError(f"{where}: {problems[0]}", "a row as `synth relevance` writes it", "make the data again")
        yield read


def check_classes(split: str, rows: Sequence[RelevanceRow]) -> None:
    """UserError unless a split has relevant and irrelevant rows."""
    relevant = sum(row.label for row in rows)
    if not 0 < relevant < len(rows):
        raise UserError(
            f"{split}: {relevant:,} relevant of {len(rows):,} rows",
            "both classes in train, dev and test",
            "make the data from more questions, or add another --data",
        )


def check_apart(rows: Mapping[str, Sequence[RelevanceRow]]) -> None:
    """UserError, naming them, for questions, propositions or passages that are in two splits."""
    keys = {
        "question": {split: {row.question.casefold(): row.question_id for row in of} for split, of in rows.items()},
        "proposition": {split: {row.proposition_id: row.proposition_id for row in of} for split, of in rows.items()},
        "passage": {split: {each: each for row in of for each in row.passage_ids} for split, of in rows.items()},
    }
    for what, by_split in keys.items():
        for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
            if shared := sorted(by_split[second][key] for key in by_split[first].keys() & by_split[second].keys()):
                named = ", ".join(shared[:NAMED]) + (", …" if len(shared) > NAMED else "")
                raise UserError(
                    f"{len(shared):,} {what}s in both {first} and {second}: {named}",
                    "splits that share no question, proposition or passage",
                    "make the second dataset with `synth relevance --beside FIRST`",
                )


def examples_of(datasets: Sequence[Dataset], split: str) -> Examples:
    """One split of all datasets as arrays."""
    rows = [(place, row) for place, dataset in enumerate(datasets) for row in dataset.rows[split]]
    asked = [(place, row.question_id) for place, row in rows]
    numbers = {question: number for number, question in enumerate(dict.fromkeys(asked))}
    return Examples(
        features_nF=np.array([row.features for _, row in rows], np.float32),
        label_n=np.array([row.label for _, row in rows], np.int64),
        question_n=np.array([numbers[question] for question in asked], np.int64),
        own_n=np.array([row.found_by in OWN for _, row in rows], np.bool_),
        dataset_n=np.array([place for place, _ in rows], np.int64),
    )
