"""The split of questions and documents into train, dev and test, so that no question, passage or proposition is in two.

Questions with a common gold document go to one split as a group, unless their file states their splits; a document goes with most of the
questions that it is gold for, else with those that it was published with, else by its own hash. A proposition whose documents disagree
belongs to none. Split by questions, only equal words belong together. Datasets of one training run can be kept free of overlap.
Legend: U documents, N propositions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from data_synth.relevance.relevance_form import GoldQuestion, SplitBy
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.retrieve.parts.ranking import expand_rows
from graph.shared.ids import content_id
from graph.types import Ints

if TYPE_CHECKING:
    from graph.index.index import Index


DEV_SHARE, TEST_SHARE = 0.1, 0.1
LARGE_GROUP_SHARE = 0.1
"""A group with more than this share of the questions goes to train: it would crowd a small split."""
NOWHERE, ANYWHERE = -1, -2


@dataclass(frozen=True)
class Split:
    """The split of each question by id, and of each proposition as a place in SPLITS (NOWHERE: of none, ANYWHERE: of all): int64[N]."""

    questions: Mapping[str, str]
    propositions_N: Ints

    def allowed(self, question_id: str) -> NDArray[np.bool_]:
        """Which propositions a question may have: [N]."""
        own = SPLITS.index(self.questions[question_id])
        return np.isin(self.propositions_N, (own, ANYWHERE))


def make_split(index: Index, asked: Sequence[GoldQuestion], seed: int, by: SplitBy = "passages") -> Split:
    """The same for the same index, questions and seed, whatever the order of the questions."""
    questions = split_questions(asked, seed, by)
    if by == "questions":
        return Split(questions, np.full(len(index.data.proposition_ids), ANYWHERE, np.int64))
    documents = split_documents(asked, questions, index.sources(), seed)
    split_U = np.array([SPLITS.index(documents[source]) for source in index.sources()], np.int64)
    return Split(questions, split_propositions(index, split_U))


def split_questions(asked: Sequence[GoldQuestion], seed: int, by: SplitBy = "passages") -> dict[str, str]:
    """The split of each question: as its file states it, else with all questions of the same group."""
    groups = group_questions(asked, by)
    order = sorted(
        groups, key=lambda ids: (len(ids) <= LARGE_GROUP_SHARE * len(asked), content_id(str(seed), min(ids)))
    )
    split: dict[str, str] = {}
    done = 0
    for ids in order:
        share = (done + len(ids) / 2) / len(asked)
        split |= dict.fromkeys(ids, split_at(share))
        done += len(ids)
    return split | stated_splits(asked)


def stated_splits(asked: Iterable[GoldQuestion]) -> dict[str, str]:
    """The splits that the file states, by question; the same words stated in several count as of the rarest, test before dev."""
    by_text: dict[str, str] = {}
    stated = [(each.question.text.casefold(), each.stated_split) for each in asked if each.stated_split is not None]
    for text, split in stated:
        by_text[text] = max(by_text.get(text, split), split, key=SPLITS.index)
    texts = ((each.question.id, each.question.text.casefold()) for each in asked)
    return {question_id: by_text[text] for question_id, text in texts if text in by_text}


def group_questions(asked: Iterable[GoldQuestion], by: SplitBy = "passages") -> list[list[str]]:
    """Ids of the questions that hang together: by being the same words and, where passages are split, by common gold documents."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = node = parent[parent[node]]
        return node

    for each in asked:
        question = each.question
        common = each.gold_sources if by == "passages" else ()
        for tie in (f"text {question.text.casefold()}", *(f"gold {source}" for source in common)):
            parent[root(tie)] = root(f"question {question.id}")
    groups: dict[str, list[str]] = defaultdict(list)
    for each in asked:
        groups[root(f"question {each.question.id}")].append(each.question.id)
    return list(groups.values())


def split_documents(
    asked: Iterable[GoldQuestion], questions: Mapping[str, str], sources: Iterable[str], seed: int
) -> dict[str, str]:
    """The split of each document: of most questions that it is gold for, else of its other questions, else by hash."""
    gold: dict[str, Counter[str]] = defaultdict(Counter)
    own: dict[str, Counter[str]] = defaultdict(Counter)
    for each in asked:
        split = questions[each.question.id]
        for source in each.gold_sources:
            gold[source][split] += 1
        for source in set(each.own_sources):
            own[source][split] += 1
    return {source: _most(gold.get(source) or own.get(source)) or split_by_hash(seed, source) for source in sources}


