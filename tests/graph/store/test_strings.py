"""Columns of texts and ids compared with lists: read in blocks, spliced from an older column and new texts, looked up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.shared.ids import content_id
from graph.store.columns import strings
from graph.store.columns.strings import Strings, id_bytes, rows_among

texts = st.lists(st.text(max_size=4) | st.sampled_from(["", "né", "\ud800", "東京"]), max_size=12)
ids = st.lists(st.integers(0, 20).map(lambda number: content_id(str(number))), max_size=12, unique=True)


@given(texts, st.integers(1, 5), st.data())
def test_a_column_and_a_part_of_it_are_read_correctly_in_blocks_of_any_size(
    column: list[str], block: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(column)))
    whole = Strings.of(column)
    part = Strings(whole.data, whole.starts[first:])
    before, strings.DECODED_ROWS = strings.DECODED_ROWS, block
    try:
        assert list(whole) == column and list(part) == column[first:]
    finally:
        strings.DECODED_ROWS = before
    rows = range(-len(part), len(part))
    assert [part[row] for row in rows] == [column[first:][row] for row in rows]
    for outside in (len(part), -len(part) - 1):
        with pytest.raises(IndexError):
            part[outside]
    not_ascii = [row for row, text in enumerate(column[first:]) if not text.isascii()]
    assert part.rows_with(lambda data: data >= 0x80).tolist() == not_ascii


@given(texts, st.data())
def test_a_spliced_column_equals_one_built_from_all_its_texts(column: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(-1, len(column) - 1), max_size=12))
    new = data.draw(st.lists(st.text(max_size=3), min_size=rows.count(-1), max_size=rows.count(-1)))
    new_texts = iter(new)
    expected = Strings.of([column[row] if row >= 0 else next(new_texts) for row in rows])
    spliced = Strings.of(column).splice(np.array(rows, np.int64), Strings.of(new))
    assert list(spliced) == list(expected)
    assert spliced.data.tobytes() == expected.data.tobytes() and spliced.starts.tolist() == expected.starts.tolist()


@given(ids, ids)
def test_rows_of_ids_are_found_in_any_order_and_form(known: list[str], requested: list[str]) -> None:
    expected = [known.index(each) if each in known else -1 for each in requested]
    for form in (list, Strings.of, id_bytes, lambda ids: Strings.of_ids(id_bytes(ids))):
        assert rows_among(form(known), form(requested)).tolist() == expected
    assert list(Strings.of_ids(id_bytes(known))) == known
