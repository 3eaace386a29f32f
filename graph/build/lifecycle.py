"""Operations on an existing index: delete, resume, retry, status, verify, repair, compact."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unicodedata import normalize

from graph.build.build import finish_build, is_current, open_tools
from graph.build.read_passages import no_model, read_quarantined, reading_facts
from graph.build.stores import (
    active_writer,
    has_store,
    is_finished,
    open_for_writing,
    open_in_turn,
    open_store,
    read_settings,
    store_name,
    store_settings,
    turn_to_write,
)
from graph.errors import UserError, did_you_mean
from graph.shared.console import say
from graph.shared.disk import folder_bytes
from graph.shared.ids import has_sum, is_intact
from graph.store.ann import ANN_ENDING
from graph.store.arrays import ann_is_current, check_arrays, drop_others, load_arrays, publish, save_arrays
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.embedding_cache import PendingVectors
from graph.store.index_settings import DATABASE_FILE, IndexSettings, has_database
from graph.store.ledger_file import LEDGER, ledger_damage, renew_ledger
from graph.store.manifest import (
    MANIFEST,
    Manifest,
    OtherFormat,
    files_in,
    generation_of,
    names_in,
    read_manifest,
    sizes,
)
from graph.store.rows import TABLES, Store
from graph.store.seal import SEAL, check_seal
from graph.store.sqlite import INDEX_AGAIN, SQLITE_FILE
from graph.store.vectors import SEGMENT_ENDING, SEGMENT_FOLDER
from graph.types import OpenEncoder, OpenModel, Workers
from graph.workers.engines import THIS_PROCESS

COUNTED_TABLES = tuple(table for table in TABLES if table not in ("meta", "occurrence_topics", "quarantine", "changed"))
UNFINISHED = "the last run did not finish"
ROWS_EXPECTED = "an intact file, from which the other files are made"


@dataclass(frozen=True)
class IndexStatus:
    """The state of an index. `store` names the store of its rows: index.sqlite, or a database. `unfinished` is a message if the last
    run did not finish or another is at work, else ""; `rows` counts the rows of COUNTED_TABLES.

    `identity` is the manifest's (graph/store/manifest.py), "" without one; `quarantined`, `dropped` and `read_by` are those of a
    BuildReport (graph/build/build.py). `changed_passages` is the number of passages that were added or removed since the communities were
    detected. `ann_recall` is, for each kind of vectors with ANN indexes, the lowest recall of these indexes: the share of the ten nearest
    neighbours found by an index when it was built.
    """

    folder: str
    store: str
    generation: int
    identity: str
    encoder: str
    rows: dict[str, int]
    disk_bytes: int
    documents_to_extract: int
    quarantined: int
    dropped: int
    read_by: dict[str, int]
    pending_vectors: int
    changed_passages: int
    ann_recall: dict[str, float]
    unfinished: str


@dataclass(frozen=True)
class Damage:
    """One missing, damaged or unfinished file, and how to repair it."""

    file: str
    problem: str
    repair: str


def delete_documents(
    folder: Path | str, sources: Sequence[str], open_encoder: OpenEncoder, open_model: OpenModel = no_model
) -> IndexData:
    """Remove documents by source, and everything read only from them; UserError, changing nothing, if a source is unknown."""
    folder = Path(folder)
    read_settings(folder)
    if not sources:
        return load_arrays(folder, IndexData)
    try:
        with open_for_writing(folder) as store:
            settings = read_settings(folder)
            with store.transaction():
                for source in _as_stored(store.sources(), sources):
                    store.delete_document(source)
                store.drop_orphans()
                tools = open_tools(folder, store, settings, open_encoder, open_model)
            return finish_build(folder, store, tools, settings)
    except _UnknownSource as problem:
        # The turn is over: other writers do not wait for the search for similar names, which may take seconds.
        source, known = problem.args
        expected = did_you_mean(source, known) or f"one of its {len(known):,} documents"
        found = f"{folder}: no document {source!r}"
        raise UserError(found, expected, "correct the name; nothing was deleted") from None


class _UnknownSource(Exception):
    """A source that no document has; the arguments are the source and those of all documents."""


def _as_stored(known: Sequence[str], sources: Sequence[str]) -> set[str]:
    """The sources as stored: macOS decomposes accented letters in file names, but users type composed ones."""
    stored = {normalize("NFC", each): each for each in known} | {each: each for each in known}
    found = set()
    for source in sources:
        name = stored.get(source) or stored.get(normalize("NFC", source))
        if name is None:
            raise _UnknownSource(source, known)
        found.add(name)
    return found


def resume_build(
    folder: Path | str,
    open_encoder: OpenEncoder,
    open_model: OpenModel = no_model,
    settings: IndexSettings | None = None,
    workers: Workers = THIS_PROCESS,
) -> IndexData:
    """Finish an interrupted run: unread documents, texts without vectors, unsaved arrays.

    `settings` may differ from those of the index only in CHANGEABLE (graph/store/index_settings.py); None leaves them unchanged.
    """
    return _resume(Path(folder), open_encoder, open_model, settings, workers, quarantined=False)[1]


def retry_failed(
    folder: Path | str,
    open_encoder: OpenEncoder,
    open_model: OpenModel = no_model,
    settings: IndexSettings | None = None,
) -> int:
    """Read the quarantined passages again, then finish the index; return how many passages were retried. `settings` are as in `resume_build`."""
    return _resume(Path(folder), open_encoder, open_model, settings, THIS_PROCESS, quarantined=True)[0]


def _resume(
    folder: Path,
    open_encoder: OpenEncoder,
    open_model: OpenModel,
    settings: IndexSettings | None,
    workers: Workers,
    quarantined: bool,
) -> tuple[int, IndexData]:
    """Read the quarantined passages again if `quarantined`, then finish the index; return how many were retried, and the arrays."""
    read_settings(folder)
    with open_for_writing(folder) as store:
        with store.transaction():
            settings = store_settings(store, settings or read_settings(folder))
            tools = open_tools(folder, store, settings, open_encoder, open_model, workers, retry=quarantined)
        retried = read_quarantined(store, tools.read) if quarantined and tools.read is not None else 0
        return retried, finish_build(folder, store, tools, settings)


def quarantine_warning(folder: Path | str) -> str:
    """The warning when more passages are in quarantine than the settings allow; "" otherwise."""
    folder = Path(folder)
    share = read_settings(folder).max_failed_share
    with open_store(folder) as store:
        facts = reading_facts(store)
    if facts.quarantined <= share * facts.passages:
        return ""
    return (
        f"{folder}: {facts.quarantined:,} of {facts.passages:,} passages could not be read and are in quarantine "
        f"(max_failed_share = {share:g}); try again with: modegraph retry {folder} --failed"
    )


def index_status(folder: Path | str) -> IndexStatus:
    """The state of an index; read-only, and safe while a writer is at work."""
    folder = Path(folder)
    settings = read_settings(folder)
    with open_store(folder) as store:
        rows = {table: store.count(table) for table in COUNTED_TABLES}
        facts = reading_facts(store)
        waiting = len(store.sources_to_extract())
        manifest = read_manifest(folder) if (folder / MANIFEST).exists() else None
        finished = manifest is not None and is_finished(folder, store, manifest.generation)
    return IndexStatus(
        folder=str(folder),
        store=store_name(folder),
        generation=manifest.generation if manifest is not None else 0,
        identity=manifest.identity if manifest is not None else "",
        encoder=settings.encoder,
        rows=rows,
        disk_bytes=folder_bytes(folder),
        documents_to_extract=waiting,
        quarantined=facts.quarantined,
        dropped=facts.dropped,
        read_by=facts.read_by,
        pending_vectors=len(PendingVectors(folder, check=False).ids),
        changed_passages=manifest.changed_passages if manifest is not None else 0,
        ann_recall=_ann_recall(manifest) if manifest is not None else {},
        unfinished="" if finished else ": ".join(_unfinished(folder)),
    )


def _unfinished(folder: Path) -> tuple[str, str]:
    """Why an index is unfinished, and what to do."""
    writer = active_writer(folder)
    return (f"process {writer} is writing", "wait for it") if writer else _interrupted(folder)


def _interrupted(folder: Path) -> tuple[str, str]:
    """As `_unfinished`, if no other process is writing."""
    return UNFINISHED, f"modegraph resume {folder}"


def _ann_recall(manifest: Manifest) -> dict[str, float]:
    recalls = {
        kind: [manifest.ann[name]["recall"] for name in manifest.segments.get(vectors, ()) if name in manifest.ann]
        for kind, (_, vectors) in VECTOR_FIELDS.items()
    }
    return {kind: min(values) for kind, values in recalls.items() if values}


def verify_index(folder: Path | str) -> list[Damage]:
    """Every file that is missing, truncated, altered or unfinished; rows in a database are not checked. OtherFormat if the index has a different format."""
    folder = Path(folder)
    return _damage(folder, _unfinished)


def _damage(folder: Path, unfinished: Callable[[Path], tuple[str, str]]) -> list[Damage]:
    """The damage of an index; `unfinished` returns the problem and the remedy, and is called only if a run has not finished."""
    repair = f"modegraph repair {folder}"
    damage = _store_damage(folder, unfinished)
    try:
        manifest = read_manifest(folder)
    except OtherFormat:
        raise
    except UserError as error:
        return [*damage, Damage(MANIFEST, str(error), repair)]
    arrays = files_in(folder, manifest)
    for file, expected in sizes(folder, manifest).items():
        size = file.stat().st_size if file.exists() else 0
        if size != expected:
            damage.append(Damage(str(file.relative_to(folder)), f"{size:,} bytes, expected {expected:,}", repair))
        elif not (has_sum(file, arrays[file]["checksum"]) if file in arrays else is_intact(file)):
            damage.append(Damage(str(file.relative_to(folder)), "its contents have changed", repair))
    return damage


def _store_damage(folder: Path, unfinished: Callable[[Path], tuple[str, str]]) -> list[Damage]:
    if has_database(folder):
        with open_store(folder) as store:
            finished = is_finished(folder, store, generation_of(folder) or int(store.get_meta("generation") or 0))
        return [] if finished else [Damage(DATABASE_FILE, *unfinished(folder))]
    if not (folder / SQLITE_FILE).exists():
        return [Damage(SQLITE_FILE, "missing", INDEX_AGAIN)]
    found, seal = list[Damage](), check_seal(folder)
    if seal == "unfinished":
        found.append(Damage(SQLITE_FILE, *unfinished(folder)))
    elif seal == "damaged":
        found.append(Damage(SQLITE_FILE, "its contents have changed since the last run", INDEX_AGAIN))
    elif seal == "illegible":
        found.append(Damage(SEAL, "its contents have changed", f"modegraph repair {folder}"))
    problem = ledger_damage(folder)
    return [*found, Damage(LEDGER, problem, f"modegraph repair {folder}")] if problem else found


def repair_index(folder: Path | str, open_encoder: OpenEncoder, open_model: OpenModel = no_model) -> list[Damage]:
    """Rebuild damaged arrays from the rows, and damaged ANN indexes from their segments; return the damage found.

    Vectors in files with a valid checksum are reused, others are encoded again. A damaged call ledger is renamed, and its
    intact calls are copied into a new ledger. UserError when index.sqlite itself is missing or damaged: it cannot be rebuilt.
    """
    folder = Path(folder)
    if not has_store(folder):
        raise UserError(f"{folder / SQLITE_FILE}: missing", ROWS_EXPECTED, INDEX_AGAIN)
    with turn_to_write(folder) as turn:
        damage = _damage(folder, _interrupted)
        for found in damage:
            if found.repair == INDEX_AGAIN:
                raise UserError(f"{folder / SQLITE_FILE}: {found.problem}", ROWS_EXPECTED, found.repair)
        if any(found.file == LEDGER for found in damage):
            say(renew_ledger(folder / LEDGER))
        if rest := [found for found in damage if found.file != LEDGER]:
            with open_in_turn(folder, turn) as store:
                _repair_files(folder, store, rest, open_encoder, open_model)
    return damage


def _repair_files(
    folder: Path, store: Store, damage: Sequence[Damage], open_encoder: OpenEncoder, open_model: OpenModel
) -> None:
    """Finish an unfinished run, or make the next generation from the rows and the intact vectors; until then, readers see the damaged one."""
    if all(found.file.endswith(ANN_ENDING) for found in damage):
        manifest, damaged = read_manifest(folder), {Path(found.file).name for found in damage}
        sound = {name: ann for name, ann in manifest.ann.items() if ann["file"] not in damaged}
        _rewrite_arrays(folder, store, replace(manifest, ann=sound))
        return
    settings, anew = read_settings(folder), any(found.problem != UNFINISHED for found in damage)
    with store.transaction():
        tools = open_tools(folder, store, settings, open_encoder, open_model)
    pending = PendingVectors(folder)
    for segment in sorted((folder / SEGMENT_FOLDER).glob(f"*{SEGMENT_ENDING}")) if anew else ():
        if is_intact(segment):
            pending.adopt(segment)
    finish_build(folder, store, tools, settings, anew=anew)


def compact_index(folder: Path | str, open_encoder: OpenEncoder, open_model: OpenModel = no_model) -> int:
    """Free the space of deleted rows and of the previous generation; return the bytes freed (negative if the index grew).

    Communities that were carried over by edits are detected again; graphs above FLAT_LIMIT, which edits update only approximately, are rebuilt; vectors are
    merged into one segment. The files are then those of an index built in one run. An interrupted run is finished first.
    """
    folder = Path(folder)
    before = index_status(folder).disk_bytes
    with open_for_writing(folder) as store:
        settings = read_settings(folder)
        manifest = read_manifest(folder) if is_current(folder, store, settings) else None
        if manifest is None or manifest.changed_passages or manifest.grown:
            with store.transaction():
                tools = open_tools(folder, store, settings, open_encoder, open_model)
            finish_build(folder, store, tools, settings, compact=True)
        else:
            _rewrite_arrays(folder, store, manifest, compact=True)
        store.vacuum()
        with store.transaction():
            drop_others(folder, names_in(read_manifest(folder)))
    return before - index_status(folder).disk_bytes


def _rewrite_arrays(folder: Path, store: Store, manifest: Manifest, compact: bool = False) -> None:
    """Write the arrays unchanged as the next generation, and build the missing ANN indexes.

    With `compact`, each kind of vectors gets one segment, with an ANN index if one is due; nothing is written if all kinds already have this form and
    the arrays have no base.
    """
    check_arrays(folder, manifest)
    data, settings = load_arrays(folder, IndexData, manifest), read_settings(folder)
    vectors = [getattr(data, field) for _, field in VECTOR_FIELDS.values()]
    merged = all(
        column.is_one_segment and ann_is_current(column, settings.ann_rows, settings.merge_factor) for column in vectors
    )
    if compact and merged and manifest.base is None:
        return
    with store.transaction():
        generation = store.next_generation()
    facts = {
        "settings": manifest.settings,
        "encoder": {"fingerprint": manifest.encoder},
        "prompts": asdict(manifest.prompts),
        "changed_passages": manifest.changed_passages,
        "grown": manifest.grown,
    }
    saved = save_arrays(folder, generation, data, facts, settings.merge_factor, settings.ann_rows, compact)
    with store.transaction():
        publish(folder, saved)
        if store.changed_since(manifest.generation) == []:
            store.note_derived(generation)
