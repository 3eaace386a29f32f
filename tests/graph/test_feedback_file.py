"""Feedback on disk: acknowledged entries persist even if the process is killed or the disk is full; deleted entries leave no trace."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from graph.build.lifecycle import compact_index, repair_index
from graph.errors import DiskFull, UserError
from graph.feedback import (
    FEEDBACK,
    KINDS,
    Correction,
    Feedback,
    FeedbackContent,
    FeedbackFile,
    FeedbackFull,
    GivenAnswer,
    Preference,
    RightPassage,
    Vote,
    convert_format_1,
    read_feedback,
)
from graph.index.index import open_index
from tests.corpora import ISLES
from tests.disks import mounted_disk
from tests.fakes import HashEncoder
from tests.graph.hashed import build
from tests.graph.same import assert_same_index
from tests.places import ROOT

YARD = GivenAnswer("sft", "the Marlow Yard", "Built by it [1].", ("a" * 32, "b" * 32), "hops")
QUILL = GivenAnswer("ms", "Quill 😀")
EVERY_KIND: Sequence[FeedbackContent] = (
    Vote(YARD, "down"),
    Correction(YARD, "Ada Marlow", "She did [2].", ("b" * 32,)),
    RightPassage("c" * 32, ("a" * 32, "c" * 32)),
    Preference(YARD, QUILL, "second"),
)
WRITE_UNTIL_KILLED = """
import sys
from pathlib import Path
from tests.graph.test_feedback_file import entry, EVERY_KIND, FeedbackFile
store = FeedbackFile(Path(sys.argv[1]), 1 << 30)
for number in range(100_000):
    store.add(entry(EVERY_KIND[number % 4], id=f"{sys.argv[2]}-{number}"))
    print(number, flush=True)
