"""Runs measured on held-out prompts: samples drawn, rewarded by the functions that the training data were rewarded by, and scored
under the policy and under its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from data_synth.responses.rewards import answer_reward, citation_reward, format_reward, length_reward, variety_reward
from data_synth.types import ResponseRow
from eval.alignment.sample import SamplingSettings, draw_samples, logps_of_samples
from eval.alignment.types import MeasuredRun, PromptFigures
from graph.shared.console import track
from graph.shared.errors import UserError
from train.model.logps import tokenize_row
from train.model.packing import can_pack
from train.shared.types import RunRecord, read_run

Load = Callable[[str], tuple[Any, Any]]
"""A model's source to (model, tokenizer), ready to generate and to score."""

REWARDS: dict[str, Callable[[str, ResponseRow], float]] = {
    "correct": lambda text, row: answer_reward(text, row.answers),
    "format": lambda text, row: format_reward(text),
    "citations": lambda text, row: citation_reward(text, row.context_size),
    "length": lambda text, row: length_reward(text),
    "variety": lambda text, row: variety_reward(text),
}
"""The components that can be measured on a new text without an index or another model."""


def measure_runs(
    folders: Sequence[Path], rows: Sequence[ResponseRow], drawing: SamplingSettings, load: Load
) -> tuple[list[MeasuredRun], list[PromptFigures]]:
    """Every run on every row, and their reference; UserError unless all have one reference and the same weights of rewards."""
    records = [read_run(folder) for folder in folders]
    weights = common_weights(folders, records)
    source = common_reference(folders, records)
    reference, _ = load(source)
    measured = [
        MeasuredRun(folder, record, tuple(measure_run(str(folder), rows, weights, reference, drawing, load)))
        for folder, record in zip(folders, records, strict=True)
    ]
    return measured, measure_run(source, rows, weights, reference, drawing, load)


def measure_run(
    source: str,
    rows: Sequence[ResponseRow],
    weights: Mapping[str, float],
    reference: Any,
    drawing: SamplingSettings,
    load: Load,
) -> list[PromptFigures]:
    """The figures of one policy on each row; samples of a prompt have the same seed under every policy."""
    model, tokenizer = load(source)
    if reason := can_pack(model):
        raise UserError(f"{source}: its samples cannot be scored together ({reason})", "full attention", "leave it out")
    figures = []
    for row in track(rows, Path(source).name, len(rows)):
        whole = tokenize_row(tokenizer, row.prompt, row.responses[0])
        drawn = draw_samples(model, tokenizer, whole.ids[: whole.prompt_tokens], drawing, row.id)
        logps, reference_logps = logps_of_samples(model, drawn), logps_of_samples(reference, drawn)
        figures.append(
            PromptFigures(
                reward=fmean(reward_of(text, row, weights) for text in drawn.texts),
                kl=float((logps - reference_logps).mean()),
                entropy=float(-logps.mean()),
                words=fmean(len(text.split()) for text in drawn.texts),
                correct=fmean(answer_reward(text, row.answers) == 1.0 for text in drawn.texts),
            )
        )
    return figures


def reward_of(text: str, row: ResponseRow, weights: Mapping[str, float]) -> float:
    """Σ_c w_c r_c of one text, over the components that can be measured."""
    return sum(weight * REWARDS[component](text, row) for component, weight in weights.items() if component in REWARDS)


def common_weights(folders: Sequence[Path], records: Sequence[RunRecord]) -> dict[str, float]:
    """The weights of rewards that the runs on scored responses were trained with: runs on pairs know none, and follow.

    Runs on pairs alone are rewarded for correct answers. UserError when weights differ, or none of them can be measured.
    """
    told = [
        (folder, dict(record.settings.get("rewards") or {})) for folder, record in zip(folders, records, strict=True)
    ]
    given = [(folder, weights) for folder, weights in told if weights]
    if not given:
        return {"correct": 1.0}
    first = given[0][1]
    for folder, weights in given:
        if weights != first:
            found = f"{folder}: rewards {weights}, not {first}"
            raise UserError(found, "runs that were trained for the same reward", "compare runs of one reward")
    if not set(first) & set(REWARDS):
        raise UserError(
            f"{given[0][0]}: rewards {first}", f"at least one of {', '.join(REWARDS)}", "train with another reward"
        )
    return first


def common_reference(folders: Sequence[Path], records: Sequence[RunRecord]) -> str:
    """What all runs started from; UserError when they did not start from the same."""
    for folder, record in zip(folders, records, strict=True):
        if record.beta is None:
            raise UserError(f"{folder}: a run of stage {record.stage}", "preference runs (ms or dpo)", "leave it out")
        if record.base_model != records[0].base_model:
            found = f"{folder}: started from {record.base_model}, {folders[0]} from {records[0].base_model}"
            raise UserError(found, "runs with one reference", "compare runs from the same start")
    return records[0].base_model
