"""The commands as a user types them: settings from file and flags, JSON on standard output, progress on standard error."""

import json
from pathlib import Path

import pytest

from graph.errors import UserError
from tests.commands import run
from train.run.record import read_run


@pytest.mark.long
def test_tiny_sft_and_ms_run_in_succession(data: Path, tmp_path: Path) -> None:
    """Three commands, each of which starts from the result of the previous one; the last prints its record as JSON."""
    config = tmp_path / "tiny.yaml"
    config.write_text(
        "steps: 3\nvocabulary: 600\nhidden_size: 16\nlayers: 1\nheads: 1\nbatch_size: 2\nblock_tokens: 16\n"
    )
    out = tmp_path / "tiny"
    tiny = run("train", "tiny", "--texts", data, "--out", out, "--config", config)
    assert tiny.exit_code == 0, tiny.stderr
    assert "train_loss" in tiny.stdout and "saved" in tiny.stderr

    config.write_text(f"model: {out}\ndata: {data}\noutput: {tmp_path / 'sft'}\nmax_steps: 2\nlogging_steps: 1\n")
    sft = run("train", "sft", "--config", config)
    assert sft.exit_code == 0, sft.stderr
    assert "sft: step 2 of 2, loss" in sft.stderr

    overrides = [f"model={tmp_path / 'sft'}", f"output={tmp_path / 'ms'}", "beta=0.5", "label_smoothing=1e-2"]
    ms = run("train", "ms", "--config", config, "--json", *(w for o in overrides for w in ("--set", o)))
    record = json.loads(ms.stdout)
    assert record["output"] == str(tmp_path / "ms")
    assert (record["stage"], record["beta"], record["label_smoothing"]) == ("ms", 0.5, 0.01)
    assert record["metrics"] == read_run(tmp_path / "ms").metrics


def test_a_misspelt_key_is_a_user_error(tmp_path: Path) -> None:
    config = tmp_path / "dpo.yaml"
    config.write_text("model: m\ndata: d\noutput: o\nlearning_rat: 1\n")
    result = run("train", "dpo", "--config", config)
    assert isinstance(result.exception, UserError)
    assert "Did you mean 'learning_rate'?" in str(result.exception)


@pytest.mark.parametrize("stage", ["tiny", "sft", "ms", "dpo", "reward", "selector", "verifier"])
def test_every_command_that_trains_has_help(stage: str) -> None:
    result = run("train", stage, "--help")
    assert result.exit_code == 0
    assert "--config" in result.stdout and "--json" in result.stdout
