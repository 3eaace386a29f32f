"""A column into its files, and back: an array in one, Strings in two, a sparse block in four."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graph.disk.npy import save_array
from graph.store.columns.blocks import narrow
from graph.store.columns.moved import Block
from graph.store.columns.strings import Strings

BLOCK_PARTS, OLD_BLOCK = ("data", "indices", "indptr"), ".npz"
"""Of a block, the arrays that it is kept in beside its shape; before format 8 all were in one file."""
BLOCKS: tuple[Any, ...] = (sp.csr_array, Block)


def files_of(name: str, kind: Any) -> list[str]:
    """The files that a column of that name and kind is kept in."""
    if kind is Strings:
        return [f"{name}.data.npy", f"{name}.starts.npy"]
    if kind in BLOCKS:
        return [f"{name}.{part}.npy" for part in (*BLOCK_PARTS, "shape")]
    return [f"{name}.npy"]


def save_column(folder: Path, name: str, value: Any) -> None:
    """Write a column into the files of that name."""
    if isinstance(value, Strings):
        save_array(folder / f"{name}.data.npy", value.data)
        save_array(folder / f"{name}.starts.npy", value.starts)
    elif sp.issparse(value):
        kept = narrow(value)
        for part in BLOCK_PARTS:
            save_array(folder / f"{name}.{part}.npy", getattr(kept, part))
        save_array(folder / f"{name}.shape.npy", np.array(kept.shape, np.int64))
    else:
        save_array(folder / f"{name}.npy", value)


def load_column(folder: Path, name: str, kind: Any) -> Any:
    """The column of that name, memory-mapped where it can be."""
    if kind is Strings:
        return Strings(_load_array(folder / f"{name}.data.npy"), _load_array(folder / f"{name}.starts.npy"))
    if kind in BLOCKS:
        if (folder / f"{name}{OLD_BLOCK}").exists():
            return sp.csr_array(sp.load_npz(folder / f"{name}{OLD_BLOCK}"))
        shape = tuple(np.load(folder / f"{name}.shape.npy").tolist())
        return sp.csr_array(tuple(_load_array(folder / f"{name}.{part}.npy") for part in BLOCK_PARTS), shape=shape)
    return _load_array(folder / f"{name}.npy")


def _load_array(file: Path) -> Any:
    """A memory map as a plain array: numpy's class for maps would make every slice three times as slow."""
    return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
