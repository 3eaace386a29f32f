"""A watched folder: the index follows added, changed and deleted files, and a disk that is unmounted does not empty the index."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import compact_index
from graph.build.watch import Changes, FolderEdit, WatchedFolder, follow, watch_folder
from graph.documents.parse.formats import Limits
from graph.documents.read import read_documents
from graph.errors import UserError
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.manifest import read_manifest
from tests.commands import run
from tests.graph.build.test_lifecycle import SETTINGS
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index
from tests.processes import modegraph


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("# Lantern\n\nThe Lantern was built in 1911 by the Marlow Yard.")
    (folder / "sub/b.md").write_text("# Tarn\n\nTarn is a village of 312 people.")
    return folder


def rewrite(file: Path, text: str) -> None:
    """Write a file and make its modification time differ, however coarse the clock of the file system is."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    os.utime(file, ns=(before + 10**9, before + 10**9) if before else None)


def test_changes_are_reported_once_and_only_when_two_checks_agree(docs: Path) -> None:
    watched = WatchedFolder(docs)
    assert watched.changes() == Changes()
    (docs / "c.md").write_text("half a file")
    assert watched.changes() == Changes(), "a file that may still be incomplete should not be reported"
    rewrite(docs / "c.md", "half a file and the rest")
    assert watched.changes() == Changes()
    assert watched.changes() == Changes(("c.md",)) and watched.changes() == Changes()
    rewrite(docs / "a.md", "other")
    (docs / "sub/b.md").rename(docs / "sub/d.md")
    assert watched.changes() == Changes()
    assert watched.changes() == Changes(("a.md", "sub/d.md"), ("sub/b.md",))
    (docs / ".modegraphignore").write_text("c.md\n")
    (docs / ".hidden.md").write_text("x")
    assert (watched.changes(), watched.changes()) == (Changes(), Changes((), ("c.md",)))


def test_a_missing_or_empty_folder_means_no_deletions(docs: Path, tmp_path: Path) -> None:
    watched = WatchedFolder(docs)
    docs.rename(tmp_path / "away")
    assert [watched.changes() for _ in range(3)] == [Changes()] * 3
    docs.mkdir()
    assert [watched.changes() for _ in range(3)] == [Changes()] * 3
    docs.rmdir()
    (tmp_path / "away").rename(docs)
    (docs / "a.md").unlink()
    assert [watched.changes() for _ in range(2)][1] == Changes((), ("a.md",))


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every folder")
def test_files_in_an_unreadable_folder_do_not_count_as_deleted(docs: Path) -> None:
    watched = WatchedFolder(docs)
    (docs / "sub").chmod(0)
    try:
        assert [watched.changes() for _ in range(3)] == [Changes()] * 3
    finally:
        (docs / "sub").chmod(0o700)


@pytest.mark.usefixtures("place")
def test_an_index_that_followed_its_folder_equals_a_fresh_build(docs: Path, tmp_path: Path) -> None:
    index, notes = tmp_path / "index", list[str]()
    watched = WatchedFolder(docs)
    build_index(index, read_documents(docs, print), SETTINGS, encoder)

    actions: list[Callable[[], object]] = [
        lambda: (docs / "c.md").write_text("# Quill\n\nThe Marlow Yard stands in Quill."),
        lambda: None,
        lambda: rewrite(docs / "a.md", "# Lantern\n\nThe Lantern was built in 1912 by Ada Marlow."),
        (docs / "sub/b.md").unlink,
        lambda: None,
        lambda: None,
    ]

    def wait() -> bool:
        if actions:
            actions.pop(0)()
        return bool(actions)

    done: list[FolderEdit] = list(follow(index, watched, Limits(), notes.append, wait, encoder))
    assert [(each.read, each.deleted) for each in done] == [(("c.md",), ()), (("a.md",), ("sub/b.md",))]
    assert done[-1].report.documents == 2
    build_index(tmp_path / "anew", read_documents(docs, print), SETTINGS, encoder)
    compact_index(index, encoder)
    compact_index(tmp_path / "anew", encoder)
    assert_same_index(load_arrays(index, IndexData), load_arrays(tmp_path / "anew", IndexData))


def test_skipped_files_are_reported_and_their_documents_stay_unchanged(docs: Path, tmp_path: Path) -> None:
    index, notes = tmp_path / "index", list[str]()
    watched = WatchedFolder(docs)
    build_index(index, read_documents(docs, print), SETTINGS, encoder)
    rewrite(docs / "a.md", " ")
    (docs / "bad.pdf").write_bytes(b"no pdf")
    (docs / "map.png").write_bytes(b"no document")
    continues = iter([True, True, False])
    (done,) = follow(index, watched, Limits(), notes.append, lambda: next(continues), encoder)
    assert (done.read, done.deleted, done.report.documents) == ((), (), 2)
    assert [note.split(",")[0] for note in sorted(notes)] == ["a.md: empty", "bad.pdf: skipped", "map.png: skipped"]
    assert read_manifest(index).generation == 1, "an edit that changes nothing should make no new generation"


def test_a_file_whose_name_is_not_utf8_may_be_renamed_or_deleted(docs: Path, tmp_path: Path) -> None:
    index, notes, bad = tmp_path / "index", list[str](), docs / os.fsdecode(b"c\xff.md")
    bad.write_text("# Quill\n\nThe Marlow Yard stands in Quill.")
    watched = WatchedFolder(docs)
    build_index(index, read_documents(docs, print), SETTINGS, encoder)
    bad.rename(docs / "c.md")
    continues = iter([True, True, False])
    (done,) = follow(index, watched, Limits(), notes.append, lambda: next(continues), encoder)
    assert (done.read, done.deleted, done.report.documents, notes) == (("c.md",), (), 3, [])


def test_watching_a_file_or_a_folder_that_contains_the_index_is_refused(docs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a folder to watch"):
        watch_folder(docs / "a.md", tmp_path / "index")
    with pytest.raises(UserError, match="outside the watched folder"):
        watch_folder(docs, docs / "sub/index")
    result = run("index", docs / "a.md", "--out", tmp_path / "i", "--watch")
    assert result.exit_code != 0 and not (tmp_path / "i").exists()


@pytest.fixture
def default_sigint_handler() -> Iterator[None]:
    """Restore the default handler of SIGINT, because tests run in the background ignore SIGINT, as do the processes that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("default_sigint_handler")
def test_the_command_follows_until_it_is_interrupted(docs: Path, tmp_path: Path) -> None:
    command = modegraph("index", docs, "--out", tmp_path / "i", "--watch", "--json")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        while "watching" not in process.stderr.readline():
            assert process.poll() is None
        (docs / "c.md").write_text("# Quill\n\nThe Marlow Yard stands in Quill.")
        first = "".join(takewhile(lambda line: line != "}\n", process.stdout)) + "}"
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert json.loads(first)["documents"] == 2
    assert (second["read"], second["deleted"], second["documents"]) == (["c.md"], [], 3)
    assert list(load_arrays(tmp_path / "i", IndexData).document_sources) == ["a.md", "c.md", "sub/b.md"]
