"""The training rows of each stage, and its trainer on a subset of them, in one form for all stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from train.model.load import Head, load_tokenizer
from train.model.logps import HEAD_CHUNK_TOKENS, greedy_answers
from train.model.packing import TokenizedGroup
from train.plan.flops import Work, packed_work, plain_work, text_work, total
from train.preference.groups import ResponseGroup
from train.preference.preference import (
    PreferenceData,
    method_of,
    read_preference_data,
    response_group_trainer,
    trl_trainer,
)
from train.preference.reference import merge, shared_passes
from train.preference.trainer import GenerationCallback
from train.reward import reward_trainer
from train.run.data import Splits, check_lengths, read_splits, tokenized_pairs
from train.run.loop import TrainingInputs, load_start
from train.run.settings import WITHOUT_REFERENCE, DpoSettings, MsSettings, RewardSettings, SftSettings, TrainSettings
from train.sft import read_sft_data, reading_figures, sft_trainer

SETTINGS: dict[str, type[TrainSettings]] = {
    "sft": SftSettings,
    "ms": MsSettings,
    "dpo": DpoSettings,
    "reward": RewardSettings,
}


@dataclass(frozen=True)
class Job:
    """A stage's rows as groups of a prompt and its completions.

    `trainer_of` makes the stage's trainer for the training rows with the given numbers, from settings of the stage's class.
    `reference_groups` are scored without gradients before training; `reference_forwards` is the number of further forward passes over each
    row of a step, and with `reference_in_dev` also over each dev row. `copies` is the number of copies of the trained weights in memory.
    A batch that predicts more than `max_stored_logits` tokens recomputes its logits. `answer_dev` has a model answer dev prompts greedily, as the run
    does every `eval_steps` or `sample_steps`; None if neither is set.
    """

    train: Sequence[TokenizedGroup]
    dev: Sequence[TokenizedGroup]
    trainer_of: Callable[[Sequence[int], Any, Path], Any]
    packs: bool = False
    row_tokens: int | None = None
    reference_groups: Sequence[TokenizedGroup] = ()
    reference_forwards: int = 0
    reference_in_dev: bool = False
    copies: int = 1
    head: Head = "tokens"
    max_stored_logits: int = 0
    answer_dev: Callable[[Any], object] | None = None

    def work(self, group: TokenizedGroup, packed: bool) -> Work:
        """The work of one row."""
        if self.head == "score":
            return total(text_work(len(group.prompt) + len(response), 1) for response in group.responses)
        return packed_work(group) if packed else plain_work(group)


def job_of(settings: TrainSettings) -> Job:
    """The job of `settings`; UserError as in the stage's own command, such as for rows that are too long."""
    tokenizer = load_tokenizer(settings.model)
    if isinstance(settings, MsSettings | DpoSettings):
        is_trl = settings.trainer == "trl"
        return _trl_job(settings, tokenizer) if is_trl else _preference_job(settings, tokenizer)
    if isinstance(settings, RewardSettings):
        return _reward_job(settings, tokenizer)
    assert isinstance(settings, SftSettings)
    return _sft_job(settings, tokenizer)


def _preference_job(settings: MsSettings | DpoSettings, tokenizer: Any) -> Job:
    data = read_preference_data(settings, tokenizer)
    passes = 1 if settings.reference is None else 2  # if the reference is another model, the policy is scored, too
    is_cached = settings.reference_cache is not None and Path(settings.reference_cache).exists()

    def trainer_of(rows: Sequence[int], some_settings: MsSettings | DpoSettings, folder: Path) -> Any:
        part = PreferenceData([data.train[row] for row in rows], [], data.pairs)
        return response_group_trainer(some_settings, method_of(some_settings), part, tokenizer, folder)

    answer_dev = None
    if settings.sample_steps is not None:
        sampled = GenerationCallback(
            tokenizer, data.dev, settings.sample_steps, settings.max_length_tokens, lambda _: None
        )
        answer_dev = partial(
            greedy_answers, tokenizer=tokenizer, prompts=sampled.prompts, limit_tokens=sampled.limit_tokens
        )
    return Job(
        train=[group.tokenized for group in data.train],
        dev=[group.tokenized for group in data.dev],
        trainer_of=trainer_of,
        packs=settings.layout == "packed",
        row_tokens=settings.row_tokens,
        max_stored_logits=HEAD_CHUNK_TOKENS,
        reference_groups=reference_passes([*data.train, *data.dev], settings.batch_size) * (passes - is_cached),
        answer_dev=answer_dev,
    )


