"""Columns of whole numbers after several small edits, compared with lists to which the same edits were applied."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.store.columns.moved import (
    Numbers,
    assembled,
    changed_numbers,
    count_at_least,
    moved_numbers,
    numbers_below,
    renumber_from,
    rows_holding,
    rows_with_numbers,
)
from graph.store.columns.row_map import RowMap, in_order
from tests.graph.store.test_moved import draw_merge

EDITS = st.integers(1, 4)


@pytest.mark.long
@settings(max_examples=200)
@given(st.data(), EDITS)
def test_a_column_of_row_numbers_matches_a_list_when_the_rows_move(data: st.DataObject, edits: int) -> None:
    """A sorted column, such as the document number of each passage: when an item is removed, so are the rows with its number."""
    items = data.draw(st.integers(1, 5))
    column: Numbers = np.array(sorted(data.draw(st.lists(st.integers(0, items - 1), max_size=8))), np.int64)
    numbers = column.tolist()
    for _ in range(edits):
        items_merge = draw_merge(data, items)
        gone = [row for row, number in enumerate(numbers) if items_merge.current_L[number] < 0]
        new = sorted(
            data.draw(st.lists(st.sampled_from(items_merge.inserted_K.tolist()), max_size=3))
            if len(items_merge.inserted_K)
            else []
        )
        stay = [int(items_merge.current_L[number]) for number in numbers if items_merge.current_L[number] >= 0]
        before = numbers_below(column, items_merge.previous_or_next(np.array(new, np.int64)))
        column = moved_numbers(
            column, RowMap.of(len(numbers), np.array(gone, np.int64), before), np.array(new, np.int64), items_merge
        )
        numbers, items = sorted([*stay, *new]), len(items_merge)
        assert_same(data, column, numbers, items)


def assert_same(data: st.DataObject, column: Numbers, numbers: list[int], items: int) -> None:
    """Check every function that reads a column."""
    assert assembled(column).tolist() == numbers == np.asarray(column).tolist() and len(column) == len(numbers)
    rows = data.draw(st.lists(st.integers(-len(numbers), len(numbers) - 1), max_size=5)) if numbers else []
    assert column[np.array(rows, np.int64)].tolist() == [numbers[row] for row in rows]
    assert all(int(column[row]) == numbers[row] for row in rows)
    assert column[1:].tolist() == numbers[1:]
    for outside in (len(numbers), -len(numbers) - 1):
        with pytest.raises(IndexError):
            column[outside]
    values = np.array(sorted(data.draw(st.sets(st.integers(0, max(items - 1, 0)), max_size=3))), np.int64)
    if items:
        expected = [row for row, number in enumerate(numbers) if number in values]
        assert rows_with_numbers(column, values).tolist() == expected == rows_holding(column, values).tolist()
        assert numbers_below(column, values).tolist() == [sum(each < value for each in numbers) for value in values]


@given(st.data(), EDITS)
def test_numbers_other_than_row_numbers_can_be_counted_and_changed(data: st.DataObject, edits: int) -> None:
    column: Numbers = np.array(data.draw(st.lists(st.integers(0, 20), max_size=6)), np.int64)
    numbers = column.tolist()
    for edit in range(edits):
        merge = draw_merge(data, len(numbers))
        end = 100 * (edit + 1)
        new = end + np.array(data.draw(st.permutations(range(len(merge.inserted_K)))), np.int64)
        rest = iter(new.tolist())
        numbers = [numbers[last] if last >= 0 else next(rest) for last in merge.previous_N.tolist()]
        column = moved_numbers(column, merge, new)
        assert assembled(column).tolist() == numbers
        for least in (0, 7, end):
            assert count_at_least(column, least) == sum(number >= least for number in numbers)
        rows, column = renumber_from(column, end)
        assert rows.tolist() == [row for row, number in enumerate(numbers) if number >= end]
        numbers = [number if number < end else end + rows.tolist().index(row) for row, number in enumerate(numbers)]
        assert assembled(column).tolist() == numbers
        now = [data.draw(st.sampled_from([number, number, number + 1])) for number in numbers]
        column, numbers = changed_numbers(column, np.array(now, np.int64)), now
        assert assembled(column).tolist() == numbers


@given(st.lists(st.integers(0, 9), unique=True), st.data())
def test_as_few_rows_as_possible_count_as_new_when_the_order_has_changed(known: list[int], data: st.DataObject) -> None:
    last = [data.draw(st.sampled_from([each, each, -1])) for each in known]
    found = in_order(np.array(last, np.int64)).tolist()
    assert all(after in (before, -1) for before, after in zip(last, found, strict=True))
    ascending = [each for each in found if each >= 0]
    assert ascending == sorted(ascending)
    longest = [0] * (len(last) + 1)
    for place, each in enumerate(last):
        shorter = [longest[before] for before in range(place) if 0 <= last[before] < each]
        longest[place] = 1 + max(shorter, default=0) if each >= 0 else 0
    assert len(ascending) == max(longest)
