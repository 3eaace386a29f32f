"""The parts of an index that callers may see: a cached part is reused, and each of several simultaneous callers gets the part that it requested."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graph.index.filters import parse_condition
from graph.index.index import open_index
from serve.server import collections
from serve.server.collections import Generation
from tests.fakes import HashEncoder


def test_simultaneous_callers_get_the_parts_that_they_request(
    shared_isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "MAX_VIEWS", 1)
    whole = Generation(open_index(shared_isles, lambda spec: HashEncoder()))
    conditions = [(parse_condition(f"source={name}"),) for name in ("tarn", "ada", "marlow")] * 200
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(whole.restricted_to, conditions))
    assert [part.where for part in parts] == conditions
    assert [part.index.sources() for part in parts[:2]] == [("tarn",), ("ada",)]
    assert whole.restricted_to(()) is whole and len(whole._views) == 1


def test_a_cached_part_is_reused(shared_isles: Path) -> None:
    whole = Generation(open_index(shared_isles, lambda spec: HashEncoder()))
    where = (parse_condition("source=tarn"),)
    assert whole.restricted_to(where) is whole.restricted_to(where)
