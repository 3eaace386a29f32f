"""The common parts of SFT, preference and reward training, around transformers' and TRL's trainers: start, arguments, precision, progress, and saving."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import trl.trainer.utils
from peft import LoraConfig, get_peft_model
from peft.helpers import disable_input_dtype_casting
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.integrations import TensorBoardCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from graph.errors import UserError
from graph.models.checkpoint import is_adapter, model_name
from graph.models.load import check_vocabulary
from graph.shared.console import duration, say
from graph.shared.progress import note_progress
from train.model.load import Head, check_model, device, load_model, load_tokenizer, quiet_transformers
from train.model.logps import check_rotation
from train.model.packing import LogpsOf
from train.run.data import Splits, check_lengths, read_splits, rows_fingerprint
from train.run.record import Alignment, RunRecord, Stage
from train.run.save import (
    CHECKPOINTS,
    NO_OUTCOME,
    NOT_ALIGNED,
    Outcome,
    about_run,
    check_output,
    fresh_folder,
    is_main_process,
    last_checkpoint,
    run_record,
    save_run,
)
from train.run.settings import LoraSettings, TrainSettings, machine_precision


class SingleCastMixin:
    """A mixin for a Trainer: with autocast, PEFT's casts of inputs are off in steps, including backward passes (which may recompute activations),
    and in the passes over dev rows.

    Generation keeps the casts, since it is outside of both and without autocast.
    """

    model: Any
    args: Any

    def training_step(self, *arguments: Any, **options: Any) -> Any:
        with disable_input_dtype_casting(self.model, self.args.bf16):
            return super().training_step(*arguments, **options)  # type: ignore[misc]

    def evaluation_loop(self, *arguments: Any, **options: Any) -> Any:
        with disable_input_dtype_casting(self.model, self.args.bf16):
            return super().evaluation_loop(*arguments, **options)  # type: ignore[misc]


class GroupTrainer(SingleCastMixin, Trainer):  # type: ignore[misc]
    """transformers' Trainer whose batches are lists of examples; `logps_of` (packed or plain) builds the tensors from them on the device."""

    def __init__(self, logps_of: LogpsOf, **arguments: Any) -> None:
        super().__init__(data_collator=list, **arguments)
        self.model_accepts_loss_kwargs = False
        self.logps_of = logps_of

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs


SHARDED_LAUNCHES = {"FSDP": "ACCELERATE_USE_FSDP", "DEEPSPEED": "ACCELERATE_USE_DEEPSPEED"}
"""The kinds of launch that shard a model across processes, and the environment variable that requests each."""


def check_sharding(runs_as: str) -> None:
    """UserError if sharding was requested but every process has the full model: on CPUs, accelerate silently does not shard."""
    for kind, variable in SHARDED_LAUNCHES.items():
        if os.environ.get(variable, "").lower() == "true" and runs_as != kind:
            found = f"{kind} was requested, but accelerate's distributed type is {runs_as}"
            expected = "GPUs, the only devices that it shards a model across"
            raise UserError(found, expected, "launch with configs/accelerate/ddp.yaml")


RECOUNTED_METRIC = "num_tokens"
"""TRL's count of tokens, which restarts from 0 in a resumed run."""
SHOWN_METRICS = ("rewards/accuracies", "rewards/margins")
"""The metrics in progress lines of preference training, besides the loss."""
TRACKERS = {"tensorboard": ("tensorboard", "tensorboardX")}
"""Trackers and their packages, any one of which is enough; a tracker that is not listed needs the package of its name."""
UNREPEATABLE_METRICS = ("runtime", "per_second", RECOUNTED_METRIC)
"""The ends of the names of metrics that differ between runs with the same settings: omitted from the log and the figures."""
A = TypeVar("A", bound=TrainingArguments)


@dataclass(frozen=True)
class TrainingInputs:
    """The checked inputs of a trainer: rows within the length limit, the tokenizer, the model on the CPU."""

    splits: Splits
    tokenizer: PreTrainedTokenizerBase
    model: Any


def prepare(settings: TrainSettings, head: Head = "tokens") -> TrainingInputs:
    """The inputs of a trainer, after checks of the settings, the rows and the model, cheapest first."""
    check_start(settings)
    splits = read_splits(Path(settings.data))
    tokenizer = load_tokenizer(settings.model)
    lengths = check_lengths(splits, tokenizer, settings.max_length_tokens, Path(settings.data))
    model = load_start(settings, tokenizer, head)
    check_rotation(model.config, lengths)
    return TrainingInputs(splits, tokenizer, model)


