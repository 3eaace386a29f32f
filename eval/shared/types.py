"""The nouns of evaluation: a policy, what it answered, how likely it finds a pair, and the comparison of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval.shared.rows import HeldOutRow
from eval.shared.statistics import Interval
from train.shared.types import RunRecord


@dataclass(frozen=True)
class Policy:
    """A model under comparison. `source` is its run folder or model name; an untuned model has no `record`.

    `reference` is the π_ref of its margins: what a preference run started from; "" for every other model.
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

    `contains` is 1 where a gold answer stands in it; `choice` is the yes/no/maybe it opens with ("" for none); `cut` says that it ran
    into the token limit.
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
    """All that one policy did: `answers` go with the comparison's prompts, the two lists of scores with its pairs.

    `reference_scores` are None for a policy without β, whose implicit reward is undefined.
    """

    policy: Policy
    answers: tuple[ScoredAnswer, ...]
    scores: tuple[PairScore, ...]
    reference_scores: tuple[PairScore, ...] | None
    seconds: float


@dataclass(frozen=True)
class Measure:
    """One quantity per row for each policy that has it; `clusters` are the rows' questions.

    `share` says that its means are shares of 1, printed as percentages.
    """

    name: str
    clusters: tuple[str, ...]
    values: Mapping[str, tuple[float, ...]]
    share: bool

    def mean(self, policy: str) -> float:
        """The mean over rows; KeyError for a policy that lacks the measure."""
        return sum(self.values[policy]) / len(self.values[policy])


@dataclass(frozen=True)
class ChoiceScore:
    """Accuracy over yes/no/maybe questions: of a policy, or of the constant answer `name` describes."""

    name: str
    accuracy: float
    per_class: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """Policies side by side; the first result is the one that differences are taken from.

    `prompts` are the rows asked, `pairs` the rows whose two sides were scored. `differences[measure][policy]` holds the
    interval of that policy minus the first. `gold_choices` counts the yes/no/maybe labels among the prompts.
    """

    data: str
    split: str
    seed: int
    max_answer_tokens: int
    prompts: tuple[HeldOutRow, ...]
    pairs: tuple[HeldOutRow, ...]
    results: tuple[PolicyResult, ...]
    measures: tuple[Measure, ...]
    differences: Mapping[str, Mapping[str, Interval]]
    choices: tuple[ChoiceScore, ...]
    gold_choices: Mapping[str, int]
