import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from data_synth.cli import register
from data_synth.preferences import reasons
from graph.documents.questions import read_questions
from graph.errors import UserError
from graph.types import CompletionRequest, LanguageModel
from serve.ledger import Ledger
from tests.fakes import ScriptedModel
from tests.places import DATA

BORN = {
    "id": "born",
    "question": "Where was Ada Marlow born?",
    "answers": ["Tarn", "in Tarn"],
    "gold_ids": ["ada"],
    "evidence": [{"id": "ada", "quote": "She was born in Tarn and died on 4 May 1931."}],
    "type": "single",
    "split": "train",
}
KELP = {
    "id": "kelp",
    "question": "How long does kelp bread keep?",
    "answers": ["nine days"],
    "gold_ids": ["bread"],
    "type": "single",
    "split": "test",
}


pytestmark = pytest.mark.usefixtures("open_hashed")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "questions.jsonl", BORN, KELP)


def write_rows(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def run(index: Path, questions: Path, *arguments: object, model: ScriptedModel | None = None) -> Result:
    def open_model(spec: str, ledger: Path | None = None) -> LanguageModel:
        assert model is not None and spec == "scripted"
        return model if ledger is None else Ledger(model, ledger)

    app = typer.Typer()
    register(app, open_model)
    words = ["synth", "preferences", str(index), "--questions", str(questions), *map(str, arguments)]
    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, Exception):
        raise done.exception
    return done


