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

from graph.encode.weights import model_name
from graph.shared.console import track
from graph.shared.errors import UserError
from graph.shared.ids import content_id
from train.model.packing import Group
from train.preference.choices import Choice

LogpsOf = Callable[[Any, Sequence[Group]], Tensor]
"""A model and groups to the log-probability of each of their responses, in order: packed or plain."""


def reference_logps(model: Any, choices: Sequence[Choice], logps_of: LogpsOf, at_once: int) -> list[Tensor]:
    """log π_ref of the responses of each choice, float32[K] on the CPU; a forward pass has as many responses as `at_once` choices.

    Choices of one prompt go through together, so that small groups dealt from many responses do not read it again and again.
    """
    taken: dict[int, Tensor] = {}
    training = model.training
    model.eval()
    passes = shared_passes(choices, at_once * max((len(choice.group.responses) for choice in choices), default=1))
    with torch.no_grad():
        for sharing in track(passes, "reference log-probabilities", len(passes)):
            logps_R = logps_of(model, [merge([choices[number].group for number in numbers]) for numbers in sharing])
            order = [number for numbers in sharing for number in numbers]
            sizes = [len(choices[number].group.responses) for number in order]
            taken |= zip(order, torch.split(logps_R.float().cpu(), sizes), strict=True)
    model.train(training)
    return [taken[number] for number in range(len(choices))]


def shared_passes(choices: Sequence[Choice], most_responses: int) -> list[list[list[int]]]:
    """Forward passes of at most `most_responses`: in each, the numbers of the choices of one prompt stand together."""
    passes: list[list[list[int]]] = []
    free = 0
    for number in sorted(range(len(choices)), key=lambda number: choices[number].group.prompt):
        group = choices[number].group
        if len(group.responses) > free:
            passes.append([])
            free = most_responses
        free -= len(group.responses)
        last = passes[-1]
        if last and choices[last[-1][0]].group.prompt == group.prompt:
            last[-1].append(number)
        else:
            last.append([number])
    return passes


def merge(groups: Sequence[Group]) -> Group:
    """Groups of one prompt as one."""
    return Group(groups[0].prompt, tuple(response for group in groups for response in group.responses))


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
