"""The commands `eval tasks` and `eval score`, with the mistakes that a user may make; the questions of `eval abstract`."""

import json

import pytest
import typer
from typer.testing import CliRunner

from eval.cli import register
from eval.metrics.registry import METRICS, Metric, Output, find_metric, score_output
from eval.tasks.sets.abstract import generate_questions
from graph.documents.questions import Question, read_questions
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.fakes import ScriptedModel

ROWS = [
    {"id": "1", "question": "Where?", "answers": ["Tarn"], "gold_ids": ["a"]},
    {"id": "2", "question": "When?", "answers": ["1911", "in 1911"]},
]


def run(*words, model=None):
    app = typer.Typer()
    register(app, lambda spec, ledger=None: model)
    return CliRunner().invoke(app, ["eval", *map(str, words)])


@pytest.fixture
def files(tmp_path):
    write_jsonl(tmp_path / "questions.jsonl", ROWS)
    write_jsonl(
        tmp_path / "good.jsonl",
        [{"id": "1", "answer": "###Reason: so [1] ###Answer: Tarn [1]"}, {"id": "2", "answer": "1912"}],
    )
    return tmp_path


def test_tasks_are_listed():
    done = run("tasks")
    assert done.exit_code == 0 and "licence  CC BY 4.0" in done.stdout and "hotpotqa: " in done.stdout
    listed = json.loads(run("tasks", "--json").stdout)["tasks"]
    assert len(listed) == 14 and listed[0]["name"] == "qasper" and listed[0]["hub"] == "allenai/qasper"


def test_a_task_is_written_in_the_layout_of_modegraph(files):
    done = run("tasks", "examples", "--source", files / "questions.jsonl", "--out", files / "own", "--json")
    assert json.loads(done.stdout) == {"task": "examples", "questions": 2, "documents": 0}
    assert "wrote" in done.stderr and "corpus.jsonl" not in done.stderr, (
        "a task without documents should get no corpus.jsonl"
    )
    assert [q.id for q in read_questions(files / "own" / "questions.jsonl")] == ["1", "2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--source", "data"), r"--source without TASK\. Expected the task that the data belong to\. Name the task"),
        (("examples", "--out", "own"), r"--out without --source\. Expected the data to write\. Add --source"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        raise run("tasks", *options).exception


def score(files, name, *more):
    return run("score", "examples", "--source", files, "--predictions", files / name, *more)


def test_predictions_are_scored(files):
    found = json.loads(score(files, "good.jsonl", "--metric", "em", "--metric", "f1", "--json").stdout)
    assert found["metrics"]["em"]["mean"] == 0.5 and found["counts"] == {"em": 2, "f1": 2}
    assert "em" in score(files, "good.jsonl").stdout


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "1", "answer": ""}], r"question '1': the prediction is empty"),
        ([{"id": "1", "answer": "x"}], r"1 of 2 questions have no prediction; the first is '2'"),
        ([{"id": "1", "answer": "x"}, {"id": "1", "answer": "y"}], r"line 2: id '1' appears twice"),
        ([{"id": "9", "answer": "x"}], r"line 1: 'id' is '9'\. Expected the id of a question of the task"),
        ([{"id": "1", "prediction": "x"}], r"line 1: 'answer' is None\. Expected a string"),
    ],
)
def test_bad_predictions_are_reported(files, rows, message):
    write_jsonl(files / "bad.jsonl", rows)
    with pytest.raises(UserError, match=message):
        raise score(files, "bad.jsonl").exception


def test_an_empty_prediction_can_be_counted_as_wrong(files):
    write_jsonl(files / "empty.jsonl", [{"id": "1", "answer": ""}, {"id": "2", "answer": "1911"}])
    done = score(files, "empty.jsonl", "--empty-is-wrong", "--metric", "em", "--json")
    assert json.loads(done.stdout)["metrics"]["em"]["mean"] == 0.5


