"""`modegraph export`: export an index for other tools; `modegraph copy`: copy it between its folder and PostgreSQL."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.errors import UserError
from graph.shared.cli_app import INDEXING, LIMITS, OUTPUT, Command, option
from graph.shared.cli_options import AsJson, IndexFolder
from graph.shared.console import print_json

if TYPE_CHECKING:
    from graph.index.index import Index

PAGE_LIMIT = 5000
"""The maximum number of nodes of each kind on a page: a few megabytes, which a browser opens quickly."""


def export_command(
    index: IndexFolder,
    graphml: Annotated[
        Path | None, option("FILE", OUTPUT, "Write a graph file, for igraph, Gephi or networkx.")
    ] = None,
    parquet: Annotated[
        Path | None, option("FOLDER", OUTPUT, "Write tables of nodes, occurrences and edges, for data tools.")
    ] = None,
    html: Annotated[Path | None, option("FILE", OUTPUT, "Write a web page for exploring the graph offline.")] = None,
    postgres: Annotated[
        str | None,
        option("DSN", OUTPUT, "Write tables with vector indexes into a PostgreSQL database that has pgvector."),
    ] = None,
    schema: Annotated[
        str | None, option("NAME", OUTPUT, "With --postgres: the schema to create or replace, modegraph by default.")
    ] = None,
    page_limit: Annotated[
        int | None,
        option(
            "N", LIMITS, f"With --html: the maximum number of nodes of each kind, {PAGE_LIMIT:,} by default.", min=1
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an index as a graph file, as tables, as a web page or into PostgreSQL.

    The index may change meanwhile: the export shows its state at the start. In PostgreSQL, the export replaces the previous one in
    the same schema in one transaction.
    """
    targets = {"--graphml": graphml, "--parquet": parquet, "--html": html, "--postgres": postgres}
    named = [flag for flag, target in targets.items() if target is not None]
    if len(named) != 1:
        raise UserError(" and ".join(named) or "export: no format", f"one of {', '.join(targets)}", "name exactly one")
    (flag,) = named
    if page_limit is not None and html is None:
        remedy = "leave it out: the other formats contain everything"
        raise UserError(f"--page-limit {page_limit} with {flag}", "a limit only with --html", remedy)
    if schema is not None and postgres is None:
        raise UserError(f"--schema {schema} with {flag}", "a schema only with --postgres", "leave it out")
    if postgres is not None:
        _export_postgres(index, postgres, schema, as_json)
    elif file := graphml or parquet or html:
        _export_file(index, flag, file, page_limit or PAGE_LIMIT, as_json)


def _export_postgres(folder: Path, dsn: str, schema: str | None, as_json: bool) -> None:
    # Imported first: its error names the package to install if psycopg is missing.
    from graph.postgres.connect import database_of

    database = database_of(dsn)
    from graph.export.postgres import SCHEMA, export_index
    from graph.index.index import open_index

    schema = schema or SCHEMA
    report = export_index(open_index(folder), dsn, schema)
    memory = report.maintenance_work_mem
    if as_json:
        target = {"index": str(folder), "database": database, "schema": schema}
        print_json({**target, **report.rows, "maintenance_work_mem": memory})
    else:
        built = f"indexes built with maintenance_work_mem = {memory}"
        print(f"{database}, schema {schema}: {_counts_text(report.rows)}; {built}")


def _export_file(folder: Path, flag: str, target: Path, limit: int, as_json: bool) -> None:
    if target.exists():
        raise UserError(f"{flag} {target}: already exists", "a new path", "move it away, or name another")
    if not target.absolute().parent.is_dir():
        raise UserError(f"{flag} {target}: its parent folder does not exist", "an existing folder", "create it first")
    from graph.index.index import open_index

    counts = write_atomically(target, _writer(flag, limit), open_index(folder))
    if as_json:
        print_json({"index": str(folder), "file": str(target), **counts})
    else:
        print(f"{target}: {_counts_text(counts)}")


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items())


def _writer(flag: str, limit: int) -> "Callable[[Index, Path], dict[str, int]]":
    if flag == "--graphml":
        from graph.export.graph_files import write_graphml

        return write_graphml
    if flag == "--parquet":
        from graph.export.graph_files import write_parquet

        return write_parquet
    from graph.export.page import write_page

    return lambda index, file: write_page(index, file, limit)


def write_atomically(target: Path, write: "Callable[[Index, Path], dict[str, int]]", index: "Index") -> dict[str, int]:
    """Write into a temporary folder first, so that `target` appears complete or not at all; UserError when it cannot be written."""
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.absolute().parent) as folder:
            temporary = Path(folder) / target.name
            counts = write(index, temporary)
            temporary.replace(target)
            return counts
    except OSError as problem:
        raise UserError(f"{target}: {problem}", "a writable path", "free some space, or name another") from problem


if TYPE_CHECKING:
    from graph.types import OpenModel

SCHEMES = ("postgresql://", "postgres://")
Source = Annotated[str, typer.Argument(metavar="SRC", help="Folder of an index, or postgresql://USER@HOST/DATABASE.")]
_COPY = "The copy: a database if SRC is a folder, else a new folder."
Target = Annotated[str, typer.Argument(metavar="DST", help=_COPY)]


def register_copy(app: typer.Typer, open_model: "OpenModel") -> None:
    @app.command(cls=Command, rich_help_panel=INDEXING)
    def copy(src: Source, dst: Target, as_json: AsJson = False) -> None:
        """Copy an index into a PostgreSQL database, or out of one.

        All rows of the index, of its call ledger and of its feedback are copied, or none. In a new folder, arrays and vectors are derived again
        from these rows, as by `modegraph resume`.
        """
        from_database, to_database = (name.startswith(SCHEMES) for name in (src, dst))
        if from_database == to_database:
            found = "copy: two databases" if to_database else "copy: two folders"
            raise UserError(found, "a folder and postgresql://USER@HOST/DATABASE, in either order", "name one of each")
        # Imported first: its error names the package to install if psycopg is missing.
        from graph.postgres.connect import database_of

        shown_src, shown_dst = (database_of(name) if name.startswith(SCHEMES) else name for name in (src, dst))
        from graph.build.copy_index import copy_to_database, copy_to_folder
        from graph.models.encoder import open_encoder

        if to_database:
            rows = copy_to_database(Path(src), dst)
        else:
            rows = copy_to_folder(src, Path(dst), open_encoder, open_model)
        if as_json:
            print_json({"src": shown_src, "dst": shown_dst, "rows": rows})
        else:
            print(f"{shown_src} to {shown_dst}: {sum(rows.values()):,} rows, including {rows['documents']:,} documents")
