"""database.json in the folder of an index: its rows are not there but in PostgreSQL, and this is how to connect. No password is in it.

Arrays, segments and the manifest are in the folder all the same, where readers on every machine find them.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from graph.errors import UserError

DATABASE_FILE = "database.json"
KEY = "postgresql"


def has_database(folder: Path) -> bool:
    """Whether the rows of the index in a folder are in a database."""
    return (folder / DATABASE_FILE).is_file()


def read_database(folder: Path) -> dict[str, str]:
    """The parameters of the connection, as libpq names them; UserError where the file does not say them."""
    file = folder / DATABASE_FILE
    try:
        given = json.loads(file.read_text(encoding="utf-8"))[KEY]
        return {str(name): str(value) for name, value in given.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        expected = f'{{"{KEY}": {{"host": "…", "dbname": "…", "user": "…"}}}}'
        raise UserError(f"{file}: cannot be read ({problem!r})", expected, "write it again") from None


def write_database(folder: Path, parameters: Mapping[str, str]) -> None:
    """Name the database of the index in a folder."""
    partial = folder / (DATABASE_FILE + ".partial")
    partial.write_text(json.dumps({KEY: dict(parameters)}, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / DATABASE_FILE)