def test_an_unknown_metric_and_a_ranking_metric_are_refused_with_a_remedy(files):
    with pytest.raises(UserError, match=r"metric 'rouge-l'\. Did you mean 'rougeL'\? Known metrics: em, f1"):
        raise score(files, "good.jsonl", "--metric", "rouge-l").exception
    with pytest.raises(
        UserError, match=r"--metric recall@5\. Expected an answer metric, since predictions contain only answers"
    ):
        raise score(files, "good.jsonl", "--metric", "recall@5").exception


QUESTION = Question("1", "Where?", ("Tarn",), gold_sources=("a",))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_that_is_not_finite_is_an_error(monkeypatch, value):
    monkeypatch.setitem(METRICS, "broken", Metric("broken", "answer", lambda question, output: value))
    with pytest.raises(UserError, match=rf"metric 'broken' of question '1' is {value}\. Expected a finite number"):
        score_output(find_metric("broken"), QUESTION, Output(answer="x"))


def test_a_metric_that_does_not_apply_is_none():
    assert score_output(find_metric("em"), QUESTION, Output()) is None
    assert score_output(find_metric("recall@5"), Question("1", "?", ()), Output(ranked=("a",))) is None
    assert score_output(find_metric("choice"), QUESTION, Output(answer="A")) is None
    assert score_output(find_metric("yes_no_maybe"), QUESTION, Output(answer="yes")) is None
    boolean = Question("1", "?", ("yes",))
    assert score_output(find_metric("answer_in_context"), boolean, Output(context=("yes",))) is None
    assert score_output(find_metric("yes_no_maybe"), boolean, Output(answer="Yes, so")) == 1.0
    assert (
        score_output(find_metric("faithfulness_by_encoder"), QUESTION, Output(grounding={"faithfulness": 0.25})) == 0.25
    )


def test_a_task_without_reference_answers_has_no_score(files):
    with pytest.raises(UserError, match="abstract: no metrics"):
        raise run("score", "abstract", "--source", files, "--predictions", files / "good.jsonl").exception


def test_a_correct_answer_gets_full_scores():
    options = {"A": "Tarn", "B": "Quill", "C": "x", "D": "y"}
    question = Question("1", "Where?", ("Tarn is the village here",), gold_sources=("a",), options=options)
    choice = Question("1", "Where?", ("Tarn",), options=options)
    output = Output(("a",), ("Tarn is the village here.",), "Tarn is the village here", "")
    for name in (
        "em",
        "f1",
        "hotpot_f1",
        "contains",
        "rouge1",
        "rouge2",
        "rougeL",
        "bleu",
        "recall@2",
        "recall@5",
        "recall@10",
        "all_gold@5",
        "mrr",
        "ndcg@10",
        "answer_in_context",
    ):
        assert score_output(METRICS[name], question, output) == pytest.approx(1.0), name
    assert score_output(METRICS["meteor"], question, output) > 0.98
    assert score_output(METRICS["choice"], choice, Output(answer="A. Tarn")) == 1.0
    assert score_output(METRICS["mirage_choice"], choice, Output(answer="B")) == 0.0


def reply_with_users_or_questions(request):
    text = request.messages[0].content
    if "different kinds of users" in text:
        return json.dumps(
            {"users": [{"user": "keeper", "tasks": ["log", "plan"]}, {"user": "poet", "tasks": ["write"]}]}
        )
    if "task: write" in text:
        return "no"
    return json.dumps({"questions": ["What recurs?", f"What of {text.partition('task: ')[2].split()[0]}?"]})


def test_abstract_questions_are_written_for_users_and_their_tasks():
    model = ScriptedModel(reply_with_users_or_questions)
    found, lacking = generate_questions(["Isles & <|im_end|> ferries"], model, users=2, tasks=2, questions=2)
    assert [question.text for question in found] == ["What recurs?", "What of log?", "What of plan?"]
    assert found[0].reasoning == "keeper: log" and lacking == 8 - 3 and len(model.requests) == 1 + 3
    assert "<|" not in model.requests[0].messages[0].content
    with pytest.raises(UserError, match="named no users"):
        generate_questions(["x"], ScriptedModel(lambda _: "{}"), 1, 1, 1)
