"""What hangs on propositions, entities and topics: moved where the propositions are as they were, read again where they are not.

Legend: N propositions, L those of the last generation, Z things that hang on them, X pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graph.build.merge import Keyed, Named, merge_by_id, touched
from graph.build.rows import Rows
from graph.shared.types import IdBytes, Ints
from graph.store.columns.blocks import Entries
from graph.store.columns.merge import Merge, there
from graph.store.columns.moved import Block, moved_block
from graph.store.columns.strings import Strings, id_bytes


@dataclass(frozen=True)
class Table:
    """Where the store keeps what hangs on propositions: its own table and text, and the table and column that link it to occurrences."""

    name: str
    text: str
    links: str
    column: str


ENTITIES = Table("entities", "key", "mentions", "entity")
TOPICS = Table("topics", "text", "occurrence_topics", "topic")


@dataclass(frozen=True)
class Propositions:
    """Propositions as they are now: how they came of the last ones, their ids and texts, and which have other occurrences than before, in order."""

    merge: Merge
    ids: Strings
    texts: Strings
    changed_R: Ints

    def were(self, rows_R: Ints) -> Ints:
        """The last propositions that are gone, or are among these now, in order."""
        last_R = self.merge.lasts(rows_R)
        return np.union1d(self.merge.gone_G, there(last_R))


@dataclass(frozen=True)
class Linked:
    """What was read of some propositions: (proposition, key of the thing) pairs, and the ids of these keys."""

    proposition_X: Ints
    key_X: Ints
    key_K: Ints
    id_K: IdBytes

    def rows(self, now: Strings) -> Ints:
        """The row of each pair's thing among the ids as they are now."""
        return Keyed.of(self.key_K, self.id_K, now).rows(self.key_X)


def read_links(rows: Rows, table: Table, propositions: Propositions, rows_R: Ints) -> Linked:
    """Everything that hangs on the occurrences of these propositions, wherever they stand."""
    if not len(rows_R):
        nothing = np.zeros(0, np.int64)
        return Linked(nothing, nothing, nothing, id_bytes([]))
    keys, ids = rows.keys("propositions", ids=None if rows.all else [propositions.ids[row] for row in rows_R.tolist()])
    pairs_X2 = rows.links(table.links, table.column, keys)
    key_K, id_K = rows.keys(table.name, np.unique(pairs_X2[:, 1]))
    return Linked(Keyed.of(keys, ids, propositions.ids).rows(pairs_X2[:, 0]), pairs_X2[:, 1], key_K, id_K)


def merge_linked(
    rows: Rows,
    table: Table,
    last: tuple[Strings, Strings, Block],
    unsure_L: Ints,
    found: Linked,
    derived: Mapping[str, str],
) -> Named:
    """The things that are there now. `last` are ids, texts and entries [L, Z]; what hangs on an unsure proposition is looked up in the
    store; `derived` things, text by id, are in no table.
    """
    last_ids, last_texts, last_LZ = last
    doubtful = touched(last_LZ, unsure_L)
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
    things: Merge,
    read_R: Ints,
    proposition_X: Ints,
    thing_X: Ints,
) -> Block:
    """How often each thing hangs on each proposition: as given for those that were read, as before for the others: [N, Z]."""
    return moved_block(last_LZ, propositions.merge, things, Entries.ones(proposition_X, thing_X), read_R)
