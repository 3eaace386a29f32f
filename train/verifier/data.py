"""Claims as `synth claims` wrote them, to arrays; what cannot be learned from is refused before training.

Legend: n claims, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from data_synth.claims.types import ClaimRow, claim_from_json, claim_problems
from graph.documents.questions import SPLITS
from graph.shared.errors import UserError
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import read_jsonl
from graph.shared.types import Floats, Ints
from graph.verify.features import Ground, claim_features
from train.shared.labelled import check_apart

MADE_BY = "`modegraph synth claims`"


@dataclass(frozen=True)
class Claims:
    """Claims of one split. `label_n` is 1 for an unsupported one; `kind_n` tells how each was made."""

    features_nF: Floats
    label_n: Ints
    kind_n: tuple[str, ...]


def read_claims(folders: Sequence[Path]) -> tuple[dict[str, list[ClaimRow]], dict[str, str]]:
    """The rows of each split, and the fingerprint of each folder by its name; UserError for data that cannot be learned from."""
    rows: dict[str, list[ClaimRow]] = {split: [] for split in SPLITS}
    fingerprints = {}
    for folder in folders:
        files = {split: folder / f"{split}.jsonl" for split in SPLITS if (folder / f"{split}.jsonl").is_file()}
        if not files:
            raise UserError(f"{folder}: no {', '.join(f'{split}.jsonl' for split in SPLITS)}", MADE_BY, "make the data")
        for split, file in files.items():
            rows[split] += _read(file, split)
        fingerprints[folder.resolve().name] = content_id(*(checksum(file) for file in files.values()))
    for split, of in rows.items():
        broken = sum(not row.supported for row in of)
        if not 0 < broken < len(of):
            found = f"{split}: {broken:,} broken of {len(of):,} claims"
            raise UserError(
                found, "both in train, dev and test", "make claims of more documents, or add another --data"
            )
    passages = {split: {row.passage: row.id for row in of} for split, of in rows.items()}
    check_apart("passage", passages, "splits that share no passage", "make the data again, of all documents at once")
    return rows, fingerprints


def _read(file: Path, split: str) -> list[ClaimRow]:
    """The rows of a split's file; UserError with file and line for a malformed one."""
    found = []
    for number, raw in read_jsonl(file):
        try:
            row = claim_from_json(raw)
            problems = claim_problems(row)
        except (KeyError, TypeError) as problem:
            problems = [f"{type(problem).__name__}: {problem}"]
        else:
            problems += [f"split is {row.split!r}, expected {split!r}"] if row.split != split else []
        if problems:
            raise UserError(f"{file} line {number}: {problems[0]}", f"a row of {MADE_BY}", "make the data again")
        found.append(row)
    return found


def claims_of(rows: Sequence[ClaimRow]) -> Claims:
    """Rows as arrays."""
    features = [claim_features(row.claim, _ground(row.title, row.passage)) for row in rows]
    return Claims(
        np.stack(features), np.array([not row.supported for row in rows], np.int64), tuple(row.kind for row in rows)
    )


@lru_cache(maxsize=64)
def _ground(title: str, passage: str) -> Ground:
    """The claims of a passage follow one another."""
    return Ground.of([(title, passage)])


def by_kind(claims: Claims, marked_n: Sequence[bool]) -> Mapping[str, tuple[int, float]]:
    """How many claims there are of each kind, and the share that is marked; supported kinds first."""
    places: dict[tuple[int, str], list[bool]] = {}
    for label, kind, marked in zip(claims.label_n.tolist(), claims.kind_n, marked_n, strict=True):
        places.setdefault((label, kind), []).append(bool(marked))
    return {
        f"{'broken' if label else 'supported'}, {kind}": (len(marks), sum(marks) / len(marks))
        for (label, kind), marks in sorted(places.items())
    }
