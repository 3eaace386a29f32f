"""The command `synth relevance` and the files that it writes."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from data_synth import cli
from graph.errors import UserError
from graph.types import CompletionRequest, LanguageModel
from serve.ledger import Ledger
from tests.data_synth.test_cli import write_rows
from tests.fakes import ScriptedModel

QUESTIONS = [
    {"id": "born", "question": "Where was Ada Marlow born?", "gold_ids": ["ada"], "supporting_sentences": [["ada", 1]]},
    {
        "id": "kelp",
        "question": "How long does kelp bread keep?",
        "gold_ids": ["bread"],
        "context_ids": ["bread", "tarn"],
    },
]
CORPUS = [{"id": "ada", "sentences": ["Ada Marlow was a shipwright.", "She was born in Tarn and died on 4 May 1931."]}]


pytestmark = pytest.mark.usefixtures("open_hashed")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    write_rows(tmp_path / "corpus.jsonl", *CORPUS)
    return write_rows(tmp_path / "questions.jsonl", *QUESTIONS)


def run(index: Path, questions: Path, *arguments: object, model: ScriptedModel | None = None) -> Result:
    def open_model(spec: str, ledger: Path | None = None) -> LanguageModel:
        assert model is not None and spec == "scripted"
        return model if ledger is None else Ledger(model, ledger)

    synth = typer.Typer()
    cli.register_relevance(synth, open_model)
    options = [str(index), "--questions", str(questions), *map(str, arguments)]
    return CliRunner().invoke(synth, options)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def test_relevance_writes_rows_that_datasets_can_load(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(hashed_isles, questions, "--out", out, "--negatives", 3, "--json")
    assert result.exit_code == 0, result.output
    rows = lines(out)
    assert json.loads(result.stdout)["rows"] == len(rows) > 8
    assert {row["labelled_by"] for row in rows if row["question_id"] == "born"} == {"sentence"}
    assert {row["labelled_by"] for row in rows if row["question_id"] == "kelp"} == {"passage"}
    assert sum(row["label"] for row in rows) == 1 + 2
    assert "Hard negatives for a question: 3" in (out / "README.md").read_text()
    assert sorted(file.stem for file in out.glob("*.parquet")) == sorted(file.stem for file in out.glob("*.jsonl"))


def test_questions_may_be_a_folder_with_its_corpus(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    result = run(hashed_isles, questions.parent, "--out", tmp_path / "out", "--negatives", 3)
    assert result.exit_code == 0, result.output
    assert {row["labelled_by"] for row in lines(tmp_path / "out") if row["question_id"] == "born"} == {"sentence"}


def test_relevance_previews_without_writing(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    result = run(hashed_isles, questions, "--preview", 2, "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["rows"]) == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["corpus.jsonl", "questions.jsonl"]


def test_the_same_seed_writes_the_same_bytes(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert run(hashed_isles, questions, "--out", tmp_path / name, "--seed", 5).exit_code == 0
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_another_corpus_file_can_be_given(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").rename(tmp_path / "elsewhere.jsonl")
    missing = run(hashed_isles, questions, "--out", tmp_path / "out")
    assert isinstance(missing.exception, UserError) and "Give --corpus FILE" in str(missing.exception)
    found = run(hashed_isles, questions, "--out", tmp_path / "out", "--corpus", tmp_path / "elsewhere.jsonl")
    assert found.exit_code == 0, found.output


def test_a_second_dataset_shares_nothing_with_the_other_splits_of_the_first(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    first = write_rows(tmp_path / "first.jsonl", {**QUESTIONS[0], "split": "test"})
    bell = {"id": "bell", "question": "When does the bell ring?", "gold_ids": ["tarn"], "context_ids": ["ada"]}
    second = write_rows(tmp_path / "second.jsonl", {**bell, "split": "train"}, {**QUESTIONS[1], "split": "train"})
    one, two, apart = tmp_path / "one", tmp_path / "two", tmp_path / "apart"
    assert run(hashed_isles, first, "--out", one, "--negatives", 3).exit_code == 0
    assert run(hashed_isles, second, "--out", two).exit_code == 0
    assert run(hashed_isles, second, "--out", apart, "--beside", one).exit_code == 0
    in_first = {row["proposition_id"] for row in lines(one)}
    in_train = [{row["proposition_id"] for row in lines(folder) if row["split"] == "train"} for folder in (two, apart)]
    assert in_first & in_train[0] and not in_first & in_train[1]


def test_a_question_of_the_other_dataset_gets_the_split_that_it_has_in_that_dataset(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    first = write_rows(tmp_path / "first.jsonl", {**QUESTIONS[0], "split": "test"})
    again = {**QUESTIONS[0], "id": "again", "question": "WHERE was Ada Marlow born?", "split": "train"}
    second = write_rows(tmp_path / "second.jsonl", again)
    one, apart = tmp_path / "one", tmp_path / "apart"
    assert run(hashed_isles, first, "--out", one).exit_code == 0
    assert run(hashed_isles, second, "--out", apart, "--beside", one).exit_code == 0
    assert {row["split"] for row in lines(apart)} == {"test"}


def test_beside_keeps_shared_propositions_of_the_same_split_if_questions_are_split(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    one, same, other = tmp_path / "one", tmp_path / "same", tmp_path / "other"
    first = write_rows(tmp_path / "first.jsonl", {**QUESTIONS[0], "split": "train"})
    assert run(hashed_isles, first, "--out", one, "--negatives", 1).exit_code == 0
    again = {**QUESTIONS[0], "id": "again", "question": "In which place was Ada Marlow born?"}
    by_questions = ("--split-by", "questions", "--beside", one)
    for split, out in (("train", same), ("test", other)):
        second = write_rows(tmp_path / "second.jsonl", {**again, "split": split}, {**QUESTIONS[1], "split": split})
        assert run(hashed_isles, second, "--out", out, *by_questions).exit_code == 0
    in_one, in_same, in_other = ({row["proposition_id"] for row in lines(folder)} for folder in (one, same, other))
    assert in_one & in_same and in_other and not in_one & in_other


def test_a_question_in_two_splits_of_the_other_datasets_is_reported(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    for split in ("train", "test"):
        rows = write_rows(tmp_path / "other.jsonl", {**QUESTIONS[0], "split": split})
        assert run(hashed_isles, rows, "--out", tmp_path / split).exit_code == 0
    beside = ("--beside", tmp_path / "train", "--beside", tmp_path / "test")
    result = run(hashed_isles, questions, "--out", tmp_path / "out", *beside)
    message = "question 'Where was Ada Marlow born?', which is also in train"
    assert isinstance(result.exception, UserError) and message in str(result.exception)


def test_beside_needs_a_folder_with_a_dataset(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    result = run(hashed_isles, questions, "--out", tmp_path / "out", "--beside", tmp_path / "nowhere")
    assert isinstance(result.exception, UserError) and "nowhere: no dataset" in str(result.exception)


def test_a_missing_out_option_is_reported(hashed_isles: Path, questions: Path) -> None:
    result = run(hashed_isles, questions)
    assert isinstance(result.exception, UserError) and "--out" in str(result.exception)


def test_distilled_labels_are_requested_once(hashed_isles: Path, questions: Path, tmp_path: Path) -> None:
    def select(request: CompletionRequest) -> str:
        return json.dumps({"selected": [1, 2]})

    first, again = ScriptedModel(select), ScriptedModel(select)
    options = ("--out", tmp_path / "out", "--distil-from", "scripted")
    assert run(hashed_isles, questions, *options, model=first).exit_code == 0
    rows = lines(tmp_path / "out")
    assert {row["labelled_by"] for row in rows} == {"model"} and sum(row["label"] for row in rows) == 2 * 2
    assert run(hashed_isles, questions, *options, model=again).exit_code == 0
    assert len(first.requests) >= 2 and again.requests == []
    assert lines(tmp_path / "out") == rows


def test_if_unusable_replies_cost_most_of_the_rows_the_exit_code_is_1(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    model = ScriptedModel(lambda request: "I cannot")
    result = run(hashed_isles, questions, "--out", tmp_path / "out", "--distil-from", "scripted", model=model)
    assert result.exit_code == 1


def test_a_gold_document_that_is_not_in_the_index_is_reported(hashed_isles: Path, tmp_path: Path) -> None:
    lost = write_rows(tmp_path / "lost.jsonl", {"id": "q", "question": "Where?", "gold_ids": ["atlantis"]})
    result = run(hashed_isles, lost, "--out", tmp_path / "out")
    assert isinstance(result.exception, UserError) and "atlantis" in str(result.exception)


@pytest.mark.parametrize("split_by", ["passages", "questions"])
def test_the_summary_records_whether_passages_or_questions_were_split(
    hashed_isles: Path, questions: Path, tmp_path: Path, split_by: str
) -> None:
    result = run(hashed_isles, questions, "--out", tmp_path / "out", "--split-by", split_by)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["origin"]["Split by"] == split_by
