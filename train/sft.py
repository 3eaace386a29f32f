"""Supervised fine-tuning on the answers of conversations: teaches reading and the answer form, and provides the reference of preference training.

Rows may have any of the formats of train/run/conversations.py. Adjacent rows with the same passages are one group, whose common prompt is
computed once (train/model/packing.py). The loss is the mean of −log π over the answer tokens of a step, end tokens included, unless refusals
are anchored (train/refusals.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from transformers import EarlyStoppingCallback, PreTrainedTokenizerBase, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

from data_synth.reading.reading_form import score_reading
from graph.answer.prompt import NOT_FOUND
from graph.errors import UserError
from train.model.load import device, load_tokenizer
from train.model.logps import TokenizedRow, check_rotation, greedy_answers, tokenize_row, tokenize_rows
from train.model.packing import LogpsOf, TokenizedGroup, choose_layout
from train.refusals import anchor_refusals, check_refusals, with_refusals
from train.run.conversations import Conversation, read_conversations
from train.run.data import check_fit, refuses
from train.run.loop import (
    GroupTrainer,
    check_start,
    load_with_adapter,
    on_one_gpu,
    run_and_save,
    run_folder,
    trainer_arguments,
)
from train.run.record import RunRecord
from train.run.settings import SftSettings

MEASURED_TOKENS = 4096
"""The maximum number of tokens in a batch of dev prompts for greedy answers, padding included; a longer prompt has a batch of its own."""


@dataclass(frozen=True)
class SftData:
    """The training groups of a run, the groups of its dev loss, the dev conversations to answer, and, if refusals are anchored, the tokens of a refusal."""

    train: list[TokenizedGroup]
    dev: list[TokenizedGroup]
    dev_rows: list[Conversation]
    refusal: tuple[int, ...] = ()


def train_sft(settings: SftSettings) -> RunRecord:
    """From settings to a finished run at `settings.output`; UserError before the first step for bad input."""
    check_start(settings)
    tokenizer = load_tokenizer(settings.model)
    data = read_sft_data(settings, tokenizer)
    with run_folder(settings, "sft") as folder:
        return run_and_save(sft_trainer(settings, data, tokenizer, folder), "sft", settings, folder)


def read_sft_data(settings: SftSettings, tokenizer: PreTrainedTokenizerBase) -> SftData:
    """The groups of train.jsonl and dev.jsonl; UserError for an unusable or over-long row, for `eval_steps` without dev rows, and as in `check_refusals`."""
    folder = Path(settings.data)
    dev_file = folder / "dev.jsonl"
    train = read_conversations(folder / "train.jsonl")
    dev = read_conversations(dev_file) if dev_file.exists() else []
    if settings.eval_steps is not None and not dev:
        found = f"eval_steps = {settings.eval_steps} without {dev_file}"
        raise UserError(found, "dev rows to answer", "add the file, or unset eval_steps")

    def groups(rows: Sequence[Conversation], file: Path) -> list[TokenizedGroup]:
        tokenized = tokenize_rows(tokenizer, [(row.prompt, row.completion) for row in rows])
        check_fit([len(row.ids) for row in tokenized], settings.max_length_tokens, file)
        max_tokens = settings.group_tokens or settings.max_length_tokens
        return share_prefixes(tokenized, [row.context for row in rows], max_tokens)

    dev_groups = evenly_spaced_rows(groups(dev, dev_file), settings.eval_rows)
    data = SftData(groups(train, folder / "train.jsonl"), dev_groups, evenly_spaced_rows(dev, settings.eval_rows))
    if not settings.anchor_refusals:
        return data
    refusal = tokenize_row(tokenizer, train[0].prompt, NOT_FOUND).completion
    train_groups = [with_refusals(group, refusal[0]) for group in data.train]
    check_refusals(train_groups, refusal, sum(refuses(row.completion) for row in train))
    return replace(data, train=train_groups, refusal=refusal)


def evenly_spaced_rows(rows: Sequence[Any], count: int) -> list[Any]:
    """`count` evenly spaced rows, because the first rows may all come from one dataset.

    >>> evenly_spaced_rows("abcdefg", 3), evenly_spaced_rows("ab", 3)
    (['a', 'c', 'e'], ['a', 'b'])
    """
    return [rows[len(rows) * number // count] for number in range(count)] if count < len(rows) else list(rows)


def share_prefixes(
    rows: Sequence[TokenizedRow], contexts: Sequence[tuple[str, ...]], max_tokens: int
) -> list[TokenizedGroup]:
    """Rows as groups: consecutive rows with the same passages and a common beginning are one group, up to `max_tokens`; any other row is a group of its own."""
    groups: list[TokenizedGroup] = []
    pending: list[TokenizedRow] = []
    shared = 0
    previous: tuple[str, ...] = ()
    for row, context in zip(rows, contexts, strict=True):
        if pending:
            common = min(shared, _common(pending[0], row))
            total = common + sum(len(member.ids) - common for member in (*pending, row))
            if context and context == previous and common and total <= max_tokens:
                pending.append(row)
                shared = common
                continue
            groups.append(_group(pending, shared))
        pending, shared, previous = [row], row.prompt_tokens, context
    return [*groups, _group(pending, shared)] if pending else groups


def _common(one: TokenizedRow, other: TokenizedRow) -> int:
    """The number of common tokens at the start of two prompts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.prompt, other.prompt, strict=False)))


