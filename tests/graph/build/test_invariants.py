"""The invariants of an index over random small corpora: its contents follow from its documents, not from its history.

The tests compare the arrays, their files by checksum, and the rows of the store by content (row numbers may differ).
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import graph.build.build
import graph.hierarchy.layers
from graph.build.build import build_index
from graph.build.lifecycle import compact_index, delete_documents
from graph.build.stores import open_store
from graph.index.index import open_index
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.embedding_cache import PendingVectors
from graph.store.index_settings import IndexSettings
from graph.store.manifest import read_manifest
from graph.types import Document
from tests.fakes import HashEncoder
from tests.graph.build.conftest import in_either_store
from tests.graph.build.patches import edits_as_patches
from tests.graph.same import assert_same_index

SETTINGS = IndexSettings(
    max_passage_tokens=16,
    max_chunk_tokens=40,
    max_summary_tokens=12,
    min_similarity=0.1,
    layers=3,
    layers_on_edit="now",
    neighbours=3,
    merge_factor=3,
)
SENTENCES = (
    "The Lantern sails to Tarn.",
    "Port Ellery is old and the Lantern is new.",
    "It rains in Tarn.",
    "She was built by Jonas Marlow in 1911 at a cost of 312 crowns.",
    "J. Marlow kept bees in Tarn.",
    "The bell rings at 10:30.",
    "灯台は港にある。",
    "古い灯台の鐘が鳴る。",
    "\n\n| Stop | Fare |\n|---|---:|\n| Quill | 3 |\n\n",
    "\n- Kelp bread of Port Ellery\n",
    "Hm.",
)
TABLES = {
    "documents": "SELECT * FROM documents",
    "passages": 'SELECT id, source, "order", "start", "end", reader, dropped FROM passages',
    "propositions": "SELECT id, text FROM propositions",
    "entities": "SELECT id, key FROM entities",
    "occurrences": """SELECT n.id, p.id, o."start", o."end" FROM occurrences o JOIN propositions n ON n.row = o.proposition
        JOIN passages p ON p.row = o.passage""",
    "mentions": """SELECT n.id, p.id, o."start", e.key, m.spelling FROM mentions m JOIN occurrences o ON o.row = m.occurrence
        JOIN propositions n ON n.row = o.proposition JOIN passages p ON p.row = o.passage JOIN entities e ON e.row = m.entity""",
    "summaries": "SELECT id, layer, text FROM summaries",
}


titles = st.sampled_from(["", "Lantern (ferry)", "Tarn", "Jane Marlow", "灯台"])
texts = st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=6).map(" ".join)
metadata = st.sampled_from([{}, {"year": 1911}, {"tags": ["sea", "ship"], "open": True}])


def corpora(min_size: int = 1, sources: str = "abcde") -> st.SearchStrategy[list[Document]]:
    """Lists of documents that share sentences, titles and entities; each source occurs once."""
    document = st.builds(Document, st.sampled_from(sources), titles, texts, metadata)
    return st.lists(document, min_size=min_size, max_size=len(sources), unique_by=lambda each: each.source)


@dataclass(frozen=True)
class Contents:
    """The contents of an index: its arrays, the checksums of its files once it is compact, and the rows of its store."""

    data: IndexData
    checksums: dict[str, Any]
    rows: dict[str, Counter[tuple[object, ...]]]


def contents_of(folder: Path) -> Contents:
    """Read the contents of an index, and compact it."""
    with open_store(folder) as store:
        rows = {name: Counter(store.rows(query)) for name, query in TABLES.items()}
    assert not PendingVectors(folder).ids
    data = load_arrays(folder, IndexData)
    compact_index(folder, lambda spec: HashEncoder())
    manifest = read_manifest(folder)
    return Contents(data, manifest.files | manifest.segments, rows)


def assert_same(a: Contents, b: Contents) -> None:
    assert_same_index(a.data, b.data)
    assert a.rows == b.rows
    assert a.checksums == b.checksums


def put(folder: Path, documents: Sequence[Document], settings: IndexSettings = SETTINGS) -> None:
    build_index(folder, documents, settings, lambda spec: HashEncoder())


def delete(folder: Path, sources: Sequence[str]) -> None:
    delete_documents(folder, sources, lambda spec: HashEncoder())


@pytest.mark.long
@in_either_store(sqlite=8, postgresql=3)
def test_inserting_one_by_one_equals_inserting_in_bulk(examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=examples)
    @given(documents=corpora(min_size=2), data=st.data())
    def holds(documents: list[Document], data: st.DataObject) -> None:
        folder = tmp_path_factory.mktemp("invariant")
        shuffled = data.draw(st.permutations(documents))
        for document in shuffled:
            put(folder / "single", [document])
        put(folder / "bulk", documents)
        assert_same(contents_of(folder / "bulk"), contents_of(folder / "single"))

    holds()


@pytest.mark.long
@in_either_store(sqlite=8, postgresql=3)
def test_inserting_twice_equals_inserting_once(examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=examples)
    @given(documents=corpora(), data=st.data())
    def holds(documents: list[Document], data: st.DataObject) -> None:
        folder = tmp_path_factory.mktemp("invariant") / "i"
        put(folder, documents)
        once, again = contents_of(folder), HashEncoder()
        report = build_index(folder, data.draw(st.permutations(documents)), SETTINGS, lambda spec: again)
        assert_same(once, contents_of(folder))
        assert (report.written, report.unchanged) == (0, len(documents))
        assert again.encoded == [], "nothing should be encoded a second time"

    holds()


@pytest.mark.long
@in_either_store(sqlite=8, postgresql=3)
def test_delete_undoes_insert(examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=examples)
    @given(before=corpora(), inserted=corpora(sources="vwxyz"))
    def holds(before: list[Document], inserted: list[Document]) -> None:
        folder = tmp_path_factory.mktemp("invariant") / "i"
        put(folder, before)
        first = contents_of(folder)
        put(folder, inserted)
        assert len(load_arrays(folder, IndexData).document_sources) == len(before) + len(inserted)
        delete(folder, [document.source for document in inserted])
        assert_same(first, contents_of(folder))

    holds()


changes = (
    st.fixed_dictionaries({"title": titles})
    | st.fixed_dictionaries({"text": texts})
    | st.fixed_dictionaries({"metadata": metadata})
)
steps = st.lists(st.tuples(st.sampled_from("abc"), st.none() | changes), min_size=2, max_size=5)
"""Edits of an index, in order: a source and the fields of its document that change, or None to delete it."""
Step = tuple[str, dict[str, Any] | None]


def edit(folder: Path, start: list[Document], steps: list[Step], settings: IndexSettings = SETTINGS) -> list[Document]:
    """Make the edits one by one in an index of `start`; return the documents that it then contains."""
    current = {document.source: document for document in start}
    for source, change in steps:
        if change is not None:
            current[source] = replace(current.get(source, Document(source, "", "It is so.")), **change)
            put(folder, [current[source]], settings)
        elif current.pop(source, None) is not None:
            delete(folder, [source])
        assert_summaries_contain_only_sentences_of_their_members(folder)
    return list(current.values())


def assert_summaries_contain_only_sentences_of_their_members(folder: Path) -> None:
    """Else a reader whose access is restricted to the members could read a sentence of other documents."""
    index = open_index(folder, lambda spec: HashEncoder())
    propositions = [index.proposition(row) for row in range(len(index.data.proposition_ids))]
    for summary in (index.summary(row) for row in range(len(index.data.summary_ids))):
        members = set(summary.members)
        own = [each.text for each in propositions if members & {span.passage_id for span in each.spans}]
        text = summary.text
        for sentence in sorted(own, key=len, reverse=True):
            text = text.replace(sentence, "")
        assert not text.strip(" ."), f"{text!r} is not in the members of {summary}"


@pytest.mark.long
@in_either_store(sqlite=12, postgresql=4)
def test_a_build_from_scratch_equals_incremental_edits(examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=examples)
    @given(start=corpora(min_size=2, sources="abc"), steps=steps, patches=st.booleans())
    @example(
        start=[Document("a", "", SENTENCES[0]), Document("b", "", SENTENCES[1])],
        steps=[("a", {"text": SENTENCES[2]}), ("a", {"metadata": {"year": 1911}}), ("b", {"title": "Tarn"})],
        patches=True,
    )
    def holds(start: list[Document], steps: list[Step], patches: bool) -> None:
        folder = tmp_path_factory.mktemp("invariant")
        put(folder / "grown", start)
        with edits_as_patches() if patches else nullcontext():
            current = edit(folder / "grown", start, steps)
        put(folder / "scratch", current)
        assert_same(contents_of(folder / "scratch"), contents_of(folder / "grown"))

    holds()


@pytest.mark.long
@in_either_store(sqlite=12, postgresql=2)
def test_after_compaction_edits_that_carry_communities_over_equal_a_build_from_scratch(
    examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All edits carry communities over, however many passages change (layers_on_edit = later), and summaries of which half of the members remain."""

    @settings(max_examples=examples)
    @given(start=corpora(min_size=2, sources="abc"), steps=steps, patches=st.booleans())
    @example(
        start=[
            *(Document(source, "", SENTENCES[0]) for source in "abcd"),
            Document("e", "", f"{SENTENCES[0]} {SENTENCES[5]}"),
            Document("f", "", f"{SENTENCES[5]} {SENTENCES[3]}"),
            Document("g", "", SENTENCES[3]),
        ],
        steps=[("e", None)],
        patches=False,
    )
    def holds(start: list[Document], steps: list[Step], patches: bool) -> None:
        folder = tmp_path_factory.mktemp("invariant")
        later = SETTINGS.model_copy(update={"layers_on_edit": "later"})
        with pytest.MonkeyPatch.context() as patch, edits_as_patches() if patches else nullcontext():
            patch.setattr(graph.build.build, "MAX_CHANGED_SHARE", 1e9)
            patch.setattr(graph.hierarchy.layers, "MAX_CHANGED_SHARE", 0.5)
            put(folder / "grown", start, later)
            current = edit(folder / "grown", start, steps, later)
        compact_index(folder / "grown", lambda spec: HashEncoder())
        put(folder / "scratch", current)
        assert_same(contents_of(folder / "scratch"), contents_of(folder / "grown"))

    holds()
