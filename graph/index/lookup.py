"""The row of a thing by its name: no table of all names is made for it."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, TypeAlias

from graph.shared.ids import content_id, is_id
from graph.shared.types import Ints
from graph.store.columns.moved import find_ids
from graph.store.columns.strings import rows_among, rows_in_order
from graph.store.data import IndexData

NodeKind: TypeAlias = Literal["document", "passage", "proposition", "entity", "summary"]


def row_of(data: IndexData, kind: NodeKind, name: str) -> int | None:
    """The row of a document by its source, of another thing by its id; None for what is not there."""
    if kind == "document":
        row = bisect_left(data.document_sources, name)
        return row if row < len(data.document_sources) and data.document_sources[row] == name else None
    if not is_id(name):
        return None
    column, find = {
        "passage": (data.passage_ids, rows_among),
        "summary": (data.summary_ids, rows_among),
        "proposition": (data.proposition_ids, rows_in_order),
        "entity": (data.entity_ids, rows_in_order),
    }[kind]
    (row,) = find_ids(column, [name], find).tolist()
    return None if row < 0 else int(row)


def entity_rows(data: IndexData, keys: Sequence[str]) -> Ints:
    """The row of each entity by its key, whose hash its id is; −1 for one that is not there: int64[K].

    >>> from graph.store.columns.strings import Strings
    >>> from types import SimpleNamespace
    >>> here = SimpleNamespace(entity_ids=Strings.of([content_id("entity", "tarn")]))
    >>> entity_rows(here, ["isle", "tarn"]).tolist()
    [-1, 0]
    """
    return find_ids(data.entity_ids, [content_id("entity", key) for key in keys])
