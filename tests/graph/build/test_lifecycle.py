"""Deleting, resuming, verifying and repairing: faults are injected into real files, and every one must be found, and repaired or refused."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from signal import Signals
from threading import Thread

import psycopg
import pytest

import graph.build.lifecycle
from graph.build.build import build_index
from graph.build.estimate import plan_build
from graph.build.lifecycle import (
    compact_index,
    delete_documents,
    index_status,
    repair_index,
    resume_build,
    verify_index,
)
from graph.build.stores import active_writer, open_for_writing, settings_for
from graph.errors import UserError, did_you_mean
from graph.index.index import open_index
from graph.postgres.connect import dsn_of
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings, has_database
from graph.types import Document
from tests.corpora import ISLES
from tests.disks import mounted_disk
from tests.fakes import HashEncoder
from tests.graph.build.conftest import Place
from tests.graph.damage import flip, flipped
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index
from tests.places import ROOT
from tests.processes import until

SETTINGS = IndexSettings(max_passage_tokens=30, max_chunk_tokens=60, max_summary_tokens=20, min_similarity=0.2)
EXTRA = Document("gull", "Gull (ferry)", "The Gull is a ferry of Quill. She was built by the Marlow Yard. Tarn is far.")


@pytest.fixture
def sqlite_index(tmp_path: Path) -> Path:
    """An index in SQLite."""
    build_index(tmp_path / "i", ISLES, SETTINGS, encoder)
    return tmp_path / "i"


@pytest.fixture
def index(place: Place, tmp_path: Path) -> Path:
    """An index in SQLite or PostgreSQL, as `place` chooses."""
    build_index(tmp_path / "i", ISLES, SETTINGS, encoder)
    return tmp_path / "i"


def test_a_shared_proposition_stays_until_its_last_occurrence_is_deleted(tmp_path: Path, place: Place) -> None:
    twins = [Document(name, "", "Tarn is a village. It rains.") for name in ("a", "b")]
    build_index(tmp_path / "i", [*twins, EXTRA], SETTINGS, encoder)
    propositions = index_status(tmp_path / "i").rows["propositions"]
    delete_documents(tmp_path / "i", ["a"], encoder)
    assert index_status(tmp_path / "i").rows["propositions"] == propositions
    delete_documents(tmp_path / "i", ["b"], encoder)
    assert index_status(tmp_path / "i").rows["propositions"] == propositions - 2


def test_an_unknown_source_is_refused_with_a_suggestion_and_nothing_is_deleted(index: Path) -> None:
    with pytest.raises(UserError, match=r"no document 'lantrn'\. Did you mean 'lantern'\?"):
        delete_documents(index, ["tarn", "lantrn"], encoder)
    with pytest.raises(
        UserError,
        match=f"no document 'harbour dues'. Expected one of its {len(ISLES)} documents. Correct the name; nothing was deleted",
    ):
        delete_documents(index, ["harbour dues"], encoder)
    assert index_status(index).rows["documents"] == len(ISLES) and verify_index(index) == []


def test_similar_names_are_searched_for_while_others_can_write(
    sqlite_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[str] = []

    def record_writer(name: str, known: Sequence[str]) -> str:
        writers.append(active_writer(sqlite_index))
        return did_you_mean(name, known)

    monkeypatch.setattr(graph.build.lifecycle, "did_you_mean", record_writer)
    with pytest.raises(UserError, match="Did you mean 'lantern'"):
        delete_documents(sqlite_index, ["lantrn"], encoder)
    assert writers == [""]


def test_a_repeated_source_is_deleted_once_and_no_source_changes_nothing(index: Path) -> None:
    data = delete_documents(index, ["tarn", "tarn"], encoder)
    assert len(data.document_sources) == len(ISLES) - 1
    generation = index_status(index).generation
    assert len(delete_documents(index, [], encoder).document_sources) == len(ISLES) - 1
    assert index_status(index).generation == generation


def test_a_source_is_deleted_in_either_unicode_form(tmp_path: Path, place: Place) -> None:
    composed, decomposed = "caf\u00e9.md", "cafe\u0301.md"
    for stored, typed in ((decomposed, composed), (composed, decomposed)):
        build_index(tmp_path / "i", [*ISLES, replace(EXTRA, source=stored)], SETTINGS, encoder)
        assert len(delete_documents(tmp_path / "i", [typed, stored], encoder).document_sources) == len(ISLES)
    build_index(tmp_path / "i", [replace(EXTRA, source=each) for each in (composed, decomposed)], SETTINGS, encoder)
    assert composed in delete_documents(tmp_path / "i", [decomposed], encoder).document_sources


def test_a_flipped_bit_or_a_missing_last_byte_in_any_file_is_reported_with_its_name(sqlite_index: Path) -> None:
    files = [file for file in sqlite_index.rglob("*") if file.is_file() and file.name != "writer.lock"]
    assert len(files) > 40
    for file in files:
        data = file.read_bytes()
        for offset in {0, len(data) // 2, len(data) - 1}:
            file.write_bytes(flipped(data, offset))
            assert file.name in [Path(found.file).name for found in verify_index(sqlite_index)], (
                f"verify does not report {file} with a flipped bit at {offset}"
            )
        file.write_bytes(data[:-1])
        assert file.name in [Path(found.file).name for found in verify_index(sqlite_index)], (
            f"verify does not report {file} without its last byte"
        )
        file.write_bytes(data)
    assert verify_index(sqlite_index) == []


@pytest.mark.parametrize(
    "name", ["proposition_vectors_ND-*.segment", "passage_ids.starts.npy", "similarity_XX.indices.npy", "manifest.json"]
)
def test_repair_restores_the_arrays_and_keeps_sound_vectors(index: Path, name: str) -> None:
    build_index(index.parent / "twin", ISLES, SETTINGS, encoder)
    twin = load_arrays(index.parent / "twin", IndexData)
    (file,) = index.rglob(name)
    file.write_bytes(file.read_bytes()[:-9])
    repair_encoder = HashEncoder()
    assert [Path(found.file).name for found in repair_index(index, lambda spec: repair_encoder)] == [file.name]
    assert verify_index(index) == [] and repair_index(index, encoder) == []
    assert_same_index(twin, load_arrays(index, IndexData))
    assert len(repair_encoder.encoded) == (len(twin.proposition_ids) if "vectors" in name else 0)


def test_repair_refuses_a_damaged_database(sqlite_index: Path) -> None:
    flip(sqlite_index / "index.sqlite")
    with pytest.raises(UserError, match=r"index\.sqlite: its contents have changed since the last run"):
        repair_index(sqlite_index, encoder)


class CrashingEncoder(HashEncoder):
    def encode(self, texts):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt


def interrupt_a_run(folder: Path, documents: list[Document]) -> None:
    """Store the documents in an index, and stop before their first text is encoded."""
    with pytest.raises(KeyboardInterrupt):
        build_index(folder, documents, SETTINGS, lambda spec: CrashingEncoder())


def test_repair_finishes_an_interrupted_run_and_readers_keep_their_generation_if_it_fails(index: Path) -> None:
    interrupt_a_run(index, [EXTRA])
    (damaged,) = index.rglob("passage_ids.starts.npy")
    whole = damaged.read_bytes()
    for content in (whole, flipped(whole, len(whole) - 1)):
        damaged.write_bytes(content)
        with pytest.raises(KeyboardInterrupt):
            repair_index(index, lambda spec: CrashingEncoder())
        assert len(open_index(index, encoder).sources()) == len(ISLES)
    repair_index(index, encoder)
    assert verify_index(index) == [] and EXTRA.source in open_index(index, encoder).sources()


def test_repair_waits_for_a_writer_and_then_finds_nothing_to_repair(index: Path) -> None:
    found: list[object] = []
    repairing = Thread(target=lambda: found.append(repair_index(index, encoder)))
    with open_for_writing(index) as store, store.transaction():
        repairing.start()
        until(lambda: waiting_writers(index) or not repairing.is_alive())
        store.put_document(EXTRA, "")
        store.finish_document(EXTRA.source)
        store.note_derived(index_status(index).generation)
    repairing.join(60)
    assert found == [[]] and index_status(index).generation == 1


def waiting_writers(folder: Path) -> int:
    """The number of writers that wait for another."""
    if not has_database(folder):
        return len(list(folder.glob("*.ticket"))) - 1
    with psycopg.connect(dsn_of(folder)) as connection:
        ((tickets,),) = connection.execute("SELECT count(*) FROM modegraph_index.leases")
    return int(tickets) - 1


def test_a_run_in_progress_is_not_reported_as_interrupted(index: Path) -> None:
    interrupt_a_run(index, [EXTRA])
    with open_for_writing(index):
        assert index_status(index).unfinished.startswith(f"process {os.getpid()}")
        assert [found.repair for found in verify_index(index)] == ["wait for it"]
    resume_build(index, encoder)
    assert index_status(index).unfinished == ""


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_finished_index_is_verified_without_the_table_of_its_writers(index: Path) -> None:
    """An older schema may not have the table, and a role that only reads may not be allowed to read it."""
    with psycopg.connect(dsn_of(index)) as connection:
        connection.execute("DROP TABLE modegraph_index.leases")
    assert verify_index(index) == []


def test_an_interrupted_run_is_reported_and_resumed(index: Path) -> None:
    interrupt_a_run(index, [EXTRA])
    assert "modegraph resume" in index_status(index).unfinished
    assert [found.repair for found in verify_index(index)] == [f"modegraph resume {index}"]
    resume_build(index, encoder)
    assert index_status(index).unfinished == "" and verify_index(index) == []
    build_index(index.parent / "whole", [*ISLES, EXTRA], SETTINGS, encoder)
    assert_same_index(load_arrays(index, IndexData), load_arrays(index.parent / "whole", IndexData))


def test_compact_frees_space_and_changes_no_array(index: Path) -> None:
    build_index(index, [EXTRA], SETTINGS, encoder)
    before = load_arrays(index, IndexData)
    assert compact_index(index, encoder) > 0
    assert len(list(index.glob("arrays-*"))) == 1 and verify_index(index) == []
    assert_same_index(before, load_arrays(index, IndexData))


def test_compact_finishes_an_interrupted_run(index: Path) -> None:
    build_index(index.parent / "whole", [*ISLES, EXTRA], SETTINGS, encoder)
    interrupt_a_run(index, [EXTRA])
    interrupt_a_run(index.parent / "first", [*ISLES, EXTRA])
    for folder in (index, index.parent / "first"):
        compact_index(folder, encoder)
        assert index_status(folder).unfinished == "" and verify_index(folder) == []
        assert_same_index(load_arrays(folder, IndexData), load_arrays(index.parent / "whole", IndexData))


@pytest.mark.usefixtures("place")
def test_an_interrupted_first_run_continues_only_with_the_same_encoder(tmp_path: Path) -> None:
    interrupt_a_run(tmp_path / "i", [EXTRA])
    with pytest.raises(UserError, match="made with encoder hash-encoder; this encoder is retrained"):
        resume_build(tmp_path / "i", lambda spec: HashEncoder("retrained"))
    resume_build(tmp_path / "i", encoder)
    assert verify_index(tmp_path / "i") == []


def test_an_index_on_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        build_index(disk.folder / "i", ISLES, SETTINGS, encoder)
        disk.make_read_only()
        assert index_status(disk.folder / "i").rows["documents"] == len(ISLES) and verify_index(disk.folder / "i") == []


FIRST_RUN = """
import os, signal, sys
from pathlib import Path
from graph.build.build import build_index
from tests.corpora import ISLES
from tests.graph.build.test_lifecycle import SETTINGS
from tests.graph.hashed import encoder
def documents():
    yield ISLES[0]
    os.kill(os.getpid(), int(sys.argv[2]))
