"""The split of questions and documents into train, dev and test, so that no question, passage or proposition is in two splits.

Questions with a common gold document go to one split as a group, unless their file states their splits. If only questions are split,
only those with the same words form a group, and a passage or proposition can be in every split. Overlap between the datasets of one
training run can be excluded.
Legend: U documents, N propositions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from data_synth.relevance.relevance_form import GoldQuestion, SplitBy
from data_synth.rows import split_files
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.retrieve.parts.ranking import expand_rows
from graph.shared.ids import content_id
from graph.types import Ints

if TYPE_CHECKING:
    from graph.index.index import Index


DEV_SHARE, TEST_SHARE = 0.1, 0.1
LARGE_GROUP_SHARE = 0.1
"""Groups with more than this share of the questions are assigned first, and so to train: they would fill a small split."""
NOWHERE, ANYWHERE = -1, -2


@dataclass(frozen=True)
class Split:
    """The split of each question by id, and of each proposition as an index into SPLITS (NOWHERE: in none, ANYWHERE: in all): int64[N]."""

    questions: Mapping[str, str]
    propositions_N: Ints

    def allowed(self, question_id: str) -> NDArray[np.bool_]:
        """Which propositions may be candidates for a question: [N]."""
        split = SPLITS.index(self.questions[question_id])
        return np.isin(self.propositions_N, (split, ANYWHERE))


def make_split(index: Index, questions: Sequence[GoldQuestion], seed: int, by: SplitBy = "passages") -> Split:
    """The split of questions and propositions: the same for the same index, questions and seed, whatever the order of the questions."""
    split_of = split_questions(questions, seed, by)
    if by == "questions":
        return Split(split_of, np.full(len(index.data.proposition_ids), ANYWHERE, np.int64))
    documents = split_documents(questions, split_of, index.sources(), seed)
    split_U = np.array([SPLITS.index(documents[source]) for source in index.sources()], np.int64)
    return Split(split_of, split_propositions(index, split_U))


def split_questions(questions: Sequence[GoldQuestion], seed: int, by: SplitBy = "passages") -> dict[str, str]:
    """The split of each question: as stated in its file, else that of its group."""
    groups = group_questions(questions, by)
    order = sorted(
        groups, key=lambda ids: (len(ids) <= LARGE_GROUP_SHARE * len(questions), content_id(str(seed), min(ids)))
    )
    split: dict[str, str] = {}
    assigned = 0
    for ids in order:
        share = (assigned + len(ids) / 2) / len(questions)
        split |= dict.fromkeys(ids, split_at(share))
        assigned += len(ids)
    return split | stated_splits(questions)


def stated_splits(questions: Iterable[GoldQuestion]) -> dict[str, str]:
    """The splits stated in the file, by question id. All questions with the same words get the rarest split stated for any of them, test before dev."""
    by_text: dict[str, str] = {}
    stated = [(one.question.text.casefold(), one.stated_split) for one in questions if one.stated_split is not None]
    for text, split in stated:
        by_text[text] = max(by_text.get(text, split), split, key=SPLITS.index)
    texts = ((one.question.id, one.question.text.casefold()) for one in questions)
    return {question_id: by_text[text] for question_id, text in texts if text in by_text}


def group_questions(questions: Iterable[GoldQuestion], by: SplitBy = "passages") -> list[list[str]]:
    """Groups of ids of questions that are connected by the same words or, if passages are split, by common gold documents (union-find)."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = node = parent[parent[node]]
        return node

    for gold in questions:
        question = gold.question
        sources = gold.gold_sources if by == "passages" else ()
        for link in (f"text {question.text.casefold()}", *(f"gold {source}" for source in sources)):
            parent[root(link)] = root(f"question {question.id}")
    groups: dict[str, list[str]] = defaultdict(list)
    for gold in questions:
        groups[root(f"question {gold.question.id}")].append(gold.question.id)
    return list(groups.values())


def split_documents(
    questions: Iterable[GoldQuestion], split_of: Mapping[str, str], sources: Iterable[str], seed: int
) -> dict[str, str]:
    """The split of each document: the one with the most questions for which the document is gold.

    Without such questions, the one with the most questions with which the document was published; without either, `split_by_hash`.
    """
    gold: dict[str, Counter[str]] = defaultdict(Counter)
    own: dict[str, Counter[str]] = defaultdict(Counter)
    for question in questions:
        split = split_of[question.question.id]
        for source in question.gold_sources:
            gold[source][split] += 1
        for source in set(question.own_sources):
            own[source][split] += 1
    return {
        source: _majority_split(gold.get(source) or own.get(source)) or split_by_hash(seed, source)
        for source in sources
    }


