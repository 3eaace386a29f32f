"""Builds an index from documents: reads and splits them, extracts propositions, encodes texts, derives arrays and saves them.
After an interruption, every step resumes where it stopped.

`build_index` adds documents for one caller; `edit_index` applies the edits of all waiting callers together."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from graph.build.changes import ChangedRows, rows_with
from graph.build.derive import LayerReuse, derive_arrays, has_large_graph
from graph.build.read_passages import (
    ReadingFacts,
    Split,
    imported_hashes,
    no_model,
    open_extractor,
    read_waiting,
    reading_facts,
)
from graph.build.stores import (
    has_store,
    open_for_writing,
    read_settings,
    store_encoder,
    store_settings,
    stored_settings,
)
from graph.documents.split import split_passages
from graph.errors import DamagedFile, UserError
from graph.extract.extraction import ReadDocuments
from graph.hierarchy.summaries import WriteSummaries, write_summaries
from graph.shared.console import say
from graph.shared.disk import report_unwritable
from graph.store.arrays import check_arrays, check_files, load_arrays, load_field, publish, save_arrays
from graph.store.columns.moved import rows_with_numbers
from graph.store.columns.strings import Strings, ids_at
from graph.store.data import IndexData
from graph.store.embedding_cache import EmbeddingCache, PendingVectors
from graph.store.index_settings import IndexSettings
from graph.store.ledger_file import LEDGER
from graph.store.lock import GiveUp, queue_of_writers
from graph.store.manifest import MANIFEST, Base, Manifest, read_manifest
from graph.store.rows import Store
from graph.types import Document, Encoder, OpenEncoder, OpenModel, Workers
from graph.workers.engines import THIS_PROCESS

MAX_CHANGED_SHARE = 0.1
"""The largest share of the passages that edits may add or remove before communities are detected again, even with `layers_on_edit: later`."""

PATCHED_FROM_PASSAGES, MAX_PATCHED_SHARE = 20_000, 0.02
"""In an index of at least PATCHED_FROM_PASSAGES passages, edits are written as patches next to the arrays until more than MAX_PATCHED_SHARE of
the documents have changed; then all arrays are rewritten."""


@dataclass(frozen=True)
class BuildReport:
    """The result of one run: documents written, unchanged and deleted, the counts of the index after the run, and seconds by step.

    `quarantined` passages could not be read; `dropped` parts of model replies were malformed or had no support in their passage; `read_by`
    counts passages by reader ("rules", "llm", "import").
    """

    written: int
    unchanged: int
    deleted: int
    documents: int
    passages: int
    propositions: int
    entities: int
    summaries: int
    quarantined: int
    dropped: int
    read_by: dict[str, int]
    read_seconds: float
    build_seconds: float


def build_index(
    folder: Path | str,
    documents: Iterable[Document],
    settings: IndexSettings,
    open_encoder: OpenEncoder,
    open_model: OpenModel = no_model,
    workers: Workers = THIS_PROCESS,
    keep: Callable[[str], bool] | None = None,
) -> BuildReport:
    """Add `documents` to the index in `folder` (created if absent): new ones are added, changed ones replaced, unchanged ones left alone.

    With `keep`, called after `documents` are read, documents whose sources it rejects are deleted. The index does not depend on where `workers` run.

    UserError, leaving the index unchanged, when a document cannot be read, or when a setting outside CHANGEABLE, the encoder or the
    extractor's model differs from the index's. UserError, with all finished work saved, when a model stops answering; `resume` then continues.
    """
    folder = Path(folder)
    existed = folder.exists()
    was_empty = _prepare_folder(folder)
    started = time.perf_counter()
    committed = False
    try:
        with open_for_writing(folder) as store:
            with store.transaction():
                settings = store_settings(store, settings)
                counts = put_documents(store, documents, imported_hashes(settings))
                deleted = delete_others(store, keep) if keep is not None else 0
                tools = open_tools(folder, store, settings, open_encoder, open_model, workers)
            committed = True
            read_done = time.perf_counter()
            data = finish_build(folder, store, tools, settings)
            facts = reading_facts(store)
    except BaseException as problem:
        if committed and isinstance(problem, UserError | KeyboardInterrupt) and not isinstance(problem, DamagedFile):
            say(f"{folder}: interrupted, but the work done so far is saved; continue with: modegraph resume {folder}")
        elif was_empty and not committed:
            _remove_files(folder, existed)
        raise
    return report_of(data, facts, (*counts, deleted), (read_done - started, time.perf_counter() - read_done))


def report_of(
    data: IndexData, facts: ReadingFacts, counts: tuple[int, int, int], seconds: tuple[float, float]
) -> BuildReport:
    """The report of a build: `counts` are documents written, unchanged and deleted, `seconds` the durations of reading and of building."""
    return BuildReport(
        *counts,
        documents=len(data.document_sources),
        propositions=len(data.proposition_ids),
        entities=len(data.entity_ids),
        summaries=len(data.summary_ids),
        read_seconds=seconds[0],
        build_seconds=seconds[1],
        **vars(facts),
    )


@dataclass(frozen=True)
class Tools:
    """The tools of a build. `read` is None if there is nothing to read, `write` is None if summaries are extractive."""

    encoder: Encoder
    split: Split
    read: ReadDocuments | None
    write: WriteSummaries | None
    workers: Workers


def open_tools(
    folder: Path,
    store: Store,
    settings: IndexSettings,
    open_encoder: OpenEncoder,
    open_model: OpenModel,
    workers: Workers = THIS_PROCESS,
    retry: bool = False,
) -> Tools:
    """The encoder, extractor and summariser that the settings name. The encoder is checked against the index, and stored in it.

    With `retry`, the extractor is also opened if only quarantined passages need it.
    """
    encoder = open_encoder(settings.encoder)
    store_encoder(store, encoder, folder)
    split = partial(split_passages, max_tokens=settings.max_passage_tokens, count_tokens=encoder.count_tokens)
    needed = store.sources_to_extract() or (retry and store.count("quarantine"))
    read = open_extractor(folder, store, settings, split, open_model, workers) if needed else None
    write = None
    if settings.summary_model:
        model = open_model(settings.summary_model, ledger=folder / LEDGER)
        write = partial(write_summaries, model, settings.max_summary_tokens)
    return Tools(encoder, split, read, write, workers)


def finish_build(
    folder: Path, store: Store, tools: Tools, settings: IndexSettings, compact: bool = False, anew: bool = False
) -> IndexData:
    """The steps after documents have been stored or deleted: extract, encode, derive, save the next generation.

    With `compact`, communities are detected again regardless of `layers_on_edit`, and vectors are merged into one segment. With `anew`, the last
    generation is not read.
    """
    if tools.read is not None:
        read_waiting(store, tools.read, tools.split, tools.workers)
    encoder, last = tools.encoder, _LastGeneration() if anew else _last_generation(folder, store, compact)
    stale = _stale_passages(store, last) if settings.layers_on_edit == "later" and not compact else 0
    carry = 0 < stale <= MAX_CHANGED_SHARE * store.count("passages")
    rebuild_graphs = compact and last.manifest is not None and last.manifest.grown
    reuse_summaries = tools.write is None and _may_reuse_summaries(last, carry)
    reuse = LayerReuse(communities=carry, graphs=not rebuild_graphs, summaries=reuse_summaries)
    pending = PendingVectors(folder)
    cache = EmbeddingCache(last.data, pending, encoder, settings.vectors, tools.workers)
    count_tokens = encoder.count_tokens
    data = derive_arrays(store, last.data, cache, count_tokens, settings, tools.write, last.changed, reuse)
    with store.transaction():
        generation = store.next_generation()
    facts = {
        "settings": settings.model_dump(),
        "encoder": {"fingerprint": encoder.fingerprint},
        "prompts": asdict(encoder.prompts),
        "changed_passages": stale if carry else 0,
        "grown": not rebuild_graphs and _has_grown(last, data),
    }
    saved = save_arrays(folder, generation, data, facts, settings.merge_factor, settings.ann_rows, compact, last.base)
    with store.transaction():
        publish(folder, saved)
        store.note_derived(generation)
    pending.drop()
    return data


@dataclass(frozen=True)
class _LastGeneration:
    """The generation to start from, if any: its arrays, the documents changed since (None: unknown), and the base arrays to
    which the next generation is written as patches (None: all arrays are rewritten).
    """

    manifest: Manifest | None = None
    data: IndexData | None = None
    changed: Sequence[str] | None = None
    base: Base | None = None


def _last_generation(folder: Path, store: Store, compact: bool) -> _LastGeneration:
    """The current generation; UserError if one of its files is missing or truncated, or if the contents of an array that will be rewritten have changed."""
    if not (folder / MANIFEST).exists():
        return _LastGeneration()
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    changed = store.changed_since(manifest.generation)
    base = None if compact or changed is None else _base_of_edit(folder, manifest, len(changed))
    check_arrays(folder, manifest, skipped_folder="" if base is None else base.arrays)
    return _LastGeneration(manifest, load_arrays(folder, IndexData, manifest, moved=True), changed, base)


def _may_reuse_summaries(last: _LastGeneration, carry: bool) -> bool:
    """Whether the last summaries may be reused: no model wrote them and, unless communities are carried over (`carry`), they were not carried over before."""
    if last.manifest is None or last.manifest.settings.get("summary_model"):
        return False
    return carry or not last.manifest.changed_passages


def _has_grown(last: _LastGeneration, data: IndexData) -> bool:
    """Whether edits changed a graph that was or became too large to be updated exactly; it stays approximate even if it shrinks again."""
    if last.manifest is None or last.data is None:
        return False
    return last.manifest.grown or has_large_graph(last.data) or has_large_graph(data)


def _base_of_edit(folder: Path, manifest: Manifest, changed: int) -> Base | None:
    """The base arrays to which an edit of `changed` documents is written as patches; None unless the index is large and few documents have changed since."""
    base = manifest.full_arrays
    passages, documents = (
        len(load_field(folder / base.arrays, name, Strings)) for name in ("passage_ids", "document_sources")
    )
    base = replace(base, changed_documents=base.changed_documents + changed)
    is_small = base.changed_documents <= MAX_PATCHED_SHARE * documents
    return base if passages >= PATCHED_FROM_PASSAGES and is_small else None


def _stale_passages(store: Store, last: _LastGeneration) -> int:
    """The number of passages added or removed since communities were detected.

    If an edit adds and removes none, but replaces documents (their metadata, say), this includes the passages of these documents: they are assigned to
    communities again.
    """
    if last.manifest is None or last.data is None:
        return 0
    rows = np.arange(len(last.data.passage_ids))
    if last.changed is not None:
        rows = rows_with_numbers(last.data.passage_document_P, rows_with(last.data.document_sources, last.changed))
    last_ids = ids_at(last.data.passage_ids, rows)
    ids = ChangedRows(store, last.changed).passages().ids
    return last.manifest.changed_passages + (len(np.setxor1d(last_ids, ids)) or len(ids))


def _prepare_folder(folder: Path) -> bool:
    """Create the folder if absent; return whether it is new or empty.

    UserError unless it is new or empty, is an index, or contains only the ledger and the lock of a former index.
    """
    if folder.exists() and (not folder.is_dir() or not (has_store(folder) or _only_ledger(folder))):
        found = f"{folder}: exists and is not an index"
        raise UserError(found, "a new or empty folder, or an index", "choose another --out")
    was_empty = not folder.exists() or not any(folder.iterdir())
    with report_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return was_empty


def _remove_files(folder: Path, existed: bool) -> None:
    """Delete the files of a first run that stored nothing, and their folder unless it `existed` before. They remain if they cannot be deleted, or if another
    writer waits or has written.
    """
    with suppress(OSError, UserError), queue_of_writers(folder) as tickets:
        if not tickets and stored_settings(folder) is None:
            for file in folder.iterdir():
                file.unlink()
            if not existed:
                folder.rmdir()


def _only_ledger(folder: Path) -> bool:
    return all(file.name.startswith((LEDGER, "writer")) for file in folder.iterdir())


def without_nul(document: Document) -> Document:
    """The document with U+FFFD instead of NUL, which ends a string in SQLite and which PostgreSQL cannot store; offsets do not change."""
    if "\0" not in document.title and "\0" not in document.text:
        return document
    return replace(document, title=document.title.replace("\0", "\ufffd"), text=document.text.replace("\0", "\ufffd"))


def put_documents(store: Store, documents: Iterable[Document], input_hashes: Mapping[str, str]) -> tuple[int, int]:
    """Store all documents; return the numbers of documents written and unchanged. If a document cannot be read, the caller's transaction undoes everything.

    `input_hashes` come from `imported_hashes`.
    """
    written = unchanged = 0
    for document in documents:
        if store.put_document(without_nul(document), input_hashes.get(document.source, "")):
            written += 1
        else:
            unchanged += 1
    store.drop_orphans()
    return written, unchanged


def delete_others(store: Store, keep: Callable[[str], bool]) -> int:
    """Delete the documents whose sources `keep` rejects; return how many there were."""
    others = [source for source in store.sources() if not keep(source)]
    for source in others:
        store.delete_document(source)
    store.drop_orphans()
    return len(others)


@dataclass(frozen=True)
class Edit:
    """One writer's request: a source to delete ("": none), then documents to add or replace."""

    add: Sequence[Document] = ()
    delete: str = ""