def check_start(settings: TrainSettings) -> None:
    """UserError for settings that would fail, before any data are read; a message if bfloat16 is slow here. Silences the libraries."""
    quiet_libraries()
    check_output(Path(settings.output))
    check_tracker(settings.report_to)
    if settings.precision == "bfloat16" and machine_precision() == "float32":
        say("this processor has no instructions for bfloat16 and is many times slower in it: set precision=auto")


def load_start(
    settings: TrainSettings, tokenizer: PreTrainedTokenizerBase, head: Head = "tokens", source: str | None = None
) -> Any:
    """The model to train, or the one in `source`; a language model is tested first (train/model/load.py). Frozen weights have the run's precision."""
    source = source or settings.model
    precision = settings.precision if check_adapter(settings) else "float32"
    model = load_model(source, precision, trainable=True, quantisation=settings.quantise, head=head)
    check_vocabulary(model, tokenizer, f"model {source!r}")
    if head == "tokens":
        check_model(model)
    return model


def load_with_adapter(settings: TrainSettings, tokenizer: PreTrainedTokenizerBase) -> Any:
    """The language model to train, with a new adapter, drawn by `seed`, if `lora` is set."""
    set_seed(settings.seed)
    model = load_start(settings, tokenizer)
    return model if settings.lora is None else get_peft_model(model, lora_config(settings.lora))


def check_adapter(settings: TrainSettings) -> bool:
    """Whether an adapter is trained, on a frozen base; UserError for two adapters, and for a quantised model without one."""
    adapter = is_adapter(settings.model)
    if adapter and settings.lora is not None:
        found = f"model {settings.model!r} is already an adapter, and lora is set"
        remedy = "drop lora to continue training that adapter, or start from its base model"
        raise UserError(found, "one adapter", remedy)
    frozen_base = adapter or settings.lora is not None
    if settings.quantise != "none" and not frozen_base:
        found = f"quantise = {settings.quantise} without an adapter"
        raise UserError(found, "an adapter on the frozen base", "set lora, or start from an adapter")
    return frozen_base


def check_tracker(report_to: str) -> None:
    """UserError if the requested experiment tracker is not installed."""
    packages = TRACKERS.get(report_to, (report_to,))
    if report_to != "none" and not any(importlib.util.find_spec(package) for package in packages):
        found = f"report_to = {report_to!r}, but {' or '.join(packages)} is not installed"
        raise UserError(found, "an installed tracker, or none", f"run: pip install {packages[-1]}")


def lora_config(lora: LoraSettings | None, head: Head = "tokens") -> LoraConfig | None:
    """PEFT's configuration for the settings `lora`; None trains the full model, or the adapter that the model already has.

    A scoring head is new, so it is fully trained in addition to the adapter.
    """
    if lora is None:
        return None
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.targets) or "all-linear",
        lora_dropout=lora.dropout,
        use_rslora=lora.rslora,
        use_dora=lora.dora,
        task_type="CAUSAL_LM" if head == "tokens" else "SEQ_CLS",
    )


def trl_arguments(settings: TrainSettings, splits: Splits, folder: Path) -> dict[str, Any]:
    """`trainer_arguments` for TRL's trainers, whose dev figures are means of batch means: all dev batches must have the same size."""
    size = even_batch(len(splits.dev), settings.batch_size)
    return trainer_arguments(settings, folder) | {"per_device_eval_batch_size": size}


def even_batch(rows: int, max_size: int) -> int:
    """The largest batch size up to `max_size` that divides `rows`.

    >>> even_batch(16, 4), even_batch(15, 4), even_batch(5, 4), even_batch(0, 4)
    (4, 3, 1, 4)
    """
    return next(size for size in range(max_size, 0, -1) if rows % size == 0)


