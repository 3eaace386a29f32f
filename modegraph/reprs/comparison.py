"""A comparison in a notebook: the tables of its report, intervals included."""

from __future__ import annotations

from collections.abc import Sequence

from eval.shared.tables import Table
from modegraph.reprs.html import table, tag, text, view


def comparison_html(tables: Sequence[Table]) -> str:
    """Each table under its title, with the note on how to read it."""
    parts = []
    for each in tables:
        rows = [[text(cell) for cell in row] for row in each.rows]
        parts += [tag("h4", text(each.title)), table(each.header, rows), tag("p", text(each.note, "soft"))]
    return view(*parts)
