"""Edits that carry communities over (layers_on_edit = later): new passages join them, deleted text is in no summary, and
compact gives the same index as a build from its documents alone."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graph.hierarchy.layers
from graph.build.build import build_index
from graph.build.lifecycle import compact_index, delete_documents, index_status, verify_index
from graph.hierarchy import similarity
from graph.hierarchy.layers import LastHierarchy
from graph.index.index import Index, open_index
from graph.shared.ids import content_id
from graph.store.arrays import load_arrays
from graph.store.columns.strings import Strings
from graph.store.data import IndexData, block
from graph.store.index_settings import IndexSettings
from graph.store.manifest import read_manifest
from graph.store.vectors import Vectors
from graph.types import Document, Floats
from tests.commands import run
from tests.corpora import guild_documents
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index

pytestmark = pytest.mark.usefixtures("place")
SETTINGS = IndexSettings(min_similarity=0.2, neighbours=3, layers=3, layers_on_edit="later")
GUILDS = guild_documents()
NEW = Document(
    "new", "Member Zan", "Member Zan joined the Netmakers Guild in 1799. The Netmakers Guild meets in Netmakers Hall."
)
OTHER = Document("other", "Member Zed", "Member Zed left the Netmakers Guild in 1802.")


def put(folder: Path, documents: list[Document]) -> Index:
    build_index(folder, documents, SETTINGS, encoder)
    return open_index(folder, encoder)


def summaries_above(index: Index, source: str) -> list[str]:
    """The texts of all summaries above a document."""
    own = {passage.id for passage in index.passages_of(source)}
    summaries = [index.summary(row) for row in range(len(index.data.summary_ids))]
    return [summary.text for summary in summaries if own & set(summary.members)]


def in_summaries(document: Document, summaries: Iterable[str]) -> bool:
    """Whether one of these summaries contains a sentence that only this document contains."""
    own = [f"{document.title} joined", f"{document.title} taught", f"honour {document.title}."]
    return any(sentence in text for text in summaries for sentence in own)


@pytest.mark.long
def test_edits_carry_communities_over_and_compact_detects_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "i"
    before = put(folder, GUILDS)
    with monkeypatch.context() as patch:
        patch.setattr(graph.hierarchy.layers, "find_communities", None)
        grown = put(folder, [NEW])
        assert summaries_above(grown, "new"), "the new document should be in a community"
        grouped = [source for source in before.sources() if summaries_above(before, source)]
        assert grouped and all(summaries_above(grown, source) for source in grouped)
        assert (index_status(folder).changed_passages, index_status(folder).generation) == (1, 2)
        gone = next(document for document in GUILDS if in_summaries(document, before.data.summary_texts))
        remaining = delete_documents(folder, ["new", gone.source], encoder)
    assert index_status(folder).changed_passages == 3 and verify_index(folder) == []
    assert not in_summaries(gone, remaining.summary_texts) and not in_summaries(NEW, remaining.summary_texts)
    compact_index(folder, encoder)
    assert index_status(folder).changed_passages == 0 and verify_index(folder) == []
    put(tmp_path / "scratch", [document for document in GUILDS if document is not gone])
    assert read_manifest(folder).files == read_manifest(tmp_path / "scratch").files
    generation = index_status(folder).generation
    compact_index(folder, encoder)
    assert index_status(folder).generation == generation, "compact should not start a generation: nothing has changed"


def test_communities_are_carried_over_by_default_and_status_shows_how_many_passages_changed(tmp_path: Path) -> None:
    settings = IndexSettings(min_similarity=0.2, neighbours=3)
    for documents, changed in (
        (GUILDS, ""),
        ([NEW], "1 passage has "),
        ([GUILDS[4]], "1 passage has "),
        ([OTHER], "2 passages have "),
    ):
        build_index(tmp_path / "i", documents, settings, encoder)
        shown = run("status", tmp_path / "i").output
        assert (
            f"{changed}been added or removed since the communities were detected" in shown
            if changed
            else "added or removed" not in shown
        )
    assert f"or when you run: modegraph compact {tmp_path / 'i'}" in shown


def test_an_edit_of_metadata_alone_carries_communities_over_and_compact_detects_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, edited = tmp_path / "i", replace(GUILDS[4], metadata={"year": 1799})
    put(folder, GUILDS)
    with monkeypatch.context() as patch:
        patch.setattr(graph.hierarchy.layers, "find_communities", None)
        put(folder, [edited])
    assert index_status(folder).changed_passages == 1
    compact_index(folder, encoder)
    put(tmp_path / "scratch", [*GUILDS[:4], edited, *GUILDS[5:]])
    assert read_manifest(folder).files == read_manifest(tmp_path / "scratch").files


def test_the_graph_of_summaries_is_exact_even_if_their_order_changes(tmp_path: Path) -> None:
    """Communities are ordered by their first members: if the first member of a community is deleted, the community moves back, but its summary stays."""

    def member(number: int, guild: str) -> Document:
        own, still = (f" Member m{number} said so.", "") if number else ("", "still ")
        return Document(f"{number:02}", "", f"The {guild} guild {still}keeps its {guild} hall for {guild} work.{own}")

    guilds = ["nets", *12 * ["beer"], *12 * ["wool"], *12 * ["nets"]]
    folder = tmp_path / "i"
    settings = SETTINGS.model_copy(update={"min_similarity": 0.05, "neighbours": 8})
    build_index(folder, [member(*each) for each in enumerate(guilds)], settings, encoder)
    before = load_arrays(folder, IndexData)
    delete_documents(folder, ["00"], encoder)
    after = load_arrays(folder, IndexData)
    first = np.flatnonzero(after.summary_layer_S == 1)
    ids = [after.summary_ids[row] for row in first]
    last = [list(before.summary_ids).index(each) for each in ids if each in list(before.summary_ids)]
    assert len(ids) >= 3 and last != sorted(last), "the remaining summaries should be in another order"
    nodes = len(after.passage_ids) + first
    edges = after.similarity_XX[nodes, :][:, nodes]
    exact = similarity.similarity_graph(after.summary_vectors_SD[first], 8, 0.05)
    assert exact.nnz and np.array_equal(edges.toarray(), exact.toarray())
    assert verify_index(folder) == []


@pytest.mark.long
def test_communities_are_detected_again_when_more_than_a_tenth_of_the_passages_have_changed(tmp_path: Path) -> None:
    put(tmp_path / "i", GUILDS[:30])
    changed = []
    for document in GUILDS[30:35]:
        put(tmp_path / "i", [document])
        changed.append(index_status(tmp_path / "i").changed_passages)
    assert changed == [1, 2, 3, 0, 1]
    put(tmp_path / "scratch", GUILDS[:34])
    delete_documents(tmp_path / "i", [GUILDS[34].source], encoder)
    compact_index(tmp_path / "i", encoder)
    assert read_manifest(tmp_path / "i").files == read_manifest(tmp_path / "scratch").files


@pytest.mark.long
def test_edits_extend_a_graph_too_large_for_exact_search_and_compact_rebuilds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "FLAT_LIMIT", 30)
    folder, searched, nearest_of_all = tmp_path / "i", list[int](), similarity._nearest_of_all

    def counting(vectors_ND: Vectors, neighbours: int, least: float) -> object:
        searched.append(len(vectors_ND))
        return nearest_of_all(vectors_ND, neighbours, least)

    put(folder, GUILDS[:34])
    assert not read_manifest(folder).grown
    with monkeypatch.context() as patch:
        patch.setattr(similarity, "_nearest_of_all", counting)
        for document in (NEW, GUILDS[34]):
            put(folder, [document])
        delete_documents(folder, [GUILDS[3].source], encoder)
    assert all(count < 30 for count in searched), "edits should not search all vectors of a large graph again"
    assert read_manifest(folder).grown and verify_index(folder) == []
    compact_index(folder, encoder)
    assert not read_manifest(folder).grown
    put(tmp_path / "scratch", [NEW, *GUILDS[:3], *GUILDS[4:35]])
    assert read_manifest(folder).files == read_manifest(tmp_path / "scratch").files
    generation = index_status(folder).generation
    compact_index(folder, encoder)
    assert index_status(folder).generation == generation


def test_a_large_graph_that_shrinks_stays_inexact_until_compact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "FLAT_LIMIT", 60)
    put(tmp_path / "i", GUILDS)
    assert not read_manifest(tmp_path / "i").grown
    monkeypatch.setattr(similarity, "FLAT_LIMIT", len(load_arrays(tmp_path / "i", IndexData).entity_ids) - 1)
    gone = [document.source for document in GUILDS[:30]]
    delete_documents(tmp_path / "i", gone, encoder)
    data = load_arrays(tmp_path / "i", IndexData)
    assert max(len(data.entity_ids), len(data.passage_ids) + len(data.summary_ids)) <= similarity.FLAT_LIMIT
    assert read_manifest(tmp_path / "i").grown
    compact_index(tmp_path / "i", encoder)
    assert not read_manifest(tmp_path / "i").grown


def last_hierarchy(texts: list[str], layers: list[int], members: list[list[int]], lost: list[str]) -> LastHierarchy:
    """A hierarchy to carry over: ten passages (0 to 9), and these summaries (10, 11, …) of passages or of other summaries."""
    rows = np.repeat(np.arange(len(members)), [len(each) for each in members])
    columns = np.concatenate([np.array(each, np.int64) for each in members])
    return LastHierarchy(
        last_P=np.arange(10),
        passages=10,
        summary_ids=Strings.of(content_id(text) for text in texts),
        summary_texts=Strings.of(texts),
        layer_S=np.array(layers),
        member_SX=block(rows, columns, (len(texts), 10 + len(texts))),
        edges=None,
        carry=True,
        extractive=True,
        maybe_lost=lost,
    )


def test_a_summary_stays_while_few_members_are_added_or_removed_and_none_of_its_sentences_is_lost() -> None:
    members, text = [list(range(10))], "Gulls nest. Tides turn."
    last = last_hierarchy([text], [1], members, [])
    without_one, with_one = np.arange(9), np.append(np.arange(10), -1)
    with_two, other = np.append(np.arange(10), [-1, -1]), np.array([-1, -1])

    def stays(hierarchy: LastHierarchy, last_X: np.ndarray) -> bool:
        (found,) = hierarchy.reusable_summaries([np.arange(len(last_X))], last_X, 1).tolist()
        return bool(found == 0)

    assert stays(last, np.arange(10)) and stays(last, without_one) and stays(last, with_one)
    assert not stays(last, with_two) and not stays(last, np.arange(8)) and not stays(last, other)
    assert not stays(replace(last, carry=False), with_one) and stays(replace(last, carry=False), np.arange(10))
    assert not stays(replace(last, maybe_lost=["Kelp dries.", "Tides turn."]), without_one), (
        "a summary that repeats a lost sentence should be removed"
    )
    assert stays(replace(last, maybe_lost=["Kelp dries."]), without_one)


def test_a_summary_of_summaries_with_a_lost_sentence_is_removed_even_if_all_its_members_stay() -> None:
    texts = ["Gulls nest.", "Kelp dries.", "Gulls nest. Tides turn."]
    members = [list(range(5)), list(range(5, 10)), [10, 11]]
    last = last_hierarchy(texts, [1, 1, 2], members, [])
    assert last.reusable_summaries([np.arange(2)], np.array([10, 11]), 2).tolist() == [2]
    gone = replace(last, maybe_lost=["Tides turn."])
    assert gone.reusable_summaries([np.arange(2)], np.array([10, 11]), 2).tolist() == [-1]


@pytest.mark.parametrize("edits", ["now", "later"])
def test_only_summaries_whose_members_changed_are_written_again(
    edits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence_counts: list[int] = []
    choose = graph.hierarchy.summaries.choose_sentences

    def counting(vectors_SD: Floats, count_tokens: Callable[[int], int], most: int) -> list[int]:
        sentence_counts.append(len(vectors_SD))
        return choose(vectors_SD, count_tokens, most)

    monkeypatch.setattr(graph.hierarchy.layers, "choose_sentences", counting)
    folder, settings = tmp_path / "i", SETTINGS.model_copy(update={"layers_on_edit": edits, "layers": 2})
    build_index(folder, GUILDS, settings, encoder)
    summaries = len(open_index(folder, encoder).data.summary_ids)
    assert len(sentence_counts) == summaries > 4
    sentence_counts.clear()
    build_index(folder, [NEW], settings, encoder)
    assert 0 < len(sentence_counts) < summaries - 1
    grown = load_arrays(folder, IndexData)
    if edits == "now":
        build_index(tmp_path / "scratch", [*GUILDS, NEW], settings, encoder)
        assert_same_index(grown, load_arrays(tmp_path / "scratch", IndexData))
