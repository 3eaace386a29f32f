"""A disk that takes no more: the system refuses to write a file beyond a size, wherever an edit is at that moment.

The failure is told, readers have one whole generation (the new one only where it was whole already), and with room again the edit is
what it would have been.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import index_status, resume_build, verify_index
from graph.index.index import open_index
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from tests.corpora import ISLES
from tests.graph.build.test_lifecycle import EXTRA, SETTINGS, encoder
from tests.graph.same import assert_same_index
from tests.places import ROOT

EDIT = """
import resource, sys
from pathlib import Path
from graph.build.build import build_index
from tests.graph.build.test_lifecycle import EXTRA, SETTINGS, encoder
most = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
build_index(Path(sys.argv[1]), [EXTRA], SETTINGS, encoder)
"""


def edited_with(folder: Path, most_bytes: int) -> int:
    """Add a document in a process whose files may not grow beyond `most_bytes`: its exit status."""
    call = [sys.executable, "-P", "-c", EDIT, str(folder), str(most_bytes)]
    # Python itself would leave bytecode that is cut short.
    given = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(call, cwd=ROOT, env=given, capture_output=True, check=False).returncode


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("place", "share"),
    [*(("sqlite", share) for share in (0, 0.3, 0.6, 0.9, 1)), ("postgresql", 0.3), ("postgresql", 1)],
    indirect=["place"],
)
def test_an_edit_that_the_disk_does_not_take_loses_nothing_and_is_told(tmp_path: Path, share: float) -> None:
    folder, twin = tmp_path / "i", tmp_path / "twin"
    for each in (folder, twin):
        build_index(each, ISLES, SETTINGS, encoder)
    build_index(twin, [EXTRA], SETTINGS, encoder)
    sizes = sorted({file.stat().st_size for file in twin.rglob("*") if file.is_file() and file.stat().st_size > 64})
    assert edited_with(folder, sizes[round(share * (len(sizes) - 1))] - 1) != 0
    is_new = EXTRA.source in open_index(folder, encoder).sources()
    assert index_status(folder).generation == 1 + is_new and (share == 1 or not is_new)
    if index_status(folder).unfinished:
        resume_build(folder, encoder)
    build_index(folder, [EXTRA], SETTINGS, encoder)
    assert_same_index(load_arrays(folder, IndexData), load_arrays(twin, IndexData))
    assert verify_index(folder) == []
