"""log π_ref of every response, computed once before the first step: the reference is the initial model of a run or another model, with dropout off.

The log-probabilities can be cached in a file with the fingerprints of the weights and of the token ids: a stale cache is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from graph.errors import UserError
from graph.shared.console import track
from graph.shared.ids import content_id
from graph.shared.jsonl import replacing
from train.model.packing import LogpsOf, TokenizedGroup
from train.preference.groups import ResponseGroup


def group_logps(model: Any, groups: Sequence[ResponseGroup], logps_of: LogpsOf, groups_per_pass: int) -> list[Tensor]:
    """log π of the responses of each group: float32[K] on the CPU, in the forward passes of `shared_passes`."""
    logps_of_group: dict[int, Tensor] = {}
    training = model.training
    model.eval()
    passes = shared_passes(groups, groups_per_pass)
    with torch.no_grad():
        for one_pass in track(passes, "log-probabilities", len(passes)):
            logps_R = logps_of(model, [merge([groups[number].tokenized for number in numbers]) for numbers in one_pass])
            order = [number for numbers in one_pass for number in numbers]
            sizes = [len(groups[number].tokenized.responses) for number in order]
            logps_of_group |= zip(order, torch.split(logps_R.float().cpu(), sizes), strict=True)
    model.train(training)
    return [logps_of_group[number] for number in range(len(groups))]


def shared_passes(groups: Sequence[ResponseGroup], groups_per_pass: int) -> list[list[list[int]]]:
    """The numbers of the groups by forward pass, then by prompt: a pass is a list of lists, one for each of its prompts.

    A pass has at most `groups_per_pass` times as many responses as the largest group. Groups of one prompt share a pass where they fit, so
    that the prompt is rarely computed again when its many responses are split into small groups.
    """
    max_responses = groups_per_pass * max((len(group.tokenized.responses) for group in groups), default=1)
    passes: list[list[list[int]]] = []
    free = 0
    for number in sorted(range(len(groups)), key=lambda number: groups[number].tokenized.prompt):
        tokenized = groups[number].tokenized
        if len(tokenized.responses) > free:
            passes.append([])
            free = max_responses
        free -= len(tokenized.responses)
        last = passes[-1]
        if last and groups[last[-1][0]].tokenized.prompt == tokenized.prompt:
            last[-1].append(number)
        else:
            last.append([number])
    return passes


def merge(groups: Sequence[TokenizedGroup]) -> TokenizedGroup:
    """Groups of one prompt as one group."""
    return TokenizedGroup(groups[0].prompt, tuple(response for group in groups for response in group.responses))


def cached_reference(
    file: Path, origin: Mapping[str, str], groups: Sequence[ResponseGroup], compute: Callable[[], list[Tensor]]
) -> list[Tensor]:
    """The log-probabilities in `file`, or, if it does not exist, those of `compute`, which are then written to it.

    UserError if the file is not such a cache, or belongs to another `origin` (weights, precision …) or to other data.
    """
    origin = {**origin, "data": data_fingerprint(groups)}
    if not file.exists():
        logps = compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as partial:
            save_file({"logps": torch.cat(logps)}, partial, metadata=origin)
        return logps
    try:
        with safe_open(file, framework="pt") as stored:
            metadata, logps_R = stored.metadata() or {}, stored.get_tensor("logps")
    except (SafetensorError, OSError) as problem:
        found = f"{file}: not a reference cache ({problem})"
        raise UserError(
            found,
            "a file that an earlier run wrote for `reference_cache`",
            "remove it, or set reference_cache to another file",
        ) from None
    for key, expected in origin.items():
        if metadata.get(key) != expected:
            found = f"{file}: reference log-probabilities with {key} {metadata.get(key)}"
            raise UserError(found, f"{key} {expected}", "remove the file, or set reference_cache to another file")
    return list(torch.split(logps_R, [len(group.tokenized.responses) for group in groups]))


def data_fingerprint(groups: Sequence[ResponseGroup]) -> str:
    """Hash of every token id, in order."""
    return content_id(*(str((group.tokenized.prompt, group.tokenized.responses)) for group in groups))
