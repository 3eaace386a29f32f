"""The schema of an index in PostgreSQL, created and updated by numbered migrations; and the folder of an index whose rows are there.

The table `migrations` lists the migrations that were run."""

from importlib.resources import files
from pathlib import Path

from graph.errors import Unavailable, UserError
from graph.postgres.connect import Connection, database_of, dsn_of, parameters_of, transaction
from graph.shared.disk import report_unwritable
from graph.store.index_settings import DATABASE_FILE, has_database, write_database

SCHEMA = "modegraph_index"
TABLES_WITH_KEYS = ("passages", "propositions", "entities", "occurrences", "topics", "feedback")
"""Tables whose integer keys come from a sequence, or were copied with the rows."""
_MIGRATIONS_TABLE = """CREATE TABLE migrations (number int8 PRIMARY KEY, name text COLLATE "C" NOT NULL,
    run_at timestamptz NOT NULL DEFAULT now())"""


def known_migrations() -> dict[int, str]:
    """The names of this version's migrations, by number."""
    folder = files("graph").joinpath("postgres/migrations")
    names = [file.name.removesuffix(".sql") for file in folder.iterdir()]
    return {int(name.partition("-")[0]): name for name in sorted(names)}


def enter_schema(connection: Connection) -> None:
    """Make unqualified names refer to the store's schema until the transaction ends."""
    connection.execute(f"SET LOCAL search_path = {SCHEMA}")


def migrate(connection: Connection, database: str) -> None:
    """Create the schema if it is missing, and run pending migrations. Unavailable as in `_check_newest`, or if another role owns the schema."""
    enter_schema(connection)
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (SCHEMA,))
    if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone():
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(_MIGRATIONS_TABLE)
    newest = _check_newest(connection, database)
    for number, name in known_migrations().items():
        if number > newest:
            script = files("graph").joinpath(f"postgres/migrations/{name}.sql")
            connection.execute(script.read_text(encoding="utf-8"))
            connection.execute("INSERT INTO migrations VALUES (%s, %s)", (number, name))
    if newest < max(known_migrations()):
        restart_keys(connection)


def restart_keys(connection: Connection) -> None:
    """Set each key sequence above the highest key of its table, because rows may have been copied with their keys."""
    for table in TABLES_WITH_KEYS:
        sequence = f"pg_get_serial_sequence('{table}', 'row')"
        connection.execute(f"SELECT setval({sequence}, coalesce(max(row), 0) + 1, false) FROM {table}")


def check_schema(connection: Connection, database: str) -> None:
    """Unavailable when there is no index, or when its schema is not this version's; the error names the migration."""
    enter_schema(connection)
    newest, known = _check_newest(connection, database), known_migrations()
    if newest < max(known):
        remedy = "run a command that writes to the index, such as modegraph resume"
        raise Unavailable(f"{database}: migration {known[newest + 1]} has not been run", "a migrated schema", remedy)


def _check_newest(connection: Connection, database: str) -> int:
    """The number of the newest migration that was run, 0 for none; Unavailable when there is no index, or one of a newer version."""
    if connection.execute("SELECT to_regclass('migrations')").fetchone() == (None,):
        found, remedy = f"{database}: no index in schema {SCHEMA}", "create one: modegraph copy INDEX DATABASE"
        raise Unavailable(found, "an index that was copied or created there", remedy)
    newest = connection.execute("SELECT number, name FROM migrations ORDER BY number DESC LIMIT 1").fetchone()
    number, name = newest or (0, "")
    if int(str(number)) > max(known_migrations()):
        found = f"{database}: migration {name}, from a newer modegraph"
        expected = f"at most {known_migrations()[max(known_migrations())]}"
        raise Unavailable(found, expected, "install the version that ran this migration, or a newer one")
    return int(str(number))


def place_in_database(folder: Path, dsn: str) -> None:
    """Turn a new folder into an index whose rows are in this database, and create the tables there; for an existing index, run only pending migrations.

    UserError, with no file written, when the folder contains anything else or an index with its rows in another database, when the database
    cannot be reached or its schema is newer, and when the connection string contains a password.
    """
    parameters, database = parameters_of(dsn), database_of(dsn)
    if has_database(folder):
        if (known := database_of(dsn_of(folder))) != database:
            found = f"{folder}: its rows are in {known}, not in {database}"
            remedy = f"if that database has moved, change its address in {folder / DATABASE_FILE}"
            raise UserError(found, "the database that it was made with", remedy)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = f"{folder}: exists, but is not an index with its rows in a database"
        raise UserError(found, "a new or empty folder", "choose another, or leave --store out")
    with transaction(dsn) as connection:
        migrate(connection, database)
    if not has_database(folder):
        with report_unwritable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_database(folder, parameters)