def split_propositions(index: Index, split_U: Ints) -> Ints:
    """The split of each proposition: the one that all its documents are in, else NOWHERE: int64[N]."""
    from_X, passage_X = expand_rows(index.proposition_passage_NP, np.arange(len(index.data.proposition_ids)))
    split_X = split_U[index.data.passage_document_P[passage_X]]
    lowest_N = np.full(len(index.data.proposition_ids), len(SPLITS), np.int64)
    highest_N = np.full(len(index.data.proposition_ids), NOWHERE, np.int64)
    np.minimum.at(lowest_N, from_X, split_X)
    np.maximum.at(highest_N, from_X, split_X)
    return np.where(lowest_N == highest_N, lowest_N, NOWHERE)


def _most(counts: Counter[str] | None) -> str | None:
    """The split with most questions; of equals the rarer one, test before dev before train."""
    if not counts:
        return None
    return max(counts, key=lambda split: (counts[split], SPLITS.index(split)))


def spread_documents(sources: Iterable[str], seed: int) -> dict[str, str]:
    """The split of each document, 80, 10 and 10 of 100 as near as can be, in an order by the hash of its source and the seed.

    >>> sorted(spread_documents(map(str, range(10)), 0).values())
    ['dev', 'test', 'train', 'train', 'train', 'train', 'train', 'train', 'train', 'train']
    """
    order = sorted(sources, key=lambda source: content_id(str(seed), source))
    return {source: split_at((place + 0.5) / len(order)) for place, source in enumerate(order)}


def split_by_hash(seed: int, source: str) -> str:
    """The split of a document by itself."""
    return split_at(int(content_id(str(seed), source)[:8], 16) / 2**32)


def split_at(share: float) -> str:
    """The split at a place between 0 and 1.

    >>> split_at(0.5), split_at(0.85), split_at(0.95)
    ('train', 'dev', 'test')
    """
    if share < 1 - DEV_SHARE - TEST_SHARE:
        return "train"
    return "dev" if share < 1 - TEST_SHARE else "test"


@dataclass(frozen=True)
class EarlierSplits:
    """The splits of the questions (by their words, folded) and propositions (by id) of earlier datasets."""

    questions: Mapping[str, str]
    propositions: Mapping[str, str]


def read_earlier_splits(folders: Iterable[Path]) -> EarlierSplits:
    """What the relevance datasets in `folders` hold; UserError for a folder without one."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_table

    questions: dict[str, str] = {}
    propositions: dict[str, str] = {}
    for folder in folders:
        files = [folder / f"{split}.parquet" for split in SPLITS if (folder / f"{split}.parquet").is_file()]
        if not files:
            raise UserError(f"{folder}: no dataset", "a folder that `synth relevance` wrote", "fix --beside")
        for file in files:
            try:
                columns = read_table(file, columns=["question", "proposition_id"]).to_pydict()
            except ArrowInvalid as problem:
                raise UserError(f"{file}: {problem}", "rows of `synth relevance`", "fix --beside") from None
            questions |= dict.fromkeys((text.casefold() for text in columns["question"]), file.stem)
            propositions |= dict.fromkeys(columns["proposition_id"], file.stem)
    return EarlierSplits(questions, propositions)


def keep_earlier_splits(asked: Sequence[GoldQuestion], held: Mapping[str, str]) -> list[GoldQuestion]:
    """The questions, those whose words are held in the split that they have there."""
    return [replace(each, stated_split=held.get(each.question.text.casefold(), each.stated_split)) for each in asked]


def exclude_overlap(split: Split, index: Index, held: Mapping[str, str]) -> Split:
    """The split, with propositions that another split holds in none of its own."""
    elsewhere = [
        row
        for row, proposition in enumerate(index.data.proposition_ids)
        if proposition in held and SPLITS.index(held[proposition]) != split.propositions_N[row]
    ]
    propositions_N = split.propositions_N.copy()
    propositions_N[np.array(elsewhere, np.int64)] = NOWHERE
    return replace(split, propositions_N=propositions_N)
