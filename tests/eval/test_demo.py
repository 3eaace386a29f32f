"""The demo's own part: which commands it runs, which folders it may replace, and how a failing step ends it."""

import json

import pytest
import typer

from eval import demo
from eval.cli import register
from eval.demo import MARKER, commands, demo_json, first_test_question, prepare_folder, run_demo, run_step
from graph.documents.questions import Question
from graph.shared.errors import UserError


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A repository with the examples that the demo looks for."""
    home = tmp_path / "repository"
    (home / "examples/documents").mkdir(parents=True)
    (home / "configs/demo").mkdir(parents=True)
    (home / "configs/demo/tiny.yaml").write_text("")
    rows = [{"id": "1", "question": "Old?", "split": "train"}, {"id": "2", "question": "What's new?", "split": "test"}]
    (home / "examples/questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    monkeypatch.setattr(demo, "HOME", home)
    return home


def test_the_road_runs_in_order_and_is_shown_first(root, tmp_path):
    ran, shown = [], []

    def run(command):
        assert shown[-1].startswith("$ modegraph " + command[0])
        ran.append(command)
        if command[0] == "compare":
            (out / "report").mkdir()
            (out / "report/report.json").write_text('{"measures": {}}')
        print(f"output of {command[0]}")
        return 0

    out = tmp_path / "demo-run"
    result = run_demo(out, run, shown.append)
    assert [" ".join(command[:2]) if command[0] in ("train", "eval", "synth") else command[0] for command in ran] == [
        *("index", "eval retrieval", "synth relevance", "train selector", "synth route", "train router"),
        *("eval retrieval", "synth preferences"),
        *("train tiny", "train sft", "train ms", "train dpo", "compare", "ask"),
    ]
    assert any("output of compare" in line for line in shown)
    assert result.question == "What's new?"
    found = demo_json(result)
    assert found["comparison"] == {"measures": {}}
    assert found["answer"] == "output of ask\n"
    assert found["steps"][0]["command"].endswith(f"--out {out}/index")
    assert len(found["next_commands"]) == 3


def test_every_command_uses_what_an_earlier_one_made(root, tmp_path):
    made = set()
    for command in commands(tmp_path / "run", "Why?"):
        words = [word.removeprefix("hf:") for word in command]
        outputs = {words[i + 1] for i, word in enumerate(words) if word == "--out"}
        outputs |= {word.removeprefix("output=") for word in words if word.startswith("output=")}
        inputs = {word.partition("=")[2] or word for word in words if str(tmp_path / "run") in word} - outputs
        assert inputs <= made, command
        made |= outputs


def test_a_failing_step_ends_the_demo_and_is_named(root, tmp_path, capsys):
    def run(command):
        print("some output")
        return 1 if command[0] == "synth" else 0

    with pytest.raises(UserError, match=r"`modegraph synth relevance .*` ended with status 1"):
        run_demo(tmp_path / "run", run, lambda line: None)
    assert "some output" in capsys.readouterr().err


def test_missing_examples_are_named(root, tmp_path):
    (root / "examples/questions.jsonl").unlink()
    with pytest.raises(UserError, match=r"examples/questions\.jsonl: not there"):
        run_demo(tmp_path / "run", lambda command: 0, print)
    assert not (tmp_path / "run").exists()


def test_a_demo_needs_a_test_question():
    with pytest.raises(UserError, match="no question of the test split"):
        first_test_question([Question("1", "Old?", (), split="train")])


def test_only_its_own_folder_is_replaced(tmp_path):
    own = tmp_path / "own"
    prepare_folder(own)
    (own / "index").mkdir()
    prepare_folder(own)
    assert [path.name for path in own.iterdir()] == [MARKER]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not a folder that the demo made"):
        prepare_folder(foreign)
    with pytest.raises(UserError, match="a file"):
        prepare_folder(foreign / "thesis.txt")
    link = tmp_path / "link"
    link.symlink_to(own)
    with pytest.raises(UserError, match="not a folder that the demo made"):
        prepare_folder(link)
    assert (foreign / "thesis.txt").read_text() == "years of work"
    empty = tmp_path / "empty"
    empty.mkdir()
    prepare_folder(empty)
    assert (empty / MARKER).is_file()


def test_the_runner_gives_exit_statuses_and_lets_user_errors_through():
    app = typer.Typer()

    @app.command()
    def lost() -> None:
        raise typer.Exit(1)

    @app.command()
    def bad() -> None:
        raise UserError("found", "expected", "remedy")

    register(app, open_model=lambda spec: pytest.fail("no model is needed"))

    def run(command):
        return app(list(command), prog_name="modegraph", standalone_mode=False) or 0

    with pytest.raises(UserError, match="ended with status 1"):
        run_step(["lost"], run)
    with pytest.raises(UserError, match="found; expected; remedy"):
        run_step(["bad"], run)
