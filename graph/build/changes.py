"""Reads the rows of changed documents from the store and merges them with the rows of the last generation.

Rows are merged by id; only the rows that changed documents affect are read from the store. Entities and topics of unchanged propositions
are moved; those of changed ones are read again.
Legend: L rows of the last generation, N current rows (propositions), G deleted rows, F ids looked up, R chosen rows, K new rows or keys of a
table, M occurrences, Z entities or topics linked to propositions, X pairs."""

import json
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from graph.shared.ids import ID_BYTES
from graph.store.columns.blocks import Entries
from graph.store.columns.moved import Block, find_ids, ids_below, moved_block, moved_strings, take_rows
from graph.store.columns.row_map import NO_ROWS, RowMap, without_missing
from graph.store.columns.strings import Strings, id_bytes
from graph.store.rows import AMONG, Store
from graph.types import IdBytes, Ints


@dataclass(frozen=True)
class RowsById:
    """Rows identified and ordered by an id, the hash of their text."""

    merge: RowMap
    ids: Strings
    texts: Strings


def merge_by_id(
    last_ids: Strings, last_texts: Strings, gone_G: Ints, ids: IdBytes, text_of: Callable[[str], str]
) -> RowsById:
    """The remaining rows (all but `gone_G`) merged with the rows of `ids`, which may be remaining, deleted or new; `text_of` gives the text of a new id."""
    ids = np.unique(ids)
    at_F, known_F = ids_below(last_ids, ids), find_ids(last_ids, ids) >= 0
    merge, _ = RowMap.of_matches(len(last_ids), gone_G, at_F, known_F)
    new = Strings.of_ids(ids[~known_F])
    texts = Strings.of(map(text_of, new))
    return RowsById(merge, moved_strings(last_ids, merge, new), moved_strings(last_texts, merge, texts))


@dataclass(frozen=True)
class RowsByKey:
    """Maps a table's integer keys to rows: sorted keys, and the row of each."""

    key_K: Ints
    row_K: Ints

    @classmethod
    def of(cls, keys: Ints, ids: IdBytes, sorted_ids: Strings) -> "RowsByKey":
        """The map from each key to the row of its id in `sorted_ids`."""
        order = np.argsort(keys)
        return cls(keys[order], find_ids(sorted_ids, ids)[order])

    def rows(self, keys_X: Ints) -> Ints:
        """The row of each key; all of them must be in the map."""
        return self.row_K[np.searchsorted(self.key_K, keys_X)]


def find_texts(sorted_texts: Strings, texts: Sequence[str]) -> tuple[Ints, NDArray[np.bool_]]:
    """The position at which each text is, or would be inserted, in a sorted column, and whether the column contains it.

    >>> [found.tolist() for found in find_texts(Strings.of(["a", "c"]), ["d", "c", "b"])]
    [[2, 1, 1], [False, True, False]]
    """
    at_X = np.array([bisect_left(sorted_texts, text) for text in texts], np.int64)
    pairs = zip(at_X.tolist(), texts, strict=True)
    return at_X, np.array([at < len(sorted_texts) and sorted_texts[at] == text for at, text in pairs], bool)


def rows_with(sorted_texts: Strings, texts: Sequence[str]) -> Ints:
    """The rows of a sorted column that equal one of the texts, ascending."""
    at_X, known_X = find_texts(sorted_texts, texts)
    return np.unique(at_X[known_X])


def columns_of_rows(block: Block, rows_L: Ints) -> Ints:
    """The columns in which these rows of a block have entries, ascending."""
    return np.unique(take_rows(block, rows_L).indices).astype(np.int64)


_CHANGED = "source IN (SELECT source FROM changed)"


@dataclass(frozen=True)
class ChangedPassages:
    """The passages of changed documents, by source and order: keys, ids, sources, and (order, start, end) of each."""

    key_K: Ints
    ids: IdBytes
    sources: Strings
    offsets_K3: Ints


