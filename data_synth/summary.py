"""What a preference dataset holds and what was lost on the way, counted while its rows stream by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from data_synth.preferences import DUPLICATE
from data_synth.types import PreferenceRow
from graph.questions import SPLITS

LOST_SHARE = 0.5


@dataclass(frozen=True)
class Origin:
    """Where the rows come from, as the dataset card tells it."""

    index: str
    questions: str
    mode: str
    max_context: int
    reasoner: str
    max_context_tokens: int | None = None


@dataclass(frozen=True)
class Lengths:
    """Lengths of one side of the pairs, in words."""

    mean: float
    median: float
    longest: int


@dataclass(frozen=True)
class Summary:
    """What was written and what was lost. `chosen_longer` is the share of pairs whose chosen side has more words."""

    origin: Origin
    rows: int
    duplicates: int
    drops: dict[str, int]
    by_split: dict[str, int]
    by_kind: dict[str, int]
    by_context_size: dict[str, int]
    chosen_words: Lengths
    rejected_words: Lengths
    chosen_longer: float

    @property
    def mostly_lost(self) -> bool:
        """Whether more than half of the rows were dropped (duplicates are no loss)."""
        dropped = sum(self.drops.values())
        return dropped > LOST_SHARE * (dropped + self.rows)


@dataclass
class Tally:
    """Counts kept while rows stream by."""

    drops: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    chosen_words: list[int] = field(default_factory=list)
    rejected_words: list[int] = field(default_factory=list)

    def add(self, row: PreferenceRow) -> None:
        self.splits[row.split] += 1
        self.kinds[row.kind or "unspecified"] += 1
        self.sizes[row.context_size] += 1
        self.chosen_words.append(len(row.chosen.split()))
        self.rejected_words.append(len(row.rejected.split()))

    def summary(self, origin: Origin) -> Summary:
        pairs = list(zip(self.chosen_words, self.rejected_words, strict=True))
        return Summary(
            origin=origin,
            rows=len(pairs),
            duplicates=self.drops[DUPLICATE],
            drops={why: count for why, count in sorted(self.drops.items()) if why != DUPLICATE},
            by_split={split: self.splits[split] for split in SPLITS if split in self.splits},
            by_kind=dict(sorted(self.kinds.items())),
            by_context_size={str(size): count for size, count in sorted(self.sizes.items())},
            chosen_words=measure_lengths(self.chosen_words),
            rejected_words=measure_lengths(self.rejected_words),
            chosen_longer=mean(chosen > rejected for chosen, rejected in pairs) if pairs else 0.0,
        )


def measure_lengths(words: Sequence[int]) -> Lengths:
    """Mean, median and maximum; zeros for no rows."""
    return Lengths(round(mean(words), 2), median(words), max(words)) if words else Lengths(0.0, 0.0, 0)
