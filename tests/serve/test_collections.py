"""The parts of an index that callers may see: a cached part is reused, and each of several simultaneous callers gets the part that it requested.
A failed write does not affect the writes that arrive after it has begun."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from graph.build.build import Edit, EditResult
from graph.index.filters import parse_condition
from graph.index.index import open_index
from graph.types import Document
from serve.http.errors import ApiError
from serve.http.telemetry import Metrics
from serve.server import collections
from serve.server.collections import Generation, LiveIndex, WriteQueue
from tests.fakes import HashEncoder
from tests.processes import until


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


def test_an_edit_that_arrives_while_another_fails_is_applied(isles: Path) -> None:
    async def write_both() -> int:
        loop = asyncio.get_running_loop()
        queue = WriteQueue(LiveIndex(isles, None, lambda spec: HashEncoder(), Metrics()), 60)
        later: list[Future[EditResult]] = []

        class Broken(list[Document]):
            def __iter__(self) -> Iterator[Document]:
                gull = Edit(add=[Document("gull", "Gull Rock", "Gull Rock is a lighthouse.")])
                later.append(asyncio.run_coroutine_threadsafe(queue.write(gull), loop))
                until(lambda: queue._waiting)
                raise ValueError("the documents are broken")

        with pytest.raises(ApiError, match="the server failed"):
            await queue.write(Edit(add=Broken()))
        return (await asyncio.wrap_future(later[0])).report.written

    assert asyncio.run(write_both()) == 1
    assert "gull" in open_index(isles, lambda spec: HashEncoder()).sources()
