"""What SFT and preference training share around TRL's trainers: the start, the arguments, progress, and the finish."""

from __future__ import annotations

import importlib.util
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trl.trainer.utils
from peft import LoraConfig
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback

from data_synth.types import PreferenceRow
from graph.console import say
from graph.errors import UserError
from train.data import Splits, check_lengths, read_splits
from train.models import device, is_adapter, load_model, load_tokenizer, quiet_transformers
from train.save import Outcome, check_output, run_record, save_run
from train.settings import LoraSettings, TrainSettings
from train.types import RunRecord, Stage

CLOCKWORK = ("runtime", "per_second", "epoch", "num_tokens")


@dataclass(frozen=True)
class Start:
    """What a trainer is built from, checked: rows that fit, the tokenizer, the model on the CPU."""

    splits: Splits
    tokenizer: PreTrainedTokenizerBase
    model: Any


def prepare(settings: TrainSettings, sides: Callable[[PreferenceRow], Sequence[str]]) -> Start:
    """Everything that can be refused before the first step, cheapest first; `sides` picks the completions trained on."""
    quiet_libraries()
    check_output(Path(settings.output))
    check_tracker(settings.report_to)
    splits = read_splits(Path(settings.data))
    tokenizer = load_tokenizer(settings.model)
    for name, rows in (("train", splits.train), ("dev", splits.dev)):
        file = Path(settings.data) / f"{name}.jsonl"
        check_lengths(rows, sides, tokenizer, settings.max_length_tokens, file)
    return Start(splits, tokenizer, load_start(settings))


def load_start(settings: TrainSettings) -> Any:
    """The model to train. Weights that stay frozen take the run's precision; those that learn are kept in float32."""
    adapter = is_adapter(settings.model)
    if adapter and settings.lora is not None:
        found = f"model {settings.model!r} is an adapter already and lora is set"
        raise UserError(found, "one adapter", "drop lora to train that adapter on, or start from its base model")
    frozen_base = adapter or settings.lora is not None
    return load_model(settings.model, settings.precision if frozen_base else "float32", trainable=True)


def check_tracker(report_to: str) -> None:
    """UserError when the experiment tracker asked for is not installed."""
    if report_to != "none" and importlib.util.find_spec(report_to) is None:
        raise UserError(f"report_to = {report_to!r} is not installed", "none or an installed tracker", "pip install it")


def lora_config(lora: LoraSettings | None) -> LoraConfig | None:
    """PEFT's form of our settings; None trains the whole model, or the adapter that the model already has."""
    if lora is None:
        return None
    return LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def trainer_arguments(settings: TrainSettings, folder: Path) -> dict[str, Any]:
    """The arguments that SFTConfig and DPOConfig share. TRL's surprising defaults are all overridden here:
    `max_length` (it would cut rows silently; lengths are checked before), gradient checkpointing, bf16, the NaN filter.
    """
    return {
        "output_dir": str(folder),
        "learning_rate": settings.learning_rate,
        "num_train_epochs": settings.epochs,
        "max_steps": settings.max_steps or -1,
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "lr_scheduler_type": "linear",
        "warmup_steps": settings.warmup_share,
        "max_length": None,
        "seed": settings.seed,
        "bf16": settings.precision == "bfloat16",
        "gradient_checkpointing": settings.gradient_checkpointing,
        "report_to": settings.report_to,
        "logging_steps": settings.logging_steps,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": device() == "cpu",
        "dataloader_pin_memory": device() != "cpu",
    }


class Watch(TrainerCallback):  # type: ignore[misc]
    """Keeps the logged rows, shows them as progress, and stops a run whose loss is no longer a number."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.rows: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """One logged row; UserError at a loss that is NaN or infinite."""
        row = {"step": state.global_step, **(logs or {})}
        loss = row.get("loss", row.get("train_loss", 0.0))
        if not math.isfinite(loss):
            found = f"{self.what}: the loss is {loss} at step {state.global_step} of {state.max_steps}"
            raise UserError(found, "a finite loss", "lower learning_rate, or use precision=float32; nothing was saved")
        if "loss" in row:
            self.rows.append(row)
            say(f"{self.what}: step {state.global_step:,} of {state.max_steps:,}, loss {loss:.4f}")


def run_and_save(
    trainer: Any,
    stage: Stage,
    settings: TrainSettings,
    folder: Path,
    beta: float | None = None,
    label_smoothing: float | None = None,
) -> RunRecord:
    """Train, measure, and write the whole run into `folder`."""
    outcome = run_trainer(trainer, stage)
    record = run_record(stage, settings.model, settings.data, settings, outcome, beta, label_smoothing)
    save_run(folder, trainer.model, trainer.processing_class, record, outcome.log)
    return record


def run_trainer(trainer: Any, what: str) -> Outcome:
    """Train, then measure on the dev rows if the trainer has any; UserError when the loss stops being a number."""
    watch = Watch(what)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(watch)
    start = time.perf_counter()
    with completion_logits_only():
        result = trainer.train()
        seconds = time.perf_counter() - start
        measured = trainer.evaluate() if trainer.eval_dataset is not None else {}
    metrics = {"train/loss": result.training_loss, "train/steps": result.global_step}
    metrics |= {f"dev/{name.removeprefix('eval_')}": value for name, value in measured.items()}
    kept = {name: float(value) for name, value in metrics.items() if not name.endswith(CLOCKWORK)}
    return Outcome(watch.rows, kept, seconds)


@contextmanager
def completion_logits_only() -> Iterator[None]:
    """Have TRL compute logits at the completion's positions alone, as it does on a GPU; elsewhere it takes them all.

    On a CPU that halves a step (a tiny Llama, 80 of 440 tokens in the completion). The switch is TRL 1.16's own, read
    at each step; a test holds the losses to ours with it on.
    """
    before = trl.trainer.utils._use_triton
    trl.trainer.utils._use_triton = lambda device: True
    try:
        yield
    finally:
        trl.trainer.utils._use_triton = before


def quiet_libraries() -> None:
    """Keep the libraries' bars, hints and deprecation notes off the terminal; errors still show."""
    import datasets

    quiet_transformers()
    datasets.disable_progress_bars()
    for library in ("accelerate", "trl", "peft", "torch"):
        logging.getLogger(library).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate|datasets)\b")
