"""What has changed in a column since it was written whole, in a file of its own (.moved.npz): the rows that went and came, and what is new.

So an edit of a large index writes what it changes, and the file of the whole column stays as it is (graph/store/columns/moved.py).
"""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graph.store.columns.blocks import Entries
from graph.store.columns.merge import Merge
from graph.store.columns.moved import MovedBlock, MovedStrings
from graph.store.columns.numbers import MovedNumbers
from graph.store.columns.strings import Strings

MOVED = ".moved.npz"
"""After the name of a field."""


Moved: TypeAlias = MovedStrings | MovedBlock | MovedNumbers


def save_moved(file: Path, column: Moved) -> None:
    """Write what has changed in a column."""
    if isinstance(column, MovedBlock):
        parts = _merge("row", column.rows) | _merge("column", column.columns)
        parts |= {"replaced": column.replaced_G, "both_ways": np.array(column.both_ways)}
        parts |= {"added_" + name[:-2]: values for name, values in vars(column.added).items()}
    elif isinstance(column, MovedNumbers):
        parts = _merge("row", column.merge) | {"numbers": column.new_K}
        if column.of is not None:
            parts |= _merge("of", column.of) | {"of_rows": np.array(column.of.count)}
    else:
        parts = _merge("row", column.merge) | {"data": column.new.data, "starts": column.new.starts}
    np.savez(file, allow_pickle=False, **parts)


class MovedFiles:
    """Reads columns of which a file says what has changed; rows that have moved alike are kept once."""

    def __init__(self) -> None:
        self._merges: dict[tuple[int, bytes, bytes], Merge] = {}

    def load(self, file: Path, base: Any) -> Moved:
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

    def _moves(self, parts: dict[str, Any], name: str, count: int) -> Merge:
        """What `_merge` told, of so many rows."""
        gone, before = parts[f"{name}_gone"], parts[f"{name}_before"]
        key = count, gone.tobytes(), before.tobytes()
        return self._merges.setdefault(key, Merge.of(count, gone, before))


def _merge(name: str, merge: Merge) -> dict[str, Any]:
    """Which rows went, and in front of which new ones came."""
    return {f"{name}_gone": merge.gone_G, f"{name}_before": merge.before_K}
