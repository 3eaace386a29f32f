"""Interrupted runs of SFT, of DPO with our trainer and with TRL's, and of reward models resume from the last checkpoint and end like uninterrupted ones."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_synth.rows import preference_to_json
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.places import ROOT
from tests.train.world import log_of, preference
from train.preference.preference import train_once
from train.reward import train_reward
from train.run.loop import ProgressCallback
from train.run.settings import DpoSettings, LoraSettings, RewardSettings, SftSettings, TrainSettings
from train.sft import train_sft

STEPS, SAVE_STEPS, STOP_STEP = 8, 3, 5
LORA = LoraSettings(rank=2, alpha=4)
CASES: dict[str, tuple[type[TrainSettings], Callable[[Any], Any], dict[str, Any]]] = {
    "sft": (SftSettings, train_sft, {}),
    "sft adapter": (SftSettings, train_sft, {"lora": LORA}),
    "sft, refusals anchored": (SftSettings, train_sft, {"lora": LORA, "anchor_refusals": True}),
    "trl dpo": (DpoSettings, train_once, {"trainer": "trl", "beta": 0.5}),
    "trl dpo from an adapter": (DpoSettings, train_once, {"trainer": "trl", "beta": 0.5}),
    "dpo adapter": (DpoSettings, train_once, {"lora": LORA}),
    "reward": (RewardSettings, train_reward, {}),
    "reward adapter": (RewardSettings, train_reward, {"lora": LORA}),
}
KILLED_SCRIPT = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from train.preference import preference
from train.run.loop import ProgressCallback
from train.run.settings import DpoSettings
original = ProgressCallback.on_log

def on_log(self, args, state, *rest, **named):
    if state.global_step == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    original(self, args, state, *rest, **named)

ProgressCallback.on_log = on_log
preference.train_once(DpoSettings.model_validate_json(Path(sys.argv[1]).read_text()))
"""


@pytest.fixture(scope="module")
def adapter(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SFT adapter to continue from."""
    output = tmp_path_factory.mktemp("start") / "adapter"
    train_sft(SftSettings(model=str(base), data=str(data), output=str(output), lora=LORA, max_steps=2))
    return output


def settings_of(case: str, start: Path, data: Path, output: Path) -> TrainSettings:
    """Settings of a run that takes seconds."""
    kind, _, changes = CASES[case]
    places = {"model": str(start), "data": str(data), "output": str(output)}
    values = {"learning_rate": 2e-3, "max_steps": STEPS, "logging_steps": 1, "save_steps": SAVE_STEPS, "seed": 3}
    return kind(**places, **values, **changes)


def assert_ended_alike(one: Path, other: Path) -> None:
    """Check for the same file names, the same weights and configurations byte for byte, and the same log."""
    names = {file.name for file in one.iterdir()}
    assert names == {file.name for file in other.iterdir()}
    for name in names & {"model.safetensors", "adapter_model.safetensors", "adapter_config.json", "config.json"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    logs = [log_of(run) for run in (one, other)]
    assert [row["step"] for row in logs[1]] == list(range(1, STEPS + 1))
    assert logs[0] == logs[1]


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(
    case: str, base: Path, adapter: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is interrupted between two checkpoints; the resumed run does not repeat the steps up to the earlier one."""
    start = adapter if case == "trl dpo from an adapter" else base
    whole, interrupted = (settings_of(case, start, data, tmp_path / name) for name in ("whole", "interrupted"))
    train = CASES[case][1]
    train(whole)
    steps: list[int] = []
    log = ProgressCallback.on_log

    def interrupt(self: ProgressCallback, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        steps.append(state.global_step)
        if state.global_step == STOP_STEP and len(steps) == STOP_STEP:
            raise KeyboardInterrupt
        log(self, args, state, control, logs, **kwargs)

    monkeypatch.setattr(ProgressCallback, "on_log", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(interrupted)
    assert (tmp_path / "interrupted.partial" / "checkpoints" / f"checkpoint-{SAVE_STEPS}").is_dir()
    train(interrupted)
    assert steps[: STOP_STEP + 1] == [1, 2, 3, 4, 5, SAVE_STEPS + 1]
    assert not (tmp_path / "interrupted.partial").exists()
    assert_ended_alike(tmp_path / "whole", tmp_path / "interrupted")


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_interrupted_three_times_ends_like_an_uninterrupted_one(
    seed: int, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is interrupted at three random steps; with seed 1, two of them come before its first checkpoint."""
    whole, interrupted = (settings_of("sft", base, data, tmp_path / name) for name in ("whole", "interrupted"))
    train_sft(whole)
    stops = sorted(random.Random(seed).sample(range(1, STEPS), 3))
    log = ProgressCallback.on_log

    def interrupt(self: ProgressCallback, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if stops and state.global_step == stops[0]:
            stops.pop(0)
            raise KeyboardInterrupt
        log(self, args, state, control, logs, **kwargs)

    monkeypatch.setattr(ProgressCallback, "on_log", interrupt)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            train_sft(interrupted)
    train_sft(interrupted)
    assert not stops
    assert_ended_alike(tmp_path / "whole", tmp_path / "interrupted")


@pytest.mark.slow
def test_a_killed_process_is_resumed(adapter: Path, data: Path, tmp_path: Path) -> None:
    """The run is killed by SIGKILL after a checkpoint. Resuming with other settings, other rows or no `save_steps` is refused; the checkpoint remains."""
    case = "trl dpo from an adapter"
    whole, killed = (settings_of(case, adapter, data, tmp_path / name) for name in ("whole", "killed"))
    train = CASES[case][1]
    train(whole)
    (tmp_path / "run.json").write_text(killed.model_dump_json())
    (tmp_path / "run.py").write_text(KILLED_SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    arguments = [tmp_path / "run.py", tmp_path / "run.json", str(STOP_STEP)]
    process = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert process.returncode == -9, process.stderr.decode()[-2000:]
    assert not (tmp_path / "killed").exists()
    others = tmp_path / "data"
    others.mkdir()
    write_jsonl(others / "train.jsonl", (preference_to_json(preference(number)) for number in range(11)))
    for change in ({"learning_rate": 1e-3}, {"data": str(others)}, {"save_steps": None}):
        with pytest.raises(UserError, match="an interrupted run with other settings, data or weights"):
            train(killed.model_copy(update=change))
    assert (tmp_path / "killed.partial" / "checkpoints" / f"checkpoint-{SAVE_STEPS}").is_dir()
    train(killed)
    assert_ended_alike(tmp_path / "whole", tmp_path / "killed")


def test_rows_changed_in_place_are_detected(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings stay the same but the rows change: a run must not train on both versions of the rows."""
    rows = tmp_path / "data"
    rows.mkdir()
    write_jsonl(rows / "train.jsonl", (preference_to_json(preference(number)) for number in range(8)))
    settings = settings_of("sft", base, rows, tmp_path / "run")

    def interrupt(self: ProgressCallback, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.global_step == STOP_STEP:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProgressCallback, "on_log", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_sft(settings)
    for file, count in (("dev.jsonl", 2), ("train.jsonl", 9)):
        write_jsonl(rows / file, (preference_to_json(preference(number)) for number in range(count)))
        with pytest.raises(UserError, match="an interrupted run with other settings, data or weights"):
            train_sft(settings)
        (rows / file).unlink()
