"""Exports, read by the tools that they are written for, equal the index."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import igraph
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from datasets import Dataset

from graph.build.build import build_index
from graph.errors import UserError
from graph.export.elements import NODE_KINDS, NODE_TABLES, edges, nodes, occurrences
from graph.export.graph_files import index_tables, write_graphml, write_parquet
from graph.export.page import page_data, take_turns, write_page
from graph.index.index import Index, open_index
from graph.store.columns.strings import Strings
from graph.store.index_settings import IndexSettings
from graph.store.lock import writer_lock
from graph.types import Document
from tests.commands import run
from tests.corpora import ISLES
from tests.fakes import HashEncoder

ODD_DOCUMENT = Document(
    "odd\x0bsource",
    'Odd & "Sons" <Ltd>',
    "Odd & Sons opened at 10:30 in Tarn. </script><script>alert(1)</script> stood\u2028on its sign </script >. "
    "The \x0c form feed and the \ufffe mark came from Quill.",
)

LONG_DOCUMENT = Document(
    "long", "Log of Quill", " ".join(f"On day {day} the Quill took {day + 7} barrels." for day in range(60))
)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("export") / "index"
    settings = IndexSettings(min_similarity=0.1, min_synonym_similarity=0.3)
    build_index(folder, [*ISLES, ODD_DOCUMENT, LONG_DOCUMENT], settings, lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


def test_graphml_is_read_back_completely(index: Index, tmp_path: Path) -> None:
    counts = write_graphml(index, tmp_path / "g.graphml")
    graph = igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml"))
    assert (graph.vcount(), graph.ecount()) == (counts["nodes"], counts["edges"]) and graph.is_directed()
    kinds = {kind: sum(1 for _ in nodes(index, kind)) for kind in NODE_KINDS}
    assert {kind: graph.vs["kind"].count(kind) for kind in NODE_KINDS} == kinds
    place = {key: row for row, key in enumerate(graph.vs["id"])}
    lantern, marlow = place["entity:" + entity_id(index, "Lantern")], place["entity:" + entity_id(index, "Marlow Yard")]
    near = set(graph.neighbors(lantern, "in")) & set(graph.neighbors(marlow, "in"))
    assert [graph.vs[row]["text"] for row in near] == ["Lantern was built in 1911 by the Marlow Yard."]
    keys = graph.vs["id"]
    read = {(e["kind"], keys[e.source], keys[e.target]): round(e["weight"], 5) for e in graph.es}
    expected = {
        (edge.kind, edge.source, edge.target): round(edge.weight, 5) for edge in edges(with_graphml_sources(index))
    }
    assert read == expected and len(read) == counts["edges"]
    similar = [edge for edge in graph.es if edge["kind"] == "similar"]
    assert len(similar) == index.data.similarity_XX.nnz // 2 > 0
    assert {round(edge["weight"], 5) for edge in similar} == {round(float(w), 5) for w in index.data.similarity_XX.data}


def with_graphml_sources(index: Index) -> Index:
    """The index with its sources spelt as in the GraphML file, because XML cannot represent one of them."""
    sources = [source.replace("\x0b", "\ufffdb;") for source in index.sources()]
    return replace(index, data=replace(index.data, document_sources=Strings.of(sources)))


def entity_id(index: Index, text: str) -> str:
    return next(node.values["id"] for node in nodes(index, "entity") if node.values["text"] == text)  # type: ignore[return-value]


def test_edges_equal_the_entries_of_the_matrices_of_the_index(index: Index) -> None:
    propositions = len(index.data.proposition_ids)
    about = sp.csr_array(([1, 3, 1], ([0, 1, 1], [propositions - 1, 0, 2])), shape=(2, propositions), dtype=np.float32)
    topics = Strings.of(["t1", "t2"])
    index = replace(index, data=replace(index.data, topic_ids=topics, topic_texts=topics, topic_proposition_KN=about))
    data = index.data
    similarity, synonyms = data.similarity_XX.toarray(), data.synonym_EE.toarray()
    document = [f"document:{source}" for source in data.document_sources]
    passage, entity = [f"passage:{key}" for key in data.passage_ids], [f"entity:{key}" for key in data.entity_ids]
    proposition, topic = [f"proposition:{key}" for key in data.proposition_ids], [f"topic:{k}" for k in data.topic_ids]
    either = passage + [f"summary:{key}" for key in data.summary_ids]
    summary = either[len(passage) :]
    blocks: dict[str, tuple[list[str], list[str], Any]] = {
        "has": (document, passage, np.equal.outer(np.arange(len(document)), data.passage_document_P)),
        "next": (passage, passage, data.passage_next_PP.toarray()),
        "states": (passage, proposition, data.passage_proposition_PN.toarray()),
        "mentions": (proposition, entity, data.proposition_entity_NE.toarray()),
        "called": (document, entity, data.entity_document_EU.toarray().T),
        "synonym": (entity, entity, np.triu(synonyms)),
        "about": (proposition, topic, data.topic_proposition_KN.toarray().T),
        "sums up": (summary, either, data.summary_member_SX.toarray()),
        "similar": (either, either, np.triu(similarity)),
    }
    expected = {
        (kind, rows[row], columns[column]): float(block[row, column])
        for kind, (rows, columns, block) in blocks.items()
        for row, column in zip(*np.nonzero(block), strict=True)
    }
    assert {(edge.kind, edge.source, edge.target): edge.weight for edge in edges(index)} == expected
    assert {kind for kind, _, _ in expected} == set(blocks)


def test_characters_that_xml_cannot_represent_are_replaced_and_the_rest_is_unchanged(
    index: Index, tmp_path: Path
) -> None:
    write_graphml(index, tmp_path / "g.graphml")
    graph = igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml"))
    (odd,) = [v for v in graph.vs if v["kind"] == "document" and v["title"] == ODD_DOCUMENT.title]
    assert odd["own_id"] == "odd\ufffdsource"
    (passage,) = [v for v in graph.vs if v["kind"] == "passage" and "10:30 in Tarn" in v["text"]]
    assert "</script><script>alert(1)</script>" in passage["text"] and "\ufffd form feed" in passage["text"]


def test_sources_that_xml_cannot_distinguish_stay_distinct(tmp_path: Path) -> None:
    twins = [
        Document(source, "Lantern", "Lantern was built\r\nin Quill.") for source in ("a\x0b", "a\x0c", "a\ufffdb;")
    ]
    build_index(tmp_path / "i", twins, IndexSettings(), lambda spec: HashEncoder())
    built = open_index(tmp_path / "i", lambda spec: HashEncoder())
    counts = write_graphml(built, tmp_path / "g.graphml")
    graph = igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml"))
    assert graph.vcount() == counts["nodes"] and graph.vs["kind"].count("document") == 3
    texts = [v["text"] for v in graph.vs if v["kind"] == "passage"]
    assert texts == list(built.data.passage_texts) and "\r\n" in texts[0]


def test_tables_in_memory_equal_those_on_disk(index: Index, tmp_path: Path) -> None:
    write_parquet(index, tmp_path / "tables")
    tables = index_tables(index)
    assert {f"{name}.parquet" for name in tables} == {file.name for file in (tmp_path / "tables").iterdir()}
    for name, table in tables.items():
        assert table.equals(pq.read_table(tmp_path / "tables" / f"{name}.parquet")), name


def test_parquet_tables_contain_every_row_and_vector(index: Index, tmp_path: Path) -> None:
    counts = write_parquet(index, tmp_path / "tables")
    tables = {file.stem: pq.read_table(file) for file in (tmp_path / "tables").iterdir()}
    assert sorted(tables) == sorted([*NODE_TABLES.values(), "occurrences", "edges"])
    assert sum(len(tables[name]) for name in NODE_TABLES.values()) == counts["nodes"]
    assert (len(tables["occurrences"]), len(tables["edges"])) == (counts["occurrences"], counts["edges"])
    passages = tables["passages"].to_pylist()
    for row, passage in enumerate(passages):
        found = index.passage(row)
        assert (passage["id"], passage["text"], passage["start"]) == (found.id, found.text, found.start)
    vectors = np.array(tables["propositions"]["vector"].to_pylist(), np.float32)
    assert np.array_equal(vectors, index.data.proposition_vectors_ND)
    assert tables["documents"]["id"].to_pylist() == list(index.sources())
    text_of = {row["id"]: row["text"] for row in passages}
    starts_at = {row["id"]: row["start"] for row in passages}
    for occurrence in tables["occurrences"].to_pylist():
        start = occurrence["start"] - starts_at[occurrence["passage"]]
        assert 0 <= start < occurrence["end"] - starts_at[occurrence["passage"]] <= len(text_of[occurrence["passage"]])
    assert [tuple(row.values()) for row in tables["occurrences"].to_pylist()] == list(occurrences(index))
    stored = [(edge.kind, edge.source, edge.target, edge.weight) for edge in edges(index)]
    assert [tuple(row.values()) for row in tables["edges"].to_pylist()] == stored


def test_tables_written_in_parts_equal_tables_written_whole(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_parquet(index, tmp_path / "whole")
    monkeypatch.setattr("graph.export.graph_files.ROWS_AT_ONCE", 4)
    assert write_parquet(index, tmp_path / "parts") == whole
    for name in (*NODE_TABLES.values(), "occurrences", "edges"):
        read = pq.read_table(tmp_path / "parts" / f"{name}.parquet")
        assert read.equals(pq.read_table(tmp_path / "whole" / f"{name}.parquet"))


def test_the_datasets_library_reads_the_table_of_passages(index: Index, tmp_path: Path) -> None:
    write_parquet(index, tmp_path / "tables")
    read = Dataset.from_parquet(str(tmp_path / "tables" / "passages.parquet"), cache_dir=str(tmp_path / "cache"))
    assert read["text"][:] == list(index.data.passage_texts)
    assert np.array_equal(np.array(read["vector"][:], np.float32), index.data.passage_vectors_PD)


def test_an_index_without_propositions_can_be_exported(tmp_path: Path) -> None:
    build_index(tmp_path / "i", [Document("a", "", "Hm.")], IndexSettings(), lambda spec: HashEncoder())
    bare = open_index(tmp_path / "i", lambda spec: HashEncoder())
    assert write_graphml(bare, tmp_path / "g")["nodes"] == write_parquet(bare, tmp_path / "p")["nodes"]
    write_page(bare, tmp_path / "page.html", 10)


def embedded_data(file: Path) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', file.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_contains_document_text_only_as_data(index: Index, tmp_path: Path) -> None:
    counts = write_page(index, tmp_path / "page.html", 2000)
    page = (tmp_path / "page.html").read_text()
    assert "alert(1)" in page and "<script>alert(1)" not in page and page.count("</script>") == 2
    opening, closing = '<script id="data" type="application/json">', "</script>\n<script>"
    raw = page[page.index(opening) + len(opening) : page.index(closing)]
    assert raw.isascii() and not set(raw) & set("<>&") and "\\u2028" in raw
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    data = embedded_data(tmp_path / "page.html")
    assert data == json.loads(json.dumps(page_data(index, 2000))) and counts["entities"] == len(data["entities"])
    assert ODD_DOCUMENT.text in [passage["text"] for passage in data["passages"]]


def test_the_page_contains_the_most_mentioned_entities_and_the_items_linked_to_them(index: Index) -> None:
    whole, named = page_data(index, 2000), np.flatnonzero(np.diff(index.data.proposition_entity_NE.indptr))
    assert {kind: len(whole[kind]) for kind in whole["totals"]} == {
        "entities": len(index.data.entity_ids),
        "propositions": len(named),
        "passages": len(index.data.passage_ids),
        "summaries": len(index.data.summary_ids),
    }
    passage_ids, mentions = list(index.data.passage_ids), {name["text"]: 0 for name in whole["entities"]}
    for row, proposition in zip(named.tolist(), whole["propositions"], strict=True):
        texts = [whole["entities"][name]["text"] for name in proposition["entities"]]
        mentions.update({text: mentions[text] + 1 for text in texts})
        found = index.proposition(row)
        assert (proposition["text"], sorted(map(str.casefold, texts))) == (
            found.text,
            [*map(str.casefold, found.entities)],
        )
        shown = [passage_ids[passage] for passage in proposition["passages"]]
        assert sorted(shown) == sorted({span.passage_id for span in found.spans})
    assert mentions == {name["text"]: name["mentions"] for name in whole["entities"]}
    for row, summary in enumerate(whole["summaries"]):
        below = index.data.summary_member_SX[[row], :].indices.tolist()
        assert summary["parts"] == len(summary["members"]) == len(below)
        texts = [
            whole["passages" if kind == "passage" else "summaries"][place]["text"] for kind, place in summary["members"]
        ]
        every = [*index.data.passage_texts, *index.data.summary_texts]
        assert texts == [every[member] for member in below]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_page_is_bounded_and_reports_how_much_it_leaves_out(index: Index, tmp_path: Path, limit: int) -> None:
    counts = write_page(index, tmp_path / "page.html", limit)
    data, whole = embedded_data(tmp_path / "page.html"), page_data(index, 2000)
    for kind, total in whole["totals"].items():
        assert (
            len(data[kind]) == counts[kind] == min(limit, total) and counts[f"{kind}_left_out"] == total - counts[kind]
        )
    mentions = sorted((name["mentions"] for name in whole["entities"]), reverse=True)
    assert sorted((name["mentions"] for name in data["entities"]), reverse=True) == mentions[:limit]
    assert all(proposition["entities"] for proposition in data["propositions"])
    assert max(s["layer"] for s in data["summaries"]) == max(s["layer"] for s in whole["summaries"])
    for proposition in data["propositions"]:
        assert all(place < limit for place in proposition["entities"] + proposition["passages"])
    for summary in data["summaries"]:
        assert all(place < limit for _, place in summary["members"]) and len(summary["members"]) <= summary["parts"]


def test_columns_are_taken_from_each_row_in_turn() -> None:
    block = sp.csr_array(np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 1]]))
    rows = np.array([0, 1, 2])
    assert [take_turns(block, rows, limit).tolist() for limit in (1, 2, 3, 9)] == [[0], [0, 3], [0, 1, 3], [0, 1, 2, 3]]
    assert take_turns(block, np.array([3]), 9).tolist() == [0, 4]
    assert take_turns(block, np.array([2]), 9).tolist() == take_turns(block, rows[:0], 9).tolist() == []


VISIT_SCRIPT = """
<script>
const state = {};
const settled = () => new Promise((done) => setTimeout(done, 60));
(async () => {
  state.counts = document.getElementById("counts").textContent;
  state.opened = document.querySelector("#around h2").textContent;
  const listed = () => document.querySelectorAll("#around details").length;
  state.first = listed(); document.querySelector("#around button").click(); state.then = listed();
  state.focused = document.activeElement === document.querySelectorAll("#around summary")[state.first];
  const search = document.getElementById("search");
  search.value = "MARLOW Y"; search.dispatchEvent(new Event("input"));
  state.found = [...document.querySelectorAll("#found a")].map((each) => each.textContent);
  search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" })); await settled();
  state.shown = document.activeElement.textContent;
  const statements = document.querySelectorAll("#around details");
  state.statements = [...statements].map((each) => each.querySelector("summary").textContent);
  for (const each of statements) each.open = true;
  await settled();
  state.quoted = document.querySelector("#around blockquote").textContent;
  state.neighbours = [...document.querySelectorAll("#around svg a")].map((each) => each.querySelector("text").textContent).sort();
  document.querySelector("#around svg a").dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true })); await settled();
  state.second = document.activeElement.textContent;
  history.back(); await settled(); await settled();
  state.back = document.querySelector("#around h2").textContent;
  for (let depth = 0; depth < 4; depth++) { for (const each of document.querySelectorAll("#tops details")) each.open = true; await settled(); }
  state.layers = [...document.querySelectorAll("#tops blockquote")].map((each) => each.textContent);
  state.scripts = document.scripts.length;
  const out = document.createElement("pre"); out.id = "state"; out.textContent = JSON.stringify(state); document.body.append(out);
})();
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
@pytest.mark.parametrize("fragment", ["", "#entity=%zz"])
def test_a_browser_shows_the_page(index: Index, tmp_path: Path, fragment: str) -> None:
    write_page(index, tmp_path / "page.html", 2000)
    page = (tmp_path / "page.html").read_text()
    (tmp_path / "visit.html").write_text(page.replace("</body>", VISIT_SCRIPT + "</body>"))
    url = (tmp_path / "visit.html").as_uri() + fragment
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [str(CHROMIUM), *flags, "--virtual-time-budget=5000", "--dump-dom", url]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r'<pre id="state">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None, dom[-2000:]
    state = json.loads(unescape(found[1]))
    data = page_data(index, 2000)
    assert state["counts"].startswith(f"{len(data['entities'])} entities, ")
    assert state["opened"] == max(data["entities"], key=lambda name: name["mentions"])["text"]
    assert (state["first"], state["then"], state["focused"]) == (30, 60, True)
    row = [name["text"] for name in data["entities"]].index("Marlow Yard")
    propositions = [proposition for proposition in data["propositions"] if row in proposition["entities"]]
    assert state["found"][0] == state["shown"] == state["back"] == "Marlow Yard"
    assert state["statements"] == [proposition["text"] for proposition in propositions]
    assert state["quoted"] == data["passages"][propositions[0]["passages"][0]]["text"]
    neighbours = {name for proposition in propositions for name in proposition["entities"]} | set(
        data["entities"][row]["synonyms"]
    )
    assert (
        state["neighbours"] == sorted(data["entities"][name]["text"] for name in neighbours - {row})
        and state["second"] in state["neighbours"]
    )
    assert ODD_DOCUMENT.text in state["layers"] and state["scripts"] == 3


