"""An index in a notebook: what it holds and how it stands."""

from __future__ import annotations

from graph.build.lifecycle import IndexStatus
from modegraph.reprs.html import table, tag, text, view


def index_html(status: IndexStatus) -> str:
    """Folder, generation, size, and the rows of each table; a line when the last run did not finish."""
    told = f"generation {status.generation} · encoder {status.encoder} · {status.disk_bytes / 1e6:,.1f} MB"
    rows = [(text(name), text(f"{count:,}")) for name, count in status.rows.items()]
    return view(
        tag("p", tag("strong", text(status.folder))),
        text(told, "soft"),
        table(("holds", "rows"), rows),
        *([tag("p", text(status.unfinished))] if status.unfinished else []),
    )
