"""The store of the index in a folder, opened for reading or for exclusive writing; and the settings stored in an index.

The rows are in index.sqlite, or in the PostgreSQL database that database.json names. The PostgreSQL code is imported only for such a folder.
A later run can change only the settings in CHANGEABLE."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph.config import parse_settings, read_values
from graph.errors import UserError
from graph.models.encoder import absolute_spec, check_encoder
from graph.shared.disk import report_full_disk
from graph.store.index_settings import CHANGEABLE, DATABASE_FILE, IndexSettings, has_database
from graph.store.ledger_file import checkpoint_ledger
from graph.store.lock import GiveUp, writer_lock, writer_of
from graph.store.rows import Store
from graph.store.seal import SEAL, renew_seal
from graph.store.sqlite import SQLITE_FILE, SqliteStore, read_sqlite_settings
from graph.types import Encoder, Prompts

if TYPE_CHECKING:
    from graph.postgres.turn import Turn


def has_store(folder: Path) -> bool:
    """Whether a folder contains the rows of an index, or names the database that contains them."""
    return (folder / SQLITE_FILE).exists() or has_database(folder)


def store_name(folder: Path) -> str:
    """The store of the rows: index.sqlite, or the database as postgresql://USER@HOST/NAME."""
    if has_database(folder):
        from graph.postgres.connect import database_of, dsn_of

        return database_of(dsn_of(folder))
    return SQLITE_FILE


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """The store, for reading. DamagedFile when SQLite cannot read index.sqlite, DiskFull when there is no space for the file that SQLite's readers share with
    writers.
    """
    if has_database(folder):
        from graph.postgres.connect import dsn_of
        from graph.postgres.store import PostgresStore

        with closing(PostgresStore(dsn_of(folder))) as store:
            yield store
    else:
        with report_full_disk(folder):
            opened = SqliteStore(folder, read_only=True)
        with closing(opened):
            yield opened


@contextmanager
def open_for_writing(folder: Path, give_up: GiveUp | None = None) -> Iterator[Store]:
    """The store, for exclusive writing, once the turn has come; see `turn_to_write` and `open_in_turn`."""
    with turn_to_write(folder, give_up) as turn, open_in_turn(folder, turn) as store:
        yield store


@contextmanager
def turn_to_write(folder: Path, give_up: GiveUp | None = None) -> Iterator[Turn | None]:
    """The turn to write, first come, first served: for a database that of graph/postgres/turn.py, for a folder its lock (None). DiskFull when the disk fills
    up meanwhile. `give_up` is as in graph/store/lock.py.
    """
    with report_full_disk(folder):
        if has_database(folder):
            from graph.postgres.connect import dsn_of
            from graph.postgres.turn import writers_turn

            with writers_turn(dsn_of(folder), folder, give_up) as turn:
                yield turn
        else:
            with writer_lock(folder, give_up):
                yield None


@contextmanager
def open_in_turn(folder: Path, turn: Turn | None) -> Iterator[Store]:
    """The store, for writing during a turn. A folder is left sealed (graph/store/seal.py) on success; DamagedFile if SQLite cannot read index.sqlite, or if a
    block that is about to be written is damaged.
    """
    if turn is not None:
        from graph.postgres.connect import dsn_of
        from graph.postgres.store import PostgresStore

        with closing(PostgresStore(dsn_of(folder), turn)) as store:
            yield store
    else:
        with (
            renew_seal(folder) as seal,
            closing(SqliteStore(folder, before_checkpoint=seal.check_and_record if seal.before else None)) as store,
        ):
            yield store
            checkpoint_ledger(folder)


def active_writer(folder: Path) -> str:
    """The process that writes to the index or is the next to do so; "" if there is none."""
    if has_database(folder):
        from graph.postgres.connect import dsn_of
        from graph.postgres.turn import current_writer

        return current_writer(dsn_of(folder))
    return writer_of(folder)


def is_finished(folder: Path, store: Store, generation: int) -> bool:
    """Whether the last run finished; `generation` is the manifest's."""
    if has_database(folder):
        return store.changed_since(generation) == []
    return (folder / SEAL).exists()


