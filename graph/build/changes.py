"""What the store holds of the documents that changed, and how it is brought into one order with the rows of the last generation.

Rows are merged by id or by key; the store is read in its own integer keys, and no further than documents have changed; what hangs on
propositions, entities and topics, is moved where they are as they were and read again where they are not.
Legend: L rows of the last generation, N rows (propositions) now, K new ones or keys of a table, M occurrences, Z things that hang on
propositions, X pairs."""

import json
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np

from graph.shared.ids import ID_BYTES
from graph.store.columns.blocks import Entries
from graph.store.columns.moved import Block, find_ids, ids_below, moved_block, moved_strings, taken
from graph.store.columns.row_map import RowMap, existing
from graph.store.columns.strings import Strings, id_bytes
from graph.store.rows import AMONG, Store
from graph.types import IdBytes, Ints


@dataclass(frozen=True)
class RowsById:
    """Rows that are named and ordered by an id, the hash of their text."""

    merge: RowMap
    ids: Strings
    texts: Strings


def merge_by_id(
    last_ids: Strings, last_texts: Strings, gone_G: Ints, found: IdBytes, text_of: Callable[[str], str]
) -> RowsById:
    """The rows that stay, all but `gone_G`, with those whose ids were found, which may be among them or the gone ones; `text_of` gives the
    text of a new id.
    """
    found = np.unique(found)
    at_F, known_F = ids_below(last_ids, found), find_ids(last_ids, found) >= 0
    merge, _ = RowMap.of_found(len(last_ids), gone_G, at_F, known_F)
    new = Strings.of_ids(found[~known_F])
    texts = Strings.of(map(text_of, new))
    return RowsById(merge, moved_strings(last_ids, merge, new), moved_strings(last_texts, merge, texts))


@dataclass(frozen=True)
class RowsByKey:
    """From a table's integer keys to rows: keys in order, and the row of each."""

    key_K: Ints
    row_K: Ints

    @classmethod
    def of(cls, keys: Ints, ids: IdBytes, now: Strings) -> "RowsByKey":
        """The keys of rows with these ids among the rows as they are now, in order of their ids."""
        order = np.argsort(keys)
        return cls(keys[order], find_ids(now, ids)[order])

    def rows(self, keys_X: Ints) -> Ints:
        """The row of each key, all of which are known."""
        return self.row_K[np.searchsorted(self.key_K, keys_X)]


def rows_with(sorted_texts: Strings, texts: Sequence[str]) -> Ints:
    """Which rows of a column in order are among the texts, in order.

    >>> rows_with(Strings.of(["a", "c"]), ["d", "c", "b"]).tolist()
    [1]
    """
    rows = [(bisect_left(sorted_texts, text), text) for text in texts]
    return np.unique(
        np.array([row for row, text in rows if row < len(sorted_texts) and sorted_texts[row] == text], np.int64)
    )


def columns_of_rows(block: Block, rows_L: Ints) -> Ints:
    """The columns that these rows of a block have entries in, in order."""
    return np.unique(taken(block, rows_L).indices).astype(np.int64)


_CHANGED = "source IN (SELECT source FROM changed)"


@dataclass(frozen=True)
class ChangedPassages:
    """The passages of changed documents, by source and order: keys, ids, and of each its source, order, start and end."""

    key_K: Ints
    ids: IdBytes
    sources: Strings
    place_K3: Ints


class ChangedRows:
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

    def passages(self) -> ChangedPassages:
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
        return ChangedPassages(numbers_K4[:, 0], np.frombuffer(ids, ID_BYTES), found, numbers_K4[:, 1:])

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


@dataclass(frozen=True)
class LinkTable:
    """Where the store keeps what hangs on propositions: its own table and text, and the table and column that link it to occurrences."""

    name: str
    text: str
    links: str
    column: str


ENTITIES = LinkTable("entities", "key", "mentions", "entity")
TOPICS = LinkTable("topics", "text", "occurrence_topics", "topic")


@dataclass(frozen=True)
class Propositions:
    """Propositions as they are now: how they came of the last ones, their ids and texts, and which have other occurrences than before, in order."""

    merge: RowMap
    ids: Strings
    texts: Strings
    changed_R: Ints

    def were(self, rows_R: Ints) -> Ints:
        """The last propositions that are gone, or are among these now, in order."""
        last_R = self.merge.lasts(rows_R)
        return np.union1d(self.merge.gone_G, existing(last_R))


@dataclass(frozen=True)
class PropositionLinks:
    """What was read of some propositions: (proposition, key of the thing) pairs, and the ids of these keys."""

    proposition_X: Ints
    key_X: Ints
    key_K: Ints
    id_K: IdBytes

    def rows(self, now: Strings) -> Ints:
        """The row of each pair's thing among the ids as they are now."""
        return RowsByKey.of(self.key_K, self.id_K, now).rows(self.key_X)


def read_links(rows: ChangedRows, table: LinkTable, propositions: Propositions, rows_R: Ints) -> PropositionLinks:
    """Everything that hangs on the occurrences of these propositions, wherever they stand."""
    if not len(rows_R):
        nothing = np.zeros(0, np.int64)
        return PropositionLinks(nothing, nothing, nothing, id_bytes([]))
    keys, ids = rows.keys("propositions", ids=None if rows.all else [propositions.ids[row] for row in rows_R.tolist()])
    pairs_X2 = rows.links(table.links, table.column, keys)
    key_K, id_K = rows.keys(table.name, np.unique(pairs_X2[:, 1]))
    return PropositionLinks(RowsByKey.of(keys, ids, propositions.ids).rows(pairs_X2[:, 0]), pairs_X2[:, 1], key_K, id_K)


def merge_linked(
    rows: ChangedRows,
    table: LinkTable,
    last: tuple[Strings, Strings, Block],
    unsure_L: Ints,
    found: PropositionLinks,
    derived: Mapping[str, str],
) -> RowsById:
    """The things that are there now. `last` are ids, texts and entries [L, Z]; what hangs on an unsure proposition is looked up in the
    store; `derived` things, text by id, are in no table.
    """
    last_ids, last_texts, last_LZ = last
    doubtful = columns_of_rows(last_LZ, unsure_L)
    gone = doubtful
    if len(doubtful):
        asked = [last_ids[row] for row in doubtful.tolist()]
        gone = doubtful[~np.isin(id_bytes(asked), rows.keys(table.name, ids=asked)[1])]
    text_of = rows.text_of(table.name, table.text)
    ids = np.concatenate([found.id_K, id_bytes(list(derived))])
    return merge_by_id(last_ids, last_texts, gone, ids, lambda identity: derived.get(identity) or text_of(identity))


def linked_block(
    last_LZ: Block,
    propositions: Propositions,
    things: RowMap,
    read_R: Ints,
    proposition_X: Ints,
    thing_X: Ints,
) -> Block:
    """How often each thing hangs on each proposition: as given for those that were read, as before for the others: [N, Z]."""
    return moved_block(last_LZ, propositions.merge, things, Entries.ones(proposition_X, thing_X), read_R)
