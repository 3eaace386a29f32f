"""log π_ref of every response, taken once before the first step: the reference is what a run starts from, dropout off.

Kept in a file if asked, with the fingerprints of the weights and of the token ids that it was made from: a stale one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from graph.console import track
from graph.errors import UserError
from graph.ids import content_id
from graph.weights import model_name
from train.choices import Choice
from train.packing import Group

LogpsOf = Callable[[Any, Sequence[Group]], Tensor]
"""A model and groups to the log-probability of each of their responses, in order: packed or plain."""


def reference_logps(model: Any, choices: Sequence[Choice], logps_of: LogpsOf, at_once: int) -> list[Tensor]:
    """log π_ref of the responses of each choice, float32[K] on the CPU; `at_once` choices a forward pass."""
    taken: list[Tensor] = []
    training = model.training
    model.eval()
    batches = [choices[start : start + at_once] for start in range(0, len(choices), at_once)]
    with torch.no_grad():
        for batch in track(batches, "reference log-probabilities", len(batches)):
            logps_R = logps_of(model, [choice.group for choice in batch]).float().cpu()
            taken += torch.split(logps_R, [len(choice.group.responses) for choice in batch])
    model.train(training)
    return taken


def kept_reference(
    file: Path, source: str, precision: str, choices: Sequence[Choice], compute: Callable[[], list[Tensor]]
) -> list[Tensor]:
    """The log-probabilities in `file`, made by `compute` if there is none; UserError when they are of other weights or data."""
    made_from = {"model": model_name(source), "precision": precision, "data": data_fingerprint(choices)}
    if not file.exists():
        taken = compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(file.name + ".partial")
        save_file({"logps": torch.cat(taken)}, partial, metadata=made_from)
        partial.replace(file)
        return taken
    try:
        with safe_open(file, framework="pt") as stored:
            found, logps_R = stored.metadata() or {}, stored.get_tensor("logps")
    except (SafetensorError, OSError) as problem:
        raise UserError(f"{file}: not a reference cache ({problem})", "a file of this program's", "remove it") from None
    for what, expected in made_from.items():
        if found.get(what) != expected:
            raise UserError(
                f"{file}: reference log-probabilities of another {what} ({found.get(what)})",
                f"those of {expected}",
                "remove the file, or set reference_cache to another one",
            )
    return list(torch.split(logps_R, [len(choice.group.responses) for choice in choices]))


def data_fingerprint(choices: Sequence[Choice]) -> str:
    """Hash of every token id, in order."""
    return content_id(*(str((choice.group.prompt, choice.group.responses)) for choice in choices))
