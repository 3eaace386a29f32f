"""What the policy writes while it learns: greedy answers to a few dev prompts, watched for length and repetition.

A loss says nothing of it: a policy that has lost its end token or circles in one phrase may well rank the given responses
right. Called by the trainer every `sample_steps` steps; its figures stand in the log beside the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback

from train.model.greedy import TokenIds, greedy_answers
from train.preference.response_groups import ResponseGroup

SAMPLED_PROMPTS = 8
GRAM_TOKENS = 4


class GenerationCallback(TrainerCallback):  # type: ignore[misc]
    """Every `every_steps` steps, answers the first dev prompts and has `note` log how that went.

    An answer may take twice the tokens of the longest response at hand, but never more than `max_length_tokens` leaves it.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        dev: Sequence[ResponseGroup],
        every_steps: int,
        max_length_tokens: int,
        note: Callable[[Mapping[str, float]], None],
    ) -> None:
        self.tokenizer = tokenizer
        self.prompts = list(dict.fromkeys(group.tokenized.prompt for group in dev))[:SAMPLED_PROMPTS]
        longest = max(len(response) for group in dev for response in group.tokenized.responses)
        self.limit_tokens = min(2 * longest, max_length_tokens - max(map(len, self.prompts)))
        self.every_steps = every_steps
        self.note = note

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """After the steps that are due, a row is logged at once."""
        if state.global_step % self.every_steps == 0:
            answers = greedy_answers(model, self.tokenizer, self.prompts, self.limit_tokens)
            self.note(generation_figures(answers, self.tokenizer.eos_token_id))
            control.should_log = True


def generation_figures(answers: Sequence[TokenIds], end_id: int) -> dict[str, float]:
    """Mean tokens of an answer, its end token included; the share that did not end; the mean share of repeated 4-grams."""
    return {
        "generation/tokens": fmean(len(answer) for answer in answers),
        "generation/cut_share": fmean(answer[-1] != end_id for answer in answers),
        "generation/repeated_share": fmean(repeated_share(answer) for answer in answers),
    }


def repeated_share(ids: TokenIds) -> float:
    """1 − distinct 4-grams / 4-grams of a text (seq-rep-4 of Welleck et al. 2020); 0 where there is none.

    >>> repeated_share((1, 2, 1, 2, 1, 2, 1)), repeated_share((7, 7, 7))
    (0.5, 0.0)
    """
    grams = [ids[start : start + GRAM_TOKENS] for start in range(len(ids) - GRAM_TOKENS + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