def _group(rows: Sequence[TokenizedRow], shared: int) -> TokenizedGroup:
    responses = tuple(row.ids[shared:] for row in rows)
    return TokenizedGroup(rows[0].ids[:shared], responses, tuple(row.prompt_tokens - shared for row in rows))


LossOf = Callable[[Any, Sequence[TokenizedGroup]], Tensor]
"""Maps a model and groups to their summed loss."""
SizeOf = Callable[[Sequence[TokenizedGroup]], float]
"""Maps groups to the number by which their summed loss is divided; the numbers of the batches of a step are added."""


class SftTrainer(GroupTrainer):
    """A trainer over groups; its dev figures are the exact mean of −log π and those of `measure`, from answers to dev rows."""

    def __init__(
        self,
        logps_of: LogpsOf,
        loss_of: LossOf,
        size_of: SizeOf,
        measure: Callable[[Any], Mapping[str, float]] | None,
        **arguments: Any,
    ) -> None:
        super().__init__(logps_of, **arguments)
        # `compute_loss` divides by the size of the step, so the Trainer must not divide by the accumulation.
        self.model_accepts_loss_kwargs = True
        self.loss_of, self.size_of, self.measure = loss_of, size_of, measure
        self._dev_losses: list[tuple[float, int]] = []

    def _get_num_items_in_batch(self, batch_samples: Sequence[Any], device: torch.device) -> Tensor:
        """The size of all batches of a step, in all processes, which the Trainer passes to `compute_loss`."""
        size = torch.tensor(float(sum(map(self.size_of, batch_samples))), device=device)
        sizes: Tensor = self.accelerator.gather(size)
        return sizes.sum()

    def compute_loss(self, model: Any, inputs: Any, num_items_in_batch: Any = None, **_: Any) -> Tensor:
        """A batch's part of the loss of its step; by default, the batch is the whole step. The factor undoes the averaging of gradients over processes."""
        size = self.size_of(inputs) if num_items_in_batch is None else num_items_in_batch
        scale: float | Tensor = self.accelerator.num_processes / size
        return self.loss_of(model, inputs) * scale

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, None, None]:
        """The loss of one batch of dev groups; there are no logits to gather."""
        with torch.no_grad():
            logps_R = self.logps_of(model, inputs)
        sums = [float(logps.sum()) for logps in torch.split(logps_R, [len(group.responses) for group in inputs])]
        losses = [(-total, group.scored_tokens) for total, group in zip(sums, inputs, strict=True)]
        self._dev_losses += self.accelerator.gather_for_metrics(losses, use_gather_object=True)
        return -logps_R.sum() / answer_tokens(inputs), None, None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """The dev loss, a mean over all tokens, and the figures of the answers."""
        self._dev_losses = []
        output = super().evaluation_loop(*args, **kwargs)
        loss, tokens = (sum(column) for column in zip(*self._dev_losses, strict=True))
        output.metrics["eval_loss"] = loss / tokens
        if self.measure is not None:
            output.metrics.update({f"eval_{name}": value for name, value in self.measure(self.model).items()})
        return output


