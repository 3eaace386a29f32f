"""Figures of a run that were measured before: kept by all that they come from, so that a killed command goes on and commands share them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from data_synth.types import ResponseRow, response_to_json
from eval.alignment.sample import SamplingSettings
from eval.alignment.types import PromptFigures
from graph.encode.weights import model_name
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json


def key_of(
    source: str,
    reference: str,
    rows: Sequence[ResponseRow],
    weights: Mapping[str, float],
    drawing: SamplingSettings,
    engine: str,
) -> str:
    """The hash of what figures come from: the weights of both policies, the prompts with their gold answers, rewards and sampling."""
    asked = [json.dumps({**response_to_json(row), "responses": [], "rewards": {}}, sort_keys=True) for row in rows]
    told = json.dumps([dict(weights), asdict(drawing), engine], sort_keys=True)
    return content_id(model_name(source), model_name(reference), told, *asked)


def kept_or(folder: Path | None, key: str, measure: Callable[[], list[PromptFigures]]) -> list[PromptFigures]:
    """The figures kept under `key`, or those of `measure`, which are then kept; a folder of None keeps nothing."""
    if folder is None:
        return measure()
    file = folder / f"{key}.json"
    if file.is_file():
        return [PromptFigures(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
    found = measure()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, [asdict(one) for one in found])
    return found
