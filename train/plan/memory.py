"""What a training process holds: weights, gradients, AdamW's states, and what a forward pass keeps for the backward one.

The first three are formulas over a model's shape; the last is measured, with all else that lives at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from train.plan.launch import Launch
from train.plan.shape import Shape

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
