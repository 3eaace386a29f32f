"""The markers of tests that start a server, and the last line of a test run: the numbers of skipped tests, by missing item."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing_item, pytest_collection_modifyitems
from tests.places import ROOT

OTHER_REASONS = {
    "needs /dev/full",
    "needs a system on which the tests may mount a disk",
    "needs root",
    "reads /proc",
    "root can read every folder",
}
"""Skip reasons that no installation would remove."""
TESTS_WITHOUT_MISSING_ITEMS = """
import pytest

def test_passes():
    pass

def test_skipped_for_another_reason():
    pytest.skip("reads /proc")
"""
TESTS_WITH_MISSING_ITEMS = """
@pytest.mark.parametrize("number", range(3))
@pytest.mark.skipif(True, reason="smollm2 is not fetched: modegraph models get smollm2")
def test_that_needs_a_model(number):
    pass

@pytest.fixture(scope="session")
def server():
    pytest.skip("PostgreSQL does not start here: no memory")

@pytest.mark.parametrize("number", range(2))
def test_that_needs_a_server(server, number):
    pass
"""


def last_lines(folder: Path, tests: str, processes: str) -> list[str]:
    """The last two lines printed by a run of `tests` and the other tests in the folder."""
    (folder / "test_small.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pytest", "-p", "xdist", "-p", "tests.conftest", "-n", processes, folder]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-2:]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_last_line_counts_the_skipped_tests_by_missing_item(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_package.py").write_text("import pytest\n\npytest.importorskip('nowhere.inside')\n")
    totals, last = last_lines(tmp_path, TESTS_WITHOUT_MISSING_ITEMS + TESTS_WITH_MISSING_ITEMS, processes)
    assert "1 passed, 7 skipped" in totals
    assert last == "Skipped, missing: smollm2 (3: modegraph models get smollm2), PostgreSQL (2), nowhere (1)"


def test_a_run_without_missing_items_ends_with_its_totals(tmp_path: Path) -> None:
    assert "1 passed, 1 skipped" in last_lines(tmp_path, TESTS_WITHOUT_MISSING_ITEMS, "0")[-1]


def reasons_in(file: Path) -> Iterator[str]:
    """The skip reasons of the tests in a file, without interpolated values."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        reasons = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
        if node.func.attr == "importorskip" and not reasons:
            yield f"could not import '{text_of(node.args[0])}'"
        elif node.func.attr in ("skip", "skipif", "importorskip"):
            yield text_of((reasons or node.args)[0])


def text_of(string: ast.expr) -> str:
    return "".join(str(node.value) for node in ast.walk(string) if isinstance(node, ast.Constant))


def test_every_skip_reason_names_a_missing_item_or_is_listed_here() -> None:
    found = {reason for file in (ROOT / "tests").rglob("*.py") for reason in reasons_in(file)}
    assert len(found) > 20
    assert {reason for reason in found if missing_item(reason) is None} == OTHER_REASONS


def test_make_quick_leaves_out_the_tests_of_a_file_that_starts_a_server(request: pytest.FixtureRequest) -> None:
    file = pytest.Module.from_parent(request.session, path=ROOT / "tests/serve/engines/test_engine_fields.py")
    items = [item for item in file.collect() if isinstance(item, pytest.Item)]
    pytest_collection_modifyitems(items)
    assert items and all(item.get_closest_marker("server") for item in items)