def stored_settings(folder: Path) -> IndexSettings | None:
    """The settings of the index in `folder`; None if there is no index, or if index.sqlite or the database that the folder names has no index yet."""
    if not has_database(folder):
        return read_sqlite_settings(folder) if (folder / SQLITE_FILE).exists() else None
    with open_store(folder) as store:
        text = store.get_meta("settings")
    return None if text is None else parse_settings(IndexSettings, json.loads(text), str(folder / DATABASE_FILE))


def read_settings(folder: Path | str) -> IndexSettings:
    """The settings of an index; UserError when `folder` has no index."""
    folder = Path(folder)
    settings = stored_settings(folder)
    if settings is None:
        found = "no index in its database yet" if has_database(folder) else f"no {SQLITE_FILE}"
        if (folder / SQLITE_FILE).exists():
            found = "its first run was interrupted before it stored a document"
        raise UserError(f"{folder}: {found}", "an index", f"create one: modegraph index SRC --out {folder}")
    return settings


def settings_for(
    folder: Path,
    file: Path | None,
    overrides: Sequence[str],
    flags: Mapping[str, object],
    where: str = "--set",
) -> IndexSettings:
    """Settings for a run on `folder`: those of the index, if it exists, overridden by `file`, `overrides` and `flags`; the encoder's path is made absolute.

    Only the settings that are overridden count as set (see `store_settings`). Errors name `file`, or else `where`.
    """
    stored = stored_settings(folder)
    values = stored.model_dump() if stored is not None else {}
    overriding = {**read_values(file, overrides), **flags}
    settings = parse_settings(IndexSettings, {**values, **overriding}, str(file or where))
    values = {**dict(settings), "encoder": absolute_spec(settings.encoder)}
    return IndexSettings.model_construct(set(overriding), **values)


def model_settings(
    extractor_model: str | None, import_file: Path | None, summary_model: str | None
) -> dict[str, object]:
    """The settings that --extractor-model, --import and --summary-model set; UserError if the first two are combined."""
    if extractor_model is not None and import_file is not None:
        raise UserError("--extractor-model with --import", "only one of the two", "leave one out")
    summaries: dict[str, object] = {} if summary_model is None else {"summary_model": summary_model}
    if extractor_model is not None:
        return {"extractor": "llm", "extractor_model": extractor_model, "import_file": "", **summaries}
    if import_file is not None:
        return {"extractor": "import", "import_file": str(import_file.resolve()), "extractor_model": "", **summaries}
    return summaries


def store_settings(store: Store, settings: IndexSettings) -> IndexSettings:
    """Store the settings of a run in the index, and return them; UserError if a setting that must not change differs from the index's.

    Settings in CHANGEABLE that `settings` does not set stay as in the index: another writer may have changed them since the caller read them.
    """
    check_settings(store, settings)
    unset = CHANGEABLE - settings.model_fields_set
    settings = settings.model_copy(update={key: value for key, value in _values_in(store).items() if key in unset})
    store.set_meta("settings", settings.model_dump())
    return settings


def check_index_encoder(store: Store, encoder: Encoder, folder: Path) -> None:
    """UserError when `encoder` is not the one that made the vectors of an index, or has other prompts."""
    text = store.get_meta("prompts")
    prompts = None if text is None else Prompts(**json.loads(text))
    check_encoder(store.get_meta("encoder"), encoder, folder, prompts)


def store_encoder(store: Store, encoder: Encoder, folder: Path) -> None:
    """Store the fingerprint and the prompts of the index's encoder before its first vector is made; UserError as in `check_index_encoder`."""
    check_index_encoder(store, encoder, folder)
    store.set_meta("encoder", encoder.fingerprint)
    store.set_meta("prompts", asdict(encoder.prompts))


def check_settings(store: Store, settings: IndexSettings) -> None:
    """UserError naming the first setting that must not change but differs from that of the index."""
    stored = _values_in(store)
    for key, value in settings.model_dump(exclude=CHANGEABLE).items() if stored else ():
        if stored[key] != value:
            found = f"{key} = {value!r}, but this index was made with {key} = {stored[key]!r}"
            raise UserError(found, "the settings it was made with", "leave the setting out, or index into a new folder")


def _values_in(store: Store) -> dict[str, Any]:
    """The settings of an index by name; none before its first run has stored them."""
    text = store.get_meta("settings")
    return {} if text is None else IndexSettings.model_construct(**json.loads(text)).model_dump()
