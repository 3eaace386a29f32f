"""Files are replaced as a whole: an error leaves the previous file and no temporary one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graph.shared.jsonl import append_jsonl, read_jsonl, replacing, write_json, write_jsonl


def test_rows_are_written_as_utf8_lines(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": "naïve 東京"}, {"a": "two\nlines"}]
    assert write_jsonl(tmp_path / "rows.jsonl", rows) == 2
    assert list(read_jsonl(tmp_path / "rows.jsonl")) == [(1, rows[0]), (2, rows[1])]
    assert "naïve 東京" in (tmp_path / "rows.jsonl").read_text(encoding="utf-8")


def test_half_a_character_is_written_as_it_was_read(tmp_path: Path) -> None:
    """JSON can contain a lone surrogate, which UTF-8 cannot encode."""
    file, line = tmp_path / "rows.jsonl", '{"a": "Tarn \\ud83d"}\n'
    file.write_text(line)
    (_, row), *_ = read_jsonl(file)
    write_jsonl(file, [row])
    append_jsonl(file, row)
    assert file.read_text() == 2 * line
    write_json(file, row)
    assert json.loads(file.read_text()) == row


def test_a_byte_order_mark_at_the_start_of_a_file_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": "\ufeff"}\n', encoding="utf-8-sig")
    assert list(read_jsonl(tmp_path / "rows.jsonl")) == [(1, {"a": 1}), (2, {"a": "\ufeff"})]


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_an_error_while_writing_leaves_the_previous_file(tmp_path: Path, problem: type[BaseException]) -> None:
    file = tmp_path / "rows.jsonl"
    write_jsonl(file, [{"a": 1}])

    def rows() -> Iterator[dict[str, Any]]:
        yield {"a": 2}
        raise problem

    with pytest.raises(problem):
        write_jsonl(file, rows())
    with pytest.raises(problem), replacing(file) as partial:
        partial.write_bytes(b"half")
        raise problem
    assert list(read_jsonl(file)) == [(1, {"a": 1})]
    assert list(tmp_path.iterdir()) == [file]
