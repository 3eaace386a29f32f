import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from data_synth.dataset import write
from data_synth.dataset.write import Lengths, check_folder, write_dataset
from data_synth.preferences.preference_form import PLAIN_PREFERENCES, PREFERENCES, preference_schema
from data_synth.rows import Dropped, PreferenceRow, plain_preference_to_json, preference_from_json, preference_to_json
from graph.errors import UserError
from graph.types import Message
from tests.data_synth.dataset.test_data import good

ORIGIN = {"Index": "idx", "Questions": "q.jsonl"}


def row(number: int, split: str = "train", words: int = 3) -> PreferenceRow:
    return replace(
        good(number),
        prompt=(Message("system", "s"), Message("user", f"Frage {number} é\n\u2028 x")),
        chosen="word " * (words - 1) + "word",
        rejected="word",
        answers=("a", "b"),
        kind="" if number % 2 else "multi",
        split=split,
        context_size=number % 3,
        gold_in_context=0.5,
    )


ROWS = [row(0), row(1, "test", 5), Dropped("why"), row(2, words=1), row(0), row(3, "test", 11)]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_rows_are_read_back_unchanged(tmp_path: Path) -> None:
    import pyarrow.parquet

    write_dataset(tmp_path / "out", ROWS, PREFERENCES, ORIGIN)
    assert set(contents(tmp_path / "out")) == {
        *("train.jsonl", "train.parquet", "test.jsonl", "test.parquet", "README.md", "summary.json")
    }
    for split in ("train", "test"):
        expected = [one for one in (*ROWS[:4], ROWS[5]) if isinstance(one, PreferenceRow) and one.split == split]
        lines = (tmp_path / "out" / f"{split}.jsonl").read_bytes().splitlines()
        assert [preference_from_json(json.loads(line)) for line in lines] == expected
        table = pyarrow.parquet.read_table(tmp_path / "out" / f"{split}.parquet")
        assert [preference_from_json(one) for one in table.to_pylist()] == expected


def test_the_parquet_columns_match_the_fields_of_a_row() -> None:
    assert preference_schema().names == preference_schema(plain=True).names == list(preference_to_json(row(0)))


def test_plain_rows_contain_strings_and_can_be_read_back(tmp_path: Path) -> None:
    import pyarrow.parquet

    write_dataset(tmp_path / "out", [row(0)], PLAIN_PREFERENCES, ORIGIN)
    (found,) = pyarrow.parquet.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert found == plain_preference_to_json(row(0))
    assert found["prompt"] == "s\n\nFrage 0 é\n\u2028 x" and found["rejected"] == "word"
    back = preference_from_json(found)
    assert back.prompt == (Message("user", found["prompt"]),) and back.chosen == row(0).chosen


def test_the_summary_matches_counts_made_by_hand(tmp_path: Path) -> None:
    summary = write_dataset(tmp_path / "out", ROWS, PREFERENCES, ORIGIN)
    assert (summary.rows, summary.duplicates, summary.drops) == (4, 1, {"why": 1})
    assert summary.by_split == {"train": 2, "test": 2}
    assert summary.counts["kind of question"] == {"multi": 2, "unspecified": 2}
    assert summary.counts["context size"] == {"0": 2, "1": 1, "2": 1}
    assert summary.lengths == {"chosen": Lengths(5.0, 4.0, 11), "rejected": Lengths(1.0, 1.0, 1)}
    assert summary.measures == {}, "four rows are too few to compute any measure"
    assert not summary.mostly_lost
    saved = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (saved["rows"], saved["origin"], saved["made_by"]) == (4, ORIGIN, "modegraph")


def test_a_dataset_is_mostly_lost_if_more_than_half_is_dropped(tmp_path: Path) -> None:
    half = write_dataset(tmp_path / "half", [row(0), Dropped("a"), row(0)], PREFERENCES, ORIGIN)
    more = write_dataset(tmp_path / "more", [row(0), Dropped("a"), Dropped("b")], PREFERENCES, ORIGIN)
    none = write_dataset(tmp_path / "none", [Dropped("a")], PREFERENCES, ORIGIN)
    empty = write_dataset(tmp_path / "empty", [], PREFERENCES, ORIGIN)
    lost = [summary.mostly_lost for summary in (half, more, none, empty)]
    assert lost == [False, True, True, True], "a dataset without rows is useless, too"


