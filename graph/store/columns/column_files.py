"""A column into its files, and back: an array in one, Strings in two, a sparse block in four; of one that has moved, the change alone.

A change (.moved.npz) holds the rows that went and came, and what is new: an edit of a large index writes that, and the files of the whole
column stay as they are (graph/store/columns/moved.py)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import scipy.sparse as sp

from graph.store.columns.blocks import Entries, narrow
from graph.store.columns.moved import Block, MovedBlock, MovedNumbers, MovedStrings
from graph.store.columns.row_map import RowMap
from graph.store.columns.strings import Strings


def write_array(opened: BinaryIO, array: Any) -> None:
    """An array as numpy saves it, but by Python's own writing: of numpy's (2.4), the last 4 KiB are lost without a word where the disk is full."""
    np.save(SimpleNamespace(write=opened.write), array, allow_pickle=False)


def save_array(file: Path, array: Any) -> None:
    """An array as a file of its own."""
    with file.open("wb") as opened:
        write_array(opened, array)


BLOCK_PARTS = "data", "indices", "indptr"
"""Of a block, the arrays that it is kept in beside its shape."""
BLOCKS: tuple[Any, ...] = (sp.csr_array, Block)


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
        shape = tuple(np.load(folder / f"{name}.shape.npy").tolist())
        return sp.csr_array(tuple(_load_array(folder / f"{name}.{part}.npy") for part in BLOCK_PARTS), shape=shape)
    return _load_array(folder / f"{name}.npy")


def _load_array(file: Path) -> Any:
    """A memory map as a plain array: numpy's class for maps would make every slice three times as slow."""
    return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))


MOVED = ".moved.npz"
"""After the name of a field."""


MovedColumn: TypeAlias = MovedStrings | MovedBlock | MovedNumbers


def save_moved(file: Path, column: MovedColumn) -> None:
    """Write what has changed in a column."""
    if isinstance(column, MovedBlock):
        parts = _row_map_parts("row", column.rows) | _row_map_parts("column", column.columns)
        parts |= {"replaced": column.replaced_G, "both_ways": np.array(column.both_ways)}
        parts |= {"added_" + name[:-2]: values for name, values in vars(column.added).items()}
    elif isinstance(column, MovedNumbers):
        parts = _row_map_parts("row", column.merge) | {"numbers": column.new_K}
        if column.of is not None:
            parts |= _row_map_parts("of", column.of) | {"of_rows": np.array(column.of.count)}
    else:
        parts = _row_map_parts("row", column.merge) | {"data": column.new.data, "starts": column.new.starts}
    np.savez(file, allow_pickle=False, **parts)


class MovedFiles:
    """Reads columns of which a file says what has changed; rows that have moved alike are kept once."""

    def __init__(self) -> None:
        self._merges: dict[tuple[int, bytes, bytes], RowMap] = {}

    def load(self, file: Path, base: Any) -> MovedColumn:
        """The column of which a file says what has changed since `base`."""
        with np.load(file, allow_pickle=False) as saved:
            parts = {name: saved[name] for name in saved.files}
        if isinstance(base, Strings):
            return MovedStrings(base, self._moves(parts, "row", len(base)), Strings(parts["data"], parts["starts"]))
        if isinstance(base, np.ndarray):
            of = self._moves(parts, "of", int(parts["of_rows"])) if "of_rows" in parts else None
            return MovedNumbers(base, self._moves(parts, "row", len(base)), parts["numbers"], of)
        rows, columns = self._moves(parts, "row", base.shape[0]), self._moves(parts, "column", base.shape[1])
        entries = Entries(parts["added_row"], parts["added_column"], parts["added_value"])
        return MovedBlock(base, rows, columns, parts["replaced"], bool(parts["both_ways"]), entries)

    def _moves(self, parts: dict[str, Any], name: str, count: int) -> RowMap:
        """What `_merge` told, of so many rows."""
        gone, before = parts[f"{name}_gone"], parts[f"{name}_before"]
        key = count, gone.tobytes(), before.tobytes()
        return self._merges.setdefault(key, RowMap.of(count, gone, before))


def _row_map_parts(name: str, merge: RowMap) -> dict[str, Any]:
    """Which rows went, and in front of which new ones came."""
    return {f"{name}_gone": merge.gone_G, f"{name}_before": merge.before_K}
