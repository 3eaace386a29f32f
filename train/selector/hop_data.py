"""Questions of indexes as rows to learn a second hop from: what `hops` found for each, labelled by its gold documents.

Legend: C candidates, X rows, n rows that are learned from, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graph.documents.questions import SPLITS, Question, read_questions
from graph.index.index import Index, open_index
from graph.retrieve.hop.rows import HopRows, hop_rows
from graph.retrieve.modes.hops import follow
from graph.retrieve.parts.query import Query
from graph.shared.console import track
from graph.shared.errors import UserError
from graph.shared.ids import checksum, content_id
from graph.shared.types import Floats, Ints

DEV_SHARE, TEST_SHARE = 0.1, 0.1


@dataclass(frozen=True)
class AskedIndex:
    """An index, the questions that are learned from, the split of each by id, and the fingerprint of their file."""

    index: Index
    name: str
    questions: Sequence[Question]
    split_of: dict[str, str]
    fingerprint: str


@dataclass(frozen=True)
class HopExamples:
    """Rows of one split: float32[n, F] and int64[n] of zeros and ones."""

    features_nF: Floats
    label_n: Ints


def read_indexes(folders: Sequence[str], files: Sequence[str]) -> list[AskedIndex]:
    """The indexes with their questions; UserError for a file too few, several encoders, and questions without a gold document there."""
    if len(folders) != len(files):
        raise UserError(
            f"{len(folders)} indexes and {len(files)} files of questions",
            "a file of questions for each index of `data`, in the same order",
            "set hop.questions",
        )
    asked = [read_index(Path(folder), Path(file)) for folder, file in zip(folders, files, strict=True)]
    encoders = {each.index.encoder_source.fingerprint: each.name for each in asked}
    if len(encoders) > 1:
        told = ", ".join(f"{name} with {encoder[:12]}" for encoder, name in encoders.items())
        raise UserError(f"indexes of several encoders ({told})", "one encoder", "make them with one encoder")
    missing = set(SPLITS) - {split for each in asked for split in each.split_of.values()}
    if missing:
        found = f"no question in {', '.join(split for split in SPLITS if split in missing)}"
        raise UserError(found, "questions in train, dev and test", "give more questions")
    return asked


def read_index(folder: Path, file: Path) -> AskedIndex:
    """One index with those of the questions whose gold documents it has."""
    index = open_index(folder)
    known = set(index.sources())
    questions = [each for each in read_questions(file) if known.intersection(each.gold_sources)]
    if not questions:
        raise UserError(
            f"{file}: no question with a gold document in {folder}",
            "questions whose gold_ids are sources of the index",
            "name the questions of this index",
        )
    return AskedIndex(index, folder.resolve().name, questions, split_questions(questions), checksum(file))


def split_questions(questions: Sequence[Question]) -> dict[str, str]:
    """The split of each question by id: as the file states it, or else by a hash of its words, a tenth to dev and to test."""
    if {each.split for each in questions} != {"test"}:
        return {each.id: each.split for each in questions}
    shares = {each.id: int(content_id(each.text.casefold())[:8], 16) / 2**32 for each in questions}
    return {
        key: "test" if share < TEST_SHARE else "dev" if share < TEST_SHARE + DEV_SHARE else "train"
        for key, share in shares.items()
    }


@dataclass(frozen=True)
class Looked:
    """A question's rows, its gold documents (rows of the index), and the scores of `hops` alone."""

    rows: HopRows
    gold: frozenset[int]
    reached_P: Floats


def look_at_questions(asked: AskedIndex) -> dict[str, list[Looked]]:
    """The rows of all questions, by split."""
    index, found = asked.index, {split: list[Looked]() for split in SPLITS}
    row_of = {source: row for row, source in enumerate(index.sources())}
    queries_QD = index.encode_queries([each.text for each in asked.questions])
    pairs = zip(asked.questions, queries_QD, strict=True)
    for question, query_D in track(pairs, f"Looking at questions of {asked.name}", len(asked.questions)):
        gold = frozenset(row_of[source] for source in question.gold_sources if source in row_of)
        found[asked.split_of[question.id]].append(look(index, Query(question.text, query_D), gold))
    return found


def look(index: Index, query: Query, gold: frozenset[int]) -> Looked:
    """What `hops` has in hand when it asks a trained hop."""
    found = follow(index, query)
    return Looked(hop_rows(index, query, found.alone, found.reached_P, found.look), gold, found.reached_P)


def labels(rows: HopRows, document_C: Ints, gold: frozenset[int]) -> tuple[Ints, NDArray[np.bool_]]:
    """1 for the first candidate of each gold document by itself and by ways from gold bridges: int64[X]; and which rows are learned from: [X].

    A gold document's other passages, and ways to it from one that is not gold, are neither right nor wrong: nobody labelled them.
    """
    gold_C = np.isin(document_C, list(gold))
    first_C = np.zeros(len(gold_C), np.bool_)
    first_C[np.unique(document_C, return_index=True)[1]] = True
    alone_X = rows.way_X < 0
    bridge_X = np.zeros(len(alone_X), np.int64)
    bridge_X[~alone_X] = rows.ways.bridge_K[rows.way_X[~alone_X]]
    right_X = (gold_C & first_C)[rows.candidate_X] & (alone_X | gold_C[bridge_X])
    return right_X.astype(np.int64), ~gold_C[rows.candidate_X] | right_X


def examples_of(looked: Sequence[tuple[Index, Looked]]) -> HopExamples:
    """The rows of some questions that are learned from."""
    features, labelled = [], []
    for index, each in looked:
        document_C = index.data.passage_document_P[each.rows.candidates_C]
        label_X, kept_X = labels(each.rows, document_C, each.gold)
        features.append(each.rows.features_XF[kept_X])
        labelled.append(label_X[kept_X])
    return HopExamples(np.concatenate(features), np.concatenate(labelled))
