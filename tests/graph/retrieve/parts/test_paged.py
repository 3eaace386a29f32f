"""Passages, propositions and excerpts from a PDF or a presentation name their page."""

import json

import pytest

from graph.answer.context import build_context
from graph.build.build import build_index
from graph.documents.parse.formats import Limits
from graph.documents.read import read_documents
from graph.explain import explain_passage
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES, Mode
from graph.store.index_settings import IndexSettings
from graph.types import Document
from serve.show import location_of, show_evidence
from tests.fakes import HashEncoder
from tests.graph.documents import made

PAGES = [
    "The Lantern was built in Quill by forty joiners in the long winter of that year.",
    "",
    "Ada Marlow founded the yard in 1880 with two friends and a loan from her aunt.",
    "Kelp bread is baked in Tarn every morning but Sunday by the miller and his sons.",
]
PAGE_STARTS = [0, 82, 82, 162]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("paged")
    (folder / "docs").mkdir()
    (folder / "docs" / "a.pdf").write_bytes(made.pdf_pages(PAGES))
    (folder / "docs" / "b.pptx").write_bytes(made.presentation())
    (folder / "docs" / "c.md").write_text("# Salt\n\nSalt is boiled in Corrow.")
    documents = [
        *read_documents(folder / "docs", print, Limits(seconds=60)),
        Document("d", "", "Tin in Ley.", {"page_starts": "no list"}),
    ]
    build_index(folder / "i", documents, IndexSettings(max_passage_tokens=16), lambda spec: HashEncoder())
    return open_index(folder / "i", lambda spec: HashEncoder())


@pytest.mark.parametrize("where", [(), ("source=*.p*",)])
@pytest.mark.parametrize(
    ("question", "source", "page"),
    [
        ("Who founded the yard?", "a.pdf", 3),
        ("Lantern built", "a.pdf", 1),
        ("Kelp bread", "a.pdf", 4),
        ("Say it twice", "b.pptx", 3),
    ],
)
def test_a_passage_names_the_page_that_it_begins_on(
    index: Index, question: str, source: str, page: int, where: tuple[str, ...]
) -> None:
    evidence = retrieve(index, question, RetrieveSettings(mode="lexical", top_k=1, where=where))
    (found,) = evidence.passages
    assert (found.item.source, found.item.page) == (source, page)
    assert build_context(evidence, 1)[0].page == page
    assert f"{source} p. {page}, {found.item.start}–{found.item.end}" in show_evidence(evidence)


def test_an_explanation_names_the_pages_of_its_passages(index: Index) -> None:
    (yard,) = (each for each in index.passages_of("a.pdf") if "Ada Marlow" in each.text)
    explanation = explain_passage(index, "Who founded the yard?", yard.id, RetrieveSettings(top_k=9))
    assert explanation.passage.page == 3 and "· a.pdf p. 3, " in f"· {location_of(explanation.passage)}"
    stops = index.passages_of("b.pptx")[1]
    (lead,) = explain_passage(index, "Who built the Lantern?", stops.id, RetrieveSettings()).leads
    assert (lead.passage.source, lead.passage.page) == ("a.pdf", 1)


def test_passages_of_a_document_without_pages_have_no_page(index: Index) -> None:
    for question, source in (("Salt boiled", "c.md"), ("Tin in Ley", "d")):
        evidence = retrieve(index, question, RetrieveSettings(mode="lexical", top_k=1))
        assert (evidence.passages[0].item.source, evidence.passages[0].item.page) == (source, None)
        assert "p. " not in show_evidence(evidence)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_reports_pages(index: Index, mode: Mode) -> None:
    evidence = retrieve(index, "Who founded the yard in 1880?", RetrieveSettings(mode=mode, top_k=9))
    places = [found.item for found in evidence.passages if found.item.source == "a.pdf"]
    spans = [span for found in evidence.propositions for span in found.item.spans if span.source == "a.pdf"]
    assert places or spans
    for place in (*places, *spans):
        assert place.page == max(page for page in range(1, 5) if PAGE_STARTS[page - 1] <= place.start), place


def test_page_starts_are_metadata_of_the_document(index: Index) -> None:
    assert json.loads(index.data.document_metadata[0]) == {"page_starts": PAGE_STARTS}
