"""What a training process holds: weights, gradients, AdamW's states, and what a forward pass keeps for the backward one.

The first three are formulas over a model's shape and the file of `accelerate launch`, which says what is sharded among processes; the last
is measured, with everything else that lives at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from graph.config import read_yaml
from graph.errors import UserError
from train.plan.flops import Shape

PARTS = ("optimiser", "gradients", "weights")
"""In the order in which ZeRO's stages deal them out (Rajbhandari et al. 2020, §5)."""


@dataclass(frozen=True)
class Launch:
    """`processes` with a batch each, and the parts of memory of which each holds its share alone."""

    processes: int = 1
    dealt_out: tuple[str, ...] = ()


def read_launch(file: Path) -> Launch:
    """What a configuration of accelerate says; UserError for a kind whose memory is not known here."""
    values = read_yaml(file)
    kind, processes = str(values.get("distributed_type", "NO")).upper(), values.get("num_processes", 1)
    if not isinstance(processes, int) or processes < 1:
        raise UserError(f"{file}: num_processes is {processes!r}", "a number from 1 on", "fix the file")
    if kind in ("NO", "MULTI_CPU", "MULTI_GPU"):
        return Launch(processes)
    if kind == "FSDP":
        return Launch(processes, PARTS)
    if kind == "DEEPSPEED":
        return Launch(processes, PARTS[: _stage(values)])
    raise UserError(
        f"{file}: distributed_type is {kind}", "NO, MULTI_CPU, MULTI_GPU, FSDP or DEEPSPEED", "fix the file"
    )


def _stage(values: dict[str, Any]) -> int:
    return int((values.get("deepspeed_config") or {}).get("zero_stage", 2))


ADAMW_STATES = 2
"""Means of gradients and of their squares (Kingma and Ba 2015), each as large as what learns."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process; `activations` and `total` are None where no step was taken.

    All of them are never there at once, since activations go as gradients come: `total` is a little more than is needed.
    """

    weights: float
    gradients: float
    optimiser: float
    activations: float | None
    total: float | None


def memory_of(shape: Shape, launch: Launch, activations: float | None = None) -> Memory:
    """Of each process, where `launch` deals some parts out among them."""

    def held(part: str, size: float) -> float:
        return size / launch.processes if part in launch.dealt_out else size

    weights = held("weights", shape.weights_bytes)
    gradients = held("gradients", shape.learning_bytes)
    optimiser = held("optimiser", ADAMW_STATES * shape.learning_bytes)
    whole = None if activations is None else weights + gradients + optimiser + activations
    return Memory(weights, gradients, optimiser, activations, whole)


@contextmanager
def peak_bytes(device: str) -> Iterator[Callable[[], int]]:
    """The most bytes that tensors made in this block held at a time so far: as a GPU's allocator tells, elsewhere counted, which is slow."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield lambda: torch.cuda.max_memory_allocated() - before
        return
    with _Storages() as counted:
        yield lambda: counted.peak


class _Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds a storage where an operation gives a tensor that lies in a new one, and takes it off when it goes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(storage) for storage in _storages((args, kwargs))}
        made = function(*args, **(kwargs or {}))
        for storage in _storages(made):
            if id(storage) not in given and storage not in self._known:
                self._known[storage] = True
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._gone, storage.nbytes())
        return made

    def _gone(self, size: int) -> None:
        self.live -= size


def _storages(values: Any) -> list[Any]:
    return [each.untyped_storage() for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
