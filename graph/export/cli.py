"""`modegraph export`: an index for other tools."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import LIMITS, OUTPUT
from graph.shared.cli_options import AsJson, IndexFolder
from graph.shared.console import print_json
from graph.shared.errors import UserError

if TYPE_CHECKING:
    from graph.index.index import Index

PAGE_LIMIT = 5000
"""Of each kind on a page: some megabytes, which a browser opens at once."""


def export_command(
    index: IndexFolder,
    graphml: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Write a graph file, for igraph, Gephi or networkx."),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", rich_help_panel=OUTPUT, help="Write tables, one of each kind, for data tools."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Write a page to explore the graph, offline."),
    ] = None,
    page_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel=LIMITS,
            help=f"With --html: how many of each kind the page holds, {PAGE_LIMIT:,} by default.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an index as a graph file, as tables or as a web page.

    The index may change meanwhile: the export shows it as it was at the start.
    """
    given = {"--graphml": graphml, "--parquet": parquet, "--html": html}
    targets = {flag: target for flag, target in given.items() if target is not None}
    if len(targets) != 1:
        raise UserError(" and ".join(targets) or "export: no format", "one of --graphml, --parquet, --html", "name one")
    (flag, target), *_ = targets.items()
    if page_limit is not None and html is None:
        raise UserError(
            f"--page-limit {page_limit} with {flag}", "a limit with --html only", "leave it out: the others hold all"
        )
    if target.exists():
        raise UserError(f"{flag} {target}: exists already", "a name that is free", "move it away, or name another")
    if not target.absolute().parent.is_dir():
        raise UserError(f"{flag} {target}: no folder to put it in", "a folder that exists", "make it first")
    from graph.index.index import open_index

    counts = write_whole(target, _writer(flag, page_limit or PAGE_LIMIT), open_index(index))
    if as_json:
        print_json({"index": str(index), "file": str(target), **counts})
    else:
        print(f"{target}: " + ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items()))


def _writer(flag: str, limit: int) -> "Callable[[Index, Path], dict[str, int]]":
    if flag == "--graphml":
        from graph.export.graphml import write_graphml

        return write_graphml
    if flag == "--parquet":
        from graph.export.parquet import write_parquet

        return write_parquet
    from graph.export.page import write_page

    return lambda index, file: write_page(index, file, limit)


def write_whole(target: Path, write: "Callable[[Index, Path], dict[str, int]]", index: "Index") -> dict[str, int]:
    """Write under another name first, so that `target` appears whole or not at all; UserError when it cannot be written."""
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.absolute().parent) as place:
            made = Path(place) / target.name
            counts = write(index, made)
            made.replace(target)
            return counts
    except OSError as problem:
        raise UserError(
            f"{target}: {problem}", "a place that can be written to", "make room, or name another"
        ) from problem