def answer_tokens(groups: Sequence[TokenizedGroup]) -> int:
    """The number of scored tokens in the groups: those of answers, and the refusal tokens of `with_refusals`."""
    return sum(group.scored_tokens for group in groups)


def sft_trainer(settings: SftSettings, data: SftData, tokenizer: PreTrainedTokenizerBase, folder: Path) -> SftTrainer:
    """The trainer of the model with its adapter; with `eval_steps`, training ends by loading the checkpoint with the best F1."""
    model = load_with_adapter(settings, tokenizer)
    groups = [*data.train, *data.dev]
    longest = [len(group.prompt) + max(map(len, group.responses)) for group in groups]
    check_rotation(model.config, longest)
    model.to(device())
    is_measured = settings.eval_steps is not None
    arguments = trainer_arguments(settings, folder) | (best_checkpoint_arguments(settings) if is_measured else {})
    logps_of = choose_layout(model, max(longest), None)
    trainer = SftTrainer(
        logps_of,
        loss_of(settings, data, model, logps_of),
        size_of(settings, data),
        (lambda model: reading_figures(model, tokenizer, data.dev_rows)) if is_measured else None,
        model=model,
        args=on_one_gpu(TrainingArguments(**arguments, remove_unused_columns=False)),
        train_dataset=data.train,
        eval_dataset=data.dev or None,
        processing_class=tokenizer,
    )
    if settings.patience is not None:
        trainer.add_callback(EarlyStoppingCallback(settings.patience))
    return trainer


def loss_of(settings: SftSettings, data: SftData, model: Any, logps_of: LogpsOf) -> LossOf:
    """The training loss: −log π of the answers, or that of train/refusals.py, anchored at the current model."""
    if settings.anchor_refusals:
        return anchor_refusals(model, data.train, data.refusal, logps_of)
    return lambda model, groups: -logps_of(model, groups).sum()


def size_of(settings: SftSettings, data: SftData) -> SizeOf:
    """The number of scored tokens, so that a loss is a mean over tokens; with anchored refusals, the mean number per group times the number of groups.

    Every row then has the same weight in all steps. Otherwise refusals, which are short, would weigh more in small steps.
    """
    if not settings.anchor_refusals:
        return answer_tokens
    mean_tokens = answer_tokens(data.train) / len(data.train)
    return lambda groups: len(groups) * mean_tokens


def best_checkpoint_arguments(settings: SftSettings) -> dict[str, Any]:
    """The Trainer's arguments for measuring every `eval_steps` and keeping the last checkpoint and the one with the best F1."""
    return {
        "eval_strategy": "steps",
        "eval_steps": settings.eval_steps,
        "save_strategy": "steps",
        "save_steps": settings.save_steps or settings.eval_steps,
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "f1",
        "greater_is_better": True,
    }


def reading_figures(model: Any, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Conversation]) -> dict[str, float]:
    """The figures of greedy answers: exact match, F1, and, of the exact answers to rows with gold passages, the share that cites only these passages."""
    prompts = tokenize_rows(tokenizer, [(row.prompt, row.completion) for row in rows])
    limit = 2 * max(len(row.completion) for row in prompts)
    order = sorted(range(len(rows)), key=lambda row_number: prompts[row_number].prompt_tokens)
    scores = []
    while order:
        longest = prompts[order[-1]].prompt_tokens
        size = max(1, MEASURED_TOKENS // longest)
        batch, order = order[-size:], order[:-size]
        batch_prompts = [prompts[row_number].prompt for row_number in batch]
        for row_number, ids in zip(batch, greedy_answers(model, tokenizer, batch_prompts, limit), strict=True):
            row, text = rows[row_number], tokenizer.decode(ids, skip_special_tokens=True)
            scores.append((row, score_reading(text, row.answers, row.gold, len(row.context))))
    cited = [score.cites_gold for row, score in scores if row.gold and score.exact]
    figures = {"exact": fmean(score.exact for _, score in scores), "f1": fmean(score.f1 for _, score in scores)}
    return figures | ({"cites_gold": fmean(cited)} if cited else {})
