"""The data model of a comparison: held-out rows, policies, their answers, their scores of pairs, measures, and the comparison itself."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from data_synth.rows import PreferenceRow
from eval.statistics import Interval, SeedVerdict
from graph.errors import UserError
from graph.types import Message
from train.run.data import read_preferences
from train.run.record import RunRecord


def read_rows(folder: Path, split: str) -> list[PreferenceRow]:
    """All rows of `folder`/`split`.jsonl; UserError when the file is missing, empty or malformed."""
    file = folder / f"{split}.jsonl"
    if not file.is_file() and not folder.is_file():
        found = ", ".join(sorted(path.name for path in folder.glob("*.jsonl"))) or "no .jsonl file"
        remedy = "make it with `modegraph synth preferences`, or choose another --split"
        raise UserError(f"{file}: no such file (found: {found})", "preference data", remedy)
    return read_preferences(file)


def select_rows(
    rows: Sequence[PreferenceRow], context_sizes: Collection[int], limit: int | None, seed: int
) -> list[PreferenceRow]:
    """The rows with these context sizes (none: all sizes) of `limit` questions sampled with `seed` (None: all), in file order; UserError if no row fits."""
    candidates = [row for row in rows if not context_sizes or row.context_size in context_sizes]
    if not candidates:
        found = "".join(f" --context-size {size}" for size in context_sizes).strip()
        sizes = ", ".join(str(size) for size in sorted({row.context_size for row in rows}))
        raise UserError(f"{found}: no rows of this context size", f"one of {sizes}", "change the value")
    questions = list(dict.fromkeys(row.question_id for row in candidates))
    if limit is not None and limit < len(questions):
        questions = random.Random(seed).sample(questions, limit)
    selected = set(questions)
    return [row for row in candidates if row.question_id in selected]


def unique_prompts(rows: Sequence[PreferenceRow]) -> list[PreferenceRow]:
    """One row per prompt: pairs that differ only in the rejected completion share one answer."""
    first: dict[tuple[Message, ...], PreferenceRow] = {}
    for row in rows:
        first.setdefault(row.prompt, row)
    return list(first.values())


def short_names(paths: Sequence[Path], reserved: str = "") -> list[str]:
    """The last part of each path, with as many parents as are needed to make the names unique and different from `reserved`.

    >>> short_names([Path("a/ms"), Path("b/ms")])
    ['a/ms', 'b/ms']
    """
    resolved = [path.resolve() for path in paths]
    deepest = max(len(path.parts) for path in resolved)
    for depth in range(1, deepest):
        names = ["/".join(path.parts[-depth:]) for path in resolved]
        if len(set(names)) == len(names) and reserved not in names:
            return names
    return [str(path) for path in resolved]


@dataclass(frozen=True)
class Policy:
    """A model under comparison. `source` is its run folder or model name; an untuned model has no `record`.

    `reference` is the π_ref of a preference run's margins; "" for every other model, and for a loss without a reference.
    """

    name: str
    source: str
    record: RunRecord | None
    reference: str


@dataclass(frozen=True)
class PairScore:
    """log π(y_w|x) and log π(y_l|x), summed over the completions' tokens with their end tokens, in nats."""

    chosen_logp: float
    rejected_logp: float
    chosen_tokens: int
    rejected_tokens: int


@dataclass(frozen=True)
class ScoredAnswer:
    """One greedy answer to one prompt. `cited` passages exist, `missing` citations name passages that do not.

    `contains` is 1 if the text contains a gold answer; `choice` is the yes/no/maybe that it opens with ("" for none); `cut` is true if
    it hit the token limit.
    """

    row_id: str
    question_id: str
    text: str
    answer: str
    exact_match: float
    f1: float
    contains: float
    well_formed: float
    choice: str
    cited: tuple[int, ...]
    missing: tuple[int, ...]
    tokens: int
    cut: bool


@dataclass(frozen=True)
class PolicyResult:
    """All results of one policy: `answers` align with the comparison's prompts, the two lists of scores with its pairs.

    `reference_scores` are None for a policy without β or a reference, whose implicit reward is undefined, and if no pair was scored.
    """

    policy: Policy
    answers: tuple[ScoredAnswer, ...]
    scores: tuple[PairScore, ...]
    reference_scores: tuple[PairScore, ...] | None
    seconds: float


@dataclass(frozen=True)
class Measure:
    """One quantity per row for each policy that has it; `clusters` are the rows' questions. If `share` is true, the values are from 0 to 1
    and printed as percentages."""

    name: str
    clusters: tuple[str, ...]
    values: Mapping[str, tuple[float, ...]]
    share: bool

    def mean(self, policy: str) -> float:
        """The mean over rows; KeyError for a policy that lacks the measure."""
        return sum(self.values[policy]) / len(self.values[policy])

    def question_means(self, policy: str) -> tuple[float, ...]:
        """The mean over the rows of each question, in the order of the questions' first rows."""
        by_question: dict[str, list[float]] = {}
        for question, value in zip(self.clusters, self.values[policy], strict=True):
            by_question.setdefault(question, []).append(value)
        return tuple(map(fmean, by_question.values()))


@dataclass(frozen=True)
class ChoiceScore:
    """Accuracy over yes/no/maybe questions: of a policy, or of the constant answer that `name` describes."""

    name: str
    accuracy: float
    per_class: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """Policies side by side; differences are relative to the first result.

    `prompts` are the rows that were answered, `pairs` the rows whose two completions were scored. `differences[measure][policy]` is the
    interval of that policy minus the first; `systems` are the systems that have several seeds (system -> seed -> policy), and
    `by_seed[measure][system]` their differences from the first of them. `gold_choices` counts the yes/no/maybe labels among the prompts.
    """

    data: str
    split: str
    seed: int
    max_answer_tokens: int
    prompts: tuple[PreferenceRow, ...]
    pairs: tuple[PreferenceRow, ...]
    results: tuple[PolicyResult, ...]
    measures: tuple[Measure, ...]
    differences: Mapping[str, Mapping[str, Interval]]
    systems: Mapping[str, Mapping[int, str]]
    by_seed: Mapping[str, Mapping[str, SeedVerdict]]
    choices: tuple[ChoiceScore, ...]
    gold_choices: Mapping[str, int]
