"""Training with transformers' Trainer on K responses per prompt: batches, loss, logging, and samples of the policy.

The Trainer provides learning-rate schedules, gradient accumulation, mixed precision, multi-process training and checkpoints; a batch here is a list of
response groups, which `logps_of` lays out and scores. Every `sample_steps` steps, greedy answers to a few dev prompts are measured for length and
repetition, which the loss does not reveal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_utils import EvalLoopOutput

from train.model.logps import TokenIds, greedy_answers
from train.model.packing import LogpsOf
from train.preference.groups import ResponseGroup
from train.preference.losses import Objective, mean_figures, prompt_losses
from train.run.loop import GroupTrainer

SAMPLED_PROMPTS = 8
GRAM_TOKENS = 4


class GenerationCallback(TrainerCallback):  # type: ignore[misc]
    """Every `every_steps` steps, answers the first dev prompts and passes figures of the answers to `note`.

    An answer has at most twice as many tokens as the longest dev response; prompt and answer together have at most `max_length_tokens`.
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
        """After every `every_steps` steps, answer the prompts and log a row immediately."""
        if state.global_step % self.every_steps == 0:
            answers = greedy_answers(model, self.tokenizer, self.prompts, self.limit_tokens)
            self.note(generation_figures(answers, self.tokenizer.eos_token_id))
            control.should_log = True


def generation_figures(answers: Sequence[TokenIds], end_id: int) -> dict[str, float]:
    """Mean number of tokens per answer, including the end token; the share of answers without an end token; the mean share of repeated 4-grams."""
    return {
        "generation/tokens": fmean(len(answer) for answer in answers),
        "generation/cut_share": fmean(answer[-1] != end_id for answer in answers),
        "generation/repeated_share": fmean(repeated_share(answer) for answer in answers),
    }


def repeated_share(ids: TokenIds) -> float:
    """1 − distinct 4-grams / 4-grams of a text (seq-rep-4 of Welleck et al. 2020); 0 without 4-grams.

    >>> repeated_share((1, 2, 1, 2, 1, 2, 1)), repeated_share((7, 7, 7))
    (0.5, 0.0)
    """
    grams = [ids[start : start + GRAM_TOKENS] for start in range(len(ids) - GRAM_TOKENS + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True)
class Example:
    """A group and log π_ref of its responses: float32[K]."""

    group: ResponseGroup
    reference_K: Tensor


class ResponseGroupTrainer(GroupTrainer):
    """A trainer whose examples are `Example`s and whose loss is an `Objective`; `figures` are those of the policy before the first step."""

    def __init__(self, objective: Objective, logps_of: LogpsOf, figures: Mapping[str, float], **arguments: Any) -> None:
        super().__init__(logps_of, **arguments)
        self.objective = objective
        self.first_figures = figures
        self._figures: list[Mapping[str, float]] = []
        self._dev_figures: list[Mapping[str, float]] = []

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Tensor:
        """Mean loss over the prompts of a batch."""
        losses_Q, figures = self._prompt_losses(model, inputs)
        for each in figures:
            self.note(each)
        return losses_Q.mean()

    def note(self, figures: Mapping[str, float]) -> None:
        """Add figures to the next row of the log, which has the means over all figures since the last row."""
        self._figures.append(figures)

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, None, None]:
        """The loss of one batch of dev rows; there are no logits to gather."""
        with torch.no_grad():
            losses_Q, figures = self._prompt_losses(model, inputs)
        self._dev_figures += self.accelerator.gather_for_metrics(figures, use_gather_object=True)
        return losses_Q.mean(), None, None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """The dev loss and the figures of the dev rows: means over the prompts of all batches and processes."""
        self._dev_figures = []
        output = super().evaluation_loop(*args, **kwargs)
        output.metrics.update({f"eval_{name}": value for name, value in mean_figures(self._dev_figures).items()})
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """To the log of a training step, add the means of the figures noted since the last row, over all processes."""
        if "loss" in logs:
            logs = {**logs, **mean_figures(gather_object(self._figures))}
            self._figures = []
        super().log(logs, start_time)

    def _prompt_losses(self, model: Any, inputs: Sequence[Example]) -> tuple[Tensor, list[dict[str, float]]]:
        logps_R = self.logps_of(model, [example.group.tokenized for example in inputs])
        rewards = [reward for example in inputs for reward in example.group.rewards]
        return prompt_losses(
            self.objective,
            logps_R,
            torch.cat([example.reference_K for example in inputs]).to(logps_R.device),
            torch.tensor(rewards, device=logps_R.device),
            [len(example.group.rewards) for example in inputs],
        )
