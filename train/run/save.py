"""The output folder of every training command: it exists only once it is complete, so that it can be served, compared and published."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedTokenizerBase
from transformers.trainer import TRAINER_STATE_NAME

from graph.config import Settings
from graph.errors import UserError
from graph.models.catalogue import name_of
from graph.models.checkpoint import ADAPTER_CONFIG, base_weights, model_name
from graph.shared.jsonl import write_jsonl, write_text
from graph.shared.progress import check_idle, report_progress
from graph.shared.runs import LOG
from train.model.load import device
from train.run.data import form_of_rows, rows_fingerprint
from train.run.record import Alignment, RunRecord, Stage, model_card, write_run

CHECKPOINTS, SETTINGS = "checkpoints", "settings.yaml"
NOT_ALIGNED = Alignment()
LIBRARIES = ("torch", "transformers", "trl", "peft", "datasets")


@dataclass(frozen=True)
class Outcome:
    """The result of a training loop: the logged rows in order, the final figures and the training time in seconds."""

    log: Sequence[Mapping[str, float]]
    metrics: Mapping[str, float]
    train_seconds: float


NO_OUTCOME = Outcome((), {}, 0.0)
"""The outcome of a run before its first step."""


def check_output(output: Path) -> None:
    """UserError if `output` exists and is not an empty folder (a run never overwrites another), or is "." or ends in ".."."""
    if output.name in ("", ".."):
        raise UserError(f"{output}: this folder, or one above it", "a new folder for the run", "give it a name")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: already exists", "a new folder for the run", "remove it, or set another output")


def about_run(stage: str, settings: Settings) -> dict[str, Any]:
    """The description of a run in progress."""
    return {"stage": stage, "settings": settings.recorded()}


@contextmanager
def fresh_folder(output: Path, resumable: bool = False, about: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """A folder to fill next to `output`, renamed to `output` on success and removed on failure. UserError as in `check_output`.

    With `about`, a description of the run, its progress can be watched while it runs (graph/shared/progress.py).

    A resumable folder is not removed on failure, and may already have the files of an interrupted run. UserError if the folder is not resumable
    but has the checkpoints of such a run, or if another run is filling it. Of several processes, only the first writes to the disk.
    """
    check_output(output)
    partial = output.with_name(output.name + ".partial")
    if not resumable and (partial / CHECKPOINTS / SETTINGS).exists():
        raise _other_run(f"{partial}: an interrupted run with save_steps")
    if not is_main_process():
        yield partial
        return
    check_idle(partial)
    if not resumable:
        shutil.rmtree(partial, ignore_errors=True)
    elif not (partial / CHECKPOINTS / SETTINGS).exists():  # the checkpoints of a run that was not resumable
        shutil.rmtree(partial / CHECKPOINTS, ignore_errors=True)
    partial.mkdir(parents=True, exist_ok=True)
    try:
        with nullcontext() if about is None else report_progress(partial, about):
            yield partial
        shutil.rmtree(partial / CHECKPOINTS, ignore_errors=True)
        partial.replace(output)
    except BaseException:
        if not resumable:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def last_checkpoint(folder: Path, settings: Settings, origin: Mapping[str, str]) -> str | None:
    """The checkpoint of an interrupted run in `folder` to resume from, or None. UserError as in `check_same_run`."""
    check_same_run(folder, settings, origin)
    complete = [file for file in (folder / CHECKPOINTS).glob("checkpoint-*") if _is_complete(file)]
    return str(max(complete, key=lambda checkpoint: int(checkpoint.name.rpartition("-")[2]))) if complete else None


def check_same_run(folder: Path, settings: Settings, origin: Mapping[str, str]) -> None:
    """Write the settings and the `origin` of the run in progress to its folder; UserError if an interrupted run there has different ones.

    `origin` maps the data, the weights and the reference model to their fingerprints.
    """
    description_file = folder / CHECKPOINTS / SETTINGS
    run = {"settings": settings.recorded(), "made from": dict(origin)}
    description = yaml.safe_dump(run, sort_keys=False, allow_unicode=True)
    if description_file.exists():
        earlier = yaml.safe_load(description_file.read_text(encoding="utf-8"))
        if names := _differences(earlier, yaml.safe_load(description)):
            same_version = all(earlier[part].keys() == values.keys() for part, values in run.items())
            started = "" if same_version else ", or by another version of modegraph"
            raise _other_run(f"{folder}: an interrupted run with other {', '.join(names)}{started}")
    if is_main_process():
        description_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(description_file, description)


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names whose values differ between the descriptions of two runs: settings, then what the runs are made from."""
    pairs = [(one[part], other[part]) for part in one]
    return list(dict.fromkeys(name for a, b in pairs for name in a | b if a.get(name) != b.get(name)))


