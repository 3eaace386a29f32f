"""database.json in an index's folder: the parameters, without the password, for connecting to the PostgreSQL database that holds its rows.

Arrays, segments and the manifest stay in the folder, where readers on every machine find them.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from graph.errors import UserError
from graph.shared.jsonl import write_json

DATABASE_FILE = "database.json"
KEY = "postgresql"


def has_database(folder: Path) -> bool:
    """Whether the rows of the index in a folder are in a database."""
    return (folder / DATABASE_FILE).is_file()


def read_database(folder: Path) -> dict[str, str]:
    """The connection parameters, under libpq's names; UserError if they cannot be read."""
    file = folder / DATABASE_FILE
    try:
        parameters = json.loads(file.read_text(encoding="utf-8"))[KEY]
        return {str(name): str(value) for name, value in parameters.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        expected = f'{{"{KEY}": {{"host": "…", "dbname": "…", "user": "…"}}}}'
        remedy = "restore the file from a backup, or write these parameters into it"
        raise UserError(f"{file}: cannot be read ({problem!r})", expected, remedy) from None


def write_database(folder: Path, parameters: Mapping[str, str]) -> None:
    """Write the connection parameters of the index in a folder."""
    write_json(folder / DATABASE_FILE, {KEY: dict(parameters)})
