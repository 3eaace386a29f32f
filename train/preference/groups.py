"""From rows to what preference training compares, groups of responses: a prompt, K responses as token ids, and the reward of each.

Pairs are K = 2, with rewards whose softmax is the label; scored responses have weighted rewards, and those of a prompt are split into groups of K."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from transformers import PreTrainedTokenizerBase

from data_synth.rows import PreferenceRow, ResponseRow
from graph.errors import UserError
from graph.shared.console import say
from graph.shared.ids import content_id
from graph.types import Message
from train.model.logps import tokenize_row
from train.model.packing import TokenizedGroup


@dataclass(frozen=True)
class ResponseGroup:
    """One prompt with K responses, and r_i of each. A hard label's rewards are the logarithms of its shares."""

    id: str
    tokenized: TokenizedGroup
    rewards: tuple[float, ...]

    @property
    def longest_tokens(self) -> int:
        """Tokens of the prompt with its longest response."""
        return len(self.tokenized.prompt) + max(map(len, self.tokenized.responses))


@dataclass(frozen=True)
class Grouping:
    """How scored responses become groups: by the weights of their rewards, standardised or not; split by `seed` into `size` (None: all)."""

    weights: Mapping[str, float]
    standardised: bool
    size: int | None
    seed: int


@dataclass(frozen=True)
class LengthLimit:
    """What is done with rows whose prompt and longest response together are over `max_tokens`: refused, or dropped and counted."""

    max_tokens: int
    drop: bool


def pair_groups(
    rows: Sequence[PreferenceRow], tokenizer: PreTrainedTokenizerBase, label_smoothing: float
) -> Iterator[ResponseGroup]:
    """Pairs as K = 2 with the label (1 − ε, ε): rewards (log(1 − ε), log ε) at β_r = 1; ε = 0 is a hard label."""
    label = hard_label(label_smoothing)
    for row in rows:
        yield ResponseGroup(row.id, tokenize_group(tokenizer, row.prompt, (row.chosen, row.rejected)), label)


def scored_groups(
    rows: Sequence[ResponseRow],
    tokenizer: PreTrainedTokenizerBase,
    how: Grouping,
) -> Iterator[ResponseGroup]:
    """Scored responses, those of each prompt in groups."""
    for row in rows:
        rewards = combine_rewards(row, how.weights)
        rewards = standardise(rewards) if how.standardised else rewards
        for number, places in enumerate(
            split_into_groups(len(row.responses), how.size, random.Random(content_id(str(how.seed), row.id)))
        ):
            tokenized = tokenize_group(tokenizer, row.prompt, [row.responses[place] for place in places])
            yield ResponseGroup(f"{row.id}/{number}", tokenized, tuple(rewards[place] for place in places))


def best_worst_groups(
    rows: Sequence[ResponseRow],
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, float],
    label_smoothing: float,
) -> Iterator[ResponseGroup]:
    """Of each prompt the best-rewarded response against the worst, as a pair with the label (1 − ε, ε); ties: the first drawn.

    A prompt whose responses are all rewarded alike makes no pair.
    """
    for row in rows:
        rewards = combine_rewards(row, weights)
        best, worst = rewards.index(max(rewards)), rewards.index(min(rewards))
        if best != worst:
            tokenized = tokenize_group(tokenizer, row.prompt, (row.responses[best], row.responses[worst]))
            yield ResponseGroup(row.id, tokenized, hard_label(label_smoothing))


def hard_label(label_smoothing: float) -> tuple[float, float]:
    """Rewards whose softmax is the label (1 − ε, ε) at β_r = 1; ε = 0 is a hard label.

    >>> hard_label(0.5) == (math.log(0.5), math.log(0.5)), hard_label(0.0)[1]
    (True, -inf)
    """
    return math.log1p(-label_smoothing), math.log(label_smoothing) if label_smoothing > 0 else -math.inf


def tokenize_group(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], responses: Sequence[str]
) -> TokenizedGroup:
    """A chat prompt and its responses, each with its end token, cut where all of them leave the prompt's tokens."""
    rows = [tokenize_row(tokenizer, prompt, response) for response in responses]
    shared = min(row.prompt_tokens for row in rows)
    return TokenizedGroup(rows[0].ids[:shared], tuple(row.ids[shared:] for row in rows))


def combine_rewards(row: ResponseRow, weights: Mapping[str, float]) -> tuple[float, ...]:
    """r_i = Σ_c w_c r_ic over the components that have a weight; UserError naming one that the row lacks."""
    for component in weights:
        if component not in row.rewards:
            found = f"row {row.id!r} has no reward {component!r}, only {', '.join(row.rewards)}"
            raise UserError(found, "every component that `rewards` weights", "fix the weights, or make the data again")
    return tuple(
        sum(weight * row.rewards[component][place] for component, weight in weights.items())
        for place in range(len(row.responses))
    )


def standardise(rewards: Sequence[float]) -> tuple[float, ...]:
    """Mean 0 and standard deviation 1 within the group; all 0 where all are equal.

    >>> standardise([1.0, 3.0]), standardise([2.0, 2.0])
    ((-1.0, 1.0), (0.0, 0.0))
    """
    mean, spread = fmean(rewards), pstdev(rewards)
    return tuple((reward - mean) / spread if spread > 0 else 0.0 for reward in rewards)


def split_into_groups(count: int, size: int | None, draw: random.Random) -> list[list[int]]:
    """The numbers 0 … count − 1 in random order, split into groups of `size`; a rest of one alone goes to the last group.

    >>> [len(group) for group in split_into_groups(7, 3, random.Random(0))], split_into_groups(3, None, random.Random(0))
    ([3, 4], [[0, 1, 2]])
    """
    if size is None or size >= count:
        return [list(range(count))]
    order = draw.sample(range(count), count)
    groups = [order[start : start + size] for start in range(0, count, size)]
    if len(groups[-1]) == 1:
        alone = groups.pop()
        groups[-1] += alone
    return groups


def fitting(groups: Sequence[ResponseGroup], lengths: LengthLimit, file: Path) -> list[ResponseGroup]:
    """The groups that fit whole, after a report of their lengths; UserError naming how many do not, unless they may be dropped.

    Nothing is ever cut: with the end of a response its answer and its end token would go.
    """
    over = [group for group in groups if group.longest_tokens > lengths.max_tokens]
    longest = max(group.longest_tokens for group in groups)
    if over and not lengths.drop:
        raise UserError(
            f"{file}: {len(over)} of {len(groups)} rows are longer than max_length_tokens = {lengths.max_tokens} "
            f"(the first is {over[0].id!r} with {over[0].longest_tokens} tokens, the longest has {longest})",
            "rows that fit whole",
            f"set max_length_tokens to {longest}, make shorter contexts, or set over_long to drop",
        )
    kept = [group for group in groups if group.longest_tokens <= lengths.max_tokens]
    if not kept:
        raise UserError(f"{file}: all rows are longer than {lengths.max_tokens} tokens", "rows that fit", "raise it")
    prompts, responses = (
        [len(c.tokenized.prompt) for c in kept],
        [len(r) for c in kept for r in c.tokenized.responses],
    )
    say(
        f"{file.name}: {len(kept):,} groups of {len(responses):,} responses; tokens: prompts {fmean(prompts):.0f} on "
        f"average, {max(prompts):,} at most, responses {fmean(responses):.0f} and {max(responses):,}"
        + (f"; {len(over):,} longer than {lengths.max_tokens:,} dropped" if over else "")
    )
    return kept
