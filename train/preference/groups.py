"""Turns rows into the groups that preference training compares: a prompt, K responses as token ids, and the reward of each.

Pairs are K = 2, with rewards whose softmax is the label; the scored responses of a prompt, with weighted rewards, are split into groups of K."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from transformers import PreTrainedTokenizerBase

from data_synth.rows import PreferenceRow, ResponseRow
from graph.errors import UserError
from graph.shared.console import say
from graph.shared.ids import content_id
from graph.types import Message
from train.model.logps import tokenize_rows
from train.model.packing import TokenizedGroup

REWARD_DECIMALS = 12
"""Decimals of a combined reward: sums that differ only by rounding, such as 0.1 + 0.2 and 0.3, are equal."""


@dataclass(frozen=True)
class ResponseGroup:
    """One prompt with K responses, and the reward r_i of each. The rewards of a pair are the logarithms of the two label probabilities."""

    id: str
    tokenized: TokenizedGroup
    rewards: tuple[float, ...]

    @property
    def longest_tokens(self) -> int:
        """Tokens of the prompt with its longest response."""
        return len(self.tokenized.prompt) + max(map(len, self.tokenized.responses))


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
    weights: Mapping[str, float],
    standardised: bool,
    size: int | None,
    seed: int,
) -> Iterator[ResponseGroup]:
    """The scored responses of each prompt, split at random, by `seed`, into groups of `size` (None: one group).

    Rewards are combined with `weights` and, if `standardised`, standardised per prompt.
    """
    for row in rows:
        rewards = combine_rewards(row, weights)
        rewards = standardise(rewards) if standardised else rewards
        rng = random.Random(content_id(str(seed), row.id))
        for number, members in enumerate(split_into_groups(len(row.responses), size, rng)):
            tokenized = tokenize_members(tokenizer, row, members)
            yield ResponseGroup(f"{row.id}/{number}", tokenized, tuple(rewards[member] for member in members))


def best_worst_groups(
    rows: Sequence[ResponseRow],
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, float],
    label_smoothing: float,
) -> Iterator[ResponseGroup]:
    """A pair of each prompt's best- and worst-rewarded response (on a tie, the first), with the label (1 − ε, ε).

    A prompt whose rewards are all equal yields no pair.
    """
    for row in rows:
        rewards = combine_rewards(row, weights)
        best, worst = rewards.index(max(rewards)), rewards.index(min(rewards))
        if best != worst:
            yield ResponseGroup(row.id, tokenize_members(tokenizer, row, (best, worst)), hard_label(label_smoothing))


def hard_label(label_smoothing: float) -> tuple[float, float]:
    """Rewards whose softmax is the label (1 − ε, ε) at β_r = 1; ε = 0 is a hard label.

    >>> hard_label(0.5) == (math.log(0.5), math.log(0.5)), hard_label(0.0)[1]
    (True, -inf)
    """
    return math.log1p(-label_smoothing), math.log(label_smoothing) if label_smoothing > 0 else -math.inf


def tokenize_members(tokenizer: PreTrainedTokenizerBase, row: ResponseRow, members: Sequence[int]) -> TokenizedGroup:
    """The prompt of a row with those of its responses whose numbers are in `members`."""
    cut = [place for place, member in enumerate(members) if member in row.cut]
    return tokenize_group(tokenizer, row.prompt, [row.responses[member] for member in members], cut)


def tokenize_group(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], responses: Sequence[str], cut: Collection[int] = ()
) -> TokenizedGroup:
    """A chat prompt and its responses, split at the end of their common prompt tokens; each has its end token, except those numbered in `cut`."""
    rows = tokenize_rows(tokenizer, [(prompt, response) for response in responses])
    shared = min(row.prompt_tokens for row in rows)
    texts = tuple(row.ids[shared : len(row.ids) - (number in cut)] for number, row in enumerate(rows))
    return TokenizedGroup(rows[0].ids[:shared], texts)


def combine_rewards(row: ResponseRow, weights: Mapping[str, float]) -> tuple[float, ...]:
    """r_i = Σ_c w_c r_ic over the components whose weight is not 0; UserError naming one that the row lacks."""
    weights = nonzero_weights(weights)
    for component in weights:
        if component not in row.rewards:
            found = f"row {row.id!r} has no reward {component!r}, only {', '.join(row.rewards)}"
            expected = "every component with a weight in `rewards`"
            raise UserError(found, expected, "fix the weights, or make the data again")
    return tuple(
        round(sum(weight * row.rewards[component][response] for component, weight in weights.items()), REWARD_DECIMALS)
        for response in range(len(row.responses))
    )


def nonzero_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights that are not 0."""
    return {component: weight for component, weight in weights.items() if weight}


def standardise(rewards: Sequence[float]) -> tuple[float, ...]:
    """The rewards, all of one prompt, shifted and scaled to mean 0 and standard deviation 1; all 0 if they are equal.

    >>> standardise([1.0, 3.0]), standardise([2.0, 2.0])
    ((-1.0, 1.0), (0.0, 0.0))
    """
    mean, deviation = fmean(rewards), pstdev(rewards)
    return tuple((reward - mean) / deviation if deviation > 0 else 0.0 for reward in rewards)


def split_into_groups(count: int, size: int | None, rng: random.Random) -> list[list[int]]:
    """The numbers 0 … count − 1 in random order, in groups of `size` (a single remaining one joins the last); all in order if they fit one group.

    >>> [len(group) for group in split_into_groups(7, 3, random.Random(0))], split_into_groups(3, None, random.Random(0))
    ([3, 4], [[0, 1, 2]])
    """
    if size is None or size >= count:
        return [list(range(count))]
    order = rng.sample(range(count), count)
    groups = [order[start : start + size] for start in range(0, count, size)]
    if len(groups[-1]) == 1:
        alone = groups.pop()
        groups[-1] += alone
    return groups


def groups_within(groups: Sequence[ResponseGroup], max_tokens: int, drop: bool, file: Path) -> list[ResponseGroup]:
    """The groups of at most `max_tokens`, after a report of their lengths; UserError if some are longer, unless `drop`, or if all are.

    Nothing is truncated: that would remove a response's answer and its end token.
    """
    too_long = [group for group in groups if group.longest_tokens > max_tokens]
    lengths = [group.longest_tokens for group in groups]
    longest = max(lengths)
    if too_long and not drop:
        raise UserError(
            f"{file}: {len(too_long)} of {len(groups)} rows are longer than max_length_tokens = {max_tokens} "
            f"(the first is {too_long[0].id!r} with {too_long[0].longest_tokens} tokens, the longest has {longest})",
            "rows within this limit",
            f"set max_length_tokens to {longest}, shorten the contexts, or set over_long to drop",
        )
    short_enough = [group for group in groups if group.longest_tokens <= max_tokens]
    if not short_enough:
        found = f"{file}: all rows are longer than {max_tokens} tokens (the shortest has {min(lengths)})"
        raise UserError(found, "some rows within this limit", "raise max_length_tokens")
    prompts = [len(group.tokenized.prompt) for group in short_enough]
    responses = [len(response) for group in short_enough for response in group.tokenized.responses]
    say(
        f"{file.name}: {len(short_enough):,} groups, {len(responses):,} responses in all; tokens: prompts {fmean(prompts):.0f} on "
        f"average, {max(prompts):,} at most, responses {fmean(responses):.0f} on average, {max(responses):,} at most"
        + (f"; {len(too_long):,} longer than {max_tokens:,} dropped" if too_long else "")
    )
    return short_enough
