"""An extraction by another program: triples become facts of the sentences that they match, and bad rows are reported."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graph.build.build import BuildReport, Edit, build_index, edit_index, put_documents
from graph.build.lifecycle import delete_documents, index_status
from graph.build.read_passages import imported_hashes
from graph.build.stores import open_for_writing, read_settings
from graph.errors import UserError
from graph.extract.extraction import Fact
from graph.extract.imported import Row, load_extraction, place_triples
from graph.index.index import open_index
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.types import Document, Passage
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index
from tests.growth import assert_linear

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


def test_triples_determine_the_entities_of_sentences_and_documents_without_a_row_are_read_by_rules(
    tmp_path: Path,
) -> None:
    report = build(tmp_path / "i", write(tmp_path / "x.jsonl", ROWS))
    assert report.read_by == {"import": 2, "rules": 3} and report.quarantined == 0
    index = open_index(tmp_path / "i")
    found = {p.text: p for p in map(index.proposition, range(report.propositions))}
    built = found["Lantern was built in 1911 by the Marlow Yard."]
    assert built.entities == ("Lantern", "Marlow Yard")
    (span,) = built.spans
    assert ISLES[0].text[span.start : span.end] == "She was built in 1911 by the Marlow Yard."
    of_ada = [p for p in found.values() if any(span.source == "ada" for span in p.spans)]
    assert of_ada and not any(p.entities for p in of_ada)
    assert any(p.entities for p in found.values() if any(span.source == "tarn" for span in p.spans))
    assert index_status(tmp_path / "i").rows["facts"] == 2


def test_the_time_to_place_triples_grows_in_proportion_to_the_document() -> None:
    def prepare(size: int) -> Callable[[], object]:
        text = " ".join(f"Boat Ab{n}x lies at Quay{n} Road in Tarn." for n in range(size))
        row = Row((), tuple((f"Boat Ab{n}x", "lies at", f"Quay{n} Road") for n in range(size)))
        passage = Passage("p", "d", "Yard", 0, 0, len(text), text)
        return lambda: place_triples(row, Document("d", "Yard", text), [passage])

    assert_linear(prepare, 100)


def test_the_time_to_place_triples_grows_in_proportion_to_the_passages() -> None:
    def prepare(size: int) -> Callable[[], object]:
        texts = [f"Boat Ab{n}x lies at Quay{n} Road. " for n in range(size)]
        row = Row(
            tuple(f"Quay{n} Road" for n in range(size)),
            tuple((f"Boat Ab{n}x", "lies at", f"Quay{n} Road") for n in range(size)),
        )
        passages = [Passage(f"p{n}", "d", "Yard", n, 0, len(text), text) for n, text in enumerate(texts)]
        return lambda: place_triples(row, Document("d", "Yard", "".join(texts)), passages)

    assert_linear(prepare, 100)


def test_names_without_an_initial_capital_are_entities_and_common_words_are_not() -> None:
    text = "The iPhone shows p53 and mRNA. 林建国设计望海塔。1958年才完工。"
    entities = ("iPhone", "p53", "mRNA", "shows", "林建国", "望海塔", "1958年")
    triples = (("mRNA", "encodes", "p53"), ("林建国", "设计", "望海塔"))
    passage = Passage("p", "d", "", 0, 0, len(text), text)
    (found,) = place_triples(Row(entities, triples), Document("d", "", text), [passage])
    names = [("iPhone", "p53", "mRNA"), ("林建国", "望海塔")]
    assert [set(each.entities) for each in found[:2]] == [set(each) for each in names]
    assert [each.facts for each in found] == [(Fact(*triples[0]),), (Fact(*triples[1]),), ()]
    assert found[2].entities == ()


def test_a_triple_belongs_to_the_sentence_with_most_of_its_words() -> None:
    texts = ("Tarn is a village of Quill. Ada Marlow lives there. ", "The bell of Tarn rings at 10:30.")
    passages = [Passage("p0", "tarn", "Tarn", 0, 0, 52, texts[0]), Passage("p1", "tarn", "Tarn", 1, 52, 84, texts[1])]
    triples = (
        ("the bell", "rings at", "10:30"),
        ("Tarn", "is village of", "Quill"),
        ("Ada Marlow", "lives in", "Tarn"),
        ("Xa", "yy", "Zo"),
        ("Xa", "yy", "Zo"),
    )
    document = Document("tarn", "Tarn", "".join(texts))
    first, second = place_triples(Row(("Tarn", "a place", "Zo"), triples), document, passages)
    assert [(s.text, s.entities) for s in first] == [
        ("Tarn is a village of Quill.", ("Tarn", "Quill")),
        ("Tarn: Ada Marlow lives there.", ("Ada Marlow", "Tarn")),
        ("Xa yy Zo", ("Xa", "Zo")),
    ]
    assert [(s.start, s.end) for s in first] == [(0, 27), (28, 51), (0, 52)]
    assert [s.facts for s in first] == [(Fact(*triples[1]),), (Fact(*triples[2]),), (Fact(*triples[3]),)]
    assert [(s.text, s.entities, s.facts) for s in second] == [(texts[1], ("Tarn",), ())]


def test_only_documents_whose_row_changed_are_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", ROWS)
    build(tmp_path / "i", file)
    assert build(tmp_path / "i", file).unchanged == len(ISLES)
    more = [*ROWS, {"id": "tarn", "triples": [["Tarn", "has", "312 people"]]}]
    edited = write(tmp_path / "y.jsonl", more)
    assert build(tmp_path / "i", edited).written == 1
    build(tmp_path / "whole", edited)
    assert_same_index(load_arrays(tmp_path / "i", IndexData), load_arrays(tmp_path / "whole", IndexData))


def test_without_the_extraction_documents_are_deleted_but_none_is_read(tmp_path: Path) -> None:
    file, folder = write(tmp_path / "x.jsonl", ROWS), tmp_path / "i"
    build(folder, file)
    file.unlink()
    edit_index(folder, lambda: [Edit(delete="ada")], encoder)
    delete_documents(folder, ["marlow"], encoder)
    for document in (ISLES[0], Document("new", "", "The Gull is a ferry of Quill.")):
        with pytest.raises(UserError, match=r"x\.jsonl: no such file"):
            edit_index(folder, lambda added=document: [Edit(add=[added])], encoder)  # type: ignore[misc]
    assert index_status(folder).read_by == {"import": 1, "rules": 2}
    with pytest.raises(UserError, match=r"x\.jsonl: no such file"):
        build(folder, file)


def test_documents_that_wait_for_a_missing_extraction_are_not_read_by_rules(tmp_path: Path) -> None:
    file, folder = write(tmp_path / "x.jsonl", ROWS), tmp_path / "i"
    build(folder, file, ISLES[1:])
    with open_for_writing(folder) as store, store.transaction():
        put_documents(store, ISLES[:1], imported_hashes(read_settings(folder)))
    file.unlink()
    with pytest.raises(UserError, match=r"x\.jsonl: no such file"):
        edit_index(folder, lambda: [Edit(delete="tarn")], encoder)
    write(file, ROWS)
    (result,) = edit_index(folder, lambda: [Edit(delete="tarn")], encoder)
    assert result.deleted and result.report.read_by == {"import": 2, "rules": 2}


def test_characters_that_no_store_accepts_become_spaces(tmp_path: Path) -> None:
    triples = [["Marlow Yard", "built \ud83d in\0 1911 the", "Lantern\0"]]
    file = write(tmp_path / "x.jsonl", [{"id": "lantern", "entities": ["Lantern\udc00"], "triples": triples}])
    row = Row(("Lantern",), (("Marlow Yard", "built in 1911 the", "Lantern"),))
    assert load_extraction(file) == {"lantern": row}
    build(tmp_path / "i", file)
    assert index_status(tmp_path / "i").rows["facts"] == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 7, "triples": []}, "line 2: 'id' is 7"),
        ({"id": "b"}, "line 2: 'triples' is None"),
        ({"id": "b", "triples": [["s", "p"]]}, "line 2: a triple of 2 parts"),
        ({"id": "b", "triples": [["s", "p", " "]]}, "line 2: a triple is"),
        ({"id": "b", "triples": [["s", "p", 3]]}, "line 2: a triple is"),
        ({"id": "b", "triples": [["s", "p", "\0"]]}, "line 2: a triple is"),
        ({"id": "b", "entities": "x", "triples": []}, "line 2: 'entities'"),
        ({"id": "a", "triples": []}, "line 2: id 'a' also appears above"),
        ([], "line 2: a JSON array"),
    ],
)
def test_a_malformed_row_is_reported_with_its_line(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_extraction(write(tmp_path / "x.jsonl", [{"id": "a", "triples": []}, row]))
    with pytest.raises(UserError, match=message):
        build(tmp_path / "i", tmp_path / "x.jsonl")
    assert not (tmp_path / "i").exists()
