"""Questions that a collection suggests: sensible, answered by it, and only from what a reader may see."""

import re
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.documents.read import read_documents
from graph.index.filters import parse_condition
from graph.index.index import Index, open_index
from graph.opening_questions import ask_described, ask_named, suggest_questions
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.store.index_settings import IndexSettings
from graph.types import Document
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.places import ROOT


def indexed(folder: Path, documents: list[Document]) -> Index:
    build_index(folder, documents, IndexSettings(), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


@pytest.fixture(scope="module", params=["documents", "handbook"])
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Index:
    documents = list(read_documents(ROOT / "examples" / request.param, print))
    return indexed(tmp_path_factory.mktemp(request.param) / "index", documents)


def test_each_suggestion_is_answered_by_a_passage_that_its_words_find(example: Index) -> None:
    questions = suggest_questions(example, 12)
    assert 8 <= len(questions) == len(set(questions))
    for question in questions:
        assert re.fullmatch(r"(Who|When|Where|What|How) [^“”{}]{8,}\?", question), question
        found = retrieve(example, question, RetrieveSettings(mode="lexical", top_k=5)).passages
        subject = re.sub(r"\W+(\w+)\?$", "", question).split()[-1].casefold()
        assert any(subject in each.item.text.casefold() for each in found), question
    assert len({question.split()[0] for question in questions[:3]}) == 3


def test_the_isles_suggest_what_a_reader_would_ask(tmp_path: Path) -> None:
    index = indexed(tmp_path / "index", ISLES)
    questions = suggest_questions(index, 3)
    assert len(questions) == 3 and "When was the Lantern built?" in questions
    assert questions == suggest_questions(index, 3)
    assert suggest_questions(index, 1) == questions[:1] and suggest_questions(index, 0) == ()


def test_a_key_gets_no_question_from_a_document_that_it_may_not_see(tmp_path: Path) -> None:
    index = indexed(tmp_path / "index", ISLES)
    questions = suggest_questions(index.only((parse_condition("source=tarn"),)), 3)
    assert questions == ("What is Tarn?",)
    assert suggest_questions(index.only((parse_condition("source=none"),)), 3) == ()


def test_no_question_is_suggested_about_a_name_that_two_documents_share(tmp_path: Path) -> None:
    notices = [
        Document(f"notice-{n}", f"Notice {n}", f"The last tram has gone. The evening journey takes 4{n} minutes.")
        for n in range(2)
    ]
    ferries = [Document(f"heron-{n}", "Heron", f"Heron is a ferry. Heron was built in 191{n}.") for n in range(2)]
    assert suggest_questions(indexed(tmp_path / "two", [*notices, *ferries]), 3) == ()
    one = suggest_questions(indexed(tmp_path / "one", [notices[0], ferries[0]]), 3)
    assert one == ("When was Heron built?", "How long does the evening journey take?")


def test_where_no_rule_fits_nothing_is_suggested(tmp_path: Path) -> None:
    documents = [
        Document("a", "灯台", "灯台は東京にある。1911年に建てられた。"),
        Document("b", "log.txt", "2024-01-01 ERROR disk full. 2024-01-02 OK."),
        Document("c", "<b>Heron</b>", "<b>Heron</b> was built in 1911."),
    ]
    assert suggest_questions(indexed(tmp_path / "index", documents), 3) == ()


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The Guild was founded in 1712 and moved in 1740.", "When was the Guild founded?"),
        ("The Guild was founded and in 1712 it moved.", None),
        ("The Guild was first described by Ada Marlow.", None),
        ("The Guild was written by Ada Marlow.", "Who wrote the Guild?"),
        ("The Guild closed for good in May 1931.", "When did the Guild close?"),
        ("The Guild is held at Tarn on the first Saturday in May.", "When is the Guild held?"),
        ("The Guild is about 12 metres long.", "How long is the Guild?"),
        ("The Guild stands above Quill.", "Where is the Guild?"),
        ("The Guild's hall was built in 1712.", None),
        ("The Guild sails at noon.", None),
    ],
)
def test_a_statement_about_a_name_becomes_a_question(text: str, question: str | None) -> None:
    assert (ask_named(text, "the Guild", text) or (None,))[0] == question


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The safety officer is Marcus Teale.", "Who is the safety officer?"),
        ("The result is Marcus Teale.", None),
        ("The fund is managed by Hollin Mutual.", None),
        ("The pension fund is managed by Hollin Mutual.", "Who manages the pension fund?"),
        ("A main dish costs £4.20.", "How much does a main dish cost?"),
        ("The refit has cost 3.6 million tallens.", None),
        ("Fire drills are held twice a year.", "How often are fire drills held?"),
        ("The other gate opens at 6:15.", None),
    ],
)
def test_a_statement_about_a_described_thing_becomes_a_question_if_it_is_clear(text: str, question: str | None) -> None:
    assert (ask_described(text) or (None,))[0] == question