build_index(Path(sys.argv[1]), documents(), SETTINGS, encoder)
"""


@pytest.mark.parametrize("signal", [Signals.SIGKILL, Signals.SIGINT])
def test_a_first_run_stopped_while_it_reads_documents_can_be_repeated(tmp_path: Path, signal: Signals) -> None:
    folder, twin = tmp_path / "i", tmp_path / "twin"
    child = [sys.executable, "-P", "-c", FIRST_RUN, str(folder), str(signal.value)]
    assert subprocess.run(child, cwd=ROOT, capture_output=True, check=False).returncode == -signal
    assert folder.exists() == (signal == Signals.SIGKILL)
    for attempt in (resume_build, compact_index, lambda folder, opening: index_status(folder)):
        with pytest.raises(UserError, match=f"Create one: modegraph index SRC --out {folder}"):
            attempt(folder, encoder)
    settings = settings_for(folder, None, [], SETTINGS.model_dump())
    assert plan_build(folder, ISLES, settings, encoder).new == len(ISLES)
    for each in (folder, twin):
        build_index(each, ISLES, settings, encoder)
    assert_same_index(load_arrays(folder, IndexData), load_arrays(twin, IndexData))
    assert verify_index(folder) == []


WRITER = """
import time
from pathlib import Path
from graph.build.build import build_index
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.build.test_lifecycle import SETTINGS
class SlowEncoder(HashEncoder):
    def encode(self, texts):
        time.sleep(.02)
        return super().encode(texts)