@dataclass(frozen=True)
class EditResult:
    """The result of an edit: whether the source to delete existed, and a report whose counts of written, unchanged and deleted documents are for this edit."""

    deleted: bool
    report: BuildReport


def edit_index(
    folder: Path,
    take: Callable[[], Sequence[Edit]],
    open_encoder: OpenEncoder,
    open_model: OpenModel = no_model,
    give_up: GiveUp | None = None,
    note_stored: Callable[[], None] = lambda: None,
) -> list[EditResult]:
    """Apply the edits in order and derive the index once, unless they change nothing; `take` returns them once this writer's turn has come.

    Errors are those of `build_index`, for all edits together; IndexBusy if `give_up` returns True before the turn comes (graph/store/lock.py).
    `note_stored` is called once the edits are stored: after a later error, the next writer derives the index from them.
    """
    started = time.perf_counter()
    with open_for_writing(folder, give_up) as store:
        edits = take()
        settings = read_settings(folder)
        with store.transaction():
            input_hashes = imported_hashes(settings) if any(edit.add for edit in edits) else {}
            outcomes = [_apply_edit(store, edit, input_hashes) for edit in edits]
            tools = open_tools(folder, store, settings, open_encoder, open_model)
        note_stored()
        read_done = time.perf_counter()
        current = is_current(folder, store, settings)
        data = load_arrays(folder, IndexData) if current else finish_build(folder, store, tools, settings)
        facts, seconds = reading_facts(store), (read_done - started, time.perf_counter() - read_done)
    return [
        EditResult(deleted, report_of(data, facts, (*counts, int(deleted)), seconds)) for deleted, counts in outcomes
    ]


def is_current(folder: Path, store: Store, settings: IndexSettings) -> bool:
    """Whether the current generation, if any, was derived from the stored documents with these settings."""
    if not (folder / MANIFEST).exists():
        return False
    manifest = read_manifest(folder)
    return manifest.settings == settings.model_dump() and store.changed_since(manifest.generation) == []


def _apply_edit(store: Store, edit: Edit, input_hashes: Mapping[str, str]) -> tuple[bool, tuple[int, int]]:
    deleted = bool(edit.delete) and store.delete_document(edit.delete)
    return deleted, put_documents(store, edit.add, input_hashes)
