"""`modegraph export`: an index for other tools."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import print_json
from graph.shared.errors import UserError

if TYPE_CHECKING:
    from graph.index.index import Index

PAGE_LIMIT = 5000
"""Of each kind on a page: some megabytes, which a browser opens at once."""


def export_command(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="folder of an index")],
    graphml: Annotated[
        Path | None, typer.Option(metavar="FILE", help="one graph file, for igraph, Gephi, networkx")
    ] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FOLDER", help="a table of each kind, for data tools")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="a page to look around in, offline")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"with --html: how many of each kind the page holds [{PAGE_LIMIT}]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as one JSON object")] = False,
) -> None:
    """Write an index as a graph file, as tables or as a page. The index may be written to meanwhile."""
    given = {"--graphml": graphml, "--parquet": parquet, "--html": html}
    targets = {flag: target for flag, target in given.items() if target is not None}
    if len(targets) != 1:
        raise UserError(" and ".join(targets) or "export: no format", "one of --graphml, --parquet, --html", "name one")
    (flag, target), *_ = targets.items()
    if limit is not None and html is None:
        raise UserError(f"--limit {limit} with {flag}", "a limit with --html only", "leave it out: the others hold all")
    if target.exists():
        raise UserError(f"{flag} {target}: exists already", "a name that is free", "move it away, or name another")
    if not target.absolute().parent.is_dir():
        raise UserError(f"{flag} {target}: no folder to put it in", "a folder that exists", "make it first")
    from graph.index.index import open_index

    counts = write_whole(target, _writer(flag, limit or PAGE_LIMIT), open_index(index))
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
