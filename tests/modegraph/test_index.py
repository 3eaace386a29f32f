"""An index through the API: made from paths, documents and rows; edited and read at the same time; nothing is printed; failures raise exceptions."""

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import graph.models.encoder
import modegraph as mg
from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.console import say
from graph.types import Floats
from tests.corpora import ISLES, guild_documents
from tests.fakes import HashEncoder, ScriptedModel, chat_server

QUESTION = "Who founded the yard that built the Lantern?"


class Row(NamedTuple):
    id: str
    text: str


def test_the_index_and_its_evidence_equal_those_of_the_underlying_functions(isles: mg.Index) -> None:
    underlying = open_index(isles.folder, lambda spec: HashEncoder())
    for mode in ("hops", "dense", "hierarchy"):
        found = isles.retrieve(QUESTION, mode=mode, top_k=3)
        expected = retrieve(underlying, QUESTION, RetrieveSettings(mode=mode, top_k=3))
        assert (found.passages, found.paths, found.summaries) == (expected.passages, expected.paths, expected.summaries)
    assert len(isles) == len(ISLES) and "tarn" in isles and "tar" not in isles and None not in isles
    assert isles.generation == 1


def test_documents_can_be_given_as_paths_documents_rows_or_tables(tmp_path: Path) -> None:
    import pandas as pd
    import pyarrow as pa

    rows = [
        {"id": "a", "text": "Tides turn.", "title": "Tides", "metadata": {"year": 1990}},
        {"id": "b", "text": "Salt."},
    ]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Tides\n\nTides turn.")
    inputs: dict[str, Any] = {
        "path": tmp_path / "docs",
        "text": str(tmp_path / "docs" / "a.md"),
        "one": mg.Document("a", "Tides", "Tides turn."),
        "rows": rows,
        "generator": (row for row in rows),
        "named": [Row("a", "Tides turn.")],
        "pandas": pd.DataFrame(rows),
        "nullable": list(pd.DataFrame(rows).astype({"title": "string"}).itertuples(index=False)),
        "series": [each for _, each in pd.DataFrame(rows).iterrows()],
        "arrow": pa.Table.from_pylist([rows[0], {**rows[1], "metadata": {"place": "Tarn"}}]),
    }
    expected = {"path": ("a.md",), "text": ("a.md",), "one": ("a",), "named": ("a",)}
    for name, documents in inputs.items():
        index = mg.index(documents, tmp_path / name)
        assert index.sources == expected.get(name, ("a", "b")), name
    for name in ("pandas", "arrow"):
        assert mg.open(tmp_path / name).retrieve("Tides", where="year=1990").passages[0].item.title == "Tides"


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "the documents given: no documents"),
        ([{"id": "a"}], "document 1: 'text' is None"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "document 2: id 'a' is also the id of document 1"),
        (["a string"], "document 1 is a str"),
        ({"id": "a", "text": "x"}, "documents of type dict"),
        ("nowhere", "nowhere: no such file or folder"),
    ],
)
def test_invalid_documents_are_refused_and_leave_no_index(documents: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(mg.UserError, match=message):
        mg.index(documents, tmp_path / "i")
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("url", ["s3://bucket/index", "file:///index", Path("s3://bucket/index")])
def test_a_url_is_refused_as_a_folder(url: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for refused in (lambda: mg.index(ISLES, url), lambda: mg.open(url)):
        with pytest.raises(mg.UserError, match=r"index: a URL\. Expected a folder on this machine"):
            refused()
    assert list(tmp_path.iterdir()) == []


def test_settings_are_checked_like_those_of_the_command_line(tmp_path: Path, isles: mg.Index) -> None:
    with pytest.raises(mg.UserError, match=r"^index: unknown key 'encodr'\. Did you mean 'encoder'"):
        mg.index(ISLES, tmp_path / "i", encodr="minilm")
    with pytest.raises(mg.UserError, match=r"^retrieve: unknown key 'topk'\. Did you mean 'top_k'"):
        isles.retrieve(QUESTION, topk=3)
    with pytest.raises(mg.UserError, match=r"mode = 'hop'\. Did you mean 'hops'"):
        isles.retrieve(QUESTION, mode="hop")  # type: ignore[arg-type]
    with pytest.raises(mg.UserError, match="max_passage_tokens = 50"):
        mg.index(ISLES, isles.folder, max_passage_tokens=50)
    with pytest.raises(mg.UserError, match="nowhere"):
        mg.open(tmp_path / "nowhere")
    assert mg.index(ISLES, tmp_path / "small", max_passage_tokens=50).settings["max_passage_tokens"] == 50


def test_delete_missing_spares_a_document_whose_text_is_now_empty(tmp_path: Path) -> None:
    documents = [{"id": name, "text": f"Tides turn at {name}."} for name in ("tarn", "quill", "marlow")]
    for rows in (documents, [{**documents[0], "text": " "}, documents[1]]):
        index = mg.index(rows, tmp_path / "i", delete_missing=True)
    assert index.sources == ("quill", "tarn")


def test_documents_are_added_with_the_options_of_the_index(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    main = f"<article><h1>Ferry</h1><p>{'The Lantern is a ferry that was built in 1911. ' * 9}</p></article>"
    (tmp_path / "docs" / "a.html").write_text(f"<nav>Opening hours of the Zebrine office</nav>{main}")
    index = mg.index(tmp_path / "docs", tmp_path / "i", whole_pages=True)

    def text() -> str:
        return " ".join(each.text for each in index.current().passages_of("a.html"))

    assert "Zebrine" in text()
    assert index.add(tmp_path / "docs", whole_pages=True).written == 0 and "Zebrine" in text()
    assert index.add(tmp_path / "docs").written == 1 and "Zebrine" not in text()
    with pytest.raises(mg.UserError, match=r"^ocr: 'nothing'\."):
        index.add(tmp_path / "docs", ocr="nothing")


def test_an_edit_is_visible_in_the_next_call_of_every_handle(isles: mg.Index) -> None:
    other = mg.open(isles.folder)
    report = isles.add([mg.Document("bell", "Bell", "The Zebrine bell was cast in Quill.")])
    assert (report.written, report.documents) == (1, len(ISLES) + 1)
    for index in (isles, other):
        assert index.retrieve("Zebrine bell", mode="lexical", top_k=1).passages[0].item.source == "bell"
    other.delete("bell", "bread")
    assert isles.sources == tuple(sorted(each.source for each in ISLES if each.source != "bread"))
    with pytest.raises(mg.UserError, match=r"no document 'tarm'\. Did you mean 'tarn'\?"):
        isles.delete("tarm")
    with pytest.raises(mg.UserError, match=r"^delete: \['tarn'\]\..*delete\(\*sources\)"):
        isles.delete(["tarn"])  # type: ignore[arg-type]


@pytest.mark.long
def test_threads_read_complete_generations_while_another_edits(isles: mg.Index) -> None:
    """Two documents are added and deleted together: a reader finds both or neither, and no call fails."""
    halves = [mg.Document(f"half-{n}", f"Half {n}", f"Zebrine half {n} of the Zebrine bell.") for n in range(2)]
    stop, counts, problems = threading.Event(), set[int](), list[BaseException]()

    def read() -> None:
        try:
            while not stop.is_set():
                found = isles.retrieve("Zebrine bell", mode="lexical", top_k=9)
                counts.add(sum("Zebrine" in each.item.text for each in found.passages))
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for edits in range(40):
        if problems or (edits >= 4 and len(counts) > 1):
            break
        isles.add(halves)
        isles.delete("half-0", "half-1")
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == [] and counts == {0, 2}


class TalkingEncoder(HashEncoder):
    """An encoder that reports its progress, like one that is being downloaded."""

    def encode(self, texts: Sequence[str]) -> Floats:
        say(f"encoding {len(texts)} texts")
        return super().encode(texts)


def test_nothing_is_printed_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Python's streams are checked: threads of libraries that other tests use, such as Ray, may still write to the streams of the process."""
    index = mg.index(guild_documents(), tmp_path / "silent")
    index.add(ISLES)
    index.delete("tarn")
    index.retrieve("Tarn")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(graph.models.encoder, "open_encoder", lambda spec: TalkingEncoder())
    index = mg.open(index.folder)
    index.explain("Tarn", index.retrieve("Tarn").passages[0].item.id)
    index.ask("Tarn", model=ScriptedModel(lambda request: "It turns [1]."))
    with chat_server(lambda body, number: "It turns [1].") as server:
        assert list(index.ask_stream("Tarn", model=f"openai:m@{server.url}"))
    assert capsys.readouterr() == ("", "")
    mg.index(guild_documents(), tmp_path / "loud", progress=True)
    out, errors = capsys.readouterr()
    assert out == "" and "done" in errors


def test_data_frames_contain_the_index(isles: mg.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, tables = isles.to_frames(), isles.to_frames("pyarrow")
    assert frames.keys() == tables.keys() >= {"documents", "passages", "propositions", "edges"}
    assert list(frames["documents"]["id"]) == list(isles.sources)
    assert all(len(frames[name]) == tables[name].num_rows for name in tables)
    assert len(frames["passages"]["vector"][0]) == HashEncoder.dimensions
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(mg.UserError, match=r'pandas is not installed.*to_frames\("pyarrow"\)'):
        isles.to_frames()
    assert isles.to_frames("pyarrow").keys() == tables.keys()
