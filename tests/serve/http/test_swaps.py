"""An index that replaces the one in use is detected, even with the same generation, size and modification time, and is then served with its own generation."""

import asyncio
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import graph.index.index
from graph.build.build import build_index
from graph.index.index import FreshIndex, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.types import Document
from serve.http.telemetry import Metrics
from serve.server.collections import LiveIndex
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.processes import until
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import serving

REVERSED_ISLES = [replace(document, text=document.text[::-1]) for document in ISLES]
"""Different documents with the same names and lengths."""


def build(folder: Path, documents: list[Document]) -> None:
    build_index(folder, documents, SETTINGS, lambda spec: HashEncoder())


def open_live_index(folder: Path) -> LiveIndex:
    return LiveIndex(folder, "hops", lambda spec: HashEncoder(), Metrics())


def add_a_document_after_the_first_opening(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a writer add a document as soon as the arrays have first been opened."""
    original_load = graph.index.index.load_arrays

    def load_and_write(*arguments: object) -> object:
        monkeypatch.setattr(graph.index.index, "load_arrays", original_load)
        loaded = original_load(*arguments)  # type: ignore[arg-type]
        build(folder, [Document("gull", "Gull Rock", "Gull Rock is a lighthouse.")])
        return loaded

    monkeypatch.setattr(graph.index.index, "load_arrays", load_and_write)


def test_a_replacement_index_is_used_even_if_its_generation_is_the_same(isles: Path, tmp_path: Path) -> None:
    build(tmp_path / "other", [Document("gull", "Gull Rock", "The Lantern of Gull Rock was built in 1702.")])
    with chat_server(lambda body, number: "x") as upstream, serving(isles, f"openai:tiny@{upstream.url}") as running:
        ask = {"query": "When was the Lantern built?"}
        before = running.post("/v1/retrieve", json=ask).json()
        isles.rename(tmp_path / "old")
        (tmp_path / "other").rename(isles)
        until(lambda: running.metric('modegraph_index_swaps_total{outcome="done"}') == 1)
        after = running.post("/v1/retrieve", json=ask).json()
    assert {found["source"] for found in after["passages"]} == {"gull"}
    assert before["generation"] == after["generation"] == 1 and before["index"] != after["index"]


def test_a_different_index_of_the_same_size_and_time_is_detected(isles: Path, tmp_path: Path) -> None:
    """An index copied over another may have the same size and time, for example after `cp -rp` or in a layer of a container image."""
    build(tmp_path / "a", [Document("a", "A", "Tarn is a village.")])
    build(tmp_path / "b", [Document("a", "A", "Tarn is a harbour.")])
    before = (tmp_path / "a/manifest.json").stat()
    live_index = open_live_index(tmp_path / "a")
    first = live_index.current
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    os.utime(tmp_path / "a/manifest.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (tmp_path / "a/manifest.json").stat()
    assert (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)
    asyncio.run(live_index.refresh())
    assert live_index.current is not first and live_index.current.index.passages_of("a")[0].text == "Tarn is a harbour."


def test_an_index_copied_over_another_leaves_the_open_one_unchanged(tmp_path: Path) -> None:
    build(tmp_path / "a", ISLES)
    build(tmp_path / "b", REVERSED_ISLES)
    reader = open_index(tmp_path / "a")
    texts, vectors = list(reader.data.passage_texts), reader.data.passage_vectors_PD[:].tolist()
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    assert list(reader.data.passage_texts) == texts and reader.data.passage_vectors_PD[:].tolist() == vectors


def test_the_generation_matches_the_open_index_if_a_document_is_added_while_it_is_opened(
    isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_a_document_after_the_first_opening(isles, monkeypatch)
    live_index = open_live_index(isles)
    assert (live_index.current.number, len(live_index.current.index.sources())) == (1, len(ISLES))
    asyncio.run(live_index.refresh())
    assert (live_index.current.number, len(live_index.current.index.sources())) == (2, len(ISLES) + 1)


def test_a_fresh_index_contains_a_document_added_while_the_index_is_opened(
    isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_a_document_after_the_first_opening(isles, monkeypatch)
    assert len(FreshIndex(isles, lambda spec: HashEncoder()).get().sources()) == len(ISLES) + 1


def test_a_search_uses_one_index_from_start_to_end(isles: Path) -> None:
    with chat_server(lambda body, number: "x") as upstream, serving(isles, f"openai:tiny@{upstream.url}") as running:
        services = running.services
        live_index = services.collections.live["index"]
        before = live_index.current
        build(isles, [Document("gull", "Gull Rock", "The Lantern of Gull Rock is a lighthouse.")])
        until(lambda: live_index.current.number == 2)
        settings = RetrieveSettings(mode="dense", top_k=20)
        find = services.retriever.find
        old, new = (
            asyncio.run(find("the Lantern", settings, None, generation)) for generation in (before, live_index.current)
        )
    assert "gull" not in {found.item.source for found in old.passages}
    assert "gull" in {found.item.source for found in new.passages}


def test_a_missing_index_and_its_return_are_each_reported_once(isles: Path, caplog: pytest.LogCaptureFixture) -> None:
    live_index = open_live_index(isles)
    manifest, away = isles / "manifest.json", isles / "away"

    async def remove_for_a_while() -> None:
        manifest.rename(away)
        for _ in range(5):
            await live_index.refresh()
        away.rename(manifest)
        await live_index.refresh()

    with caplog.at_level(logging.INFO, "modegraph.serve"):
        for _ in range(2):
            asyncio.run(remove_for_a_while())
    logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in logged] == ["WARNING", "INFO"] * 2, logged
    assert "manifest.json" in logged[0][1] and "generation 1" in logged[1][1]


def test_a_file_that_cannot_be_read_does_not_stop_the_watcher(isles: Path) -> None:
    """numpy raises several kinds of error for a file that it cannot read."""
    live_index = open_live_index(isles)
    build(isles, [Document("gull", "Gull Rock", "Gull Rock is a lighthouse.")])
    arrays = max(isles.glob("arrays-*"))
    sound = (arrays / "similarity_XX.shape.npy").read_bytes()
    (arrays / "similarity_XX.shape.npy").write_bytes(sound[:4] + bytes(len(sound) - 4))
    asyncio.run(live_index.refresh())
    assert live_index.current.number == 1
    (arrays / "similarity_XX.shape.npy").write_bytes(sound)
    asyncio.run(live_index.refresh())
    assert live_index.current.number == 2
