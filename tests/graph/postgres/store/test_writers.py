"""Two writers and three readers at once, in processes of their own: nothing is lost, nothing doubled, and nobody sees half an index."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import compact_index, index_status, verify_index
from graph.postgres.store.place import place_in_database
from graph.shared.types import Document
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.settings import IndexSettings
from tests.corpora import ISLES, guild_documents
from tests.fakes import HashEncoder
from tests.graph.same import assert_same_index
from tests.places import ROOT

SETTINGS = IndexSettings(min_similarity=0.1, merge_factor=3)
EACH = 4
CHANGED = Document("shared", "Shared", "The Lantern was sold to Ada Marlow in 1911.")
"""Written by both."""

WRITER = """
import sys
from pathlib import Path
from graph.build.build import build_index
from graph.build.lifecycle import delete_documents
from tests.graph.postgres.store.test_writers import CHANGED, SETTINGS, encoder, share_of
folder, number = Path(sys.argv[1]), int(sys.argv[2])
for document in share_of(number):
    build_index(folder, [document, CHANGED], SETTINGS, encoder)
delete_documents(folder, [share_of(number)[0].source], encoder)
"""
READER = """
import sys, time
from pathlib import Path
from graph.index.fresh import FreshIndex
from tests.fakes import HashEncoder
folder, stop = Path(sys.argv[1]), Path(sys.argv[2])
index, last, seen = FreshIndex(folder, lambda spec: HashEncoder()), 0, 0
while not stop.exists():
    time.sleep(.02)
    now = index.get()
    assert now.manifest.generation >= last, "an older generation after a newer one"
    seen += now.manifest.generation > last
    last = now.manifest.generation
    sources = now.sources()
    assert len(sources) == len(set(sources)) == now.data.passage_document_P.max() + 1
    assert len(now.data.passage_vectors_PD[:]) == len(now.data.passage_ids)
    assert now.passages_of(sources[0])[0].text
print(seen)
"""


def encoder(spec: str) -> HashEncoder:
    return HashEncoder()


def share_of(number: int) -> list[Document]:
    """What one of the writers adds."""
    return guild_documents()[number * EACH : (number + 1) * EACH]


def run(script: str, *words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-c", script, *map(str, words)]
    return subprocess.Popen(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_two_writers_and_three_readers_end_with_what_one_writer_makes(database: str, tmp_path: Path) -> None:
    folder, stop = tmp_path / "index", tmp_path / "stop"
    place_in_database(folder, database)
    build_index(folder, ISLES, SETTINGS, encoder)
    readers = [run(READER, folder, stop) for _ in range(3)]
    writers = [run(WRITER, folder, number) for number in range(2)]
    ended = [writer.communicate(timeout=300) for writer in writers]
    time.sleep(0.2)
    stop.touch()
    assert [
        (writer.returncode, said[1][-500:]) for writer, said in zip(writers, ended, strict=True) if writer.returncode
    ] == []
    seen = [reader.communicate(timeout=60) for reader in readers]
    assert [problems[-500:] for _, problems in seen if problems] == []
    assert min(int(generations) for generations, _ in seen) > 3, "readers saw generations come"

    twin = tmp_path / "twin"
    build_index(twin, [*ISLES, CHANGED, *share_of(0)[1:], *share_of(1)[1:]], SETTINGS, encoder)
    assert index_status(folder).generation == 1 + 2 * (EACH + 1), "a generation a turn"
    assert index_status(folder).rows == index_status(twin).rows and index_status(folder).unfinished == ""
    assert_same_index(load_arrays(folder, IndexData), load_arrays(twin, IndexData))
    for each in (folder, twin):
        compact_index(each, encoder)
    assert_same_index(load_arrays(folder, IndexData), load_arrays(twin, IndexData))
    assert verify_index(folder) == []
