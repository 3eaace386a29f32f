"""The last step of every training command: one folder that serving, comparing and publishing can rely on.

A run is written beside its place and renamed into it when whole, so a failed run leaves nothing behind.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedTokenizerBase

from graph.config import Settings
from graph.errors import UserError
from graph.jsonl import write_jsonl
from train.card import model_card
from train.models import device
from train.types import RunRecord, Stage, write_run

LIBRARIES = ("torch", "transformers", "trl", "peft", "datasets")


@dataclass(frozen=True)
class Outcome:
    """What a training loop hands over: the logged rows in order, the final figures and the seconds it took."""

    log: Sequence[Mapping[str, float]]
    metrics: Mapping[str, float]
    train_seconds: float


def check_output(output: Path) -> None:
    """UserError when the place of the run is taken: a run never overwrites another."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: already there", "a new folder for the run", "remove it, or set another output")


@contextmanager
def fresh_folder(output: Path) -> Iterator[Path]:
    """A folder to fill, renamed to `output` on success and removed on failure. Raises as `check_output`."""
    check_output(output)
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.replace(output)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def save_run(
    folder: Path, model: Any, tokenizer: PreTrainedTokenizerBase, record: RunRecord, log: Sequence[Mapping[str, float]]
) -> None:
    """Adapter or model, tokenizer, settings.yaml, log.jsonl, README.md and, last, run.json into `folder`."""
    adapters = {"selected_adapters": ["default"]} if hasattr(model, "peft_config") else {}
    model.save_pretrained(folder, **adapters)
    tokenizer.save_pretrained(folder)
    settings = yaml.safe_dump(dict(record.settings), sort_keys=False, allow_unicode=True)
    (folder / "settings.yaml").write_text(settings, encoding="utf-8")
    write_jsonl(folder / "log.jsonl", (dict(row) for row in log))
    (folder / "README.md").write_text(model_card(record, adapter=bool(adapters)), encoding="utf-8")
    write_run(folder, record)


def run_record(
    stage: Stage,
    base_model: str,
    data: str,
    settings: Settings,
    outcome: Outcome,
    beta: float | None = None,
    label_smoothing: float | None = None,
) -> RunRecord:
    """The record of a run; a β makes it one on pairs (K = 2)."""
    return RunRecord(
        stage=stage,
        base_model=base_model,
        data=data,
        beta=beta,
        label_smoothing=label_smoothing,
        responses_per_prompt=2 if beta is not None else None,
        settings=settings.model_dump(mode="json"),
        metrics=outcome.metrics,
        train_seconds=outcome.train_seconds,
        device=device(),
        versions={name: version(name) for name in LIBRARIES},
    )
