"""Statistics of a dataset and of its dropped rows, counted while the rows are streamed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Generic

from data_synth.rows import Form, R
from graph.documents.questions import SPLITS
from graph.shared.ids import content_id

LOST_SHARE = 0.5
SAMPLED_ROWS = 2000
"""Size of the uniform sample of rows held in memory for a form's measures."""


@dataclass(frozen=True)
class Lengths:
    """Lengths in words."""

    mean: float
    median: float
    longest: int


@dataclass(frozen=True)
class Summary:
    """Statistics of the written and the dropped rows: `counts` by table of the card and value, `lengths` by part of a row, `measures` of a sample."""

    form: str
    origin: Mapping[str, str]
    rows: int
    duplicates: int
    drops: dict[str, int]
    by_split: dict[str, int]
    counts: dict[str, dict[str, int]]
    lengths: dict[str, Lengths]
    measures: dict[str, float]

    @property
    def mostly_lost(self) -> bool:
        """Whether more than half of the rows were dropped (duplicates do not count)."""
        dropped = sum(self.drops.values())
        return dropped > LOST_SHARE * (dropped + self.rows)


@dataclass
class Tally(Generic[R]):
    """Running counts over the rows of one form."""

    form: Form[R]
    drops: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    tables: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    words: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    sample: list[R] = field(default_factory=list)
    row_hashes: set[bytes] = field(default_factory=set)
    duplicates: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def is_duplicate(self, row: R) -> bool:
        """Whether an earlier row has the same texts; if so, this one is counted as a duplicate."""
        key = bytes.fromhex(content_id(*self.form.texts(row)))
        if key in self.row_hashes:
            self.duplicates += 1
            return True
        self.row_hashes.add(key)
        return False

    def add(self, row: R) -> None:
        """Count a row that is written; it may enter the sample."""
        self.splits[row.split] += 1
        for table, value in self.form.counts(row).items():
            self.tables[table][value] += 1
        for part, words in self.form.lengths(row).items():
            self.words[part].append(words)
        # Reservoir sampling (Vitter 1985, algorithm R): every row so far is equally likely to be in the sample.
        if len(self.sample) < SAMPLED_ROWS:
            self.sample.append(row)
        elif (slot := self.rng.randrange(self.splits.total())) < SAMPLED_ROWS:
            self.sample[slot] = row

    def summary(self, origin: Mapping[str, str]) -> Summary:
        """The statistics of all rows so far."""
        return Summary(
            form=self.form.name,
            origin=dict(origin),
            rows=self.splits.total(),
            duplicates=self.duplicates,
            drops=dict(sorted(self.drops.items())),
            by_split={split: self.splits[split] for split in SPLITS if split in self.splits},
            counts={table: _ordered(counts) for table, counts in self.tables.items()},
            lengths={
                part: Lengths(round(mean(words), 2), median(words), max(words)) for part, words in self.words.items()
            },
            measures={what: round(value, 4) for what, value in self.form.measures(self.sample).items()},
        )


def _ordered(counts: Counter[str]) -> dict[str, int]:
    """The counts in the order of the counted values: numbers by size, then words alphabetically.

    >>> list(_ordered(Counter(["word", "another word", "10", "9"])))
    ['9', '10', 'another word', 'word']
    """
    return dict(
        sorted(counts.items(), key=lambda item: (0, int(item[0]), "") if item[0].isdecimal() else (1, 0, item[0]))
    )
