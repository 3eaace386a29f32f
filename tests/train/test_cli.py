"""The commands as a user types them: settings from file and flags, JSON on standard output, progress on standard error."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graph.errors import UserError
from modegraph.cli import build_app
from train.run.record import read_run


@pytest.mark.long
def test_tiny_sft_and_ms_run_in_succession(data: Path, tmp_path: Path) -> None:
    """Three commands, each of which starts from the result of the previous one; the last prints its record as JSON."""
    config = tmp_path / "tiny.yaml"
    config.write_text(
        "steps: 3\nvocabulary: 600\nhidden_size: 16\nlayers: 1\nheads: 1\nbatch_size: 2\nblock_tokens: 16\n"
    )
    out = tmp_path / "tiny"
    app, run = build_app(), CliRunner()
    tiny = run.invoke(app, ["train", "tiny", "--texts", str(data), "--out", str(out), "--config", str(config)])
    assert tiny.exit_code == 0, tiny.stderr
    assert "train_loss" in tiny.stdout and "saved" in tiny.stderr

    config.write_text(f"model: {out}\ndata: {data}\noutput: {tmp_path / 'sft'}\nmax_steps: 2\nlogging_steps: 1\n")
    sft = run.invoke(app, ["train", "sft", "--config", str(config)])
    assert sft.exit_code == 0, sft.stderr
    assert "sft: step 2 of 2, loss" in sft.stderr

    overrides = [f"model={tmp_path / 'sft'}", f"output={tmp_path / 'ms'}", "beta=0.5", "label_smoothing=1e-2"]
    ms = run.invoke(
        app, ["train", "ms", "--config", str(config), "--json", *(w for o in overrides for w in ("--set", o))]
    )
    record = json.loads(ms.stdout)
    assert record["output"] == str(tmp_path / "ms")
    assert (record["stage"], record["beta"], record["label_smoothing"]) == ("ms", 0.5, 0.01)
    assert record["metrics"] == read_run(tmp_path / "ms").metrics


def test_a_misspelt_key_is_a_user_error(tmp_path: Path) -> None:
    config = tmp_path / "dpo.yaml"
    config.write_text("model: m\ndata: d\noutput: o\nlearning_rat: 1\n")
    result = CliRunner().invoke(build_app(), ["train", "dpo", "--config", str(config)])
    assert isinstance(result.exception, UserError)
    assert "Did you mean 'learning_rate'?" in str(result.exception)


@pytest.mark.parametrize("stage", ["tiny", "sft", "ms", "dpo", "reward", "selector", "verifier"])
def test_every_command_that_trains_has_help(stage: str) -> None:
    result = CliRunner().invoke(build_app(), ["train", stage, "--help"])
    assert result.exit_code == 0
    assert "--config" in result.stdout and "--json" in result.stdout
