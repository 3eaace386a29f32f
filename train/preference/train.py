"""Preference training from settings to a finished run: mode-seeking or DPO, on pairs (K = 2) or on K scored responses.

The reference is what the run starts from; its log-probabilities are taken once, before the first step. `trainer: trl` hands pairs
to TRL's DPOTrainer instead.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed

from graph.shared.console import say
from graph.shared.errors import UserError
from train.model.dropout import without_dropout
from train.model.layout import choose_layout, plain_layout
from train.model.models import device, load_tokenizer
from train.model.rotation import check_rotation
from train.model.trial import check_still
from train.preference.generations import GenerationCallback
from train.preference.objective import Method, Objective
from train.preference.pairs import Loss, pair_trainer
from train.preference.reference import kept_reference, reference_logps
from train.preference.response_groups import (
    Grouping,
    LengthLimit,
    ResponseGroup,
    best_worst_groups,
    fitting,
    pair_groups,
    scored_groups,
)
from train.preference.trainer import Example, ResponseGroupTrainer
from train.run.data import both_sides, holds_responses, read_preferences, read_responses
from train.run.loop import check_start, load_start, lora_config, prepare, run_and_save, run_folder, trainer_arguments
from train.run.settings import DpoSettings, MsSettings, PreferenceSettings
from train.shared.types import Alignment, RunRecord


@dataclass(frozen=True)
class PreferenceData:
    """What a run learns from and what it is measured on, and whether these are pairs with hard labels."""

    train: list[ResponseGroup]
    dev: list[ResponseGroup]
    pairs: bool


def train_ms(settings: MsSettings) -> RunRecord:
    """Mode-seeking run from settings to a finished run at `settings.output`; UserError before the first step."""
    return _train(settings, "ms", "exo_pair", settings.label_smoothing)


def train_dpo(settings: DpoSettings) -> RunRecord:
    """DPO run from settings to a finished run at `settings.output`; UserError before the first step."""
    if settings.loss == "ipo" and settings.trainer != "trl":
        raise UserError(f"loss: ipo with trainer: {settings.trainer}", "trainer: trl", "add --set trainer=trl")
    return _train(settings, "dpo", settings.loss, 0.0)


def _train(settings: PreferenceSettings, method: Method, loss: Loss, label_smoothing: float) -> RunRecord:
    if settings.trainer == "trl":
        return _train_by_trl(settings, method, loss, label_smoothing)
    check_start(settings)
    tokenizer = load_tokenizer(settings.model)
    data = read_preference_data(settings, tokenizer, label_smoothing)
    with run_folder(settings, method) as folder:
        trainer = response_group_trainer(settings, method, data, tokenizer, folder)
        return run_and_save(trainer, method, settings, folder, alignment_of(settings, data, label_smoothing))


def alignment_of(settings: PreferenceSettings, data: PreferenceData, label_smoothing: float) -> Alignment:
    """What the run is to be known by: K is what was asked for, or that of the largest group."""
    size = 2 if data.pairs else settings.responses or max(len(group.rewards) for group in data.train)
    if data.pairs:
        return Alignment(settings.beta, size, label_smoothing=label_smoothing or None)
    return Alignment(settings.beta, size, beta_reward=settings.beta_reward)


def read_preference_data(
    settings: PreferenceSettings, tokenizer: PreTrainedTokenizerBase, label_smoothing: float
) -> PreferenceData:
    """The response groups of train.jsonl and dev.jsonl, all of which fit; UserError with file and line for what cannot be learned from."""
    folder = Path(settings.data)
    scored = holds_responses(folder / "train.jsonl")

    def read(name: str) -> list[ResponseGroup]:
        file = folder / name
        if not scored:
            found = list(pair_groups(read_preferences(file), tokenizer, label_smoothing))
        elif settings.best_against_worst:
            found = list(best_worst_groups(read_responses(file), tokenizer, settings.rewards, label_smoothing))
        else:
            how = Grouping(settings.rewards, settings.standardise, settings.responses, settings.seed)
            found = list(scored_groups(read_responses(file), tokenizer, how))
        if not found:
            raise UserError(
                f"{file}: every prompt's responses are rewarded alike", "some told apart", "change `rewards`"
            )
        return fitting(found, LengthLimit(settings.max_length_tokens, settings.over_long == "drop"), file)

    data = PreferenceData(
        read("train.jsonl"),
        read("dev.jsonl") if (folder / "dev.jsonl").exists() else [],
        not scored or settings.best_against_worst,
    )
    if settings.sample_steps is not None and not data.dev:
        raise UserError(
            f"sample_steps = {settings.sample_steps} without {folder}/dev.jsonl", "dev prompts to answer", "unset it"
        )
    return data


def response_group_trainer(
    settings: PreferenceSettings, method: Method, data: PreferenceData, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> ResponseGroupTrainer:
    """The trainer of groups of K responses: model with its adapter, reference log-probabilities taken, dropout off."""
    set_seed(settings.seed)
    model = load_start(settings, tokenizer)
    model = model if settings.lora is None else get_peft_model(model, lora_config(settings.lora))
    without_dropout(model)
    check_still(model)
    tokenized = [group.tokenized for group in (*data.train, *data.dev)]
    check_rotation(model.config, [len(one.prompt) + len(each) for one in tokenized for each in one.responses])
    model.to(device())
    longest_tokens = max(group.longest_tokens for group in (*data.train, *data.dev))
    plain = settings.layout == "plain"
    logps_of = plain_layout if plain else choose_layout(model, longest_tokens, settings.row_tokens)
    objective = Objective(method, settings.beta, 1.0 if data.pairs else settings.beta_reward)
    if not data.pairs:
        say(
            f"β_π = {objective.beta:g}, β_r = {objective.beta_reward:g}: only β_π β_r = {objective.identified:g} is identified"
        )
    everything = [*data.train, *data.dev]

    def take_reference() -> list[Tensor]:
        with autocast(settings):
            return reference_logps(model, everything, logps_of, settings.batch_size)

    if settings.reference_cache is None:
        reference = take_reference()
    else:
        cache = Path(settings.reference_cache)
        reference = kept_reference(cache, settings.model, settings.precision, everything, take_reference)
    examples = [Example(group, taken_K) for group, taken_K in zip(everything, reference, strict=True)]
    learned, measured = examples[: len(data.train)], examples[len(data.train) :]
    trainer = ResponseGroupTrainer(
        objective,
        logps_of,
        model=model,
        args=TrainingArguments(**trainer_arguments(settings, folder), remove_unused_columns=False),
        train_dataset=learned,
        eval_dataset=measured or None,
        processing_class=tokenizer,
    )
    if settings.sample_steps is not None:
        sampled = (data.dev, settings.sample_steps, settings.max_length_tokens)
        trainer.add_callback(GenerationCallback(tokenizer, *sampled, trainer.note))
    return trainer


def autocast(settings: PreferenceSettings) -> AbstractContextManager[Any]:
    """The precision that the Trainer's steps run in, so that the reference is taken in the same."""
    return torch.autocast(device(), torch.bfloat16, enabled=settings.precision == "bfloat16")


def _train_by_trl(settings: PreferenceSettings, method: Method, loss: Loss, label_smoothing: float) -> RunRecord:
    if holds_responses(Path(settings.data) / "train.jsonl"):
        raise UserError("trainer: trl with scored responses", "pairs", "set trainer to modegraph")
    if settings.sample_steps is not None:
        raise UserError(
            "trainer: trl with sample_steps", "no sampling", "set trainer to modegraph, or unset sample_steps"
        )
    start = prepare(settings, both_sides)
    with run_folder(settings, method) as folder:
        trainer = pair_trainer(settings, start, folder, loss, label_smoothing or None)
        return run_and_save(
            trainer, method, settings, folder, Alignment(settings.beta, 2, None, label_smoothing or None)
        )