def split_propositions(index: Index, split_U: Ints) -> Ints:
    """The split of each proposition, int64[N]: the one that all its documents are in, or NOWHERE if they are in several."""
    from_X, passage_X = expand_rows(index.proposition_passage_NP, np.arange(len(index.data.proposition_ids)))
    split_X = split_U[index.data.passage_document_P[passage_X]]
    lowest_N = np.full(len(index.data.proposition_ids), len(SPLITS), np.int64)
    highest_N = np.full(len(index.data.proposition_ids), NOWHERE, np.int64)
    np.minimum.at(lowest_N, from_X, split_X)
    np.maximum.at(highest_N, from_X, split_X)
    return np.where(lowest_N == highest_N, lowest_N, NOWHERE)


def _majority_split(counts: Counter[str] | None) -> str | None:
    """The split with the most questions, None without any; for equal counts the rarer one, test before dev before train."""
    if not counts:
        return None
    return max(counts, key=lambda split: (counts[split], SPLITS.index(split)))


def spread_documents(sources: Iterable[str], seed: int) -> dict[str, str]:
    """The split of each document, as close as possible to 80 %, 10 % and 10 %, in the order of a hash of source and seed.

    >>> sorted(spread_documents(map(str, range(10)), 0).values())
    ['dev', 'test', 'train', 'train', 'train', 'train', 'train', 'train', 'train', 'train']
    """
    order = sorted(sources, key=lambda source: content_id(str(seed), source))
    return {source: split_at((rank + 0.5) / len(order)) for rank, source in enumerate(order)}


def split_by_hash(seed: int, source: str) -> str:
    """The split of a document by its hash alone."""
    return split_at(int(content_id(str(seed), source)[:8], 16) / 2**32)


def split_at(share: float) -> str:
    """The split at a position between 0 and 1.

    >>> split_at(0.5), split_at(0.85), split_at(0.95)
    ('train', 'dev', 'test')
    """
    if share < 1 - DEV_SHARE - TEST_SHARE:
        return "train"
    return "dev" if share < 1 - TEST_SHARE else "test"


def read_earlier_splits(folders: Iterable[Path]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """The split of each question (by its words, case-folded) and the splits of each proposition (by id) of earlier relevance datasets.

    UserError for a folder without such a dataset, a file without these columns, or a question in two splits.
    """
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_table

    questions: dict[str, str] = {}
    propositions: defaultdict[str, set[str]] = defaultdict(set)
    for folder in folders:
        files = split_files(folder, "parquet")
        if not files:
            raise UserError(f"{folder}: no dataset", "a folder written by `synth relevance`", "fix --beside")
        for file in files:
            try:
                columns = read_table(file, columns=["question", "proposition_id"]).to_pydict()
            except ArrowInvalid as problem:
                raise UserError(f"{file}: {problem}", "rows of `synth relevance`", "fix --beside") from None
            for text in dict.fromkeys(columns["question"]):
                if (split := questions.setdefault(text.casefold(), file.stem)) != file.stem:
                    found = f"{file}: question {text!r}, which is also in {split}"
                    raise UserError(found, "one split per question in all --beside folders", "leave one of them out")
            for proposition in columns["proposition_id"]:
                propositions[proposition].add(file.stem)
    return questions, propositions


def keep_earlier_splits(questions: Sequence[GoldQuestion], earlier: Mapping[str, str]) -> list[GoldQuestion]:
    """The questions; a question whose words are in `earlier` gets the split stated there."""
    return [replace(one, stated_split=earlier.get(one.question.text.casefold(), one.stated_split)) for one in questions]


def exclude_overlap(split: Split, index: Index, earlier: Mapping[str, Collection[str]]) -> Split:
    """The split without overlap: a proposition that has another split in `earlier` becomes NOWHERE; one that was ANYWHERE gets its only earlier split."""
    propositions_N = split.propositions_N.copy()
    for row, proposition in enumerate(index.data.proposition_ids):
        earlier_splits, present = {SPLITS.index(each) for each in earlier.get(proposition, ())}, propositions_N[row]
        if present == ANYWHERE and len(earlier_splits) == 1:
            propositions_N[row] = earlier_splits.pop()
        elif present != ANYWHERE and earlier_splits - {present}:
            propositions_N[row] = NOWHERE
    return replace(split, propositions_N=propositions_N)