class ChangedRows:
    """Reads the rows of changed documents; of all documents when `changed` is None."""

    def __init__(self, store: Store, changed: Sequence[str] | None) -> None:
        self._store, self.all = store, changed is None
        self.changed = store.sources() if changed is None else changed
        self._which = "" if changed is None else f"WHERE {_CHANGED}"

    def documents(self) -> list[tuple[str, str, str]]:
        """Source, title and metadata of each document, by source."""
        rows = self._store.rows(f"SELECT source, title, metadata FROM documents {self._which} ORDER BY source")
        return [(str(source), str(title), str(metadata)) for source, title, metadata in rows]

    def passages(self) -> ChangedPassages:
        query = f'SELECT row, id, source, "order", "start", "end" FROM passages {self._which} ORDER BY source, "order"'
        numbers, ids = array("q"), bytearray()

        def sources() -> Iterator[str]:
            for key, identity, source, *offsets in self._store.rows(query):
                numbers.extend(cast(list[int], [key, *offsets]))
                ids.extend(str(identity).encode())
                yield str(source)

        column = Strings.of(sources())
        numbers_K4 = np.array(numbers, np.int64).reshape(-1, 4)
        return ChangedPassages(numbers_K4[:, 0], np.frombuffer(ids, ID_BYTES), column, numbers_K4[:, 1:])

    def passage_texts(self, passages: ChangedPassages) -> Iterator[str]:
        """The text of each passage, cut from its document, which is read once."""
        spans = zip(passages.sources, *passages.offsets_K3.T[1:], strict=True)
        for source, spans_of_document in groupby(spans, itemgetter(0)):
            text = self._text("SELECT text FROM documents WHERE source = ?", source)
            yield from (text[start:end] for _, start, end in spans_of_document)

    def occurrences(self) -> Ints:
        """Proposition, passage, start and end of each occurrence in these documents: int64[M, 4]."""
        which = "" if self.all else f"WHERE passage IN (SELECT row FROM passages WHERE {_CHANGED})"
        return self._numbers(f'SELECT proposition, passage, "start", "end" FROM occurrences {which}', 4)

    def keys(self, table: str, keys: Ints | None = None, ids: Sequence[str] | None = None) -> tuple[Ints, IdBytes]:
        """Keys and ids of a table's rows with one of these keys or ids; of all rows if neither is given, or if all documents are read and `keys` are given."""
        which = ""
        parameters: tuple[str, ...] = ()
        if not self.all and keys is not None:
            which, parameters = f"WHERE row {AMONG}", (json.dumps(keys.tolist()),)
        elif ids is not None:
            which, parameters = f"WHERE id {AMONG}", (json.dumps(list(ids)),)
        rows = np.fromiter(
            self._store.rows(f"SELECT row, id FROM {table} {which}", parameters), [("row", np.int64), ("id", ID_BYTES)]
        )
        return rows["row"], rows["id"]

    def text_of(self, table: str, column: str) -> Callable[[str], str]:
        """A function that returns the text of a table's row, given the row's id."""
        return lambda identity: self._text(f"SELECT {column} FROM {table} WHERE id = ?", identity)

    def links(self, table: str, column: str, proposition_keys: Ints) -> Ints:
        """(proposition, `column`) for every row of a table linked to an occurrence of these propositions (of any, if all documents are read): int64[X, 2]."""
        which, parameters = (
            ("", ()) if self.all else (f"WHERE o.proposition {AMONG}", (json.dumps(proposition_keys.tolist()),))
        )
        query = f"SELECT o.proposition, t.{column} FROM occurrences o JOIN {table} t ON t.occurrence = o.row {which}"
        return self._numbers(query, 2, parameters)

    def _numbers(self, query: str, columns: int, parameters: Sequence[object] = ()) -> Ints:
        return np.fromiter(chain.from_iterable(self._store.rows(query, parameters)), np.int64).reshape(-1, columns)

    def _text(self, query: str, parameter: object) -> str:
        ((text,),) = self._store.rows(query, (parameter,))
        return str(text)


@dataclass(frozen=True)
class LinkTable:
    """Where entities or topics are stored: their table and its text column, and the table and column that link them to occurrences."""

    name: str
    text: str
    links: str
    column: str


ENTITIES = LinkTable("entities", "key", "mentions", "entity")
TOPICS = LinkTable("topics", "text", "occurrence_topics", "topic")


@dataclass(frozen=True)
class Propositions:
    """The current propositions: the map from the rows of the last generation, ids, texts, and the rows whose occurrences have changed, ascending."""

    merge: RowMap
    ids: Strings
    texts: Strings
    changed_R: Ints

    def last_rows(self, rows_R: Ints) -> Ints:
        """The rows in the last generation, ascending, of propositions that were deleted or are among `rows_R`."""
        last_R = self.merge.previous_rows(rows_R)
        return np.union1d(self.merge.deleted_G, without_missing(last_R))


@dataclass(frozen=True)
class PropositionLinks:
    """The links read for some propositions: pairs (proposition, key of the entity or topic), and the id for each key."""

    proposition_X: Ints
    key_X: Ints
    key_K: Ints
    id_K: IdBytes

    def rows(self, sorted_ids: Strings) -> Ints:
        """The row, among the current ids, of the entity or topic of each pair."""
        return RowsByKey.of(self.key_K, self.id_K, sorted_ids).rows(self.key_X)


def read_links(rows: ChangedRows, table: LinkTable, propositions: Propositions, rows_R: Ints) -> PropositionLinks:
    """All links of the occurrences of these propositions, in any document."""
    if not len(rows_R):
        return PropositionLinks(NO_ROWS, NO_ROWS, NO_ROWS, id_bytes([]))
    keys, ids = rows.keys("propositions", ids=None if rows.all else [propositions.ids[row] for row in rows_R.tolist()])
    pairs_X2 = rows.links(table.links, table.column, keys)
    key_K, id_K = rows.keys(table.name, np.unique(pairs_X2[:, 1]))
    return PropositionLinks(RowsByKey.of(keys, ids, propositions.ids).rows(pairs_X2[:, 0]), pairs_X2[:, 1], key_K, id_K)


def merge_linked(
    rows: ChangedRows,
    table: LinkTable,
    last: tuple[Strings, Strings, Block],
    affected_L: Ints,
    links: PropositionLinks,
    derived: Mapping[str, str],
) -> RowsById:
    """The current entities or topics. `last` contains the ids, texts and entries [L, Z] of the last generation. Entities or topics linked to a proposition
    of `affected_L` may have been deleted and are looked up in the store; those in `derived` (texts by id) have no row in the store.
    """
    last_ids, last_texts, last_LZ = last
    gone = columns_of_rows(last_LZ, affected_L)
    if len(gone):
        ids = [last_ids[row] for row in gone.tolist()]
        gone = gone[~np.isin(id_bytes(ids), rows.keys(table.name, ids=ids)[1])]
    text_of = rows.text_of(table.name, table.text)
    new_ids = np.concatenate([links.id_K, id_bytes(list(derived))])
    return merge_by_id(last_ids, last_texts, gone, new_ids, lambda identity: derived.get(identity) or text_of(identity))


def linked_block(
    last_LZ: Block, propositions: Propositions, linked: RowMap, read_R: Ints, proposition_X: Ints, linked_X: Ints
) -> Block:
    """The links of each proposition to each entity or topic, counted, [N, Z]: as just read for `read_R`, as in the last generation for other propositions."""
    return moved_block(last_LZ, propositions.merge, linked, Entries.ones(proposition_X, linked_X), read_R)
