"""Several edits of an index as one: documents added and deleted by whoever waited for the same turn to write."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graph.build.build import BuildReport, finish_build, open_tools, put_documents, report_of
from graph.build.reading import imported_hashes, no_model, reading_facts
from graph.build.stores import open_for_writing, read_settings
from graph.shared.types import Document, OpenEncoder, OpenModel
from graph.store.lock import GiveUp
from graph.store.store import Store


@dataclass(frozen=True)
class Edit:
    """What one writer wants: a source to delete ("": none), then documents to add or replace."""

    add: Sequence[Document] = ()
    delete: str = ""


@dataclass(frozen=True)
class Edited:
    """What came of an edit: whether its source was there to delete, and a report whose first two numbers are of it alone."""

    deleted: bool
    report: BuildReport


def edit_index(
    folder: Path,
    take: Callable[[], Sequence[Edit]],
    open_encoder: OpenEncoder,
    open_model: OpenModel = no_model,
    give_up: GiveUp | None = None,
) -> list[Edited]:
    """Do the edits in order and derive the index once; `take` is asked for them when the turn to write has come.

    Raises what graph/build/build.py's build_index raises, for all of them; IndexBusy once `give_up` says so (graph/store/lock.py).
    """
    started = time.perf_counter()
    with open_for_writing(folder, give_up) as store:
        edits = take()
        settings = read_settings(folder)
        with store.transaction():
            read_from = imported_hashes(settings)
            done = [_do(store, edit, read_from) for edit in edits]
            tools = open_tools(folder, store, settings, open_encoder, open_model)
        read_done = time.perf_counter()
        data = finish_build(folder, store, tools, settings)
        facts, seconds = reading_facts(store), (read_done - started, time.perf_counter() - read_done)
    return [Edited(deleted, report_of(data, facts, counts, seconds)) for deleted, counts in done]


def _do(store: Store, edit: Edit, read_from: Mapping[str, str]) -> tuple[bool, tuple[int, int]]:
    deleted = bool(edit.delete) and store.delete_document(edit.delete)
    return deleted, put_documents(store, edit.add, read_from)
