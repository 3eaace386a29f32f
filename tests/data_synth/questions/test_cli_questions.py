import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from data_synth.cli_generate import register_questions
from graph.build.build import build_index
from graph.documents.questions import read_questions
from graph.errors import UserError
from graph.store.index_settings import IndexSettings
from graph.types import CompletionRequest, Document, LanguageModel
from serve.ledger import Ledger
from tests.data_synth.questions.films import FILMS, TOGETHER
from tests.fakes import HashEncoder, ScriptedModel

pytestmark = pytest.mark.usefixtures("open_hashed")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films") / "index"
    build_index(folder, FILMS, IndexSettings(min_similarity=0.1), lambda spec: HashEncoder())
    return folder


def run(index: Path, *arguments: object, model: ScriptedModel | None = None) -> Result:
    def open_model(spec: str, ledger: Path | None = None) -> LanguageModel:
        assert model is not None
        return model if ledger is None else Ledger(model, ledger)

    synth = typer.Typer()
    synth.callback()(lambda: None)
    register_questions(synth, open_model)
    done = CliRunner().invoke(synth, ["questions", str(index), "--seed", str(TOGETHER), *map(str, arguments)])
    if isinstance(done.exception, Exception):
        raise done.exception
    return done


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.jsonl")}


def test_evaluation_reads_the_written_folder_of_questions(index: Path, tmp_path: Path) -> None:
    done = run(index, "--out", tmp_path / "out", "--count", 4, "--json")
    summary = json.loads(done.stdout)
    assert done.exit_code == 0 and summary["rows"] == 4
    questions = [row for file in sorted((tmp_path / "out").glob("*.jsonl")) for row in read_questions(file)]
    assert len(questions) == 4 and all(question.answers and question.gold_sources for question in questions)
    of_folder = read_questions(tmp_path / "out")
    assert sorted(question.id for question in of_folder) == sorted(question.id for question in questions)
    (tmp_path / "out" / "questions.jsonl").write_text('{"id": "own", "question": "Who?"}\n')
    assert [question.id for question in read_questions(tmp_path / "out")] == ["own"], (
        "if there is a questions.jsonl, only it is read"
    )
    with pytest.raises(UserError, match=r"none of questions.jsonl, train.jsonl.*a folder written by `synth questions`"):
        read_questions(tmp_path)
    (tmp_path / "out" / "questions.jsonl").unlink()
    run(index, "--out", tmp_path / "again", "--count", 4)
    assert files_of(tmp_path / "again") == files_of(tmp_path / "out")


def test_hops_selects_questions_and_a_shortage_is_reported(index: Path) -> None:
    done = run(index, "--hops", 3, "--count", 50, "--preview", 50, "--json")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    assert rows and {row["hops"] for row in rows} == {3}
    assert f"{len(rows)} of 50 questions" in done.stderr and "Index more documents" in done.stderr
    assert done.exit_code == 1
    enough = run(index, "--hops", 3, "--count", len(rows), "--preview", 50, "--json")
    assert enough.exit_code == 0 and enough.stderr == ""


def test_too_few_questions_are_written_and_the_exit_status_is_1(index: Path, tmp_path: Path) -> None:
    done = run(index, "--count", 400, "--out", tmp_path / "out", "--json")
    rows = json.loads(done.stdout)["rows"]
    assert done.exit_code == 1 and 0 < rows < 400 and (tmp_path / "out" / "train.jsonl").is_file()
    assert f"{rows} of 400 questions: no more can be made from the sentences of this index" in done.stderr
    assert run(index, "--out", tmp_path / "all").exit_code == 0, "without --count, all questions are written"


def test_a_share_of_questions_has_no_answer(index: Path, tmp_path: Path) -> None:
    done = run(index, "--count", 8, "--unanswerable", 0.25, "--out", tmp_path / "out")
    questions = [row for file in (tmp_path / "out").glob("*.jsonl") for row in read_questions(file)]
    without = [question for question in questions if not question.answers]
    assert done.exit_code == 0 and len(questions) == 8 and len(without) == 2
    assert all(question.kind == "unanswerable" and question.gold_sources == () for question in without)
    with pytest.raises(UserError, match=r"--unanswerable 0.25 with --writer"):
        run(index, "--unanswerable", 0.25, "--writer", "w", "--preview", 1)


def test_incompatible_or_missing_options_are_errors(index: Path) -> None:
    with pytest.raises(UserError, match="--judge scripted without --writer"):
        run(index, "--judge", "scripted", "--preview", 1)
    with pytest.raises(UserError, match="mode"):
        run(index, "--mode", "hosp", "--preview", 1)
    with pytest.raises(UserError, match="no --out"):
        run(index)


def test_an_index_that_gives_no_question_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, [Document("a", "Tarn", "Bread is good.")], IndexSettings(), lambda spec: HashEncoder())
    with pytest.raises(UserError, match="no question can be made with --hops 1 or 2 or 3 or 4"):
        run(folder, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_error_about_a_failing_writer_shows_one_of_its_replies(index: Path, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: "As a language model I like ferries.")
    with pytest.raises(
        UserError, match=r"scripted wrote no usable question: .* One reply: “As a language model I like ferries\.”"
    ):
        run(index, "--writer", "w", "--mode", "lexical", "--out", tmp_path / "out", model=model)
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_the_same_number_of_hops_may_be_given_twice(index: Path) -> None:
    model = ScriptedModel(lambda request: "no")
    with pytest.raises(UserError, match="scripted wrote no usable question"):
        run(index, "--hops", 1, "--hops", 1, "--writer", "w", "--preview", 1, model=model)
    assert "\nSentence: " in model.requests[0].messages[-1].content, "the writer should be shown a sentence"


def test_a_second_run_calls_no_model(index: Path, tmp_path: Path) -> None:
    def reply(request: CompletionRequest) -> str:
        if request.schema is None:
            return "Otto Brandt" if "[2] " in request.messages[-1].content else "not in the documents"
        return json.dumps({"question": "Who is meant?", "answer": "Otto Brandt", "passages": [1, 2]})

    model = ScriptedModel(reply)
    options = ("--writer", "w", "--judge", "c", "--mode", "lexical", "--out", tmp_path / "out", "--json")
    first = run(index, *options, model=model)
    calls = len(model.requests)
    second = run(index, *options, model=model)
    assert calls > 0 and len(model.requests) == calls
    assert json.loads(first.stdout) == json.loads(second.stdout)