def rows_in(folder: Path, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


def test_rows_are_written_and_summarised(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    done = run(hashed_isles, questions, "--out", tmp_path / "out", "--top-k", 3, "--json")
    summary = json.loads(done.stdout)
    assert done.exit_code == 0
    assert summary["by_split"] == {"train": 3, "test": 3} and summary["counts"]["context size"] == dict.fromkeys(
        "123", 2
    )
    for row in rows_in(tmp_path / "out", "train"):
        holders = [n for n, text in enumerate(row["prompt"][1]["content"].split("\n[")) if "born in Tarn" in text]
        found = f"She was born in Tarn and died on 4 May 1931 [{holders[0]}]. ###Answer: Tarn" if holders else None
        expected = f"###Reason: {found or 'None of the passages says so. ###Answer: not in the documents'}"
        assert row["chosen"][0]["content"] == expected
    assert any("[" in row["chosen"][0]["content"] for row in rows_in(tmp_path / "out", "train"))
    assert not (tmp_path / "out" / "ledger.sqlite").exists()


def test_a_judge_without_a_writer_is_refused(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    """Reasoning by rules is never judged, so the card must not name a judge."""
    with pytest.raises(UserError, match="judge scripted without a writer"):
        run(hashed_isles, questions, "--out", tmp_path / "out", "--judge", "scripted")


def test_two_writers_with_the_same_name_are_refused(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    """Their rows would have the same ids."""
    writers = ("--writer", "scripted", "--writer", "scripted")
    with pytest.raises(UserError, match="two writers are named 'scripted'"):
        run(hashed_isles, questions, "--out", tmp_path / "out", *writers, model=ScriptedModel(lambda _: ""))


def test_the_same_inputs_give_the_same_bytes(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(hashed_isles, questions, "--out", tmp_path / name, "--mode", "hierarchy")
    files = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in files)


def test_a_preview_writes_nothing(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    shown = json.loads(run(hashed_isles, questions, "--preview", 2, "--json").stdout)
    assert [row["id"] for row in shown["rows"]] == ["born#1", "born#2"]
    assert "  assistant: ###Reason: She was born" in run(hashed_isles, questions, "--preview", 1).stdout
    assert list(tmp_path.iterdir()) == [questions]


def test_a_writing_model_is_called_through_the_ledger_and_its_failures_are_counted(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    bad = iter(["no form", "###Reason: Given the answer, Tarn. ###Answer: Tarn", "###Reason: So. ###Answer: Quill"])

    def reply(request: CompletionRequest) -> str:
        text = request.messages[0].content
        if "kelp bread keep" in text:
            return "###Reason: It keeps for nine days [1] [8]. ###Answer: Nine days."
        return next(bad, "###Reason: She was born in Tarn and died in 1931. ###Answer: Tarn")

    model = ScriptedModel(reply, batch_size=8)
    out = tmp_path / "out"
    options = ("--out", out, "--top-k", 3, "--writer", "scripted")
    done = run(hashed_isles, questions, *options, "--json", model=model)
    summary = json.loads(done.stdout)
    assert summary["drops"] == {reasons.WRONG: 1, reasons.LEAK: 1, reasons.MALFORMED: 1}
    assert summary["rows"] == 3 and done.exit_code == 0
    kelp = [row["chosen"][0]["content"] for row in rows_in(out, "test") if row["reasoner"] == "scripted"]
    assert kelp and set(kelp) == {"###Reason: It keeps for nine days [1]. ###Answer: nine days"}
    refused = [row for row in rows_in(out, "test") if row["reasoner"] == "rules"]
    assert len(kelp) + len(refused) == 3 and all(row["kind"] == "unanswerable" for row in refused)

    before = {name: (out / name).read_bytes() for name in ("test.jsonl", "test.parquet", "README.md")}
    run(hashed_isles, questions, *options, model=model)
    assert len(model.requests) == 3 + len(kelp), "the second run sends no requests"
    assert {name: (out / name).read_bytes() for name in before} == before


def test_losing_most_rows_ends_with_status_1(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: "not in the required form")
    done = run(hashed_isles, questions, "--out", tmp_path / "out", "--writer", "scripted", model=model)
    assert done.exit_code == 1
    assert "rows were dropped, only 0 remain" in done.stderr


def test_splits_can_be_chosen(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    run(hashed_isles, questions, "--out", tmp_path / "out", "--split", "train", "--split", "dev")
    assert (tmp_path / "out" / "train.jsonl").exists() and not (tmp_path / "out" / "test.jsonl").exists()


def test_context_sizes_and_questions_can_be_chosen(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    run(hashed_isles, questions, "--out", tmp_path / "sized", "--top-k", 3, "--context-size", 1, "--context-size", 3)
    assert [row["id"] for row in rows_in(tmp_path / "sized", "train")] == ["born#1", "born#3"]
    every, some = tmp_path / "every", set()
    run(hashed_isles, questions, "--out", every, "--top-k", 1)
    for seed in range(6):
        out = tmp_path / f"seed-{seed}"
        run(hashed_isles, questions, "--out", out, "--top-k", 1, "--limit", 1, "--seed", seed)
        (file,) = out.glob("*.jsonl")
        assert file.read_bytes() == (every / file.name).read_bytes()
        some.add(file.name)
    assert some == {"train.jsonl", "test.jsonl"}, "the seed decides which question is drawn"


def test_evidence_is_quoted_only_if_the_passages_contain_all_of_it(hashed_isles: Path, tmp_path: Path) -> None:
    reasoned = {**BORN, "reasoning": "The page about her says so."}
    two = {**reasoned, "id": "two", "question": "Where was she born?", "gold_ids": ["ada", "bread"]}
    two["evidence"] = [*BORN["evidence"], {"id": "bread", "quote": "It was never baked here."}]
    done = run(
        hashed_isles,
        write_rows(tmp_path / "reasoned.jsonl", reasoned, two),
        *("--out", tmp_path / "out", "--top-k", 3, "--json"),
    )
    drops = json.loads(done.stdout)["drops"]
    assert drops["the context does not contain every evidence sentence"] >= 1
    for row in rows_in(tmp_path / "out", "train"):
        if row["kind"] == "unanswerable":
            continue
        assert row["question_id"] == "born" and row["context_size"] > 0
        expected = r"###Reason: She was born in Tarn and died on 4 May 1931 \[\d\]\. ###Answer: Tarn"
        assert re.fullmatch(expected, row["chosen"][0]["content"])


def test_bad_input_is_reported_and_writes_nothing(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    elsewhere = write_rows(tmp_path / "other.jsonl", {**BORN, "gold_ids": ["mars"]})
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").touch()
    out = tmp_path / "out"
    for arguments, message in [
        ((hashed_isles, elsewhere, "--out", out), "not in the index: 'mars'"),
        ((hashed_isles, questions), "no --out"),
        ((hashed_isles, questions, "--out", out, "--mode", "magic"), "magic"),
        ((hashed_isles, questions, "--out", out, "--split", "all"), "--split all"),
        ((hashed_isles, questions, "--out", mine), "contains other files"),
        ((tmp_path / "nowhere", questions, "--out", out), "nowhere"),
    ]:
        with pytest.raises(UserError, match=message):
            run(*arguments)
    assert not out.exists()


@pytest.mark.parametrize(
    "name", ["2wiki_dev164", "hotpotqa_train", "musique_train100", "entailmentbank", "graphragbench_medical"]
)
def test_public_question_sets_are_read(name: str) -> None:
    file = DATA / name / "questions.jsonl"
    if not file.exists():
        pytest.skip(f"public sets not found: {file} (set MODEGRAPH_DATA to their folder)")
    found = read_questions(file)
    assert len(found) >= 100 and not any(question.evidence for question in found)
