"""Merging new rows with the rows of the last generation, compared with plain computations; and the rows that an edit reads from the store."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from graph.build.build import build_index
from graph.build.changes import ChangedRows, RowsByKey, merge_by_id
from graph.build.lifecycle import compact_index, delete_documents, repair_index
from graph.build.stores import open_for_writing
from graph.shared.ids import content_id
from graph.store.arrays import load_arrays
from graph.store.columns.blocks import Entries
from graph.store.columns.moved import assembled, moved_block
from graph.store.columns.row_map import RowMap
from graph.store.columns.strings import Strings, id_bytes
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.store.manifest import MANIFEST
from graph.store.rows import Store
from graph.types import Document
from tests.graph.build.conftest import Place
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index

words = st.sets(st.sampled_from([f"{letter}{digit}" for letter in "abcde" for digit in range(4)]))


def place_in(sorted_words: list[str], word: str) -> int:
    return sum(each < word for each in sorted_words)


@given(last=words, gone=words, new=words)
def test_sorted_words_merge_like_sets(last: set[str], gone: set[str], new: set[str]) -> None:
    old, now = sorted(last), sorted((last - gone) | (new - last))
    added = sorted(new - last)
    merge = RowMap.of(
        len(old),
        np.array([row for row, word in enumerate(old) if word in gone], np.int64),
        np.array([place_in(old, word) for word in added], np.int64),
    )
    assert list(Strings.of(old).splice(merge.previous_N, Strings.of(added))) == now
    assert [now[row] for row in merge.inserted_K.tolist()] == added
    assert [now[row] if row >= 0 else None for row in merge.current_L.tolist()] == [
        None if word in gone else word for word in old
    ]
    values = merge.apply(np.arange(len(old)), 100 + np.arange(len(added)))
    assert values.tolist() == [old.index(word) if word in last else 100 + added.index(word) for word in now]


@given(last=words, gone=words, found=words)
def test_found_words_remain_or_are_added(last: set[str], gone: set[str], found: set[str]) -> None:
    """A found word that is already known remains, even if it is listed as deleted; merge_by_id does the same with ids."""
    id_of = {word: content_id(word) for word in last | found}
    old = sorted(last, key=id_of.__getitem__)
    ids = Strings.of([id_of[word] for word in old])
    gone_G = np.array([row for row, word in enumerate(old) if word in gone], np.int64)
    named = merge_by_id(
        ids,
        Strings.of(old),
        gone_G,
        id_bytes([id_of[word] for word in [*found, *found]]),
        {identity: word for word, identity in id_of.items() if word not in last}.__getitem__,
    )
    now = sorted((last - gone) | found, key=id_of.__getitem__)
    assert list(named.texts) == now and list(named.ids) == [id_of[word] for word in now]
    looked_for = sorted(found, key=id_of.__getitem__)
    places = np.array([sum(id_of[word] < id_of[each] for word in old) for each in looked_for], np.int64)
    known = np.array([word in last for word in looked_for], bool)
    merge, place_F = RowMap.of_matches(len(old), gone_G, places, known)
    assert [now[row] for row in place_F.tolist()] == looked_for and len(merge.previous_N) == len(now)


@given(st.data())
def test_entries_move_with_their_rows_and_columns(data: st.DataObject) -> None:
    size = st.integers(0, 5)
    rows, columns = data.draw(size), data.draw(size)
    cells = data.draw(st.lists(st.integers(0, 3), min_size=rows * columns, max_size=rows * columns))
    before = np.array(cells, np.float32).reshape(rows, columns)

    def merge(count: int) -> RowMap:
        remains = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
        before = np.array(sorted(data.draw(st.lists(st.integers(0, count), max_size=3))), np.int64)
        return RowMap.of(count, np.flatnonzero(~remains), before)

    by_row, by_column = merge(rows), merge(columns)
    expected = np.zeros((len(by_row.previous_N), len(by_column.previous_N)), np.float32)
    new = []
    for row, last_row in enumerate(by_row.previous_N.tolist()):
        for column, last_column in enumerate(by_column.previous_N.tolist()):
            if last_row >= 0 and last_column >= 0:
                expected[row, column] = before[last_row, last_column]
            else:
                expected[row, column] = data.draw(st.sampled_from([0, 0, 1, 2]))
                new += int(expected[row, column]) * [(row, column)]
    places = np.array(data.draw(st.permutations(new)), np.int64).reshape(-1, 2)
    after = assembled(moved_block(sp.csr_array(before), by_row, by_column, Entries.ones(places[:, 0], places[:, 1])))
    twin = sp.csr_array(expected)
    assert np.array_equal(after.toarray(), expected) and after.shape == twin.shape
    assert np.array_equal(after.indices, twin.indices) and np.array_equal(after.indptr, twin.indptr), (
        "the entries are not in the order of a fresh array"
    )


def test_keys_are_looked_up_in_any_order() -> None:
    ids = sorted(content_id(word) for word in "abc")
    keyed = RowsByKey.of(np.array([30, 10, 20]), id_bytes([ids[2], ids[0], ids[1]]), Strings.of(ids))
    assert keyed.rows(np.array([10, 30, 20, 10])).tolist() == [0, 2, 1, 0]


SETTINGS = IndexSettings(layers_on_edit="now")
"""With these settings an edited index equals one that is built in a single run."""


def document(number: int) -> Document:
    text = f"Keeper {number} of Port Ellery wrote of J. Marlow. The Lantern {number % 7} sails to Tarn."
    return Document(f"d{number:03d}", "Jane Marlow" if number == 40 else "", text)


@pytest.fixture
def folder(place: Place, tmp_path: Path) -> Path:
    build_index(tmp_path / "index", [document(number) for number in range(60)], SETTINGS, encoder)
    return tmp_path / "index"


class ReadCounter:
    """Records the number of passages read from the store, and of propositions whose links were read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passages: list[int] = []
        self.linked: list[int] = []
        passages, links = ChangedRows.passages, ChangedRows.links

        def count_passages(rows: ChangedRows) -> object:
            read = passages(rows)
            self.passages.append(len(read.ids))
            return read

        def count_links(rows: ChangedRows, table: str, column: str, keys: np.ndarray) -> object:  # type: ignore[type-arg]
            self.linked.append(len(keys))
            return links(rows, table, column, keys)

        patch.setattr(ChangedRows, "passages", count_passages)
        patch.setattr(ChangedRows, "links", count_links)


