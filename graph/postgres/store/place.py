"""A folder for an index whose rows are in PostgreSQL."""

from pathlib import Path

from graph.disk.room import full_disk_told
from graph.postgres.store.connect import database_of, dsn_of, parameters_of, transaction
from graph.postgres.store.migrate import migrate
from graph.shared.errors import UserError
from graph.store.database import FILE, has_database, write_database


def place_in_database(folder: Path, dsn: str) -> None:
    """Make the folder, if it is new, one of an index with its rows in that database, and its tables there; nothing where that is so already.

    UserError, with no file written, when the folder holds anything else, when the database cannot be reached or is of another version, and when
    the connection string has a password in it.
    """
    parameters, database = parameters_of(dsn), database_of(dsn)
    if has_database(folder):
        if database_of(dsn_of(folder)) != database:
            raise UserError(
                f"{folder}: its rows are in {database_of(dsn_of(folder))}, not in {database}",
                "the database that it was made with",
                f"if that has moved, say so in {folder / FILE}",
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = f"{folder}: exists, with its rows in no database"
        raise UserError(found, "a new or empty folder", "choose another, or leave --store out")
    with transaction(dsn) as connection:
        migrate(connection, database)
    if not has_database(folder):
        with full_disk_told(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_database(folder, parameters)