def reference_passes(groups: Sequence[ResponseGroup], groups_per_pass: int) -> list[TokenizedGroup]:
    """The groups that the reference scores (train/preference/reference.py): those of one prompt in a pass are merged."""
    return [
        merge([groups[number].tokenized for number in numbers])
        for one_pass in shared_passes(groups, groups_per_pass)
        for numbers in one_pass
    ]


def _trl_job(settings: MsSettings | DpoSettings, tokenizer: Any) -> Job:
    """TRL computes the log-probabilities of a reference again in every batch: with a frozen copy of the trained weights, or the base below a new adapter."""
    splits = _read_splits_that_fit(settings, tokenizer)

    def trainer_of(rows: Sequence[int], some_settings: MsSettings | DpoSettings, folder: Path) -> Any:
        return trl_trainer(some_settings, _start(some_settings, splits, rows, tokenizer), folder)

    forwards = 0 if isinstance(settings, DpoSettings) and settings.loss in WITHOUT_REFERENCE else 1
    copies = 2 if forwards and settings.lora is None else 1
    return Job(
        *_groups(splits, tokenizer), trainer_of, reference_forwards=forwards, reference_in_dev=True, copies=copies
    )


def _sft_job(settings: SftSettings, tokenizer: Any) -> Job:
    data = read_sft_data(settings, tokenizer)

    def trainer_of(rows: Sequence[int], some_settings: SftSettings, folder: Path) -> Any:
        part = replace(data, train=[data.train[row] for row in rows], dev=[], dev_rows=[])
        return sft_trainer(some_settings, part, tokenizer, folder)

    return Job(
        data.train,
        data.dev,
        trainer_of,
        packs=True,
        reference_forwards=int(settings.anchor_refusals),
        max_stored_logits=HEAD_CHUNK_TOKENS,
        answer_dev=None
        if settings.eval_steps is None
        else partial(reading_figures, tokenizer=tokenizer, rows=data.dev_rows),
    )


def _reward_job(settings: RewardSettings, tokenizer: Any) -> Job:
    splits = _read_splits_that_fit(settings, tokenizer)

    def trainer_of(rows: Sequence[int], some_settings: RewardSettings, folder: Path) -> Any:
        return reward_trainer(some_settings, _start(some_settings, splits, rows, tokenizer, "score"), folder)

    return Job(*_groups(splits, tokenizer), trainer_of, head="score")


def _read_splits_that_fit(settings: TrainSettings, tokenizer: Any) -> Splits:
    splits = read_splits(Path(settings.data))
    check_lengths(splits, tokenizer, settings.max_length_tokens, Path(settings.data))
    return splits


def _start(
    settings: TrainSettings, splits: Splits, rows: Sequence[int], tokenizer: Any, head: Head = "tokens"
) -> TrainingInputs:
    part = Splits(tuple(splits.train[row] for row in rows), ())
    return TrainingInputs(part, tokenizer, load_start(settings, tokenizer, head))


def _groups(splits: Splits, tokenizer: Any) -> tuple[list[TokenizedGroup], list[TokenizedGroup]]:
    train, dev = (
        [
            TokenizedGroup(chosen.prompt, (chosen.completion, rejected.completion))
            for chosen, rejected in tokenized_pairs(rows, tokenizer)
        ]
        for rows in (splits.train, splits.dev)
    )
    return train, dev
