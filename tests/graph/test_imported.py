"""An extraction made elsewhere: triples become propositions at their passages, and bad rows are named."""

import json
from pathlib import Path

import pytest

from graph.arrays import load_arrays
from graph.build import BuildReport, build_index
from graph.data import IndexData
from graph.errors import UserError
from graph.extract.imported import Row, load_extraction, place_triples
from graph.index import open_index
from graph.lifecycle import index_status
from graph.settings import IndexSettings
from graph.types import Document, Passage
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.same import assert_same_index

ROWS = [
    {
        "id": "lantern",
        "entities": ["Lantern", "Port Ellery", "Marlow Yard", "1911"],
        "triples": [["Lantern", "is a ferry of", "Port Ellery"], ["Lantern", "built in 1911 by", "Marlow Yard"]],
    },
    {"id": "ada", "entities": [], "triples": []},
]


def write(file: Path, rows: list[object]) -> Path:
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


def build(folder: Path, file: Path, documents: list[Document] = ISLES) -> BuildReport:
    settings = IndexSettings(extractor="import", import_file=str(file), max_passage_tokens=30)
    return build_index(folder, documents, settings, lambda spec: HashEncoder())


def test_triples_become_propositions_and_the_rest_is_read_by_rules(tmp_path: Path) -> None:
    report = build(tmp_path / "i", write(tmp_path / "x.jsonl", ROWS))
    assert report.read_by == {"import": 2, "rules": 3} and report.quarantined == 0
    index = open_index(tmp_path / "i")
    found = {p.text: p for p in map(index.proposition, range(report.propositions))}
    built = found["Lantern built in 1911 by Marlow Yard"]
    assert built.entities == ("1911", "lantern", "marlow yard")
    (span,) = built.spans
    assert ISLES[0].text[span.start : span.end] == "She was built in 1911 by the Marlow Yard."
    assert not any(span.source == "ada" for p in found.values() for span in p.spans)
    assert any(span.source == "tarn" for p in found.values() for span in p.spans)
    assert index_status(tmp_path / "i").rows["facts"] == 2


def test_a_triple_stands_at_the_passage_that_holds_most_of_it() -> None:
    texts = ("Tarn is a village. ", "The bell of Tarn rings at 10:30.")
    passages = [Passage(f"p{n}", "tarn", "Tarn", n, 19 * n, 19 * n + len(t), t) for n, t in enumerate(texts)]
    row = Row((), (("bell", "rings at", "10:30"), ("Tarn", "is", "village"), ("x", "y", "z"), ("x", "y", "z")))
    first, second = place_triples(row, passages)
    assert [s.text for s in first] == ["Tarn is village", "x y z"] and [s.text for s in second] == [
        "bell rings at 10:30"
    ]
    assert (second[0].start, second[0].end) == (19, 19 + len(texts[1]))


def test_only_documents_whose_row_changed_are_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", ROWS)
    build(tmp_path / "i", file)
    assert build(tmp_path / "i", file).unchanged == len(ISLES)
    more = [*ROWS, {"id": "tarn", "triples": [["Tarn", "has", "312 people"]]}]
    moved = write(tmp_path / "y.jsonl", more)
    assert build(tmp_path / "i", moved).written == 1
    build(tmp_path / "whole", moved)
    assert_same_index(load_arrays(tmp_path / "i", IndexData), load_arrays(tmp_path / "whole", IndexData))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"id": 7, "triples": []}, "line 2: 'id' is 7"),
        ({"id": "b"}, "line 2: 'triples' is None"),
        ({"id": "b", "triples": [["s", "p"]]}, "line 2: a triple of 2 parts"),
        ({"id": "b", "triples": [["s", "p", " "]]}, "line 2: a triple is"),
        ({"id": "b", "triples": [["s", "p", 3]]}, "line 2: a triple is"),
        ({"id": "b", "entities": "x", "triples": []}, "line 2: 'entities'"),
        ({"id": "a", "triples": []}, "line 2: id 'a' stands above too"),
        ([], "line 2: a JSON list"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(tmp_path: Path, row: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_extraction(write(tmp_path / "x.jsonl", [{"id": "a", "triples": []}, row]))
    with pytest.raises(UserError, match=told):
        build(tmp_path / "i", tmp_path / "x.jsonl")
    assert not (tmp_path / "i").exists()
