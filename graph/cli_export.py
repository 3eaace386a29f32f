"""`modegraph export`: an index for other tools."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.console import print_json
from graph.errors import UserError

if TYPE_CHECKING:
    from graph.index import Index


def export_command(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="folder of an index")],
    graphml: Annotated[
        Path | None, typer.Option(metavar="FILE", help="one graph file, for igraph, Gephi, networkx")
    ] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FOLDER", help="a table of each kind, for data tools")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="a page to look around in, offline")] = None,
    max_names: Annotated[int, typer.Option(min=1, help="names on the page, the most mentioned first")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as one JSON object")] = False,
) -> None:
    """Write an index as a graph file, as tables or as a page. The index may be written to meanwhile."""
    given = {"--graphml": graphml, "--parquet": parquet, "--html": html}
    targets = {flag: target for flag, target in given.items() if target is not None}
    if len(targets) != 1:
        raise UserError(" and ".join(targets) or "export: no format", "one of --graphml, --parquet, --html", "name one")
    (flag, target), *_ = targets.items()
    if target.exists():
        raise UserError(f"{flag} {target}: exists already", "a name that is free", "move it away, or name another")
    if not target.absolute().parent.is_dir():
        raise UserError(f"{flag} {target}: no folder to put it in", "a folder that exists", "make it first")
    from graph.index import open_index

    counts = write_whole(target, _writer(flag, max_names), open_index(index))
    if as_json:
        print_json({"index": str(index), "written": str(target), **counts})
    else:
        print(f"{target}: " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items()))


def _writer(flag: str, max_names: int) -> "Callable[[Index, Path], dict[str, int]]":
    if flag == "--graphml":
        from graph.export.graphml import write_graphml

        return write_graphml
    if flag == "--parquet":
        from graph.export.parquet import write_parquet

        return write_parquet
    from graph.export.page import write_page

    return lambda index, file: write_page(index, file, max_names)


def write_whole(target: Path, write: "Callable[[Index, Path], dict[str, int]]", index: "Index") -> dict[str, int]:
    """Write under another name first, so that `target` appears whole or not at all."""
    place = Path(tempfile.mkdtemp(prefix=".export-", dir=target.absolute().parent))
    try:
        made = place / target.name
        counts = write(index, made)
        made.replace(target)
        return counts
    finally:
        shutil.rmtree(place)