def _other_run(found: str) -> UserError:
    return UserError(found, "the same settings and inputs, to resume it", "remove the folder, or set another output")


def _is_complete(checkpoint: Path) -> bool:
    """Whether a checkpoint is complete: the trainer writes its state last, so an interrupted one has none."""
    try:
        return "global_step" in json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def is_main_process() -> bool:
    """Whether this is the first of several training processes, or the only one (torchrun and accelerate set RANK)."""
    return os.environ.get("RANK", "0") == "0"


def save_run(
    folder: Path,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    record: RunRecord,
    log: Sequence[Mapping[str, float]],
    weights: Mapping[str, Any] | None = None,
) -> None:
    """Save adapter or model (with `weights`, if given), tokenizer, settings, log, card and, last, run.json."""
    adapters = {"selected_adapters": ["default"]} if hasattr(model, "peft_config") else {}
    model.save_pretrained(folder, state_dict=weights, **adapters)
    if adapters:
        _normalise_config(folder / ADAPTER_CONFIG)
    tokenizer.save_pretrained(folder)
    save_record(folder, record, log, adapter=bool(adapters))


def save_record(folder: Path, record: RunRecord, log: Sequence[Mapping[str, float]], adapter: bool) -> None:
    """Save settings, log, card and, last, run.json of a run whose weights are in the folder."""
    settings = yaml.safe_dump(dict(record.settings), sort_keys=False, allow_unicode=True)
    (folder / SETTINGS).write_text(settings, encoding="utf-8")
    write_jsonl(folder / LOG, (dict(row) for row in log))
    (folder / "README.md").write_text(model_card(record, adapter), encoding="utf-8")
    write_run(folder, record)


def _normalise_config(config: Path) -> None:
    """Record a pretrained base in an adapter's configuration by its name, not by its path in this user's cache; and sort the layers.

    PEFT stores the layers as a set, so their order, and with it the fingerprint, differs between processes.
    """
    values = json.loads(config.read_text(encoding="utf-8"))
    if isinstance(values["target_modules"], list):
        values["target_modules"].sort()
    values["base_model_name_or_path"] = name_of(values["base_model_name_or_path"])
    config.write_text(json.dumps(values, indent=2, sort_keys=True), encoding="utf-8")


def run_record(
    stage: Stage, base_model: str, data: str, settings: Settings, outcome: Outcome, alignment: Alignment = NOT_ALIGNED
) -> RunRecord:
    """The record of a run, with an `alignment` for preference training."""
    reference = getattr(settings, "reference", None)
    return RunRecord(
        stage=stage,
        base_model=base_model,
        base_weights="" if stage == "tiny" else base_weights(base_model),
        data=data,
        **vars(alignment),
        settings=settings.recorded(),
        metrics=outcome.metrics,
        train_seconds=outcome.train_seconds,
        device=device(),
        versions={name: version(name) for name in LIBRARIES},
        data_fingerprint=rows_fingerprint(Path(data)),
        answer_form=form_of_rows(Path(data)),
        reference_name=model_name(reference) if reference else "",
    )
