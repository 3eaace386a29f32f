"""Exports are read back by the tools that they are for, and equal the index."""

import json
import re
from pathlib import Path
from typing import Any

import igraph
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from graph.build import build_index
from graph.errors import UserError
from graph.export.graphml import write_graphml
from graph.export.page import page_data, write_page
from graph.export.parquet import write_parquet
from graph.export.parts import NODE_KINDS, edges, nodes
from graph.index import Index, open_index
from graph.settings import IndexSettings
from graph.types import Document
from modegraph import build_app
from tests.corpora import ISLES
from tests.fakes import HashEncoder

ODD = Document(
    "odd\x0bsource",
    'Odd & "Sons" <Ltd>',
    "Odd & Sons opened at 10:30 in Tarn. </script><script>alert(1)</script> stood on its sign. "
    "The \x0c form feed and the \ufffe mark came from Quill.",
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("export") / "index"
    build_index(folder, [*ISLES, ODD], IndexSettings(min_similarity=0.1), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


def test_graphml_is_read_back_whole(index: Index, tmp_path: Path) -> None:
    counts = write_graphml(index, tmp_path / "g.graphml")
    graph = igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml"))
    assert (graph.vcount(), graph.ecount()) == (counts["nodes"], counts["edges"]) and graph.is_directed()
    kinds = {kind: sum(1 for _ in nodes(index, kind)) for kind in NODE_KINDS}
    assert {kind: graph.vs["kind"].count(kind) for kind in NODE_KINDS} == kinds
    place = {key: row for row, key in enumerate(graph.vs["id"])}
    lantern, marlow = place["name:" + name_id(index, "lantern")], place["name:" + name_id(index, "marlow yard")]
    near = set(graph.neighbors(lantern, "in")) & set(graph.neighbors(marlow, "in"))
    assert [graph.vs[row]["text"] for row in near] == ["Lantern was built in 1911 by the Marlow Yard."]
    stored = {(edge.source, edge.target, edge.kind, edge.weight) for edge in edges(index)}
    assert len(stored) == counts["edges"]
    similar = [edge for edge in graph.es if edge["kind"] == "similar"]
    assert len(similar) == index.data.similarity_XX.nnz // 2 > 0
    assert {round(edge["weight"], 5) for edge in similar} == {round(float(w), 5) for w in index.data.similarity_XX.data}


def name_id(index: Index, text: str) -> str:
    return next(node.values["id"] for node in nodes(index, "name") if node.values["text"] == text)  # type: ignore[return-value]


def test_what_xml_cannot_hold_is_replaced_and_the_rest_kept(index: Index, tmp_path: Path) -> None:
    write_graphml(index, tmp_path / "g.graphml")
    graph = igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml"))
    (odd,) = [v for v in graph.vs if v["kind"] == "document" and v["title"] == ODD.title]
    assert odd["own_id"] == "odd\ufffdsource"
    (passage,) = [v for v in graph.vs if v["kind"] == "passage" and "10:30 in Tarn" in v["text"]]
    assert "</script><script>alert(1)</script>" in passage["text"] and "\ufffd form feed" in passage["text"]


def test_parquet_tables_hold_every_row_and_vector(index: Index, tmp_path: Path) -> None:
    counts = write_parquet(index, tmp_path / "tables")
    tables = {file.stem: pq.read_table(file) for file in (tmp_path / "tables").iterdir()}
    assert sorted(tables) == ["documents", "edges", "names", "passages", "propositions", "summaries", "topics"]
    assert sum(len(table) for name, table in tables.items() if name != "edges") == counts["nodes"]
    passages = tables["passages"].to_pylist()
    for row, passage in enumerate(passages):
        found = index.passage(row)
        assert (passage["id"], passage["text"], passage["start"]) == (found.id, found.text, found.start)
    vectors = np.array(tables["propositions"]["vector"].to_pylist(), np.float32)
    assert np.array_equal(vectors, index.data.proposition_vectors_ND)
    assert tables["documents"]["id"].to_pylist() == list(index.sources())
    stored = [(edge.kind, edge.source, edge.target, edge.weight) for edge in edges(index)]
    assert [tuple(row.values()) for row in tables["edges"].to_pylist()] == stored


def test_an_empty_index_exports(tmp_path: Path) -> None:
    build_index(tmp_path / "i", [Document("a", "", "Hm.")], IndexSettings(), lambda spec: HashEncoder())
    empty = open_index(tmp_path / "i", lambda spec: HashEncoder())
    assert write_graphml(empty, tmp_path / "g")["nodes"] == write_parquet(empty, tmp_path / "p")["nodes"]
    write_page(empty, tmp_path / "page.html", 10)


def embedded(file: Path) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', file.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_document_text_as_data_only(index: Index, tmp_path: Path) -> None:
    counts = write_page(index, tmp_path / "page.html", 2000)
    page = (tmp_path / "page.html").read_text()
    assert "alert(1)" in page and "<script>alert(1)" not in page and page.count("</script>") == 2
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    held = embedded(tmp_path / "page.html")
    assert held == page_data(index, 2000) and counts["names"] == len(held["names"])
    assert ODD.text in [passage["text"] for passage in held["passages"]]


def test_the_page_holds_the_most_mentioned_names_and_what_belongs_to_them(index: Index) -> None:
    whole, part = page_data(index, 2000), page_data(index, 2)
    assert whole["left_out"] == 0 and part["left_out"] == len(whole["names"]) - 2
    mentions = {text: sum(row in p["names"] for p in whole["propositions"]) for row, text in enumerate(whole["names"])}
    assert min(mentions[name] for name in part["names"]) >= sorted(mentions.values())[-2]
    for proposition in part["propositions"]:
        for row in proposition["passages"]:
            assert proposition["names"] and 0 <= row < len(part["passages"])
    for summary in whole["summaries"]:
        for kind, row in summary["members"]:
            assert 0 <= row < len(whole["passages" if kind == "passage" else "summaries"])


def run(*arguments: object) -> Any:
    return CliRunner().invoke(build_app(), ["export", *map(str, arguments)])


def test_the_command_writes_one_format_whole(index: Index, tmp_path: Path) -> None:
    for flag, name in (("--graphml", "g.graphml"), ("--parquet", "tables"), ("--html", "page.html")):
        result = run(index.folder, flag, tmp_path / name, "--json")
        assert result.exit_code == 0, result.exception
        assert json.loads(result.stdout)["written"] == str(tmp_path / name) and (tmp_path / name).exists()
    assert len(list(tmp_path.iterdir())) == 3
    assert isinstance(again := run(index.folder, "--html", tmp_path / "page.html").exception, UserError)
    assert "exists already" in str(again)
    for wrong in ([], ["--html", tmp_path / "a", "--parquet", tmp_path / "b"]):
        assert "--graphml, --parquet, --html" in str(run(index.folder, *wrong).exception)
    assert "no folder to put it in" in str(run(index.folder, "--html", tmp_path / "none" / "a.html").exception)


def test_a_failure_half_way_leaves_nothing(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("graph.export.parquet._write_edges", fail)
    assert isinstance(run(index.folder, "--parquet", tmp_path / "tables").exception, OSError)
    assert list(tmp_path.iterdir()) == []