def trainer_arguments(settings: TrainSettings, folder: Path) -> dict[str, Any]:
    """The arguments of every trainer. Surprising defaults of TRL and transformers are overridden here: gradient checkpointing, bf16, the NaN filter.

    TRL's `max_length`, which silently truncates rows, is set to None where its trainers are made, or to the limit that all rows were checked against.
    """
    checkpoints: dict[str, Any] = {"save_strategy": "no"}
    if settings.save_steps is not None:
        checkpoints = {"save_strategy": "steps", "save_steps": settings.save_steps, "save_total_limit": 1}
    return {
        "output_dir": str(folder / CHECKPOINTS),
        **checkpoints,
        "learning_rate": settings.learning_rate,
        "num_train_epochs": settings.epochs,
        "max_steps": settings.max_steps or -1,
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "lr_scheduler_type": settings.scheduler,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "warmup_steps": settings.warmup_share,
        "seed": settings.seed,
        "bf16": settings.precision == "bfloat16",
        "gradient_checkpointing": settings.gradient_checkpointing,
        "report_to": settings.report_to,
        "run_name": Path(settings.output).name,
        "project": "modegraph",
        "logging_steps": settings.logging_steps,
        "logging_nan_inf_filter": False,
        "restore_callback_states_from_checkpoint": True,
        "disable_tqdm": True,
        "use_cpu": device() == "cpu",
        "dataloader_pin_memory": device() != "cpu",
    }


def on_one_gpu(arguments: A) -> A:
    """The same arguments, with at most one GPU: on several, transformers would use DataParallel, which would also split the positions in `logits_to_keep`."""
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


class ProgressCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Shows logged rows as progress, times the training, and stops a run whose loss is not finite.

    The last step and every checkpoint get a row of the log, so that an interrupted run logs the same rows as an uninterrupted one.
    `earlier_seconds` is the time up to the checkpoint that a run resumes from, which contains it.
    """

    def __init__(self, stage: str, earlier_seconds: float = 0.0) -> None:
        self.stage, self.earlier_seconds = stage, earlier_seconds
        self.start = (time.monotonic(), 0)

    @property
    def seconds(self) -> float:
        """The time of the training so far, without steps that were lost in an interruption."""
        return self.earlier_seconds + time.monotonic() - self.start[0]

    def state(self) -> dict[str, Any]:
        """The arguments of this callback in a run that resumes from the checkpoint that is being written."""
        return {"args": {"stage": self.stage, "earlier_seconds": self.seconds}, "attributes": {}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Exclude the steps of an interrupted run from the estimate of the remaining time."""
        self.start = (time.monotonic(), state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log a row before a checkpoint and at the end."""
        if control.should_save or control.should_training_stop:
            control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Show a logged row and record the progress; UserError at a loss that is NaN or infinite."""
        row = {"step": state.global_step, **(logs or {})}
        loss = row.get("loss", row.get("train_loss", 0.0))
        if not math.isfinite(loss):
            found = f"{self.stage}: the loss is {loss} at step {state.global_step} of {state.max_steps}"
            raise UserError(found, "a finite loss", "lower learning_rate, or use precision=float32; no run was saved")
        if "loss" not in row or not state.is_world_process_zero:
            return
        metrics = "".join(f", {name} {row[name]:.3f}" for name in SHOWN_METRICS if name in row)
        step = f"step {state.global_step:,} of {state.max_steps:,}"
        say(f"{self.stage}: {step}, loss {loss:.4f}{metrics}{self.remaining(state)}")
        note_progress(Path(args.output_dir).parent, state.global_step, state.max_steps, repeatable(logs or {}))

    def remaining(self, state: Any) -> str:
        """The remaining time at this process's speed, in words; "" at the end."""
        start, first_step = self.start
        done, rest = state.global_step - first_step, state.max_steps - state.global_step
        return f", about {duration((time.monotonic() - start) * rest / done)} left" if done > 0 < rest else ""


def run_folder(settings: TrainSettings, stage: Stage) -> AbstractContextManager[Path]:
    """The folder of a run in progress, which survives a failure if `save_steps` is set (train/run/save.py)."""
    resumable = settings.save_steps is not None
    return fresh_folder(Path(settings.output), resumable, about_run(stage, settings))


def run_and_save(
    trainer: Any,
    stage: Stage,
    settings: TrainSettings,
    folder: Path,
    alignment: Alignment = NOT_ALIGNED,
    figures: Mapping[str, float] = MappingProxyType({}),
) -> RunRecord:
    """Train (or resume from an interrupted run's last checkpoint), evaluate, and write the run to `folder`, with `figures` added to its metrics."""
    check_sharding(trainer.accelerator.distributed_type.value)
    record = run_record(stage, settings.model, settings.data, settings, NO_OUTCOME, alignment)
    checkpoint = None
    if settings.save_steps is not None:
        origin = {
            "data": record.data_fingerprint,
            "dev": rows_fingerprint(Path(settings.data) / "dev.jsonl"),
            "weights": model_name(settings.model),
            "reference": record.reference_name,
        }
        checkpoint = last_checkpoint(folder, settings, origin)
    outcome = run_trainer(trainer, stage, checkpoint)
    metrics = {**outcome.metrics, **figures}
    record = replace(record, metrics=metrics, train_seconds=outcome.train_seconds)
    weights = trainer.accelerator.get_state_dict(trainer.model)  # in every process: FSDP shards the weights
    if is_main_process():
        model = trainer.accelerator.unwrap_model(trainer.model)
        save_run(folder, model, trainer.processing_class, record, outcome.log, weights)
    return record


def run_trainer(trainer: Any, stage: str, checkpoint: str | None = None) -> Outcome:
    """Train, then evaluate on the dev rows if the trainer has any; UserError if the loss is not finite."""
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProgressCallback(stage))
    board = keep_tensorboard(trainer)
    if checkpoint is not None and is_trained(checkpoint):
        trainer.args.max_steps, trainer.args.num_train_epochs = -1, 0
    with completion_logits_only():
        trainer.train(resume_from_checkpoint=checkpoint)
        (progress,) = (each for each in trainer.callback_handler.callbacks if isinstance(each, ProgressCallback))
        seconds = progress.seconds
        log = [repeatable(row) for row in trainer.state.log_history if row.keys() & {"loss", "eval_loss"}]
        dev_metrics = trainer.evaluate() if trainer.eval_dataset is not None else {}
    if board is not None:
        board.close()
    dev_figures = {name: float(value) for name, value in repeatable(dev_metrics).items() if name != "epoch"}
    figures = {"train_loss": mean_loss(log), "train_steps": float(trainer.state.global_step), **dev_figures}
    return Outcome(log, figures, seconds)


