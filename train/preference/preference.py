"""Preference training from settings to a finished run: mode-seeking or DPO, on pairs (K = 2) or on K scored responses.

The reference is what the run starts from, frozen; its log-probabilities are taken once, before the first step. `trainer: trl` hands pairs to
TRL's DPOTrainer instead (`exo_pair`, `sigmoid`, `ipo`), our baseline and oracle; there the reference is a second copy of a whole model, the
base below a new adapter, or TRL's frozen copy of an adapter that goes on training."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from peft import get_peft_model
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed
from trl import DPOConfig, DPOTrainer

from graph.errors import UserError
from graph.models.checkpoint import ADAPTER_CONFIG, is_adapter
from graph.shared.console import say
from train.model.load import device, load_tokenizer, without_dropout
from train.model.logps import check_rotation
from train.model.packing import choose_layout, plain_layout
from train.model.trial import check_still
from train.preference.groups import (
    Grouping,
    LengthLimit,
    ResponseGroup,
    best_worst_groups,
    fitting,
    pair_groups,
    scored_groups,
)
from train.preference.objective import Method, Objective
from train.preference.reference import cached_reference, reference_logps
from train.preference.trainer import Example, GenerationCallback, ResponseGroupTrainer
from train.run.data import both_sides, holds_responses, pair_dataset, read_preferences, read_responses
from train.run.loop import (
    SingleCastMixin,
    TrainingInputs,
    check_start,
    load_start,
    lora_config,
    prepare,
    run_and_save,
    run_folder,
    trainer_arguments,
    trl_arguments,
)
from train.run.record import Alignment, RunRecord
from train.run.settings import DpoSettings, MsSettings, PreferenceSettings

Loss = Literal["exo_pair", "sigmoid", "ipo"]


class PairTrainer(SingleCastMixin, DPOTrainer):  # type: ignore[misc]
    """A DPOTrainer that goes on from a checkpoint also where an adapter is trained beside its frozen copy.

    A checkpoint has the learning adapter at its root and the copy in a folder; transformers 5.19 then reads the folder alone.
    """

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if (Path(resume_from_checkpoint) / ADAPTER_CONFIG).exists():
            loaded = self.model if model is None else model
            loaded.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
            loaded.set_adapter("default")


def pair_trainer(
    settings: PreferenceSettings, start: TrainingInputs, folder: Path, loss: Loss, label_smoothing: float | None = None
) -> DPOTrainer:
    """TRL's trainer of one loss, `exo_pair` with ε = `label_smoothing`; dropout off throughout."""
    without_dropout(start.model)
    check_still(start.model)
    whole = settings.lora is None and not is_adapter(settings.model)
    arguments = DPOConfig(
        **trl_arguments(settings, start.splits, folder),
        max_length=None,
        loss_type=loss,
        beta=settings.beta,
        label_smoothing=label_smoothing or 0.0,
        disable_dropout=True,
        precompute_ref_log_probs=False,
    )
    word = Dataset.from_list([{"prompt": "?", "chosen": "a", "rejected": "b"}])
    trainer = PairTrainer(
        model=start.model,
        ref_model=copy.deepcopy(start.model) if whole else None,
        args=arguments,
        train_dataset=word,
        processing_class=start.tokenizer,
        peft_config=lora_config(settings.lora),
    )
    # TRL takes texts alone, and cuts completions elsewhere than the server begins them: our tokens go in their place.
    trainer.train_dataset = pair_dataset(start.splits.train, start.tokenizer)
    trainer.eval_dataset = pair_dataset(start.splits.dev, start.tokenizer) if start.splits.dev else None
    return trainer


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
        reference = cached_reference(cache, settings.model, settings.precision, everything, take_reference)
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
