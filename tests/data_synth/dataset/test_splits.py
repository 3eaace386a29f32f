"""Splitting questions, and joining training data."""

import json
from collections import Counter
from pathlib import Path

import pytest

from data_synth.dataset.split_join import join_rows, split_questions
from data_synth.rows import response_to_json
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.commands import run
from tests.train.world import response_row


def questions(folder: Path, **stated: str) -> Path:
    rows = [{"id": f"q{n}", "question": f"What is {n}?", "answers": [str(n)], "level": "easy"} for n in range(40)]
    for row in rows:
        row |= {"split": stated[row["id"]]} if row["id"] in stated else {}  # type: ignore[call-overload]
    write_jsonl(folder / "questions.jsonl", rows)
    return folder / "questions.jsonl"


def by_split(rows: list[dict[str, str]]) -> dict[str, set[str]]:
    return {split: {row["id"] for row in rows if row["split"] == split} for split in ("train", "dev", "test")}


def test_the_split_depends_only_on_ids_and_seed(tmp_path: Path) -> None:
    file = questions(tmp_path)
    counts = {"train": 10, "dev": 5, "test": 20}
    rows = split_questions(file, tmp_path / "none", counts, 0)
    assert Counter(row["split"] for row in rows) == counts
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), key=lambda one: int(one[1:]))
    assert all(row["level"] == "easy" for row in rows), "other fields of a row are unchanged"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(reversed(lines)))
    assert by_split(split_questions(file, tmp_path / "none", counts, 0)) == by_split(rows)
    assert by_split(split_questions(file, tmp_path / "none", counts, 1)) != by_split(rows)


def test_stated_splits_are_respected_unless_anew_is_set(tmp_path: Path) -> None:
    file = questions(tmp_path, **{f"q{n}": "test" if n < 5 else "train" for n in range(10)})
    found = by_split(split_questions(file, tmp_path / "none", {"train": 25, "dev": 5, "test": 5}, 0))
    assert not {f"q{n}" for n in range(5)} & (found["train"] | found["dev"])
    assert not {f"q{n}" for n in range(5, 10)} & found["test"]
    with pytest.raises(UserError, match=r"35 questions are left for test. Expected 36, as set by --test"):
        split_questions(file, tmp_path / "none", {"test": 36}, 0)
    assert len(split_questions(file, tmp_path / "none", {"test": 36}, 0, anew=True)) == 36


def test_numbered_gold_sentences_become_quotes(tmp_path: Path) -> None:
    row = {"id": "a", "question": "Who?", "answers": ["Ada"], "gold_ids": ["d"], "supporting_sentences": [["d", 1]]}
    write_jsonl(tmp_path / "questions.jsonl", [row])
    write_jsonl(
        tmp_path / "corpus.jsonl",
        [{"id": "d", "text": "It rained. Ada came.", "sentences": ["It rained.", "Ada came."]}],
    )
    arguments = [
        "data",
        "split",
        "--questions",
        str(tmp_path / "questions.jsonl"),
        "--test",
        "1",
        "--out",
        str(tmp_path / "q.jsonl"),
    ]
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "q.jsonl").read_text())["evidence"] == [{"id": "d", "quote": "Ada came."}]


def test_data_of_one_kind_is_joined_and_keeps_its_splits(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "train", "test")):
        (tmp_path / f"part{number}").mkdir()
        row = {**response_to_json(response_row(number)), "id": f"row{number}", "split": split}
        write_jsonl(tmp_path / f"part{number}" / f"{split}.jsonl", [row])
    parts = [str(tmp_path / f"part{number}") for number in range(3)]
    done = run("data", "join", *parts, "--out", tmp_path / "all")
    assert done.exit_code == 0, done.output
    ids = {
        s: [json.loads(line)["id"] for line in (tmp_path / "all" / f"{s}.jsonl").read_text().splitlines()]
        for s in ("train", "test")
    }
    assert ids == {"train": ["row0", "row1"], "test": ["row2"]}
    assert "made by `modegraph data join`" in (tmp_path / "all" / "README.md").read_text()


def test_an_empty_file_can_be_joined_with_others_but_is_refused_alone(tmp_path: Path) -> None:
    row = response_to_json(response_row(0))
    for name, rows in {"empty": [], "a": [row]}.items():
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "train.jsonl", rows)
    form, found = join_rows([tmp_path / "empty", tmp_path / "a"])
    assert form.name == "responses" and len(list(found)) == 1
    with pytest.raises(UserError, match=r"train\.jsonl: no rows"):
        join_rows([tmp_path / "empty"])


def test_data_that_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    row = response_to_json(response_row(0))
    late, plain = {**row, "id": "late", "split": "late"}, {"id": "q", "question": "Who?", "answers": ["Ada"]}
    short = {**row, "id": "short", "responses": [], "rewards": {"correct": []}}
    parts = {
        "a": row,
        "again": row,
        "pair": {"chosen": "x"},
        "none": None,
        "late": late,
        "short": short,
        "plain": plain,
    }
    for name, values in parts.items():
        (tmp_path / name).mkdir()
        if values is not None:
            write_jsonl(tmp_path / name / "train.jsonl", [values])
    for second, message in {
        "again": "appears twice",
        "pair": "a row of preferences",
        "none": "no train.jsonl, dev.jsonl or test.jsonl",
        "late": "line 1: split is 'late', expected one of train, dev, test",
        "short": "line 1: 0 responses, expected at least 2. Expected a row of responses",
        "plain": "which identify the kind of data. Give rows made by",
    }.items():
        with pytest.raises(UserError, match=message):
            list(join_rows([tmp_path / "a", tmp_path / second])[1])
