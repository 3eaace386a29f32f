"""Columns stored as base files and small changes, after several edits, compared with lists and dense matrices to which the same edits were applied."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.shared.ids import content_id
from graph.store.columns.blocks import Entries
from graph.store.columns.moved import (
    assembled,
    cells,
    find_ids,
    ids_below,
    moved_block,
    moved_strings,
    take_rows,
)
from graph.store.columns.row_map import RowMap
from graph.store.columns.strings import Strings, id_bytes

EDITS = st.integers(1, 4)


def draw_merge(data: st.DataObject, count: int) -> RowMap:
    """A random map of `count` rows: some are deleted, and up to three are inserted."""
    stays = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    before = sorted(data.draw(st.lists(st.integers(0, count), max_size=3)))
    return RowMap.of(count, np.flatnonzero(~stays), np.array(before, np.int64))


@pytest.mark.parametrize("runs", [0, 200])
@given(data=st.data())
def test_insertions_equal_those_in_a_list_whether_by_runs_or_by_numpy(runs: int, data: st.DataObject) -> None:
    merge = draw_merge(data, data.draw(st.integers(0, 8)))
    old, new = [f"{row}" for row in range(merge.previous_count)], [f"+{row}" for row in range(len(merge.inserted_K))]
    rest = iter(new)
    expected = [old[last] if last >= 0 else next(rest) for last in merge.previous_rows(np.arange(len(merge))).tolist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graph.store.columns.row_map.RUNS", runs)
        assert merge.apply(np.array(old, "U3"), np.array(new, "U3")).tolist() == expected


@given(st.data(), EDITS)
def test_successive_merges_equal_a_single_merge(data: st.DataObject, edits: int) -> None:
    first = data.draw(st.integers(0, 6))
    names, total = [f"0.{row}" for row in range(first)], RowMap.of_previous(np.arange(first), first)
    original = list(names)
    for edit in range(edits):
        merge = draw_merge(data, len(names))
        new = iter(f"{edit + 1}.{number}" for number in range(9))
        names = [names[last] if last >= 0 else next(new) for last in merge.previous_N.tolist()]
        total = total.then(merge)
        assert total.previous_N.tolist() == [original.index(name) if name in original else -1 for name in names]
        assert total.current_L.tolist() == [names.index(name) if name in names else -1 for name in original]
        assert total.previous_rows(np.arange(len(names))).tolist() == total.previous_N.tolist()
        assert [total.origin(row)[0] for row in range(len(names))] == total.previous_N.tolist()
        assert total.current_rows(np.arange(-1, first)).tolist() == [-1, *total.current_L.tolist()]
        expected_rows = [
            next((last for last in total.previous_N[row:].tolist() if last >= 0), first)
            for row in range(len(names) + 1)
        ]
        assert total.previous_or_next(np.arange(len(names) + 1)).tolist() == expected_rows
    again = RowMap.of(first, total.deleted_G, total.before_K)
    assert (
        again.previous_N.tolist() == total.previous_N.tolist() and again.current_L.tolist() == total.current_L.tolist()
    )


@given(st.data(), EDITS)
def test_texts_after_edits_equal_an_edited_list(data: st.DataObject, edits: int) -> None:
    text = st.text(max_size=3) | st.sampled_from(["né", "a.b", "\ud800"])
    texts = data.draw(st.lists(text, max_size=6))
    column = Strings.of(texts)
    for _ in range(edits):
        merge = draw_merge(data, len(texts))
        count = len(merge.inserted_K)
        new = data.draw(st.lists(text, min_size=count, max_size=count))
        rest = iter(new)
        texts = [texts[last] if last >= 0 else next(rest) for last in merge.previous_N.tolist()]
        column = moved_strings(column, merge, Strings.of(new))
        assert len(column) == len(texts)
        assert [column[row] for row in range(-len(texts), len(texts))] == [*texts, *texts]
        for outside in (len(texts), -len(texts) - 1):
            with pytest.raises(IndexError):
                column[outside]
        found = column.rows_with(lambda data: data >= 0x80).tolist()
        assert found == [row for row, each in enumerate(texts) if not each.isascii()]
    assert list(column) == list(assembled(column)) == texts
    assert assembled(column).data.tobytes() == Strings.of(texts).data.tobytes()


@pytest.mark.long
@settings(max_examples=150)
@given(st.data(), EDITS, st.booleans())
def test_a_block_after_edits_equals_an_edited_matrix(data: st.DataObject, edits: int, both_ways: bool) -> None:
    size = st.integers(0, 5)
    rows = data.draw(size)
    columns = rows if both_ways else data.draw(size)
    count = rows * columns
    filled = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    dense = np.array(filled, np.float32).reshape(rows, columns)
    block = sp.csr_array(dense)
    for _ in range(edits):
        by_row = draw_merge(data, dense.shape[0])
        by_column = by_row if both_ways else draw_merge(data, dense.shape[1])
        row_N, column_D = by_row.previous_N, by_column.previous_N
        padded = np.pad(dense, ((0, 1), (0, 1)))
        dense = padded[row_N][:, column_D]
        chosen = data.draw(st.lists(st.booleans(), min_size=len(row_N), max_size=len(row_N)))
        replaced_N = np.array(chosen, bool)
        dense[replaced_N] = 0
        if both_ways:
            dense[:, replaced_N] = 0
        free = [
            (row, column)
            for row in range(len(row_N))
            for column in range(len(column_D))
            if row_N[row] < 0 or column_D[column] < 0 or replaced_N[row] or (both_ways and replaced_N[column])
        ]
        places = np.array(data.draw(st.lists(st.sampled_from(free), max_size=4)) if free else [], np.int64).reshape(
            -1, 2
        )
        np.add.at(dense, (places[:, 0], places[:, 1]), 1)
        block = moved_block(
            block, by_row, by_column, Entries.ones(places[:, 0], places[:, 1]), np.flatnonzero(replaced_N), both_ways
        )
        assert block.shape == dense.shape and np.array_equal(assembled(block).toarray(), dense)
        requested = np.array(
            data.draw(st.lists(st.integers(0, len(row_N) - 1), max_size=4)) if len(row_N) else [], np.int64
        )
        assert np.array_equal(take_rows(block, requested).toarray(), dense[requested])
        sampled = data.draw(st.lists(st.integers(0, len(column_D) - 1), max_size=4)) if len(column_D) else []
        chosen_columns = np.array(sampled, np.int64)
        assert np.array_equal(cells(block, requested, chosen_columns), dense[requested][:, chosen_columns])


@given(st.data(), EDITS)
def test_ids_are_found_in_a_column_after_edits(data: st.DataObject, edits: int) -> None:
    pool = sorted(content_id(str(number)) for number in range(12))
    ids = sorted(data.draw(st.sets(st.sampled_from(pool), max_size=8)))
    column = Strings.of(ids)
    for _ in range(edits):
        now = sorted(data.draw(st.sets(st.sampled_from(pool), max_size=8)))
        stays = np.array([each in now for each in ids], bool)
        new = [each for each in now if each not in ids]
        before = np.array([sum(known < each for known in ids) for each in new], np.int64)
        merge = RowMap.of(len(ids), np.flatnonzero(~stays), before)
        column, ids = moved_strings(column, merge, Strings.of(new)), now
        assert list(column) == ids
        requested = id_bytes(pool)
        assert find_ids(column, requested).tolist() == [ids.index(each) if each in ids else -1 for each in pool]
        assert ids_below(column, requested).tolist() == [sum(known < each for known in ids) for each in pool]