def test_the_command_writes_exactly_one_format_to_a_new_path(index: Index, tmp_path: Path) -> None:
    for flag, name in (("--graphml", "g.graphml"), ("--parquet", "tables"), ("--html", "page.html")):
        result = run("export", index.folder, flag, tmp_path / name, "--json")
        assert result.exit_code == 0, result.exception
        assert json.loads(result.stdout)["file"] == str(tmp_path / name) and (tmp_path / name).exists()
    assert len(list(tmp_path.iterdir())) == 3
    assert isinstance(again := run("export", index.folder, "--html", tmp_path / "page.html").exception, UserError)
    assert "already exists" in str(again)
    for wrong in ([], ["--html", tmp_path / "a", "--parquet", tmp_path / "b"]):
        assert "--graphml, --parquet, --html" in str(run("export", index.folder, *wrong).exception)
    assert "parent folder does not exist" in str(
        run("export", index.folder, "--html", tmp_path / "none" / "a.html").exception
    )


def test_an_index_can_be_exported_while_a_writer_holds_its_lock(index: Index, tmp_path: Path) -> None:
    with writer_lock(index.folder):
        assert run("export", index.folder, "--graphml", tmp_path / "g.graphml").exit_code == 0


def test_a_page_limit_is_refused_without_html(index: Index, tmp_path: Path) -> None:
    assert "a limit only with --html" in str(
        run("export", index.folder, "--graphml", tmp_path / "g", "--page-limit", 3).exception
    )
    result = run("export", index.folder, "--html", tmp_path / "page.html", "--page-limit", 3)
    assert result.exit_code == 0 and "3 entities" in result.stdout and "entities left out" in result.stdout
    assert len(embedded_data(tmp_path / "page.html")["entities"]) == 3


def test_a_failure_half_way_leaves_no_files(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("graph.export.graph_files.occurrences", fail)
    failed = run("export", index.folder, "--parquet", tmp_path / "tables").exception
    assert isinstance(failed, UserError) and "disk full" in str(failed)
    assert list(tmp_path.iterdir()) == []