"""


def entry(content: FeedbackContent, **values: str) -> Feedback:
    feedback = Feedback("one", "reader-1", "2026-01-02T03:04:05+00:00", True, "Who built the Lantern?", content)
    return replace(feedback, **values)  # type: ignore[arg-type]


def test_every_kind_is_read_back_unchanged(tmp_path: Path) -> None:
    store = FeedbackFile(tmp_path, 1 << 30)
    entries = [entry(content, id=str(n), user=f"reader-{n % 2}") for n, content in enumerate(EVERY_KIND)]
    for each in entries:
        store.add(each)
    assert read_feedback(tmp_path) == entries
    assert store.of_user("reader-1") == entries[1::2] and store.of_user("nobody") == []


def test_deleting_a_user_removes_every_byte_of_their_feedback(tmp_path: Path) -> None:
    store = FeedbackFile(tmp_path, 1 << 30)
    for number in range(60):
        user = ("reader-1", "secretive-reader")[number % 2]
        store.add(entry(Correction(YARD, f"whispered by {user}"), id=str(number), user=user))
    assert b"whispered by secretive" in (tmp_path / FEEDBACK).read_bytes()
    assert store.delete_user("secretive-reader") == 30 and store.delete_user("secretive-reader") == 0
    assert [each.name for each in tmp_path.iterdir()] == [FEEDBACK]
    remaining = (tmp_path / FEEDBACK).read_bytes()
    assert b"secretive" not in remaining and remaining.count(b"whispered by reader-1") == 30
    assert {each.user for each in read_feedback(tmp_path)} == {"reader-1"}


def test_acknowledged_feedback_survives_a_kill(tmp_path: Path) -> None:
    for writer in range(3):
        command = [sys.executable, "-P", "-c", WRITE_UNTIL_KILLED, str(tmp_path), str(writer)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            printed = [next(child.stdout) for _ in range(7 + 5 * writer)]
            child.kill()
            printed += list(child.stdout)
        ids = [each.id for each in read_feedback(tmp_path)]
        own = [each for each in ids if each.startswith(f"{writer}-")]
        acknowledged = [f"{writer}-{line.strip()}" for line in printed if line.endswith("\n")]
        assert own[: len(acknowledged)] == acknowledged and len(own) <= len(acknowledged) + 1
        assert len(ids) == len(set(ids)) and sum(each.startswith("0-") for each in ids) >= 7


def test_a_locked_file_is_not_reported_as_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeedbackFile(tmp_path, 1 << 30)
    store.add(entry(Vote(YARD, "up")))
    monkeypatch.setattr("graph.feedback.LOCK_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(tmp_path / FEEDBACK, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            store.add(entry(Vote(YARD, "up"), id="another"))
    assert len(store.all()) == 1


def test_a_full_disk_is_reported_and_earlier_feedback_remains(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        store = FeedbackFile(disk.folder, 1 << 30)
        store.add(entry(Vote(YARD, "up")))
        disk.leave_free(0)
        with pytest.raises(DiskFull, match=r"feedback\.sqlite: no free space"):
            for number in range(100):
                store.add(entry(Correction(YARD, "x" * 2000), id=str(number)))
        disk.leave_free(1 << 20)
        assert store.all()[0].content == Vote(YARD, "up")


def test_a_full_file_accepts_no_more_entries(tmp_path: Path) -> None:
    store = FeedbackFile(tmp_path, 40_000)
    with pytest.raises(FeedbackFull):
        for number in range(1000):
            store.add(entry(Correction(YARD, "x" * 1000), id=str(number)))
    assert 10 < len(read_feedback(tmp_path)) < 60
    assert (tmp_path / FEEDBACK).stat().st_size < 50_000


def test_a_full_file_accepts_entries_again_after_a_deletion(tmp_path: Path) -> None:
    store = FeedbackFile(tmp_path, 40_000)
    with pytest.raises(FeedbackFull):
        for number in range(1000):
            store.add(entry(Correction(YARD, "x" * 1000), id=str(number)))
    store.delete_user("reader-1")
    store.add(entry(EVERY_KIND[0]))
    assert store.all() == [entry(EVERY_KIND[0])]


def test_a_missing_file_means_no_feedback_and_an_unreadable_or_newer_file_is_refused(tmp_path: Path) -> None:
    assert read_feedback(tmp_path) == [] and FeedbackFile(tmp_path, 1).delete_user("reader-1") == 0
    assert not (tmp_path / FEEDBACK).exists()
    (tmp_path / FEEDBACK).write_bytes(b"not a database, but long enough to have a header")
    store = FeedbackFile(tmp_path, 1 << 30)
    for call in (
        store.all,
        lambda: store.of_user("reader-1"),
        lambda: store.delete_user("reader-1"),
        lambda: store.add(entry(Correction(YARD, "x"))),
    ):
        with pytest.raises(UserError, match=r"feedback\.sqlite: not readable"):
            call()
    (tmp_path / FEEDBACK).unlink()
    with sqlite3.connect(tmp_path / FEEDBACK) as newer:
        newer.execute("PRAGMA user_version = 9")
    newer.close()
    with pytest.raises(UserError, match="format 9, but this version reads format 2"):
        read_feedback(tmp_path)


def test_a_file_whose_first_writer_was_killed_before_its_schema_was_written_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / FEEDBACK).touch()
    store = FeedbackFile(tmp_path, 1 << 30)
    assert store.all() == [] and store.of_user("reader-1") == []
    (tmp_path / FEEDBACK).write_bytes(b"")
    assert store.delete_user("reader-1") == 0
    store.add(entry(EVERY_KIND[0]))
    assert store.all() == [entry(EVERY_KIND[0])]


def test_a_file_of_format_1_is_converted_by_the_first_process_that_opens_it(tmp_path: Path) -> None:
    file = tmp_path / FEEDBACK
    FeedbackFile(tmp_path, 1 << 30).add(entry(EVERY_KIND[0]))
    to_format_1 = "ALTER TABLE feedback RENAME COLUMN content TO said; PRAGMA user_version = 1"
    with closing(sqlite3.connect(file)) as first, closing(sqlite3.connect(file)) as second:
        first.executescript(to_format_1)
        for connection in (first, second):
            convert_format_1(connection)
        first.executescript(to_format_1)
    assert read_feedback(tmp_path) == [entry(EVERY_KIND[0])]
    FeedbackFile(tmp_path, 1 << 30).add(replace(entry(EVERY_KIND[1]), id="later"))
    assert [each.content for each in read_feedback(tmp_path)] == list(EVERY_KIND[:2])


def test_an_index_is_the_same_with_and_without_feedback(tmp_path: Path) -> None:
    """An edit, `compact` and `repair` do not change the file, and the file does not change their results."""
    for name in ("with", "without"):
        build(tmp_path / name, ISLES[:4])
    store = FeedbackFile(tmp_path / "with", 1 << 30)
    store.add(entry(EVERY_KIND[0]))
    for name in ("with", "without"):
        build(tmp_path / name, ISLES)
        compact_index(tmp_path / name, lambda spec: HashEncoder())
        repair_index(tmp_path / name, lambda spec: HashEncoder())
    indexes = [open_index(tmp_path / name, lambda spec: HashEncoder()) for name in ("with", "without")]
    assert_same_index(indexes[0].data, indexes[1].data)
    assert indexes[0].manifest.identity == indexes[1].manifest.identity
    assert store.of_user("reader-1") == [entry(EVERY_KIND[0])]


def test_the_table_is_documented(tmp_path: Path) -> None:
    FeedbackFile(tmp_path, 1 << 30).add(entry(EVERY_KIND[0]))
    page = (ROOT / "docs/reference/format.md").read_text(encoding="utf-8").partition("## Feedback")[2]
    with closing(sqlite3.connect(tmp_path / FEEDBACK)) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(feedback)")]
        (number,) = database.execute("PRAGMA user_version").fetchone()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == columns
    assert f"is its own format, {number}" in page and all(f"`{kind}`" in page for kind in KINDS)
