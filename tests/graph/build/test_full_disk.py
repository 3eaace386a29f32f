"""A disk that fills up at any point of a build or an edit, simulated by a limit on the size of files or by a small mounted disk.

The failure is reported in one line, readers see one complete generation (the new one only if it was already complete), and once there is
space again the index becomes the same as without the failure.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import compact_index, delete_documents, index_status, resume_build, verify_index
from graph.errors import DiskFull
from graph.index.index import open_index
from graph.store import sqlite
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.types import Document, OpenEncoder
from tests.corpora import ISLES
from tests.disks import AMPLE_BYTES, SmallDisk, mounted_disk
from tests.graph.build.test_lifecycle import EXTRA, SETTINGS
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index
from tests.places import ROOT

EDIT = """
import resource, sys
from pathlib import Path
from graph.build.build import build_index
from graph.errors import DiskFull
from tests.graph.build.test_lifecycle import EXTRA, SETTINGS
from tests.graph.hashed import encoder
most = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    build_index(Path(sys.argv[1]), [EXTRA], SETTINGS, encoder)
except DiskFull as problem:
    sys.exit(str(problem))
"""
Change = Callable[[Path, OpenEncoder], object]
ANN_SETTINGS = SETTINGS.model_copy(update={"ann_rows": 1})
"""With these settings every segment has an ANN index, so that faiss writes too."""


def full_disk_message(folder: Path) -> str:
    """A regular expression for the last line of a command that fails on a full disk."""
    remedy = "Free some space there, then run the command again: finished work is not lost"
    return rf"^{re.escape(str(folder))}: no free space \([^\n;]*\)\. Expected a disk with free space\. {remedy}$"


def edit_with_limit(folder: Path, max_bytes: int) -> str:
    """Add a document in a process whose files may not grow beyond `max_bytes`; return the last line that it prints."""
    call = [sys.executable, "-P", "-c", EDIT, str(folder), str(max_bytes)]
    # Without PYTHONDONTWRITEBYTECODE, Python itself would leave truncated bytecode.
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "Traceback" not in run.stderr, run.stderr
    return run.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("place", "share"),
    [*(("sqlite", share) for share in (0, 0.3, 0.6, 0.9, 1)), ("postgresql", 0.3), ("postgresql", 1)],
    indirect=["place"],
)
def test_an_edit_that_does_not_fit_on_the_disk_loses_nothing_and_is_reported(tmp_path: Path, share: float) -> None:
    folder, twin = tmp_path / "i", tmp_path / "twin"
    for each in (folder, twin):
        build_index(each, ISLES, SETTINGS, encoder)
    build_index(twin, [EXTRA], SETTINGS, encoder)
    sizes = sorted({file.stat().st_size for file in twin.rglob("*") if file.is_file() and file.stat().st_size > 64})
    assert re.match(full_disk_message(folder), edit_with_limit(folder, sizes[round(share * (len(sizes) - 1))] - 1))
    is_new = EXTRA.source in open_index(folder, encoder).sources()
    assert index_status(folder).generation == 1 + is_new and (share == 1 or not is_new)
    if index_status(folder).unfinished:
        resume_build(folder, encoder)
    build_index(folder, [EXTRA], SETTINGS, encoder)
    assert_same_index(load_arrays(folder, IndexData), load_arrays(twin, IndexData))
    assert verify_index(folder) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted_disk(tmp_path / "disk") as small_disk:
        yield small_disk


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*"))


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("place", "share"),
    [*(("sqlite", share) for share in (0, 0.1, 0.3, 0.5, 0.7, 0.9)), ("postgresql", 0.1), ("postgresql", 0.7)],
    indirect=["place"],
)
def test_an_index_too_large_for_the_disk_is_reported_and_built_once_there_is_space(
    disk: SmallDisk, tmp_path: Path, share: float
) -> None:
    folder, twin = disk.folder / "i", tmp_path / "twin"
    build_index(twin, ISLES, ANN_SETTINGS, encoder)
    disk.leave_free(share * size_of(twin))
    with pytest.raises(DiskFull, match=full_disk_message(folder)):
        build_index(folder, ISLES, ANN_SETTINGS, encoder)
    disk.leave_free(AMPLE_BYTES)
    build_index(folder, ISLES, ANN_SETTINGS, encoder)
    assert_same_index(load_arrays(folder, IndexData), load_arrays(twin, IndexData))
    assert verify_index(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("free_kib", [0, 16, 64, 128, 256])
def test_an_edit_on_a_full_disk_leaves_the_index_readable(disk: SmallDisk, tmp_path: Path, free_kib: int) -> None:
    folder, twin = disk.folder / "i", tmp_path / "twin"
    build_index(twin, ISLES, ANN_SETTINGS, encoder)
    shutil.copytree(twin, folder)
    build_index(twin, [EXTRA], ANN_SETTINGS, encoder)
    disk.leave_free(free_kib << 10)
    with pytest.raises(DiskFull, match=full_disk_message(folder)):
        build_index(folder, [EXTRA], ANN_SETTINGS, encoder)
    assert EXTRA.source not in open_index(folder, encoder).sources()
    disk.leave_free(AMPLE_BYTES)
    assert index_status(folder).generation == 1
    resume_build(folder, encoder)
    build_index(folder, [EXTRA], ANN_SETTINGS, encoder)
    assert_same_index(load_arrays(folder, IndexData), load_arrays(twin, IndexData))
    assert verify_index(folder) == []


def test_a_transaction_that_sqlite_itself_rolls_back_on_a_full_disk_is_reported_as_such(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite does so when it writes pages before the end of the transaction, because its cache is full."""
    monkeypatch.setattr(sqlite, "WRITER_CACHE_BYTES", 64 << 10)
    folder = disk.folder / "i"
    build_index(folder, ISLES, SETTINGS, encoder)
    disk.leave_free(200 << 10)
    ships = [Document(str(number), "", f"Ship {number} was built in Tarn. " * 400) for number in range(60)]
    with pytest.raises(DiskFull, match=full_disk_message(folder)):
        build_index(folder, ships, SETTINGS, encoder)
    disk.leave_free(AMPLE_BYTES)
    assert index_status(folder).rows["documents"] == len(ISLES) and verify_index(folder) == []


@pytest.mark.parametrize("change", [compact_index, lambda folder, opening: delete_documents(folder, ["tarn"], opening)])
def test_other_commands_that_write_report_a_full_disk(disk: SmallDisk, change: Change) -> None:
    folder = disk.folder / "i"
    build_index(folder, ISLES, ANN_SETTINGS, encoder)
    build_index(folder, [EXTRA], ANN_SETTINGS, encoder)
    disk.leave_free(0)
    for attempt in (lambda: change(folder, encoder), lambda: index_status(folder)):
        with pytest.raises(DiskFull, match=full_disk_message(folder)):
            attempt()
    assert EXTRA.source in open_index(folder, encoder).sources()
    disk.leave_free(AMPLE_BYTES)
    change(folder, encoder)
    resume_build(folder, encoder)
    assert verify_index(folder) == []
