"""Rows looked up by name, also in an index whose edits are patches of its arrays, and passages looked up with the header of their table."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from graph.answer.context import of_passage
from graph.answer.prompt import numbered_excerpt
from graph.build.build import build_index
from graph.build.lifecycle import delete_documents
from graph.documents.split import split_passages
from graph.index.index import NodeKind, open_index, row_of
from graph.store.columns.moved import MovedStrings
from graph.store.columns.strings import Strings
from graph.store.index_settings import IndexSettings
from graph.types import Document
from tests.corpora import guild_documents
from tests.fakes import HashEncoder
from tests.graph.build.patches import edits_as_patches
from tests.graph.hashed import build, encoder


@pytest.mark.parametrize("edited", [False, True])
def test_every_row_is_found_by_its_name_and_other_names_find_none(tmp_path: Path, edited: bool) -> None:
    settings = IndexSettings(min_similarity=0.2, neighbours=3)
    build_index(tmp_path, guild_documents()[:20], settings, encoder)
    if edited:
        with edits_as_patches():
            build_index(tmp_path, [Document("Ärger", "", "Ada keeps the Netmakers Hall. 東京の塔")], settings, encoder)
            delete_documents(tmp_path, [guild_documents()[3].source], encoder)
    index = open_index(tmp_path, encoder)
    data = index.data
    assert isinstance(data.passage_ids, MovedStrings) == edited
    columns = {
        "document": data.document_sources,
        "passage": data.passage_ids,
        "proposition": data.proposition_ids,
        "entity": data.entity_ids,
        "summary": data.summary_ids,
    }
    assert set(columns) == set(get_args(NodeKind))
    for kind, column in columns.items():
        names = list(column)
        assert names and [row_of(data, kind, name) for name in names] == list(range(len(names)))  # type: ignore[arg-type]
        for name in (
            "",
            "é" * 32,
            names[0] + "0",
            names[0][:-1],
            names[0].upper() + "x",
            guild_documents()[3].source * edited,
        ):
            assert row_of(data, kind, name) is None  # type: ignore[arg-type]
    for source in index.sources():
        found = index.passages_of(source)
        assert [passage.source for passage in found] == [source] * len(found) and found
        assert index.rows_of(found).tolist() == [row_of(data, "passage", passage.id) for passage in found]
    assert index.passages_of("nowhere") == ()


def test_a_passage_that_begins_inside_a_table_has_the_tables_header(tmp_path: Path) -> None:
    """This holds in whatever order the passages are looked up, and below a row that is longer than a passage; the prompt shows the header with every row."""
    rows = "\n".join(f"| Boat {n} | berth {n} |" for n in range(400))
    text = f"The boats.\n\n| Name | Place |\n|---|---|\n{rows}\n| Tern | {'long ' * 2000}ago |\n{rows}\n\nAll are lost."
    documents = [Document("a", "Prose", "No table here. " * 300), Document("b", "Yard Book", text)]
    passages = build(tmp_path / "i", documents).passages_of("b")
    assert (
        len(passages) > 3
        and {one.header for one in passages[:2]} == {()}
        and {one.header for one in passages[2:-1]} == {("Name", "Place")}
    )
    backwards = open_index(tmp_path / "i", encoder)
    rows_of_b = range(len(backwards.data.passage_ids) - 1, -1, -1)
    looked_up = {one.id: one for one in map(backwards.passage, rows_of_b)}
    assert [looked_up[one.id] for one in passages] == list(passages)
    shown = numbered_excerpt(1, of_passage(passages[2]))
    assert shown.count("Name: Boat ") == shown.count("; Place: berth ") == passages[2].text.count("\n") + 1


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_passages_have_the_headers_with_which_they_were_read(tmp_path: Path, line_break: str) -> None:
    """Also parts of a cut header, parts of a cut row, and prose directly below a table."""
    wide = [f"Column {n} with a long name" for n in range(20)]
    rows = "\n".join(f"| {' | '.join(f'value {n} of the row {row}, as read' for n in range(20))} |" for row in range(3))
    prose = "All of these are lost. Nobody knows more about them than the yard."
    tables = [
        f"The boats.\n\n| {' | '.join(wide)} |\n|{'---|' * 20}\n{rows}\n{prose}\n\n{prose}",
        f"| Boat | Place |\n| Tern | Quay {'7 ' * 40}|\n| Skua | {'long ' * 90} | ago |\n{prose}",
        f"| {' | '.join(wide)} |\n{rows}\n\n\n| Stop | Fare |\n| Quay | 3 |\n{prose}\n{prose}",
        "| Boat | Place |\n\n"
        + "\n\n".join(f"| Boat {n} | {'berth ' * 9}{n} |" for n in range(3))
        + f"\n\n{prose}\n\n{prose}\n\nShort.\nLines.",
    ]
    documents = [Document(str(n), "T", text.replace("\n", line_break)) for n, text in enumerate(tables)]
    index = build(tmp_path / "i", documents, max_passage_tokens=16)
    expected = [each for one in documents for each in split_passages(one, 16, HashEncoder().count_tokens)]
    found = [passage for source in index.sources() for passage in index.passages_of(source)]
    assert [(each.text, each.header) for each in found] == [(each.text, each.header) for each in expected]
    assert {len(each.header) for each in found} == {0, 2, 20}
    assert sum(each.header == tuple(wide) for each in found if "Column" in each.text) > 2


@pytest.mark.parametrize(
    ("text", "key", "name"),
    [
        ("Mario said that AI helps.", "ai", "AI"),
        ("Ada said so.", "ai", "ai"),
        ("Boat 10 follows Boat 1 home.", "boat 1", "Boat 1"),
        ("古い灯台の鐘が鳴る。", "灯台", "灯台"),
        ("गाँव के पास गाँ है।", "गाँ", "गाँ"),
    ],
)
def test_the_name_of_an_entity_is_not_taken_from_inside_a_word(tmp_path: Path, text: str, key: str, name: str) -> None:
    index = build(tmp_path / "i", [Document("a", "", "Ada sails.")])
    data = replace(index.data, proposition_texts=Strings.of([text]), entity_texts=Strings.of([key]))
    assert replace(index, data=data).entity_name(0, [0]) == name
