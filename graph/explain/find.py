"""A passage by its id, by the beginning of it, or by the source of a document that has no other."""

from collections.abc import Sequence

from graph.index.index import Index
from graph.index.lookup import row_of
from graph.shared.errors import UserError
from graph.shared.ids import shown_id
from graph.shared.types import Passage

LISTED = 8


def find_passage(index: Index, given: str) -> int:
    """The row of the passage whose id is `given` or alone begins so, or of the only one of the document `given`; UserError that says how to name one."""
    sought = given.strip().casefold()
    ids = index.data.passage_ids
    rows = [row for row, identity in enumerate(ids) if identity.startswith(sought)] if sought else []
    if len(rows) == 1:
        return rows[0]
    if rows:
        some = [ids[row] for row in rows[:LISTED]]
        raise UserError(
            f"passage {given!r}: {len(rows):,} ids begin so", _one_of(some, len(rows)), "give more of its id"
        )
    inside = index.passages_of(given)
    only = row_of(index.data, "passage", inside[0].id) if len(inside) == 1 else None
    if only is not None:
        return only
    if inside:
        found = f"passage {given!r}: a document of {len(inside):,} passages"
        raise UserError(
            found, _one_of([_named(each) for each in inside[:LISTED]], len(inside)), "give the id of a passage"
        )
    raise UserError(
        f"passage {given!r}: not in {index.folder}",
        "the id of a passage, or its first digits",
        "`modegraph ask` shows the ids of what it finds; the source of a document lists its passages",
    )


def _named(passage: Passage) -> str:
    return f"{shown_id(passage.id)} ({passage.start}–{passage.end})"


def _one_of(some: Sequence[str], count: int) -> str:
    more = f" and {count - len(some):,} more" if count > len(some) else ""
    return f"one of {', '.join(some)}{more}"
