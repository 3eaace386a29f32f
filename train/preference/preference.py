"""Preference training from settings to a finished run: mode-seeking, DPO or another loss of the family, on pairs (K = 2) or on K scored responses.

The reference is the frozen initial model, or another one (`reference`); its log-probabilities are computed once, before the first step.
`trainer: trl` instead uses TRL's DPOTrainer on pairs (`exo_pair`, `sigmoid`, `ipo`, `nca_pair`), as a baseline and a check, or its trainers for SimPO
and ORPO. The reference of DPOTrainer is a second copy of a full model, the base below a new adapter, or TRL's frozen copy of an adapter whose
training continues."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainingArguments
from trl import DPOConfig, DPOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from data_synth.rows import ResponseRow
from graph.errors import UserError
from graph.models.checkpoint import ADAPTER_CONFIG, is_adapter, model_name, tokenizer_source
from graph.models.load import read_tokenizer
from graph.shared.console import say
from train.model.load import check_source, device, load_tokenizer, make_deterministic
from train.model.logps import check_rotation
from train.model.packing import LogpsOf, choose_layout, plain_logps
from train.preference.groups import ResponseGroup, best_worst_groups, groups_within, pair_groups, scored_groups
from train.preference.losses import Method, Objective
from train.preference.reference import cached_reference, group_logps
from train.preference.trainer import Example, GenerationCallback, ResponseGroupTrainer
from train.run.data import contains_responses, labelled_pair_dataset, pair_dataset, read_preferences, read_responses
from train.run.loop import (
    SingleCastMixin,
    TrainingInputs,
    check_start,
    load_start,
    load_with_adapter,
    lora_config,
    on_one_gpu,
    prepare,
    run_and_save,
    run_folder,
    trainer_arguments,
    trl_arguments,
)
from train.run.record import Alignment, RunRecord
from train.run.settings import WITHOUT_REFERENCE, DpoSettings, MsSettings, PreferenceSettings

Loss = Literal["exo_pair", "sigmoid", "ipo", "nca_pair"]
KL = "kl_to_reference"
TRL_LOSSES: dict[str, Loss] = {"ms": "exo_pair", "dpo": "sigmoid", "ipo": "ipo", "nca": "nca_pair"}
PLACEHOLDER = Dataset.from_list([{"prompt": "?", "chosen": "a", "rejected": "b"}])
"""The texts that TRL's trainers are constructed with; `with_our_tokens` replaces them."""


class PairTrainer(SingleCastMixin, DPOTrainer):  # type: ignore[misc]
    """A DPOTrainer that can resume from a checkpoint of an adapter with a frozen copy.

    Such a checkpoint has the trained adapter at its root and the copy in a folder; transformers 5.19 reads only the folder.
    """

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if (Path(resume_from_checkpoint) / ADAPTER_CONFIG).exists():
            target = self.model if model is None else model
            target.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
            target.set_adapter("default")


def pair_trainer(
    settings: PreferenceSettings, start: TrainingInputs, folder: Path, loss: Loss, label_smoothing: float = 0.0
) -> DPOTrainer:
    """TRL's DPOTrainer with one loss (`exo_pair` with ε = `label_smoothing`), and with all dropout off."""
    make_deterministic(start.model)
    is_full_model = settings.lora is None and not is_adapter(settings.model)
    arguments = DPOConfig(
        **trl_arguments(settings, start.splits, folder),
        max_length=None,
        loss_type=loss,
        beta=settings.beta,
        label_smoothing=label_smoothing,
        disable_dropout=True,
        precompute_ref_log_probs=False,
    )
    trainer = PairTrainer(
        model=start.model,
        ref_model=copy.deepcopy(start.model) if is_full_model else None,
        args=on_one_gpu(arguments),
        train_dataset=PLACEHOLDER,
        processing_class=start.tokenizer,
        peft_config=lora_config(settings.lora),
    )
    return with_our_tokens(trainer, start, pair_dataset)


class SimpoTrainer(SingleCastMixin, CPOTrainer):  # type: ignore[misc]
    """TRL's experimental trainer for SimPO."""


