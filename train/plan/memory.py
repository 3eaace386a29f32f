"""The memory of a training process: weights, gradients, AdamW's states, and the activations that a forward pass stores for the backward one.

The first three are computed from a model's shape and the configuration of `accelerate launch`, which defines the sharding; the last is
measured as the peak size of all tensors."""

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
"""The parts of memory, in the order in which ZeRO's stages shard them (Rajbhandari et al. 2020, §5)."""


@dataclass(frozen=True)
class Launch:
    """A launch of one or more processes, each with its own batch; `sharded` names the parts of memory that are sharded among them."""

    processes: int = 1
    sharded: tuple[str, ...] = ()


def read_launch(file: Path) -> Launch:
    """The launch that an accelerate configuration describes (FSDP counts as full sharding).

    UserError for a kind of launch whose memory cannot be computed here, and for an invalid number of processes or ZeRO stage.
    """
    values = read_yaml(file)
    # YAML reads an unquoted NO as false.
    kind, processes = str(values.get("distributed_type") or "NO").upper(), values.get("num_processes", 1)
    if not isinstance(processes, int) or processes < 1:
        raise UserError(f"{file}: num_processes is {processes!r}", "an integer of at least 1", "fix the file")
    if kind in ("NO", "MULTI_CPU", "MULTI_GPU"):
        return Launch(processes)
    if kind == "FSDP":
        return Launch(processes, PARTS)
    if kind == "DEEPSPEED":
        return Launch(processes, PARTS[: _zero_stage(file, values.get("deepspeed_config") or {})])
    expected = "NO, MULTI_CPU, MULTI_GPU, FSDP or DEEPSPEED"
    raise UserError(f"{file}: distributed_type is {kind}", expected, "fix the file")


def _zero_stage(file: Path, config: Any) -> int:
    default = None if isinstance(config, dict) and "deepspeed_config_file" in config else 2
    stage: Any = config.get("zero_stage", default) if isinstance(config, dict) else config
    if stage not in range(4):
        raise UserError(
            f"{file}: deepspeed_config.zero_stage is {stage!r}", "0, 1, 2 or 3", "set the stage in this file"
        )
    return int(stage)


ADAMW_STATES = 2
"""Means of gradients and of their squares (Kingma and Ba 2015), each as large as the trained weights."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process; `activations` and `total` are None without a measured step.

    `total` is slightly too high: activations are freed as gradients are computed.
    """

    weights: float
    gradients: float
    optimiser: float
    activations: float | None
    total: float | None


def memory_of(shape: Shape, launch: Launch, activations: float | None = None) -> Memory:
    """The memory of each process in a step, given the sharding of `launch`; before the first step, each process has the full weights."""

    def share(part: str, size: float) -> float:
        return size / launch.processes if part in launch.sharded else size

    weights = share("weights", shape.weights_bytes)
    gradients = share("gradients", shape.trainable_bytes)
    optimiser = share("optimiser", ADAMW_STATES * shape.trainable_bytes)
    total = None if activations is None else weights + gradients + optimiser + activations
    return Memory(weights, gradients, optimiser, activations, total)


@contextmanager
def peak_bytes(device: str) -> Iterator[Callable[[], int]]:
    """Yields a function that returns the peak total size so far, in bytes, of the tensors created in the block.

    On a GPU, the allocator reports it; on other devices, every storage is tracked, which is slow.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield lambda: torch.cuda.max_memory_allocated() - before
        return
    with _Storages() as storages:
        yield lambda: storages.peak


class _Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of live storages: a storage is added when an operation first returns a tensor that uses it, and subtracted when it is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {id(storage) for storage in _storages((args, kwargs))}
        result = function(*args, **(kwargs or {}))
        for storage in _storages(result):
            if id(storage) not in inputs and storage not in self._known:
                self._known[storage] = True
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._freed, storage.nbytes())
        return result

    def _freed(self, size: int) -> None:
        self.live -= size


def _storages(values: Any) -> list[Any]:
    return [each.untyped_storage() for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
