"""From rows to what preference training compares: a prompt, K responses as token ids, and the reward of each.

Pairs are K = 2, with rewards whose softmax is the label; scored responses have weighted rewards, and those of a prompt are dealt into groups of K.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from transformers import PreTrainedTokenizerBase

from data_synth.types import PreferenceRow, ResponseRow
from graph.shared.console import say
from graph.shared.errors import UserError
from graph.shared.ids import content_id
from graph.shared.types import Message
from train.model.logps import tokenize_row
from train.model.packing import Group


@dataclass(frozen=True)
class Choice:
    """One prompt with K responses, and r_i of each. A hard label's rewards are the logarithms of its shares."""

    id: str
    group: Group
    rewards: tuple[float, ...]

    @property
    def longest_tokens(self) -> int:
        """Tokens of the prompt with its longest response."""
        return len(self.group.prompt) + max(map(len, self.group.responses))


@dataclass(frozen=True)
class Lengths:
    """What is done with rows whose prompt and longest response together are over `max_tokens`: refused, or dropped and counted."""

    max_tokens: int
    drop: bool


def pair_choices(
    rows: Sequence[PreferenceRow], tokenizer: PreTrainedTokenizerBase, label_smoothing: float
) -> Iterator[Choice]:
    """Pairs as K = 2 with the label (1 − ε, ε): rewards (log(1 − ε), log ε) at β_r = 1; ε = 0 is a hard label."""
    rewards = (math.log1p(-label_smoothing), math.log(label_smoothing) if label_smoothing > 0 else -math.inf)
    for row in rows:
        yield Choice(row.id, tokenize_group(tokenizer, row.prompt, (row.chosen, row.rejected)), rewards)


def response_choices(
    rows: Sequence[ResponseRow],
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, float],
    standardised: bool,
    size: int | None,
    seed: int,
) -> Iterator[Choice]:
    """Scored responses, those of each prompt dealt by `seed` into groups of `size` (None: all in one)."""
    for row in rows:
        rewards = combine_rewards(row, weights)
        rewards = standardise(rewards) if standardised else rewards
        for number, places in enumerate(deal(len(row.responses), size, random.Random(content_id(str(seed), row.id)))):
            group = tokenize_group(tokenizer, row.prompt, [row.responses[place] for place in places])
            yield Choice(f"{row.id}/{number}", group, tuple(rewards[place] for place in places))


def tokenize_group(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], responses: Sequence[str]) -> Group:
    """A chat prompt and its responses, each with its end token, cut where all of them leave the prompt's tokens."""
    rows = [tokenize_row(tokenizer, prompt, response) for response in responses]
    shared = min(row.prompt_tokens for row in rows)
    return Group(rows[0].ids[:shared], tuple(row.ids[shared:] for row in rows))


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


def deal(count: int, size: int | None, draw: random.Random) -> list[list[int]]:
    """The numbers 0 … count − 1 in random order, dealt into groups of `size`; a rest of one alone goes to the last group.

    >>> [len(group) for group in deal(7, 3, random.Random(0))], deal(3, None, random.Random(0))
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


def fitting(choices: Sequence[Choice], lengths: Lengths, file: Path) -> list[Choice]:
    """The choices that fit whole, after a report of their lengths; UserError naming how many do not, unless they may be dropped.

    Nothing is ever cut: with the end of a response its answer and its end token would go.
    """
    over = [choice for choice in choices if choice.longest_tokens > lengths.max_tokens]
    longest = max(choice.longest_tokens for choice in choices)
    if over and not lengths.drop:
        raise UserError(
            f"{file}: {len(over)} of {len(choices)} rows are longer than max_length_tokens = {lengths.max_tokens} "
            f"(the first is {over[0].id!r} with {over[0].longest_tokens} tokens, the longest has {longest})",
            "rows that fit whole",
            f"set max_length_tokens to {longest}, make shorter contexts, or set over_long to drop",
        )
    kept = [choice for choice in choices if choice.longest_tokens <= lengths.max_tokens]
    if not kept:
        raise UserError(f"{file}: all rows are longer than {lengths.max_tokens} tokens", "rows that fit", "raise it")
    prompts, responses = ([len(c.group.prompt) for c in kept], [len(r) for c in kept for r in c.group.responses])
    say(
        f"{file.name}: {len(kept):,} choices among {len(responses):,} responses; tokens: prompts {fmean(prompts):.0f} on "
        f"average, {max(prompts):,} at most, responses {fmean(responses):.0f} and {max(responses):,}"
        + (f"; {len(over):,} longer than {lengths.max_tokens:,} dropped" if over else "")
    )
    return kept