class OrpoTrainer(SingleCastMixin, ORPOTrainer):  # type: ignore[misc]
    """TRL's experimental trainer for ORPO."""


def reference_free_trainer(settings: DpoSettings, start: TrainingInputs, folder: Path) -> CPOTrainer | ORPOTrainer:
    """TRL's trainer for SimPO (Meng et al. 2024) or ORPO (Hong et al. 2024, λ = beta), both experimental in TRL."""
    make_deterministic(start.model)
    common = trl_arguments(settings, start.splits, folder)
    common |= {"beta": settings.beta, "max_length": settings.max_length_tokens, "remove_unused_columns": False}
    if settings.loss == "simpo":
        simpo = {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": settings.simpo_margin}
        kind, arguments = SimpoTrainer, CPOConfig(**common, **simpo)
    else:
        kind, arguments = OrpoTrainer, ORPOConfig(**common)
    trainer = kind(
        model=start.model,
        args=on_one_gpu(arguments),
        train_dataset=PLACEHOLDER,
        processing_class=start.tokenizer,
        peft_config=lora_config(settings.lora),
    )
    return with_our_tokens(trainer, start, labelled_pair_dataset)


def with_our_tokens(trainer: Any, start: TrainingInputs, dataset_of: Callable[..., Dataset]) -> Any:
    """The TRL trainer with our tokens, not PLACEHOLDER: TRL accepts only texts, and separates prompt and completion at a different point than the server."""
    trainer.train_dataset = dataset_of(start.splits.train, start.tokenizer)
    trainer.eval_dataset = dataset_of(start.splits.dev, start.tokenizer) if start.splits.dev else None
    return trainer


def trl_trainer(settings: MsSettings | DpoSettings, start: TrainingInputs, folder: Path) -> Any:
    """TRL's trainer for the loss that the settings name."""
    if isinstance(settings, DpoSettings) and settings.loss in WITHOUT_REFERENCE:
        return reference_free_trainer(settings, start, folder)
    return pair_trainer(settings, start, folder, TRL_LOSSES[method_of(settings)], settings.label_smoothing)


@dataclass(frozen=True)
class PreferenceData:
    """The training and dev groups of a run, and whether these are pairs, whose labels are (1 − ε, ε).

    The KL to `reference` is measured over `samples` of the policy or, if there are none, over the training and dev groups.
    """

    train: list[ResponseGroup]
    dev: list[ResponseGroup]
    pairs: bool
    samples: tuple[ResponseGroup, ...] = ()


def method_of(settings: MsSettings | DpoSettings) -> Method:
    """The loss that the settings name, as a method of our trainer; AssertionError for SimPO and ORPO, which only TRL trains."""
    if isinstance(settings, MsSettings):
        return "ms"
    assert settings.loss != "simpo" and settings.loss != "orpo", (
        f"loss {settings.loss}: expected a loss with a reference; use trainer: trl"
    )
    return "dpo" if settings.loss == "sigmoid" else settings.loss


def stage_of(settings: MsSettings | DpoSettings) -> Literal["ms", "dpo"]:
    """The command that the settings belong to."""
    return "ms" if isinstance(settings, MsSettings) else "dpo"


def train_once(settings: MsSettings | DpoSettings, samples: Sequence[ResponseRow] = ()) -> RunRecord:
    """Train without rounds, from settings to a finished run at `settings.output`; UserError for bad input before the first step.

    `samples` are responses of the policy, if those in the data are only a selection of them: the KL to `reference` is measured over them.
    """
    if settings.trainer == "trl":
        return _train_with_trl(settings)
    check_start(settings)
    tokenizer = load_tokenizer(settings.model)
    data = read_preference_data(settings, tokenizer)
    how = (settings.rewards, False, 2 if data.pairs else settings.responses, settings.seed)
    groups = scored_groups(samples, tokenizer, *how)
    data = replace(data, samples=tuple(g for g in groups if g.longest_tokens <= settings.max_length_tokens))
    with run_folder(settings, stage_of(settings)) as folder:
        trainer = response_group_trainer(settings, method_of(settings), data, tokenizer, folder)
        alignment = alignment_of(settings, data)
        return run_and_save(trainer, stage_of(settings), settings, folder, alignment, trainer.first_figures)


def alignment_of(settings: MsSettings | DpoSettings, data: PreferenceData) -> Alignment:
    """The alignment in the run's record: K is 2 for pairs, else the size of the largest group, at most `responses` of the settings."""
    if data.pairs:
        return Alignment(settings.beta, 2, label_smoothing=settings.label_smoothing or None)
    largest = max(len(group.rewards) for group in data.train)
    return Alignment(settings.beta, min(settings.responses or largest, largest), beta_reward=settings.beta_reward)


def read_preference_data(settings: MsSettings | DpoSettings, tokenizer: PreTrainedTokenizerBase) -> PreferenceData:
    """The response groups of train.jsonl and dev.jsonl, all within max_length_tokens; UserError for unusable rows or settings."""
    if settings.rounds is not None:
        found = "rounds: the responses to train on have not been sampled yet"
        raise UserError(found, "one run on a folder of `synth responses`", "unset rounds")
    folder = Path(settings.data)
    scored = contains_responses(folder / "train.jsonl")

    def read_groups(name: str) -> list[ResponseGroup]:
        file = folder / name
        if not scored:
            groups = list(pair_groups(read_preferences(file), tokenizer, settings.label_smoothing))
        elif settings.best_against_worst:
            rows, smoothing = read_responses(file), settings.label_smoothing
            groups = list(best_worst_groups(rows, tokenizer, settings.rewards, smoothing))
        else:
            how = (settings.rewards, settings.standardise, settings.responses, settings.seed)
            groups = list(scored_groups(read_responses(file), tokenizer, *how))
        if not groups:
            found = f"{file}: every prompt's responses have equal rewards"
            raise UserError(found, "a prompt whose responses have different rewards", "change `rewards`")
        return groups_within(groups, settings.max_length_tokens, settings.over_long == "drop", file)

    data = PreferenceData(
        read_groups("train.jsonl"),
        read_groups("dev.jsonl") if (folder / "dev.jsonl").exists() else [],
        not scored or settings.best_against_worst,
    )
    if isinstance(settings, DpoSettings) and settings.label_smoothing and not data.pairs:
        raise UserError(
            f"label_smoothing: {settings.label_smoothing:g} with K scored responses",
            "pairs, which have an ε; the labels of scored responses are softened by beta_reward",
            "set best_against_worst to true, or label_smoothing to 0",
        )
    if method_of(settings) == "rloo" and data.pairs:
        raise UserError("loss: rloo with pairs", "scored responses of the model", "use `synth responses`, or --rounds")
    if settings.sample_steps is not None and not data.dev:
        found = f"sample_steps = {settings.sample_steps} without {folder}/dev.jsonl"
        raise UserError(found, "dev prompts to answer", "add the file, or unset sample_steps")
    return data


def response_group_trainer(
    settings: PreferenceSettings, method: Method, data: PreferenceData, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> ResponseGroupTrainer:
    """The trainer of groups of K responses: model with its adapter, reference log-probabilities, dropout off."""
    groups = [*data.train, *data.dev, *data.samples]
    measured = data.samples or groups
    other: list[Tensor] | None = None
    if settings.reference is not None:
        other = reference_of(settings, groups, partial(logps_by_other_model, settings, groups, tokenizer))
    model = load_with_adapter(settings, tokenizer)
    make_deterministic(model)
    check_rotation(model.config, row_lengths(groups))
    logps_of = layout_of(settings, model.to(device()), groups)
    objective = Objective(method, settings.beta, 1.0 if data.pairs else settings.beta_reward)
    if not data.pairs and method in ("ms", "dpo", "nca", "rloo"):
        beta, beta_reward = objective.beta, objective.beta_reward
        say(f"β_π = {beta:g}, β_r = {beta_reward:g}: the optimum depends only on β_π β_r = {beta * beta_reward:g}")

    def initial_logps(some: Sequence[ResponseGroup]) -> list[Tensor]:
        with autocast(settings):
            return group_logps(model, some, logps_of, settings.batch_size)

    reference = reference_of(settings, groups, partial(initial_logps, groups)) if other is None else other
    figures: dict[str, float] = {}
    if other is not None:
        # For responses sampled from π, the mean of log π − log π_ref estimates KL(π ‖ π_ref).
        log_ratios_R = torch.cat(initial_logps(measured)) - torch.cat(other[-len(measured) :])
        figures[KL] = float(log_ratios_R.mean())
    examples = [Example(group, reference_K) for group, reference_K in zip(groups, reference, strict=True)]
    train, dev = len(data.train), len(data.dev)
    trainer = ResponseGroupTrainer(
        objective,
        logps_of,
        figures,
        model=model,
        args=on_one_gpu(TrainingArguments(**trainer_arguments(settings, folder), remove_unused_columns=False)),
        train_dataset=examples[:train],
        eval_dataset=examples[train : train + dev] or None,
        processing_class=tokenizer,
    )
    if settings.sample_steps is not None:
        sampling = (data.dev, settings.sample_steps, settings.max_length_tokens)
        trainer.add_callback(GenerationCallback(tokenizer, *sampling, trainer.note))
    return trainer


def layout_of(settings: PreferenceSettings, model: Any, groups: Sequence[ResponseGroup]) -> LogpsOf:
    """The layout of the settings, or the plain one for a model that does not support packed rows."""
    if settings.layout == "plain":
        return plain_logps
    return choose_layout(model, max(group.longest_tokens for group in groups), settings.row_tokens)


def reference_of(
    settings: PreferenceSettings, groups: Sequence[ResponseGroup], compute: Callable[[], list[Tensor]]
) -> list[Tensor]:
    """log π_ref of each group: from the cache that the settings name, if it exists, else from `compute`."""
    if settings.reference_cache is None:
        return compute()
    origin = {
        "model": model_name(settings.reference or settings.model),
        "precision": settings.precision,
        "quantise": settings.quantise,
    }
    return cached_reference(Path(settings.reference_cache), origin, groups, compute)


def row_lengths(groups: Sequence[ResponseGroup]) -> list[int]:
    """The length of each response with its prompt, in tokens."""
    tokenized = [group.tokenized for group in groups]
    return [len(group.prompt) + len(response) for group in tokenized for response in group.responses]


def logps_by_other_model(
    settings: PreferenceSettings, groups: Sequence[ResponseGroup], tokenizer: PreTrainedTokenizerBase
) -> list[Tensor]:
    """log π of each group by the model that `reference` names, which is then dropped from memory; UserError if that model is unsuitable."""
    source = str(settings.reference)
    own_tokenizer = read_tokenizer(tokenizer_source(source), source, local_files_only=check_source(source))
    used = {token for group in groups for ids in (group.tokenized.prompt, *group.tokenized.responses) for token in ids}
    for token in sorted(used):
        ours, theirs = (each.convert_ids_to_tokens(token) for each in (tokenizer, own_tokenizer))
        if ours != theirs:
            found = f"reference {source!r}: its token {token} is {theirs!r}, that of {settings.model!r} is {ours!r}"
            raise UserError(found, "the same tokens", "choose a reference with the model's tokenizer")
    model = load_start(settings, own_tokenizer, source=source)
    make_deterministic(model)
    check_rotation(model.config, row_lengths(groups))
    logps_of = layout_of(settings, model.to(device()), groups)
    with autocast(settings):
        return group_logps(model, groups, logps_of, settings.batch_size)


def autocast(settings: PreferenceSettings) -> AbstractContextManager[Any]:
    """Autocast to the precision of the Trainer's steps, for the log-probabilities before training."""
    return torch.autocast(device(), torch.bfloat16, enabled=settings.precision == "bfloat16")


def _train_with_trl(settings: MsSettings | DpoSettings) -> RunRecord:
    if contains_responses(Path(settings.data) / "train.jsonl"):
        raise UserError("trainer: trl with scored responses", "pairs", "set trainer to modegraph")
    start = prepare(settings)
    alignment = Alignment(settings.beta, 2, None, settings.label_smoothing or None)
    with run_folder(settings, stage_of(settings)) as folder:
        return run_and_save(trl_trainer(settings, start, folder), stage_of(settings), settings, folder, alignment)
