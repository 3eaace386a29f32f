"""Conversations of a run in the tokens of training, and what its model says along given tokens: an export and a server are compared by them.

Legend: N completion tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import tensor
from transformers import PreTrainedTokenizerBase

from graph.shared.types import Message
from graph.text.special_tokens import escape_special_tokens
from train.export.divergence import probe_turns, row_logps
from train.model.logps import TokenizedRow, tokenize_row
from train.shared.types import RunRecord

REPLY_TOKENS = 24
"""Tokens of a greedy reply that are compared, at most."""


@dataclass(frozen=True)
class Conversation:
    """A prompt as it is sent, and its tokens with those of the answer that training used."""

    messages: tuple[Message, ...]
    row: TokenizedRow

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens of the prompt."""
        return self.row.ids[: self.row.prompt_tokens]

    def answered_by(self, ids: Sequence[int]) -> TokenizedRow:
        """The prompt with another answer."""
        return TokenizedRow((*self.prompt, *ids), self.row.prompt_tokens)


@dataclass(frozen=True)
class Along:
    """What the run says along the tokens of one row: their log-probabilities, and how much likelier its own first choice is, in nats."""

    logps: tuple[float, ...]
    behind: tuple[float, ...]


def read_conversations(
    record: RunRecord, tokenizer: PreTrainedTokenizerBase, number: int
) -> tuple[str, list[Conversation]]:
    """The first `number` distinct conversations of the run's dev rows, and where they stand (see `probe_turns`)."""
    measured_on, turns = probe_turns(record)
    distinct = list(dict.fromkeys((tuple(messages), text) for messages, text in turns))[:number]
    return measured_on, [
        Conversation(
            tuple(Message(turn.role, escape_special_tokens(turn.content, tokenizer)) for turn in messages),
            tokenize_row(tokenizer, messages, text),
        )
        for messages, text in distinct
    ]


def along(model: Any, row: TokenizedRow) -> Along:
    """What a model in evaluation mode says of a row's completion."""
    logps_NV = row_logps(model, row)
    own_N = logps_NV.gather(1, tensor(row.ids[row.prompt_tokens :])[:, None])[:, 0]
    return Along(tuple(own_N.tolist()), tuple((logps_NV.amax(-1) - own_N).tolist()))


def first_difference(ours: Sequence[int], theirs: Sequence[int], tokenizer: Any) -> tuple[int, str, str]:
    """Where two sequences of tokens part, counted from 1, and the next tokens of each as text."""
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    here, there = (repr(tokenizer.decode(list(ids[place : place + 4]))) for ids in (ours, theirs))
    return place + 1, here, there
