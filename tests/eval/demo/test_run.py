"""Runs of the demo one after another: which steps are reused or repeated, how a failing step ends a run, and how answers are shown side by side."""

import json

import pytest
import typer

from eval.cli import register
from eval.demo.demo import counts_text, demo_json, questions_to_show, run_demo, run_step
from eval.demo.demo_steps import BASES, MARKER, PlannedStep
from graph.documents.questions import Question
from graph.errors import UserError
from tests.eval.demo.conftest import QUESTION_IDS, REPORT


def first_words(commands):
    return [" ".join(words[:2]) if words[0] in ("train", "eval", "synth") else words[0] for words in commands.ran]


def test_the_steps_run_in_order_and_answers_are_shown_side_by_side(home, fetched, tmp_path, commands):
    shown = []
    result = run_demo(tmp_path / "run", commands, shown.append)
    assert first_words(commands) == [
        *("index", "eval retrieval", "synth preferences", "synth preferences"),
        *("train sft", "synth responses", "train ms", "train dpo", "compare"),
        *["ask"] * 6,
    ]
    assert shown[0].startswith("$ modegraph index") and shown[1].startswith("output of index")
    found = demo_json(result)
    assert found["comparison"] == REPORT and not any(step["reused"] for step in found["steps"])
    assert [each["question"] for each in found["answers"]] == [f"What's {name}?" for name in QUESTION_IDS]
    for each in found["answers"]:
        assert [answer["model"] for answer in each["answers"]] == ["before", "after"]
        assert each["answers"][0]["answer"] == f"by hf:{BASES[0].name}"
        assert each["answers"][1]["answer"].endswith("run/ms")
    assert result.answers[0].as_text().splitlines() == [
        f"What's {QUESTION_IDS[0]}? (so)",
        f"  before  by hf:{BASES[0].name}",
        f"  after   by hf:{tmp_path}/run/ms",
        "          So it is [2].",
        "          [2] Title · halmaren-isles.md",
    ]


def test_a_second_run_only_asks_the_questions_again(home, fetched, tmp_path, commands):
    run_demo(tmp_path / "run", commands, print)
    commands.ran.clear()
    shown = []
    result = run_demo(tmp_path / "run", commands, shown.append)
    assert first_words(commands) == ["ask"] * 6
    assert sum("(reused; it took" in line for line in shown) == sum(result.reused) == 9
    assert any(line.startswith("output of compare") for line in shown), "the output of a reused step is shown again"


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (f"configs/demo/ms-{BASES[0].name}.yaml", ["train ms", "compare"]),
        (
            f"configs/demo/sft-{BASES[0].name}.yaml",
            ["train sft", "synth responses", "train ms", "train dpo", "compare"],
        ),
        ("eval/code.py", None),
    ],
)
def test_changed_steps_and_those_that_depend_on_them_are_repeated(
    home, fetched, tmp_path, commands, change, again, monkeypatch
):
    run_demo(tmp_path / "run", commands, print)
    whole = first_words(commands)
    (home / change).write_text("changed")
    commands.ran.clear()
    make = commands.make
    monkeypatch.setattr(commands, "make", lambda place, words: make(place, [*words, "again"]))
    run_demo(tmp_path / "run", commands, print)
    assert first_words(commands) == (whole if again is None else [*again, *["ask"] * 6])


def test_another_model_in_the_cache_is_another_input(home, fetched, tmp_path, commands):
    run_demo(tmp_path / "run", commands, print)
    commands.ran.clear()
    fetched('{"files": {}}')
    run_demo(tmp_path / "run", commands, print)
    assert "train sft" in first_words(commands) and "index" not in first_words(commands)


def test_fresh_repeats_every_step(home, fetched, tmp_path, commands):
    run_demo(tmp_path / "run", commands, print)
    commands.ran.clear()
    run_demo(tmp_path / "run", commands, print, fresh=True)
    assert len(commands.ran) == 15


def test_a_failing_step_is_named_and_the_next_run_goes_on_there(home, fetched, tmp_path, commands, capsys):
    commands.fails = "train ms"
    with pytest.raises(UserError, match=r"`modegraph train ms .*` ended with status 1"):
        run_demo(tmp_path / "run", commands, lambda line: None)
    assert "some output" in capsys.readouterr().err
    commands.fails = ""
    commands.ran.clear()
    run_demo(tmp_path / "run", commands, lambda line: None)
    assert first_words(commands) == ["train ms", "train dpo", "compare", *["ask"] * 6]


def test_a_missing_model_is_reported(home, tmp_path, commands):
    shown = []
    run_demo(tmp_path / "run", commands, shown.append)
    assert f"modegraph models get {BASES[0].name}" in shown[0] and "a tiny one" in shown[0]
    assert "train tiny" in first_words(commands)


def test_missing_examples_are_named(home, tmp_path, commands):
    (home / "examples/questions.jsonl").unlink()
    with pytest.raises(UserError, match=r"examples/questions\.jsonl: does not exist"):
        run_demo(tmp_path / "run", commands, print)
    assert not (tmp_path / "run").exists()


def test_the_first_questions_of_the_test_split_are_shown():
    questions = [Question(f"q{n}", f"{n}?", (), split="train" if n % 2 else "test") for n in range(9)]
    assert [each.id for each in questions_to_show(questions)] == ["q0", "q2", "q4"]
    with pytest.raises(UserError, match="2 questions of the test split"):
        questions_to_show(questions[:4])


@pytest.mark.parametrize(
    ("after", "change"), [(0.25, "2 fewer of them"), (0.5, "as many of them"), (1.0, "4 more of them")]
)
def test_the_effect_of_tuning_is_counted_and_stated_plainly(after, change):
    measures = {name: {"untuned": 0.5, "ms": after} for name in REPORT["measures"]}
    lines = counts_text(REPORT | {"measures": measures}).splitlines()
    assert (
        lines[3].split()[-2:] == ["4", str(round(8 * after))] and f"A gold answer is in {change} after MS" in lines[-1]
    )
    assert "decide nothing" in lines[-1]


def test_a_folder_of_something_else_is_left_alone(home, tmp_path, commands):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not a folder that the demo made"):
        run_demo(tmp_path / "run", commands, print, fresh=True)
    assert not (tmp_path / "run" / MARKER).exists() and commands.ran == []


def test_run_step_reports_exit_statuses_and_lets_user_errors_through():
    app = typer.Typer()

    @app.command()
    def failing() -> None:
        raise typer.Exit(1)

    @app.command()
    def bad() -> None:
        raise UserError("found", "expected", "remedy")

    register(app, open_model=lambda spec: pytest.fail("no model is needed"))

    def run(command):
        return app(list(command), prog_name="modegraph", standalone_mode=False) or 0

    with pytest.raises(UserError, match="ended with status 1"):
        run_step(PlannedStep(("failing",), ()), run, "code")
    with pytest.raises(UserError, match=r"found\. Expected expected\. Remedy"):
        run_step(PlannedStep(("bad",), ()), run, "code")


def test_the_result_is_plain_json(home, fetched, tmp_path, commands):
    assert json.loads(json.dumps(demo_json(run_demo(tmp_path / "run", commands, lambda line: None))))
