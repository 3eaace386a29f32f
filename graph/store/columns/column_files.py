"""Writes columns to files and reads them: an array in one file, Strings in two, a sparse block in four; for a moved column, only its changes.

A file of changes (.moved.npz) contains the deleted and inserted rows and their values: an edit of a large index writes only these, and leaves
the files of the full column unchanged (graph/store/columns/moved.py)."""

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
    """Write an array in numpy's format through a Python file, because numpy's own writer (2.4) silently loses the last 4 KiB when the disk is full."""
    np.save(SimpleNamespace(write=opened.write), array, allow_pickle=False)


def save_array(file: Path, array: Any) -> None:
    """Write an array to a file."""
    with file.open("wb") as opened:
        write_array(opened, array)


BLOCK_PARTS = "data", "indices", "indptr"
"""The arrays of a block, which are stored with its shape."""
BLOCKS: tuple[Any, ...] = (sp.csr_array, Block)


def save_column(folder: Path, name: str, value: Any) -> None:
    """Write a column to the files whose names start with `name`."""
    if isinstance(value, Strings):
        save_array(folder / f"{name}.data.npy", value.data)
        save_array(folder / f"{name}.starts.npy", value.starts)
    elif sp.issparse(value):
        block = narrow(value)
        for part in BLOCK_PARTS:
            save_array(folder / f"{name}.{part}.npy", getattr(block, part))
        save_array(folder / f"{name}.shape.npy", np.array(block.shape, np.int64))
    else:
        save_array(folder / f"{name}.npy", value)


def load_column(folder: Path, name: str, kind: Any) -> Any:
    """The column in the files whose names start with `name`, memory-mapped where possible."""
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
"""Suffix of a file that contains only the changes of a column."""
MovedColumn: TypeAlias = MovedStrings | MovedBlock | MovedNumbers


def save_moved(file: Path, column: MovedColumn) -> None:
    """Write the changes of a column."""
    if isinstance(column, MovedBlock):
        parts = _row_map_parts("row", column.rows) | _row_map_parts("column", column.columns)
        parts |= {"replaced": column.replaced_G, "both_ways": np.array(column.both_ways)}
        parts |= {"added_" + name[:-2]: values for name, values in vars(column.added).items()}
    elif isinstance(column, MovedNumbers):
        parts = _row_map_parts("row", column.merge) | {"numbers": column.new_K}
        if column.of is not None:
            parts |= _row_map_parts("of", column.of) | {"of_rows": np.array(column.of.previous_count)}
    else:
        parts = _row_map_parts("row", column.merge) | {"data": column.new.data, "starts": column.new.starts}
    np.savez(file, allow_pickle=False, **parts)


class MovedFiles:
    """Reads moved columns from a base and a file of changes; columns with equal row maps share one RowMap."""

    def __init__(self) -> None:
        self._row_maps: dict[tuple[int, bytes, bytes], RowMap] = {}

    def load(self, file: Path, base: Any) -> MovedColumn:
        """The column `base` with the changes in a file."""
        with np.load(file, allow_pickle=False) as saved:
            parts = {name: saved[name] for name in saved.files}
        if isinstance(base, Strings):
            return MovedStrings(base, self._row_map(parts, "row", len(base)), Strings(parts["data"], parts["starts"]))
        if isinstance(base, np.ndarray):
            of = self._row_map(parts, "of", int(parts["of_rows"])) if "of_rows" in parts else None
            return MovedNumbers(base, self._row_map(parts, "row", len(base)), parts["numbers"], of)
        rows, columns = self._row_map(parts, "row", base.shape[0]), self._row_map(parts, "column", base.shape[1])
        entries = Entries(parts["added_row"], parts["added_column"], parts["added_value"])
        return MovedBlock(base, rows, columns, parts["replaced"], bool(parts["both_ways"]), entries)

    def _row_map(self, parts: dict[str, Any], name: str, count: int) -> RowMap:
        """The row map that `_row_map_parts` wrote, for `count` previous rows."""
        deleted, before = parts[f"{name}_gone"], parts[f"{name}_before"]
        key = count, deleted.tobytes(), before.tobytes()
        return self._row_maps.setdefault(key, RowMap.of(count, deleted, before))


def _row_map_parts(name: str, merge: RowMap) -> dict[str, Any]:
    """The arrays of a row map: the deleted rows, and for each inserted row the previous row that it precedes."""
    return {f"{name}_gone": merge.deleted_G, f"{name}_before": merge.before_K}