def is_trained(checkpoint: str) -> bool:
    """Whether a checkpoint is that of a completed training; the Trainer would resume it with one more step."""
    state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
    return bool(state.stateful_callbacks["TrainerControl"]["args"]["should_training_stop"])


def repeatable(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that are the same in every run with the same settings."""
    return {name: value for name, value in metrics.items() if not name.endswith(UNREPEATABLE_METRICS)}


def mean_loss(log: Sequence[Mapping[str, float]]) -> float:
    """The mean loss of all steps, from the rows of a log that have the mean loss since the previous such row.

    >>> mean_loss([{"step": 3, "loss": 1.0}, {"step": 3, "eval_loss": 9.0}, {"step": 4, "loss": 5.0}])
    2.0
    """
    rows = [{"step": 0}, *(row for row in log if "loss" in row)]
    total = sum(row["loss"] * (row["step"] - before["step"]) for before, row in itertools.pairwise(rows))
    return total / rows[-1]["step"]


class RunTensorBoard(TensorBoardCallback):  # type: ignore[misc]
    """TensorBoard's files in one folder, kept open until after the final evaluation: reopened within the same second, they would be overwritten."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.logging_dir = str(folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the files open."""

    def close(self) -> None:
        super().on_train_end(None, None, None)


def keep_tensorboard(trainer: Any) -> RunTensorBoard | None:
    """Write TensorBoard's files, if any, into the run's folder: in their default folder they would be deleted with the checkpoints."""
    if trainer.pop_callback(TensorBoardCallback) is None:
        return None
    board = RunTensorBoard(Path(trainer.args.output_dir).parent / "tensorboard")
    trainer.add_callback(board)
    return board


@contextmanager
def completion_logits_only() -> Iterator[None]:
    """Make TRL compute logits only at the completion's positions, as it does on a GPU; on other devices it computes them at every position.

    On a CPU, that halves the time of a step (a tiny Llama, 80 of 440 tokens in the completion). TRL 1.16 reads the switch
    at each step; a test compares TRL's losses with those of our formulas.
    """
    before = trl.trainer.utils._use_triton
    trl.trainer.utils._use_triton = lambda device: True
    try:
        yield
    finally:
        trl.trainer.utils._use_triton = before


def quiet_libraries() -> None:
    """Silence the libraries' progress bars, hints and deprecation warnings, but not their errors."""
    import datasets

    quiet_transformers()
    datasets.disable_progress_bars()
    for library in ("accelerate", "trl", "peft", "torch"):
        logging.getLogger(library).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate|datasets)\b")
