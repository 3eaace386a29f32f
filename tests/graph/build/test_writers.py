"""Two writers and three readers that run in parallel, in separate processes: nothing is lost or duplicated, and no reader sees a mixture of two generations.

This runs benchmarks/writers.py for two seconds; its default is two minutes.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.places import ROOT
from tests.postgres_server import fresh_database


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The value of --store."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    with fresh_database(request.getfixturevalue("postgres"), "writers") as dsn:
        yield dsn


@pytest.mark.machines
def test_two_writers_beside_three_readers_leave_the_index_of_a_single_writer(store: str) -> None:
    script = [sys.executable, "-P", str(ROOT / "benchmarks/writers.py"), "--seconds", "2", "--store", store, "--json"]
    result = subprocess.run(script, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:] + result.stdout
    assert len(json.loads(result.stdout)["checks"]) == 8
