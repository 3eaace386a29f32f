"""Documents to index, start to end: read → split and extract → encode and derive → save. Every step resumes where it stopped."""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from graph.arrays import MANIFEST, read_manifest, save_arrays
from graph.config import load_settings, parse_settings
from graph.console import track
from graph.data import IndexData
from graph.derive import derive_arrays
from graph.errors import UserError
from graph.extract.rules import extract_by_rules
from graph.lock import writer_lock
from graph.seal import unsealed
from graph.settings import IndexSettings
from graph.split import split_passages
from graph.store import FILE, FORMAT, Store, read_settings
from graph.types import Document, Encoder
from graph.vectors import VectorBook

OpenEncoder = Callable[[str], Encoder]
MAX_CHARS_AT_ONCE = 2_000_000
"""Text extracted between two commits."""


@dataclass(frozen=True)
class BuildReport:
    """What one run did: documents written, those that were there already, what the index holds now, and seconds by step."""

    written: int
    unchanged: int
    documents: int
    passages: int
    propositions: int
    names: int
    summaries: int
    read_seconds: float
    build_seconds: float


def build_index(
    folder: Path, documents: Iterable[Document], settings: IndexSettings, open_encoder: OpenEncoder
) -> BuildReport:
    """Add `documents` to the index in `folder` (made if absent): new ones are added, changed ones replaced, others left.

    Raises UserError, leaving the index as it was, when a document cannot be read, the settings or the encoder differ from
    the index's own, or another process is writing.
    """
    made_here = _prepare_folder(folder)
    started = time.perf_counter()
    try:
        with open_for_writing(folder) as store:
            with store.transaction():
                _keep_settings(store, settings)
                written, unchanged = _put_documents(store, documents)
                encoder = own_encoder(folder, store, settings, open_encoder)
            read_done = time.perf_counter()
            data = finish_build(folder, store, encoder, settings)
    except UserError:
        if made_here and not (folder / MANIFEST).exists():
            shutil.rmtree(folder)
        raise
    return BuildReport(
        written=written,
        unchanged=unchanged,
        documents=len(data.document_sources),
        passages=len(data.passage_ids),
        propositions=len(data.proposition_ids),
        names=len(data.name_ids),
        summaries=len(data.summary_ids),
        read_seconds=read_done - started,
        build_seconds=time.perf_counter() - read_done,
    )


@contextmanager
def open_for_writing(folder: Path) -> Iterator[Store]:
    """The store of an index, alone: locked against other writers, and sealed again (graph/seal.py) when all went well."""
    with writer_lock(folder), unsealed(folder), closing(Store(folder)) as store:
        yield store


def finish_build(folder: Path, store: Store, encoder: Encoder, settings: IndexSettings) -> IndexData:
    """What is left to do once documents are in the store or out of it: extract, encode, derive, save the next generation."""
    _extract_documents(store, encoder, settings)
    data = derive_arrays(store, VectorBook(folder, store, encoder), encoder.count_tokens, settings)
    generation = read_manifest(folder)["generation"] + 1 if (folder / MANIFEST).exists() else 1
    facts = {
        "format": FORMAT,
        "generation": generation,
        "settings": settings.model_dump(),
        "encoder": {"fingerprint": encoder.fingerprint, "dimensions": encoder.dimensions},
    }
    save_arrays(folder, f"arrays-{generation:06d}", data, facts)
    with store.transaction():
        store.set_meta("encoder", encoder.fingerprint)
        store.drop_pending_vectors()
    return data


def settings_for(folder: Path, file: Path | None, overrides: Sequence[str]) -> IndexSettings:
    """Settings for a run on `folder`: its own if it is an index already, with `file` and `overrides` laid over them."""
    values = read_settings(folder).model_dump() if (folder / FILE).exists() else {}
    given = load_settings(IndexSettings, file, overrides)
    return parse_settings(IndexSettings, {**values, **given.model_dump(exclude_unset=True)}, str(folder))


def own_encoder(folder: Path, store: Store, settings: IndexSettings, open_encoder: OpenEncoder) -> Encoder:
    """The encoder that the settings name, checked to be the one that the index was made with."""
    encoder = open_encoder(settings.encoder)
    check_encoder(store.get_meta("encoder"), encoder, folder)
    return encoder


def check_encoder(expected: str | None, encoder: Encoder, folder: Path) -> None:
    """UserError when `encoder` is not the one whose vectors the index holds (None: no vectors yet)."""
    if expected is not None and expected != encoder.fingerprint:
        raise UserError(
            f"{folder}: made with encoder {expected[:12]}, this one is {encoder.fingerprint[:12]}",
            "the same encoder",
            "name that encoder with --set encoder=…, or index into a new folder",
        )


def _prepare_folder(folder: Path) -> bool:
    """Make the folder if absent (True); UserError when it holds anything but an index."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / FILE).exists())):
        raise UserError(
            f"{folder}: exists and is not an index", "a new or empty folder, or an index", "choose another --out"
        )
    made_here = not folder.exists() or not any(folder.iterdir())
    folder.mkdir(parents=True, exist_ok=True)
    return made_here


def _put_documents(store: Store, documents: Iterable[Document]) -> tuple[int, int]:
    """Put all documents; (written, unchanged). The caller's transaction undoes all of it when one cannot be read."""
    written = unchanged = 0
    for document in documents:
        if store.put_document(document):
            written += 1
        else:
            unchanged += 1
    store.drop_orphans()
    return written, unchanged


def _keep_settings(store: Store, settings: IndexSettings) -> None:
    known = store.get_meta("settings")
    if known is not None:
        _check_settings(json.loads(known), settings)
    store.set_meta("settings", settings.model_dump())


def _check_settings(known: dict[str, object], settings: IndexSettings) -> None:
    for key, value in settings.model_dump().items():
        if known.get(key) != value:
            raise UserError(
                f"{key} = {value!r}, but this index was made with {key} = {known.get(key)!r}",
                "the settings it was made with",
                "leave the setting out, or index into a new folder",
            )


def _extract_documents(store: Store, encoder: Encoder, settings: IndexSettings) -> None:
    sources = store.sources_to_extract()
    if not sources:
        return
    waiting = track(sources, "Reading propositions", len(sources))
    source = next(waiting, None)
    while source is not None:
        chars = 0
        with store.transaction():
            while source is not None and chars < MAX_CHARS_AT_ONCE:
                document = store.document(source)
                passages = split_passages(document, settings.max_passage_tokens, encoder.count_tokens)
                store.put_extraction(source, passages, extract_by_rules(document, passages))
                chars += len(document.text)
                source = next(waiting, None)