def test_datasets_loads_the_folder_and_the_card_lists_the_dropped_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(write, "ROWS_PER_BATCH", 1)
    write_dataset(tmp_path / "out", [*ROWS, Dropped("why | how")], PREFERENCES, ORIGIN)
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 2, "test": 2}
    assert loaded["train"][0]["prompt"][0] == {"role": "system", "content": "s"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert r"| why \| how | 1 |" in card and "duplicates removed: 1" in card


def test_the_same_rows_give_the_same_bytes_and_replace_an_earlier_run(tmp_path: Path) -> None:
    write_dataset(tmp_path / "out", [row(0, "dev"), row(1)], PREFERENCES, ORIGIN)
    (tmp_path / "out" / "ledger.sqlite").write_text("calls")
    check_folder(tmp_path / "out")
    write_dataset(tmp_path / "out", ROWS, PREFERENCES, ORIGIN)
    write_dataset(tmp_path / "fresh", ROWS, PREFERENCES, ORIGIN)
    replaced = contents(tmp_path / "out")
    assert replaced.pop("ledger.sqlite") == b"calls"
    assert replaced == contents(tmp_path / "fresh")


def failing() -> Iterator[PreferenceRow]:
    yield row(0)
    raise UserError("server gone", "", "")


def test_a_failure_leaves_the_folder_unchanged(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="server gone"):
        write_dataset(tmp_path / "new", failing(), PREFERENCES, ORIGIN)
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="server gone"):
        write_dataset(tmp_path / "empty", failing(), PREFERENCES, ORIGIN)
    assert list((tmp_path / "empty").iterdir()) == []
    write_dataset(tmp_path / "old", [row(5)], PREFERENCES, ORIGIN)
    before = contents(tmp_path / "old")
    with pytest.raises(UserError, match="server gone"):
        write_dataset(tmp_path / "old", failing(), PREFERENCES, ORIGIN)
    assert contents(tmp_path / "old") == before


def test_a_second_writer_of_a_folder_is_refused(tmp_path: Path) -> None:
    def rows() -> Iterator[PreferenceRow]:
        yield row(0)
        check_folder(tmp_path / "out")
        with pytest.raises(UserError, match="out: another process is writing to it"):
            write_dataset(tmp_path / "out", [row(1)], PREFERENCES, ORIGIN)
        yield row(2)

    write_dataset(tmp_path / "out", rows(), PREFERENCES, ORIGIN)
    write_dataset(tmp_path / "fresh", [row(0), row(2)], PREFERENCES, ORIGIN)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    (tmp_path / "out" / ".unfinished.lock").touch()  # left by a killed process
    assert write_dataset(tmp_path / "out", [row(1)], PREFERENCES, ORIGIN).rows == 1


def test_half_a_character_is_replaced(tmp_path: Path) -> None:
    """A JSON file can contain a lone surrogate, which UTF-8 cannot encode."""
    write_dataset(tmp_path / "out", [replace(row(0), chosen="Tarn \ud83d")], PREFERENCES, ORIGIN)
    line = json.loads((tmp_path / "out" / "train.jsonl").read_text(encoding="utf-8"))
    assert preference_from_json(line).chosen == "Tarn \ufffd"


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    check_folder(tmp_path)
    (tmp_path / "ledger.sqlite-wal").touch()
    (tmp_path / ".unfinished").mkdir()
    check_folder(tmp_path)
    (tmp_path / "README.md").write_text("my thesis")
    with pytest.raises(UserError, match=r"contains other files \('README\.md'\)"):
        check_folder(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(UserError, match="contains other files"):
        check_folder(tmp_path)
    with pytest.raises(UserError, match="a file"):
        check_folder(tmp_path / "README.md")


def test_a_run_killed_while_moving_its_files_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move = Path.replace

    def move_and_die(file: Path, target: Path) -> Path:
        if file.name == "summary.json":
            raise KeyboardInterrupt
        return move(file, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", move_and_die)
        write_dataset(tmp_path / "new", [row(5)], PREFERENCES, ORIGIN)
    check_folder(tmp_path / "new")
    with pytest.raises(UserError, match="server gone"):
        write_dataset(tmp_path / "new", failing(), PREFERENCES, ORIGIN)
    check_folder(tmp_path / "new")
    write_dataset(tmp_path / "fresh", [row(5)], PREFERENCES, ORIGIN)
    assert contents(tmp_path / "new") == contents(tmp_path / "fresh"), (
        "the next run should complete the interrupted move before it fails"
    )
    assert write_dataset(tmp_path / "new", [row(5)], PREFERENCES, ORIGIN).rows == 1
    assert not (tmp_path / "new/.unfinished").exists()


def peak_bytes(folder: Path, rows: int) -> int:
    """The peak memory that Python allocated while this many rows of 1 kB were written."""
    tracemalloc.start()
    big_rows = (replace(row(number), prompt=(Message("user", f"{number} " * 250),)) for number in range(rows))
    write_dataset(folder, big_rows, PREFERENCES, ORIGIN)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_five_thousand_rows_take_hardly_more_memory_than_two_thousand(tmp_path: Path) -> None:
    few, many = peak_bytes(tmp_path / "few", 2_000), peak_bytes(tmp_path / "many", 5_000)
    assert sum(1 for _ in (tmp_path / "many" / "train.jsonl").open()) == 5_000
    assert many < 1.25 * few, "the 3,000 further rows contain 4 MB of text"