Path({started!r}).touch()
build_index(Path({folder!r}), ISLES, SETTINGS, lambda spec: SlowEncoder())
"""


@pytest.mark.slow
def test_a_build_killed_repeatedly_resumes_to_the_same_index(tmp_path: Path, place: Place) -> None:
    build_index(tmp_path / "whole", ISLES, SETTINGS, encoder)
    whole = load_arrays(tmp_path / "whole", IndexData)
    folder, started = tmp_path / "killed", tmp_path / "started"
    place(folder)
    writer = WRITER.format(folder=str(folder), started=str(started))
    for attempt in range(7):
        started.unlink(missing_ok=True)
        child = subprocess.Popen([sys.executable, "-P", "-c", writer])
        while not started.exists() and child.poll() is None:
            time.sleep(0.005)
        time.sleep(0.05 * attempt)
        child.kill()
        if child.wait() == 0:
            break
    build_index(folder, ISLES, SETTINGS, encoder)
    assert_same_index(whole, load_arrays(folder, IndexData))
    assert verify_index(folder) == []


@pytest.mark.parametrize("lost", ["manifest.json", "all derived files"])
def test_generation_numbers_are_never_reused(index: Path, lost: str) -> None:
    build_index(index, [EXTRA], SETTINGS, encoder)
    assert index_status(index).generation == 2
    (index / "manifest.json").unlink()
    if lost != "manifest.json":
        for arrays in index.glob("arrays-*"):
            shutil.rmtree(arrays)
    repair_index(index, encoder)
    repaired = index_status(index)
    assert repaired.generation == 3
    (file,) = index.rglob("similarity_XX.indices.npy")
    file.write_bytes(file.read_bytes()[:-9])
    repair_index(index, encoder)
    assert index_status(index).generation == 4 and index_status(index).identity != repaired.identity


def test_equal_indexes_have_the_same_identity_and_others_differ(index: Path) -> None:
    build_index(index.parent / "twin", ISLES, SETTINGS, encoder)
    build_index(index.parent / "other", [EXTRA], SETTINGS, encoder)
    first, twin, other = (index_status(index.parent / name) for name in ("i", "twin", "other"))
    assert first.generation == twin.generation == other.generation == 1
    assert first.identity == twin.identity != other.identity
