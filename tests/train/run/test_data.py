"""Preference data: read as it was written, or refused before the first training step with file, line and remedy."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_synth.rows import plain_preference_to_json, preference_to_json
from graph.answer.prompt import answer_messages
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.train.world import preference
from train.model.load import load_tokenizer
from train.model.logps import tokenize_row
from train.run.data import Splits, check_lengths, form_of_rows, read_preferences, read_splits


def write_rows(file: Path, *changes: dict[str, Any]) -> Path:
    """Write rows 0, 1, … of tests/train/world.py to `file`, with some columns replaced (None drops the column)."""
    rows = [preference_to_json(preference(number)) | change for number, change in enumerate(changes)]
    lines = [json.dumps({key: value for key, value in row.items() if value is not None}) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def answer(text: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


def test_rows_are_read_as_they_were_written(data: Path) -> None:
    splits = read_splits(data)
    assert splits.train == tuple(preference(number) for number in range(12))
    assert splits.dev == tuple(preference(number) for number in range(12, 16))


def test_a_folder_without_dev_rows_has_an_empty_dev_split(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", {})
    assert read_splits(tmp_path).dev == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chosen": None}, "line 2: no 'chosen'"),
        ({"prompt": None}, "line 2: no 'prompt'"),
        ({"answers": None}, "line 2: no 'answers'"),
        ({"chosen": []}, "line 2: prompt, chosen or rejected is malformed"),
        ({"chosen": 7}, "line 2: prompt, chosen or rejected is malformed"),
        ({"answers": "Tarn"}, "line 2: prompt, chosen or rejected is malformed (expected a list, got 'Tarn')"),
        ({"prompt": []}, "line 2: the prompt does not end with a user turn"),
        ({"prompt": [{"role": "user", "content": None}]}, "line 2: the content of the user turn is None"),
        ({"prompt": [{"role": "system", "content": "Answer."}]}, "line 2: the prompt does not end with a user turn"),
        ({"chosen": answer("  ")}, "line 2: the chosen completion is '  '"),
        ({"rejected": answer("")}, "line 2: the rejected completion is ''"),
        ({"rejected": answer(None)}, "line 2: the rejected completion is None"),
        ({"chosen": answer("same"), "rejected": answer("same")}, "line 2: chosen and rejected are the same text"),
    ],
)
def test_a_bad_row_is_reported_with_its_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = write_rows(tmp_path / "train.jsonl", {}, change)
    with pytest.raises(UserError) as problem:
        read_preferences(file)
    assert f"{file} {message}" in str(problem.value)


def test_a_file_without_rows_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n\n")
    with pytest.raises(UserError, match="no rows"):
        read_splits(tmp_path)
    with pytest.raises(UserError, match=r"train\.jsonl: no such file"):
        read_splits(tmp_path / "elsewhere")


def test_a_file_instead_of_its_folder_is_refused_with_a_remedy(data: Path, tmp_path: Path) -> None:
    file = data / "train.jsonl"
    with pytest.raises(UserError, match=f"{file}: a file. Expected a folder that contains train.jsonl. Give {data}$"):
        read_splits(file)
    (tmp_path / "pairs.jsonl").write_bytes(file.read_bytes())
    with pytest.raises(UserError, match=r"pairs.jsonl: a file. .*. Put it into a folder as train.jsonl, and give that"):
        read_splits(tmp_path / "pairs.jsonl")
    with pytest.raises(UserError, match=f"{data}: a folder. Expected a .jsonl file. Name a file in it"):
        read_preferences(data)


def test_the_refusal_of_over_long_rows_states_their_number_the_first_one_and_a_remedy(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    rows = tuple(preference(number) for number in range(4))
    lengths = [len(tokenize_row(tokenizer, row.prompt, row.chosen).ids) for row in rows]
    assert lengths == sorted(lengths) and len(set(lengths)) == 4
    check_lengths(Splits(rows, ()), tokenizer, lengths[-1], Path())
    with pytest.raises(UserError) as problem:
        check_lengths(Splits(rows, ()), tokenizer, lengths[1], Path())
    message = str(problem.value)
    assert f"2 of 4 rows are longer than max_length_tokens = {lengths[1]}" in message
    assert f"the first is row 3 with {lengths[2]} tokens, the longest has {lengths[3]}" in message
    assert f"Set max_length_tokens to {lengths[3]}" in message


def test_the_longer_side_of_a_pair_determines_its_length(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    rows = [preference(0)]
    short = len(tokenize_row(tokenizer, rows[0].prompt, rows[0].chosen).ids)
    longer = (replace(rows[0], rejected="far " * 40),)
    with pytest.raises(UserError, match="1 of 1 rows"):
        check_lengths(Splits(longer, ()), tokenizer, short, Path())


def test_the_answer_form_of_rows_is_that_of_the_first_prompt(tmp_path: Path) -> None:
    cited = [vars(turn) for turn in answer_messages("Who?", (), "cited")]
    for row, expected in (
        ({"prompt": cited, "completion": "Ida [1]"}, "cited"),
        ({"messages": [*cited, {"role": "assistant", "content": "Ida [1]"}]}, "cited"),
        ({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ida"}]}, None),
        ({"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Ida"}]}, None),
        ({"instruction": "Who?", "output": "Ida"}, None),
        ({"prompt": "Who?", "completion": "Ida"}, None),
        (plain_preference_to_json(preference(0)), "reasoned"),
    ):
        write_jsonl(tmp_path / "train.jsonl", [row])
        assert form_of_rows(tmp_path) == expected, row
    assert form_of_rows(tmp_path / "nowhere") is None
