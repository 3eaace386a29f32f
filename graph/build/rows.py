"""What the store holds of the documents that changed, in its own integer keys: all that a new generation reads of it.

Legend: K keys of a table, M occurrences, X pairs.
"""

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np

from graph.shared.ids import ID_BYTES
from graph.shared.types import IdBytes, Ints
from graph.store.columns.strings import Strings
from graph.store.store import AMONG, Store

_CHANGED = "source IN (SELECT source FROM changed)"


@dataclass(frozen=True)
class ReadPassages:
    """The passages of changed documents, by source and order: keys, ids, and of each its source, order, start and end."""

    key_K: Ints
    ids: IdBytes
    sources: Strings
    place_K3: Ints


class Rows:
    """Reads what changed; everything with `changed` None."""

    def __init__(self, store: Store, changed: Sequence[str] | None) -> None:
        self._store, self.all = store, changed is None
        self.changed = (
            [str(source) for (source,) in store.rows("SELECT source FROM documents")] if changed is None else changed
        )
        self._which = "" if changed is None else f"WHERE {_CHANGED}"

    def documents(self) -> list[tuple[str, str, str]]:
        """Source, title and metadata of each, by source."""
        rows = self._store.rows(f"SELECT source, title, metadata FROM documents {self._which} ORDER BY source")
        return [(str(source), str(title), str(metadata)) for source, title, metadata in rows]

    def passages(self) -> ReadPassages:
        """All passages of them."""
        query = f'SELECT row, id, source, "order", "start", "end" FROM passages {self._which} ORDER BY source, "order"'
        numbers, ids = array("q"), bytearray()

        def sources() -> Iterator[str]:
            for key, identity, source, *place in self._store.rows(query):
                numbers.extend(cast(list[int], [key, *place]))
                ids.extend(str(identity).encode())
                yield str(source)

        found = Strings.of(sources())
        numbers_K4 = np.array(numbers, np.int64).reshape(-1, 4)
        return ReadPassages(numbers_K4[:, 0], np.frombuffer(ids, ID_BYTES), found, numbers_K4[:, 1:])

    def passage_text(self, key: int) -> str:
        """The text of one passage."""
        query = """SELECT substr(d.text, CAST(p."start" + 1 AS INTEGER), CAST(p."end" - p."start" AS INTEGER)) FROM passages p JOIN documents d USING (source)
            WHERE p.row = ?"""
        return self._text(query, key)

    def occurrences(self) -> Ints:
        """Of each occurrence in them: proposition, passage, start and end: int64[M, 4]."""
        which = "" if self.all else f"WHERE passage IN (SELECT row FROM passages WHERE {_CHANGED})"
        return self._numbers(f'SELECT proposition, passage, "start", "end" FROM occurrences {which}', 4)

    def keys(self, table: str, keys: Ints | None = None, ids: Sequence[str] | None = None) -> tuple[Ints, IdBytes]:
        """Keys and ids of the rows of a table that have one of the keys, or one of the ids and are there; of all rows without either."""
        which = ""
        given: tuple[str, ...] = ()
        if not self.all and keys is not None:
            which, given = f"WHERE row {AMONG}", (json.dumps(keys.tolist()),)
        elif ids is not None:
            which, given = f"WHERE id {AMONG}", (json.dumps(list(ids)),)
        rows = np.fromiter(
            self._store.rows(f"SELECT row, id FROM {table} {which}", given), [("row", np.int64), ("id", ID_BYTES)]
        )
        return rows["row"], rows["id"]

    def text_of(self, table: str, column: str) -> Callable[[str], str]:
        """From an id of a table to its text."""
        return lambda identity: self._text(f"SELECT {column} FROM {table} WHERE id = ?", identity)

    def links(self, table: str, column: str, proposition_keys: Ints) -> Ints:
        """(proposition, what `column` holds) for every row of a table that hangs on an occurrence of these propositions: int64[X, 2]."""
        which, given = (
            ("", ()) if self.all else (f"WHERE o.proposition {AMONG}", (json.dumps(proposition_keys.tolist()),))
        )
        query = f"SELECT o.proposition, t.{column} FROM occurrences o JOIN {table} t ON t.occurrence = o.row {which}"
        return self._numbers(query, 2, given)

    def _numbers(self, query: str, columns: int, given: Sequence[object] = ()) -> Ints:
        return np.fromiter(chain.from_iterable(self._store.rows(query, given)), np.int64).reshape(-1, columns)

    def _text(self, query: str, given: object) -> str:
        ((text,),) = self._store.rows(query, (given,))
        return str(text)
