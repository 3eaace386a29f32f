"""`modegraph runs`: finished, running and stopped runs as written by their commands, listed with the settings that differ."""

import json
from pathlib import Path

import pytest

from eval.tables import runs_table, settings_text, state_text
from graph.errors import UserError
from graph.shared.jsonl import write_json, write_jsonl
from graph.shared.progress import note_progress, report_progress
from graph.shared.runs import find_runs
from tests.commands import run
from train.run.record import RunRecord, write_run
from train.run.save import about_run, fresh_folder
from train.run.settings import MsSettings, SftSettings


def settings(output: Path, **changes: object) -> MsSettings:
    return MsSettings(model="smollm2", data="pairs", output=str(output), **changes)


def write_finished_run(folder: Path, **changes: object) -> None:
    """A run as written by `train ms`, without weights."""
    config = settings(folder, **changes)
    with fresh_folder(folder, about=about_run("ms", config)) as partial:
        record = RunRecord(
            stage="ms",
            base_model="smollm2",
            base_weights="",
            data="pairs",
            beta=config.beta,
            beta_reward=None,
            label_smoothing=0.001,
            responses_per_prompt=2,
            settings=config.recorded(),
            metrics={"train_loss": 1.5, "eval_loss": 1.25, "eval_rewards/margins": 0.5, "train_steps": 40.0},
            train_seconds=75.0,
            device="cpu",
            versions={},
        )
        write_run(partial, record)


def test_a_run_is_listed_as_running_and_then_as_finished(tmp_path: Path) -> None:
    config = settings(tmp_path / "a" / "ms")
    (tmp_path / "a").mkdir()
    figures = {"MAP": 0.7, "better": True}
    with fresh_folder(tmp_path / "a" / "ms", about=about_run("ms", config)) as partial:
        note_progress(partial, 10, 40, {"loss": 2.0, "learning_rate": 1e-4})
        (running,) = find_runs(tmp_path)
        write_json(partial / "selector.json", {"settings": {}, "figures": figures, "train_seconds": 2.0})
    assert (running.name, running.stage, running.state) == ("a/ms", "ms", "running")
    assert (running.step, running.steps, running.figures["loss"]) == (10, 40, 2.0)
    assert running.settings == config.recorded()
    (done,) = find_runs(tmp_path)
    assert (done.name, done.stage, done.state, done.figures) == ("a/ms", "selector", "finished", {"MAP": 0.7})
    assert not any(tmp_path.rglob("progress.jsonl"))


def test_an_interrupted_run_that_can_be_resumed_is_listed_as_stopped(tmp_path: Path) -> None:
    config = SftSettings(model="smollm2", data="pairs", output=str(tmp_path / "sft"), save_steps=5)
    with pytest.raises(KeyboardInterrupt), fresh_folder(tmp_path / "sft", True, about_run("sft", config)) as partial:
        note_progress(partial, 5, 9, {"loss": 2.0})
        raise KeyboardInterrupt
    (stopped,) = find_runs(tmp_path)
    assert (stopped.name, stopped.state, state_text(stopped)) == ("sft", "stopped", "stopped at 5 of 9")


def test_runs_of_a_stage_are_listed_by_the_settings_in_which_they_differ(tmp_path: Path) -> None:
    write_finished_run(tmp_path / "one")
    (only,) = find_runs(tmp_path)
    assert settings_text(only, [only]) == "model=smollm2, data=pairs"
    write_finished_run(tmp_path / "two", beta=0.5, lora={"rank": 8})
    one, two = find_runs(tmp_path)
    assert settings_text(one, [one, two]) == "lora=None, beta=0.1"
    assert (
        settings_text(two, [one, two])
        == "beta=0.5, lora.rank=8, lora.alpha=32, lora.targets=[], lora.dropout=0.0, lora.rslora=False"
    )
    row = runs_table([one, two]).rows[0]
    assert row[:3] == ("one", "ms", "finished in 1 min")
    assert row[4] == "eval_loss 1.25, train_loss 1.5, eval_rewards/margins 0.5, 1 more"


def test_reports_of_evaluations_are_listed_and_other_files_are_not(tmp_path: Path) -> None:
    result = {"system": "hops", "task": "isles", "metrics": {"recall@5": {"mean": 0.8}}}
    (tmp_path / "matrix").mkdir()
    write_json(
        tmp_path / "matrix/report.json",
        {
            "settings": {"seed": 3},
            "leads": {"isles": "recall@5"},
            "results": [result],
            "failures": [{"system": "dense"}],
        },
    )
    (tmp_path / "side").mkdir()
    compared = {"data": "pairs", "split": "test", "seed": 0, "max_answer_tokens": 8, "measures": {"F1": {"ms": 0.5}}}
    write_json(tmp_path / "side/report.json", compared | {"policies": [{"name": "ms", "source": "runs/ms"}]})
    (tmp_path / "other").mkdir()
    write_json(tmp_path / "other/report.json", {"frontier": []})
    matrix, comparison = find_runs(tmp_path)
    assert (matrix.stage, matrix.settings) == ("eval", {"seed": 3})
    assert matrix.figures == {"recall@5, hops on isles": 0.8, "failed cells": 1.0}
    assert (comparison.stage, comparison.settings["models"], comparison.figures) == (
        "compare",
        {"ms": "runs/ms"},
        {"F1, ms": 0.5},
    )
    with report_progress(tmp_path / "matrix", {"stage": "eval"}):
        assert [each.state for each in find_runs(tmp_path)] == ["running", "finished"]


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    write_finished_run(tmp_path / "ms")
    shown = run("runs", str(tmp_path))
    assert shown.exit_code == 0 and "finished in 1 min" in shown.output
    (found,) = json.loads(run("runs", str(tmp_path), "--json").output)["runs"]
    assert found["settings"]["beta"] == 0.1 and found["seconds"] == 75.0
    assert json.loads(run("runs", str(tmp_path / "ms"), "--json").output)["runs"][0]["name"] == "."


def test_a_missing_folder_is_refused_and_unreadable_records_are_skipped_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"nowhere: no such folder\. Expected a folder of runs"):
        find_runs(tmp_path / "nowhere")
    write_finished_run(tmp_path / "whole")
    texts = {
        "cut": '{"stage": "ms"',
        "foreign": '{"name": "another tool"}',
        "listed": '{"stage": "ms", "settings": [1], "train_seconds": 1.0}',
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "run.json").symlink_to(tmp_path / "nowhere")
    assert [found.name for found in find_runs(tmp_path)] == ["whole"]
    errors = capsys.readouterr().err
    assert all(f"{tmp_path / name}: skipped, not the record of a run" in errors for name in (*texts, "gone"))


def test_a_row_of_progress_without_a_step_does_not_hide_the_run(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"about": {"stage": "sft", "settings": {}}}]
    rows += [{"at": float(step), "step": step, "of": 9} for step in (1, 2)]
    write_jsonl(tmp_path / "progress.jsonl", [*rows, {"note": 1}])
    (found,) = find_runs(tmp_path)
    assert (found.state, found.step, found.seconds_left) == ("stopped", 2, 7.0)
