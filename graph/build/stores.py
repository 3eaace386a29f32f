"""The store of the index in a folder: index.sqlite there, or the PostgreSQL that database.json names; opened to be read, or alone to write.

PostgreSQL is imported where a folder names one, so an index in SQLite needs nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from graph.disk.room import full_disk_told
from graph.shared.config import parse_settings
from graph.shared.errors import UserError
from graph.store.database import FILE as DATABASE
from graph.store.database import has_database
from graph.store.lock import GiveUp, writer_lock
from graph.store.seal import check_seal, unsealed
from graph.store.settings import IndexSettings
from graph.store.sqlite import FILE as SQLITE
from graph.store.sqlite import SqliteStore, read_sqlite_settings
from graph.store.store import Store


def has_store(folder: Path) -> bool:
    """Whether a folder has the rows of an index, or names the database that has them."""
    return (folder / SQLITE).exists() or has_database(folder)


def store_name(folder: Path) -> str:
    """What has the rows: index.sqlite, or the database as postgresql://USER@HOST/NAME."""
    if has_database(folder):
        from graph.postgres.store.connect import database_of, dsn_of

        return database_of(dsn_of(folder))
    return SQLITE


def open_store(folder: Path) -> Store:
    """The store, to be read. DiskFull when SQLite has no room for the file in which readers meet writers."""
    if has_database(folder):
        from graph.postgres.store.connect import dsn_of
        from graph.postgres.store.store import PostgresStore

        return PostgresStore(dsn_of(folder))
    with full_disk_told(folder):
        return SqliteStore(folder, read_only=True)


@contextmanager
def open_for_writing(folder: Path, give_up: GiveUp | None = None) -> Iterator[Store]:
    """The store, alone: in turn with other writers, first come, first served; UserError before anything is written where it is damaged, and
    DiskFull for whatever is written in the block when there is no room for it.

    `give_up` is as in graph/store/lock.py. Writers of a database take turns by graph/postgres/store/turn.py; those of a folder by its lock, and
    they leave it sealed (graph/store/seal.py) when all went well.
    """
    with full_disk_told(folder), _open_alone(folder, give_up) as store:
        yield store


@contextmanager
def _open_alone(folder: Path, give_up: GiveUp | None) -> Iterator[Store]:
    if has_database(folder):
        from graph.postgres.store.connect import dsn_of
        from graph.postgres.store.store import PostgresStore
        from graph.postgres.store.turn import writers_turn

        with (
            writers_turn(dsn_of(folder), folder, give_up) as turn,
            closing(PostgresStore(dsn_of(folder), turn)) as store,
        ):
            yield store
    else:
        with (
            writer_lock(folder, give_up),
            unsealed(folder) as seal,
            closing(SqliteStore(folder, sealing=seal if seal.before else None)) as store,
        ):
            yield store


def is_finished(folder: Path, store: Store, generation: int) -> bool:
    """Whether the last run did all that it was to do; `generation` is the manifest's."""
    if has_database(folder):
        return store.changed_since(generation) == []
    return check_seal(folder, SQLITE) != "unfinished"


def kept_settings(folder: Path) -> IndexSettings | None:
    """The settings that an index was made with; None where there is no index, or none yet in its database."""
    if not has_database(folder):
        return read_sqlite_settings(folder) if (folder / SQLITE).exists() else None
    with closing(open_store(folder)) as store:
        text = store.get_meta("settings")
    return None if text is None else parse_settings(IndexSettings, json.loads(text), str(folder / DATABASE))


def read_settings(folder: Path | str) -> IndexSettings:
    """The settings that an index was made with; UserError when `folder` holds none."""
    folder = Path(folder)
    settings = kept_settings(folder)
    if settings is None:
        found = f"{folder}: no {SQLITE}" if not has_database(folder) else f"{folder}: no index in its database yet"
        raise UserError(found, "an index", f"create one: modegraph index SRC --out {folder}")
    return settings
