"""`modegraph copy`: copy an index between its folder and PostgreSQL."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.errors import UserError
from graph.shared.cli_app import INDEXING, Command
from graph.shared.cli_options import AsJson
from graph.shared.console import print_json

if TYPE_CHECKING:
    from graph.types import OpenModel

SCHEMES = ("postgresql://", "postgres://")
Source = Annotated[str, typer.Argument(metavar="SRC", help="Folder of an index, or postgresql://USER@HOST/DATABASE.")]
_COPY = "The copy: a database if SRC is a folder, else a new folder."
Target = Annotated[str, typer.Argument(metavar="DST", help=_COPY)]


def register(app: typer.Typer, open_model: "OpenModel") -> None:
    @app.command(cls=Command, rich_help_panel=INDEXING)
    def copy(src: Source, dst: Target, as_json: AsJson = False) -> None:
        """Copy an index into a PostgreSQL database, or out of one.

        All rows of the index, of its call ledger and of its feedback are copied, or none. In a new folder, arrays and vectors are derived from
        them again, as `modegraph resume` would.
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
