"""Splitting questions, and joining training data."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_synth.dataset.split_join import join_rows, split_questions
from data_synth.relevance.relevance_form import relevance_to_json
from data_synth.rows import plain_preference_to_json, preference_to_json, response_to_json
from graph.errors import UserError
from graph.shared.jsonl import write_json, write_jsonl
from tests.commands import run
from tests.data_synth.dataset.test_data import good
from tests.train.selector.rows import make_rows
from tests.train.world import response_row
from train.selector.selector_data import read_folder, shares_passages


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
    assert all(row["level"] == "easy" for row in rows), "other fields of a row should be unchanged"
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


def test_the_corpus_is_in_the_folder_of_the_questions_even_if_the_folder_is_given(tmp_path: Path) -> None:
    row = {"id": "a", "question": "Who?", "answers": ["Ada"], "gold_ids": ["d"], "supporting_sentences": [["d", 0]]}
    folder = tmp_path / "set"
    folder.mkdir()
    write_jsonl(folder / "questions.jsonl", [row])
    write_jsonl(folder / "corpus.jsonl", [{"id": "d", "text": "Ada came.", "sentences": ["Ada came."]}])
    done = run("data", "split", "--questions", folder, "--test", 1, "--out", tmp_path / "q.jsonl")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "q.jsonl").read_text())["evidence"] == [{"id": "d", "quote": "Ada came."}]


def test_a_split_is_not_written_over_its_questions_or_a_folder(tmp_path: Path) -> None:
    file = questions(tmp_path)
    before = file.read_bytes()
    for given, out, message in (
        (file, file, "the file of --questions"),
        (tmp_path, tmp_path / "." / "questions.jsonl", "the file of --questions"),
        (file, tmp_path, "a folder"),
    ):
        done = run("data", "split", "--questions", given, "--test", 5, "--out", out)
        assert isinstance(done.exception, UserError) and message in str(done.exception), done.output
        assert file.read_bytes() == before and sorted(tmp_path.iterdir()) == [file]


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


def write_part(folder: Path, row: dict[str, Any], origin: dict[str, str]) -> Path:
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", [row])
    write_json(folder / "summary.json", {"made_by": "modegraph", "form": "", "origin": origin})
    return folder


def joined(folder: Path, *parts: Path) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """The rows of the joined folders, the summary, and the card."""
    done = run("data", "join", *map(str, parts), "--out", folder)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return rows, json.loads((folder / "summary.json").read_text()), (folder / "README.md").read_text()


def test_joined_relevance_rows_state_their_encoder_and_what_their_splits_share(tmp_path: Path) -> None:
    rows = [relevance_to_json(row) for row in make_rows("train", 1, 0)[:3]]
    origins = [
        {"Index": "a", "Encoder": "hash", "Split by": "passages"},
        {"Index": "b", "Encoder": "hash", "Split by": "questions"},
        {"Index": "a", "Encoder": "other", "Split by": "passages"},
    ]
    parts = [write_part(tmp_path / f"part{n}", *each) for n, each in enumerate(zip(rows, origins, strict=True))]
    found, summary, _ = joined(tmp_path / "all", *parts[:2])
    assert len(found) == 2
    assert summary["origin"] == {**origins[1], "Index": "a; b", "Joined from": "part0, part1"}
    assert shares_passages(read_folder(tmp_path / "all")), "the passages of the second part may be in two splits"
    with pytest.raises(UserError, match=r"several encoders \(.*part0 with hash, .*part2 with other\)"):
        raise run("data", "join", parts[0], parts[2], "--out", tmp_path / "out").exception


def test_rows_joined_with_rows_of_unstated_splits_count_as_split_by_questions(tmp_path: Path) -> None:
    rows = [relevance_to_json(row) for row in make_rows("train", 1, 0)[:2]]
    origins = [{"Encoder": "hash", "Split by": "passages"}, {"Encoder": "hash"}]
    parts = [write_part(tmp_path / f"part{n}", *each) for n, each in enumerate(zip(rows, origins, strict=True))]
    _, summary, _ = joined(tmp_path / "all", *parts)
    assert summary["origin"]["Split by"] == "questions"


def test_joined_rows_without_their_encoder_must_be_joined_again(tmp_path: Path) -> None:
    rows = [relevance_to_json(row) for row in make_rows("train", 1, 0)[:2]]
    origins = [{"Encoder": "hash"}, {"Joined from": "a, b"}]
    parts = [write_part(tmp_path / f"part{n}", *each) for n, each in enumerate(zip(rows, origins, strict=True))]
    with pytest.raises(UserError, match=r"part1 with an unknown .* Join the original folders again"):
        raise run("data", "join", *parts, "--out", tmp_path / "out").exception


def test_claims_labelled_by_people_are_not_joined_with_claims_made_by_rules(tmp_path: Path) -> None:
    claim = {"title": "", "passage": "It sank.", "claim": "It sank.", "supported": True, "kind": "", "split": "train"}
    made = write_part(tmp_path / "made", {**claim, "id": "made"}, {})
    labelled = write_part(tmp_path / "labelled", {**claim, "id": "labelled", "dataset": "ants"}, {})
    for first, second, found in ((made, labelled, "labelled claims"), (labelled, made, "claims")):
        with pytest.raises(UserError, match=f"line 1: a row of {found}. Expected"):
            list(join_rows([first, second])[1])


def test_joined_claims_state_that_people_labelled_them_and_their_licences(tmp_path: Path) -> None:
    claim = {"title": "", "passage": "It sank.", "claim": "It sank.", "supported": True, "kind": "", "split": "train"}
    parts = [
        write_part(
            tmp_path / name, {**claim, "id": name, "passage": name, "dataset": name}, {f"Set {name}, licence": of}
        )
        for name, of in (("ants", "MIT"), ("bees", "not stated"))
    ]
    _, summary, card = joined(tmp_path / "all", *parts)
    assert summary["origin"]["Set ants, licence"] == "MIT" and summary["origin"]["Set bees, licence"] == "not stated"
    assert "labelled by people" in card


def test_joined_plain_preferences_stay_plain(tmp_path: Path) -> None:
    plain, chat = plain_preference_to_json(good(1)), preference_to_json(good(2))
    parts = [write_part(tmp_path / str(n), row, {}) for n, row in enumerate((plain, chat))]
    rows, *_ = joined(tmp_path / "plain", *parts)
    assert rows == [plain, plain_preference_to_json(good(2))]
    rows, *_ = joined(tmp_path / "chat", *reversed(parts))
    assert rows == [chat, preference_to_json(good(1))]


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
