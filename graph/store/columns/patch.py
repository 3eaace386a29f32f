"""What has changed in a column since it was written whole, in a file of its own (.moved.npz): the rows that went and came, and what is new.

So an edit of a large index writes what it changes, and the file of the whole column stays as it is (graph/store/columns/moved.py).
"""

from pathlib import Path
from typing import Any

import numpy as np

from graph.store.columns.blocks import Entries
from graph.store.columns.merge import Merge
from graph.store.columns.moved import MovedBlock, MovedStrings
from graph.store.columns.strings import Strings

MOVED = ".moved.npz"
"""After the name of a field."""


def save_moved(file: Path, column: MovedStrings | MovedBlock) -> None:
    """Write what has changed in a column."""
    if isinstance(column, MovedStrings):
        parts = _merge("row", column.merge) | {"data": column.new.data, "starts": column.new.starts}
    else:
        parts = _merge("row", column.rows) | _merge("column", column.columns)
        parts |= {"replaced": np.flatnonzero(column.replaced_L), "both_ways": np.array(column.both_ways)}
        parts |= {"added_" + name[:-2]: values for name, values in vars(column.added).items()}
    np.savez(file, allow_pickle=False, **parts)


class MovedFiles:
    """Reads columns of which a file says what has changed; rows that have moved alike are kept once."""

    def __init__(self) -> None:
        self._merges: dict[tuple[int, bytes, bytes], Merge] = {}

    def load(self, file: Path, base: Any) -> MovedStrings | MovedBlock:
        """The column of which a file says what has changed since `base`."""
        with np.load(file, allow_pickle=False) as saved:
            parts = {name: saved[name] for name in saved.files}
        if isinstance(base, Strings):
            return MovedStrings(base, self._moves(parts, "row", len(base)), Strings(parts["data"], parts["starts"]))
        replaced_L = np.zeros(base.shape[0], bool)
        replaced_L[parts["replaced"]] = True
        rows, columns = self._moves(parts, "row", base.shape[0]), self._moves(parts, "column", base.shape[1])
        entries = Entries(parts["added_row"], parts["added_column"], parts["added_value"])
        return MovedBlock(base, rows, columns, replaced_L, bool(parts["both_ways"]), entries)

    def _moves(self, parts: dict[str, Any], name: str, count: int) -> Merge:
        """What `_merge` told, of so many rows."""
        gone, before = parts[f"{name}_gone"], parts[f"{name}_before"]
        key = count, gone.tobytes(), before.tobytes()
        if key not in self._merges:
            kept_L = np.ones(count, bool)
            kept_L[gone] = False
            self._merges[key] = Merge.of(kept_L, before)
        return self._merges[key]


def _merge(name: str, merge: Merge) -> dict[str, Any]:
    """Which rows went, and in front of which new ones came."""
    return {f"{name}_gone": merge.gone_G, f"{name}_before": merge.before_K}