def from_scratch(tmp_path: Path, documents: list[Document]) -> IndexData:
    build_index(tmp_path / "scratch", documents, SETTINGS, encoder)
    return load_arrays(tmp_path / "scratch", IndexData)


def test_a_document_is_read_once_for_all_its_passages(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Document("e", "", " ".join(document(number).text for number in range(40)))
    build_index(tmp_path / "index", [document(2), long, document(1)], SETTINGS, encoder)
    texts = list(load_arrays(tmp_path / "index", IndexData).passage_texts)
    with open_for_writing(tmp_path / "index") as store:
        changed, rows, read = ChangedRows(store, None), store.rows, list[object]()
        passages = changed.passages()

        def noted(query: str, values: Sequence[object]) -> object:
            read.extend(values)
            return rows(query, values)

        monkeypatch.setattr(store, "rows", noted)
        assert list(changed.passage_texts(passages)) == texts and len(texts) > 5
    assert read == ["d001", "d002", "e"]


def test_an_edit_reads_only_rows_that_it_affects(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = ReadCounter(monkeypatch)
    build_index(folder, [document(60)], SETTINGS, encoder)
    assert counter.passages == [1] and max(counter.linked) <= 4
    delete_documents(folder, ["d003"], encoder)
    assert counter.passages == [1, 0] and max(counter.linked) <= 4
    compact_index(folder, encoder)
    build_index(folder, [document(61)], SETTINGS, encoder)
    assert counter.passages == [1, 0, 1], "compact should preserve the record of derived documents"
    assert_same_index(
        load_arrays(folder, IndexData), from_scratch(tmp_path, [document(n) for n in range(62) if n != 3])
    )


@pytest.mark.parametrize(
    "how", ["arrays are repaired", "killed before the generation was recorded", "another generation was recorded"]
)
def test_all_passages_are_read_when_the_changes_are_unknown(
    how: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = ReadCounter(monkeypatch)
    if how == "arrays are repaired":
        (folder / MANIFEST).unlink()
        repair_index(folder, encoder)
        assert counter.passages == [60]
    elif how == "killed before the generation was recorded":
        with monkeypatch.context() as patch:
            patch.setattr(Store, "note_derived", lambda self, generation: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                build_index(folder, [document(60)], SETTINGS, encoder)
        build_index(folder, [document(61)], SETTINGS, encoder)
        assert counter.passages == [1, 62]
        assert_same_index(
            load_arrays(folder, IndexData), from_scratch(tmp_path, [document(number) for number in range(62)])
        )
    else:
        with open_for_writing(folder) as store, store.transaction():
            store.note_derived(store.next_generation())
        build_index(folder, [document(60)], SETTINGS, encoder)
        assert counter.passages == [61]


def links_of(index: IndexData, entity: str) -> tuple[int, int]:
    """The number of propositions that mention an entity, and the number of documents named after it."""
    row = list(index.entity_texts).index(entity)
    return index.proposition_entity_NE[:, [row]].nnz, index.entity_document_EU[[row], :].nnz


@pytest.mark.long
def test_effects_of_one_document_on_others_are_derived_again(tmp_path: Path) -> None:
    """A full name turns an alias in another document into a mention of that name, a second fitting name undoes this, and a new entity can be part of
    the title of an older document.
    """
    initials = Document("a", "", "In 1911 the bees of J. Marlow came to the hill.")
    full = Document("b", "", "Later the house of Jane Marlow was sold to the town.")
    other = Document("c", "", "Later the boat of Jonas Marlow was sold to the town.")
    titled = Document("d", "Tarn, Port Ellery", "It rains there for most of the year.")
    names_it = Document("e", "", "The mail comes from Tarn on every second day.")
    documents: list[Document] = []
    links = []
    for added in (initials, titled, full, names_it, other):
        documents.append(added)
        build_index(tmp_path / "grown", [added], SETTINGS, encoder)
        grown = load_arrays(tmp_path / "grown", IndexData)
        build_index(tmp_path / f"scratch-{added.source}", documents, SETTINGS, encoder)
        assert_same_index(grown, load_arrays(tmp_path / f"scratch-{added.source}", IndexData))
        names = list(grown.entity_texts)
        links.append([links_of(grown, name) if name in names else None for name in ("jane marlow", "tarn")])
    assert links == [[None, None], [None, None], [(2, 0), None], [(2, 0), (1, 1)], [(1, 0), (1, 1)]]
    delete_documents(tmp_path / "grown", ["c"], encoder)
    assert links_of(load_arrays(tmp_path / "grown", IndexData), "jane marlow") == (2, 0)


def test_summaries_of_chunks_stay_with_their_documents(tmp_path: Path) -> None:
    settings = IndexSettings(max_passage_tokens=16, max_chunk_tokens=60, max_summary_tokens=12)
    long = [Document(name, "", " ".join(f"The {name} of bay {n} sails to Tarn." for n in range(20))) for name in "pqr"]
    build_index(tmp_path / "grown", long[::2], settings, encoder)
    build_index(tmp_path / "grown", [long[1]], settings, encoder)
    build_index(tmp_path / "scratch", long, settings, encoder)
    grown = load_arrays(tmp_path / "grown", IndexData)
    assert (grown.summary_layer_S == 0).sum() > 2 * len(long), "each document should have several chunks"
    assert_same_index(grown, load_arrays(tmp_path / "scratch", IndexData))
