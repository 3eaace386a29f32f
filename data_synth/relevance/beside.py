"""Several sets for one training run: what an earlier one holds keeps the split that it has there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_synth.relevance.split import NOWHERE, Split
from data_synth.relevance.types import GoldQuestion
from graph.documents.questions import SPLITS
from graph.shared.errors import UserError

if TYPE_CHECKING:
    from graph.index.index import Index


@dataclass(frozen=True)
class EarlierSplits:
    """The splits of the questions (by their words, folded) and propositions (by id) of earlier datasets."""

    questions: Mapping[str, str]
    propositions: Mapping[str, str]


def read_held(folders: Iterable[Path]) -> EarlierSplits:
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


def as_held(asked: Sequence[GoldQuestion], held: Mapping[str, str]) -> list[GoldQuestion]:
    """The questions, those whose words are held in the split that they have there."""
    return [replace(each, stated_split=held.get(each.question.text.casefold(), each.stated_split)) for each in asked]


def without_held(split: Split, index: Index, held: Mapping[str, str]) -> Split:
    """The split, with propositions that another split holds in none of its own."""
    elsewhere = [
        row
        for row, proposition in enumerate(index.data.proposition_ids)
        if proposition in held and SPLITS.index(held[proposition]) != split.propositions_N[row]
    ]
    propositions_N = split.propositions_N.copy()
    propositions_N[np.array(elsewhere, np.int64)] = NOWHERE
    return replace(split, propositions_N=propositions_N)
