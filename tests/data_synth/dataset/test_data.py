"""`modegraph data validate` reports bad rows by line, with their faults; `data import` converts public sets to our formats."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from data_synth.cli import register
from data_synth.dataset.validate import validate_file
from data_synth.dataset.write import write_dataset
from data_synth.preferences.preference_form import PREFERENCES
from data_synth.rows import PreferenceRow, preference_to_json
from graph.documents.questions import read_questions, split_by_hash
from graph.errors import UserError
from graph.types import Message
from tests.places import DATA, ROOT


def good(number: int) -> PreferenceRow:
    return PreferenceRow(
        id=f"q{number}#1",
        prompt=(Message("user", f"Where {number}?"),),
        chosen="###Reason: So [1]. ###Answer: Tarn",
        rejected="Tarn",
        question_id=f"q{number}",
        question="Where?",
        answers=("tarn.",),
        kind="",
        split="train",
        context_size=1,
        context_ids=("a",),
        gold_in_context=1.0,
        reasoner="rules",
    )


def write(file: Path, *rows: dict[str, Any] | str) -> Path:
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def run(*words: object) -> Result:
    def no_model(spec: str, ledger: Path | None = None) -> Any:
        raise AssertionError(spec)

    app = typer.Typer()
    register(app, no_model)
    done = CliRunner().invoke(app, ["data", *map(str, words)])
    if isinstance(done.exception, Exception):
        raise done.exception
    return done


def answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_good_rows_pass_from_both_files(tmp_path: Path) -> None:
    write_dataset(tmp_path / "out", [good(1), good(2)], PREFERENCES, {})
    for name in ("train.jsonl", "train.parquet"):
        found = validate_file(tmp_path / "out" / name)
        assert (found.form, found.rows, found.bad, found.share_good) == ("preferences", 2, (), 1.0)
    done = run("validate", tmp_path / "out" / "train.jsonl")
    assert done.exit_code == 0 and "2 of 2 rows are good (100.0%)" in done.stdout


def test_a_gold_answer_that_spells_a_special_token_matches_its_escaped_form(tmp_path: Path) -> None:
    chosen = answer("###Reason: So [1]. ###Answer: < |endoftext| >")
    row = preference_to_json(good(1)) | {"answers": ["<|endoftext|>"], "chosen": chosen}
    assert validate_file(write(tmp_path / "x.jsonl", row)).bad == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chosen": answer(" ")}, "chosen is empty"),
        ({"chosen": answer("Tarn")}, "chosen and rejected are the same text"),
        ({"chosen": answer("Tarn.")}, "not of the form"),
        ({"chosen": answer("###Reason: So [1]. ###Answer: Quill")}, "'Quill', which is not a gold answer"),
        ({"chosen": answer("###Reason: So [2]. ###Answer: Tarn")}, "chosen cites [2] of 1 passages"),
        ({"rejected": answer("Tarn <|im_end|>")}, "rejected contains a special token"),
        ({"context_ids": []}, "context_size is 1, but there are 0"),
        ({"hard_negative": "longer"}, "unknown hard negative 'longer'"),
        ({"hard_negative": "wrong answer"}, "hard_negative is 'wrong answer', but rejected gives the chosen answer"),
        ({"split": "all"}, "split is 'all'"),
        ({"prompt": []}, "user turn"),
        ({"rejected": []}, "a malformed column"),
        ({"prompt": 7}, "a malformed column"),
    ],
)
def test_each_fault_is_reported_with_its_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = write(tmp_path / "x.jsonl", preference_to_json(good(1)), preference_to_json(good(2)) | change)
    found = validate_file(file)
    assert [row.line for row in found.bad] == [2] and any(message in problem for problem in found.bad[0].problems)
    done = run("validate", file)
    assert done.exit_code == 1 and "line 2 (q2#1): " in done.stdout and "remedy" in done.stdout


def test_missing_columns_broken_lines_and_duplicate_ids_are_reported(tmp_path: Path) -> None:
    short = preference_to_json(good(3))
    del short["answers"]
    file = write(tmp_path / "x.jsonl", preference_to_json(good(1)), "{", "[1]", preference_to_json(good(1)), short)
    found = json.loads(run("validate", file, "--json").stdout)
    assert [(row["line"], row["problems"][0]) for row in found["bad"]][1:] == [
        (3, "JSON, but not an object"),
        (4, "id 'q1#1' also appears above"),
        (5, "no column 'answers'"),
    ]
    assert found["bad"][0]["line"] == 2 and "not JSON" in found["bad"][0]["problems"][0]
    assert found["share_good"] == pytest.approx(0.2)


def test_rows_without_ids_are_not_reported_as_duplicates(tmp_path: Path) -> None:
    rows = [{name: value for name, value in preference_to_json(good(n)).items() if name != "id"} for n in (1, 2)]
    rows += [row | {"id": None} for row in rows]
    found = json.loads(run("validate", write(tmp_path / "x.jsonl", *rows), "--json").stdout)
    assert [row["line"] for row in found["bad"]] == [1, 2]
    assert not any("appears above" in problem for row in found["bad"] for problem in row["problems"])


def test_unreadable_files_and_files_in_an_unknown_format_are_refused(tmp_path: Path) -> None:
    for file, message in [
        (write(tmp_path / "a.jsonl", {"x": 1}), "columns 'x'.*or 'question' and 'answers'"),
        (write(tmp_path / "b.jsonl", "nonsense"), "no rows that can be read"),
        (tmp_path / "nowhere.jsonl", "nowhere.jsonl: no such file. Expected a .jsonl or .parquet file"),
        (tmp_path / "b.jsonl" / "train.jsonl", "b.jsonl: a file. Expected a folder that contains train.jsonl"),
        (write(tmp_path / "c.parquet", "no parquet"), "cannot be read"),
    ]:
        with pytest.raises(UserError, match=message):
            validate_file(file)


def test_a_folder_is_checked_file_by_file(tmp_path: Path) -> None:
    write_dataset(tmp_path / "out", [good(1), good(2)], PREFERENCES, {})
    write(tmp_path / "out" / "dev.jsonl", preference_to_json(good(3)) | {"chosen": answer(" ")})
    done = run("validate", tmp_path / "out")
    assert done.exit_code == 1 and [line.split(": ")[0].rpartition("/")[2] for line in done.stdout.splitlines()] == [
        *("train.jsonl", "dev.jsonl", "line 1 (q3#1)", "remedy")
    ]
    report = json.loads(run("validate", tmp_path / "out", "--json").stdout)
    assert [(each["rows"], len(each["bad"])) for each in report["files"]] == [(2, 0), (1, 1)]
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"empty: no \.jsonl file in it\. Expected a folder of training data or questions"
    ):
        run("validate", tmp_path / "empty")


def test_questions_are_checked_as_read_questions_checks_them(tmp_path: Path) -> None:
    done = run("validate", ROOT / "examples" / "questions.jsonl")
    assert done.exit_code == 0 and "questions, 237 of 237 rows are good (100.0%)" in done.stdout
    whole = {"id": "a", "question": "Where?", "answers": ["Tarn"], "gold_ids": ["a.md"]}
    faults: list[tuple[dict[str, Any], str]] = [
        ({"question": " "}, "'question' is ' '. Expected a non-empty string"),
        ({"answers": "Tarn"}, "'answers' is 'Tarn'. Expected a list of strings"),
        ({"answers": ["Tarn", ""]}, "an answer is empty"),
        ({"gold_ids": "a.md"}, "'gold_ids' is 'a.md'. Expected a list of strings"),
        ({"evidence": [{"id": "a.md"}]}, "'evidence' is [{'id': 'a.md'}]. Expected a list of"),
        ({"options": ["Tarn"]}, "'options' is ['Tarn']. Expected an object like"),
        ({"split": "held out"}, "split 'held out'. Expected one of train, dev, test"),
        ({"type": 1}, "'type' is 1. Expected a string"),
        ({"reasoning": ["So."]}, "'reasoning' is ['So.']. Expected a string"),
    ]
    rows = [whole, *(whole | {"id": f"b{number}"} | fault for number, (fault, _) in enumerate(faults))]
    found = validate_file(write(tmp_path / "questions.jsonl", *rows))
    assert found.form == "questions" and [row.line for row in found.bad] == list(range(2, 11))
    for row, (_, message) in zip(found.bad, faults, strict=True):
        assert row.problems[0].startswith(message)
    with pytest.raises(UserError, match=r"line 1: 'evidence' is \[7\]"):
        read_questions(write(tmp_path / "bad.jsonl", whole | {"evidence": [7]}))
    (empty,) = read_questions(write(tmp_path / "null.jsonl", whole | {"type": None, "reasoning": None}))
    assert (empty.kind, empty.reasoning) == ("", "")


def test_the_first_row_with_a_distinctive_column_determines_the_form(tmp_path: Path) -> None:
    row, bare = preference_to_json(good(1)), {"id": "q0", "question": "Where?", "answers": ["Tarn"]}
    found = validate_file(write(tmp_path / "x.jsonl", {"x": 1}, bare, row))
    assert found.form == "preferences" and [each.line for each in found.bad] == [1, 2]


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", preference_to_json(good(1)))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert validate_file(file).bad == ()


def test_public_sets_are_imported(tmp_path: Path) -> None:
    if not DATA.exists():
        pytest.skip(f"public sets not found: {DATA} (set MODEGRAPH_DATA to their folder)")
    counters: dict[str, Callable[[Path], int]] = {
        "pubmedqa": lambda out: len(read_questions(out / "questions.jsonl")),
        "medmcqa": lambda out: len(read_questions(out / "questions.jsonl")),
        "riddlesense": lambda out: len(read_questions(out / "questions.jsonl")),
        "qa_feedback": lambda out: sum(validate_file(file).rows for file in sorted(out.glob("*.jsonl"))),
    }
    folders = {"pubmedqa": "pubmedqa_l", "medmcqa": "medmcqa_dev", "riddlesense": "riddlesense"}
    for kind, count in counters.items():
        items = DATA / folders.get(kind, "qa_feedback_k4") / "items.jsonl"
        assert run("import", kind, items, "--out", tmp_path / kind).exit_code == 0
        assert count(tmp_path / kind) == items.read_bytes().count(b"\n")
    assert "made by `modegraph data import qa_feedback`" in (tmp_path / "qa_feedback" / "README.md").read_text()
    for file in (tmp_path / "qa_feedback").glob("*.jsonl"):
        assert validate_file(file).bad == ()
    first = read_questions(tmp_path / "pubmedqa" / "questions.jsonl")[0]
    assert first.answers[0] in ("yes", "no", "maybe") and first.reasoning and len(first.gold_sources) == 1
    choice = read_questions(tmp_path / "medmcqa" / "questions.jsonl")[0]
    assert "(A) Glycogen synthesis" in choice.text and choice.options is not None


def test_unknown_sets_and_malformed_rows_are_reported(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", {"id": "1", "question": "?"})
    with pytest.raises(UserError, match="set 'squad'"):
        run("import", "squad", file, "--out", tmp_path / "o")
    with pytest.raises(UserError, match="line 1: KeyError 'context'"):
        run("import", "pubmedqa", file, "--out", tmp_path / "o")
    for kind in ("pubmedqa", "medmcqa", "riddlesense"):
        with pytest.raises(UserError, match=rf"none\.jsonl: no rows\. Expected questions of {kind}"):
            run("import", kind, write(tmp_path / "none.jsonl"), "--out", tmp_path / "o")
    assert not (tmp_path / "o").exists()
    with pytest.raises(
        UserError, match=r"data import pubmedqa with --set\. Expected no --config or --set: only reading has settings"
    ):
        run("import", "pubmedqa", file, "--out", tmp_path / "o", "--set", "distractors=2")


@pytest.mark.parametrize("kind", ["pubmedqa", "medmcqa"])
def test_a_second_import_replaces_the_first_and_nothing_else(kind: str, tmp_path: Path) -> None:
    common = {"question": "Is it?", "split": "val"}
    fields = {
        "pubmedqa": {"context": ["One."], "label": "yes", "reasoning": "So."},
        "medmcqa": {"options": {"A": "a", "B": "b"}, "answer": "a", "reasoning": None},
    }
    out = tmp_path / "out"
    for numbers, which in (("12", "pubmedqa"), ("3", kind)):
        rows = [{"id": number, **common, **fields[which]} for number in numbers]
        assert run("import", which, write(tmp_path / "x.jsonl", *rows), "--out", out).exit_code == 0
        assert [(each.id, each.split) for each in read_questions(out)] == [(number, "dev") for number in numbers]
        assert "null" not in (out / "questions.jsonl").read_text()
    assert (out / "corpus.jsonl").exists() == (kind == "pubmedqa"), "no documents of the first import should be left"
    write(out / "corpus.jsonl", {"id": "own", "text": "A document of the user."})
    again = write(tmp_path / "again.jsonl", {"id": "4", **common, **fields["medmcqa"]})
    assert run("import", "riddlesense", again, "--out", out).exit_code == 0
    assert (out / "corpus.jsonl").exists() == (kind != "pubmedqa"), "only documents of an import should be deleted"
    write_dataset(tmp_path / "rows", [good(1)], PREFERENCES, {})
    (tmp_path / "foreign").mkdir()
    write(tmp_path / "foreign" / "questions.jsonl", common)
    for folder in ("rows", "foreign"):
        with pytest.raises(UserError, match="contains other files"):
            run("import", kind, tmp_path / "x.jsonl", "--out", tmp_path / folder)
    with pytest.raises(
        UserError, match=r"contains other files .* a new folder, or that of an earlier dataset of this kind"
    ):
        run("join", tmp_path / "rows", "--out", out)


def test_a_key_always_has_the_same_split_and_about_eight_in_ten_are_train() -> None:
    splits = [split_by_hash(str(n)) for n in range(1000)]
    assert splits[:4] == ["train", "train", "dev", "train"]
    assert 760 < splits.count("train") < 840 and 60 < splits.count("dev") < 140


LABELLED = {
    "id": "1",
    "passages": ["The organ was built in 1904.", " ", "Ada Marlow paid for it."],
    "sentence": "Ada Marlow",
    "question": "Who paid for the organ?",
    "supported": True,
    "kind": "answer",
    "split": "val",
}


def test_labelled_sentences_become_claims_with_the_licences_of_their_sets(tmp_path: Path) -> None:
    for name, licence in (("ants", "Licence: MIT (LICENSE)."), ("bees", "No licence is given.")):
        folder = tmp_path / "sets" / name
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(f"# {name}\n{licence}\n")
        other = {
            **LABELLED,
            "id": "2",
            "sentence": f"The {name} built it in 1911.",
            "supported": False,
            "split": "train",
        }
        write(folder / "rows.jsonl", LABELLED, other, {**LABELLED, "id": "3", "passages": [""]})
    out = tmp_path / "claims"
    summary = json.loads(run("import", "support", tmp_path / "sets", "--out", out, "--json").stdout)
    assert summary["by_split"] == {"train": 2, "dev": 1} and summary["duplicates"] == 1, (
        "the same sentence in both sets"
    )
    assert summary["drops"] == {"a row without a passage or a sentence": 2}
    assert summary["origin"] == {"Set ants, licence": "MIT (LICENSE).", "Set bees, licence": "not stated"}
    [row] = [json.loads(line) for line in (out / "dev.jsonl").read_text().splitlines()]
    assert (row["id"], row["dataset"], row["claim"]) == ("ants/1", "ants", "Who paid for the organ? Ada Marlow")
    assert (row["passage"], row["further"], row["supported"]) == (
        LABELLED["passages"][0],
        [LABELLED["passages"][2]],
        True,
    )
    assert "made by `modegraph data import support`" in (out / "README.md").read_text()
    assert run("validate", out).exit_code == 0 and run("validate", out / "dev.parquet").exit_code == 0


def test_sets_whose_folders_are_links_keep_their_own_names(tmp_path: Path) -> None:
    for name in ("ants", "bees"):
        folder = tmp_path / name / "data"
        folder.mkdir(parents=True)
        write(folder / "rows.jsonl", {**LABELLED, "sentence": f"The {name} built it."})
        (tmp_path / "sets").mkdir(exist_ok=True)
        (tmp_path / "sets" / name).symlink_to(folder)
    assert run("import", "support", tmp_path / "sets", "--out", tmp_path / "out").exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / "dev.jsonl").read_text().splitlines()]
    assert [row["dataset"] for row in rows] == ["ants", "bees"]
    run("import", "support", tmp_path / "sets" / "ants", "--out", tmp_path / "one")
    assert json.loads((tmp_path / "one" / "dev.jsonl").read_text())["dataset"] == "data"


def test_an_import_that_loses_most_rows_ends_with_status_1(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", LABELLED, *({**LABELLED, "id": number, "passages": []} for number in "23"))
    done = run("import", "support", tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 1 and "2 rows were dropped, only 1 remain" in done.stderr


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"passages": "a string"}, r"rows\.jsonl line 2: not a labelled sentence"),
        ({"supported": 1}, r"rows\.jsonl line 2: not a labelled sentence"),
        ({"split": "late"}, r"rows\.jsonl line 2: split is 'late'\. Expected one of train, val, validation, dev, test"),
    ],
)
def test_a_malformed_labelled_sentence_is_reported(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    write(tmp_path / "rows.jsonl", LABELLED, {**LABELLED, **change})
    with pytest.raises(UserError, match=expected):
        run("import", "support", tmp_path, "--out", tmp_path / "out")
    with pytest.raises(UserError, match=r"no rows\.jsonl in it or in any of its folders"):
        run("import", "support", tmp_path / "nowhere", "--out", tmp_path / "out")
