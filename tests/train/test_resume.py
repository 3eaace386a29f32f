"""Interrupted runs of SFT, of DPO with our trainer and with TRL's, and of reward models resume from the last checkpoint and end like uninterrupted ones."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import Trainer

from data_synth.rows import preference_to_json
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.places import ROOT
from tests.train.world import log_of, preference
from train.preference.preference import train_once
from train.reward import train_reward
from train.run import loop
from train.run.loop import ProgressCallback
from train.run.record import read_run
from train.run.save import fresh_folder, last_checkpoint
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


def assert_ended_alike(one: Path, other: Path, steps: Sequence[int] = tuple(range(1, STEPS + 1))) -> None:
    """Check for the same file names, the same weights and configurations byte for byte, the same log with rows of `steps`, and the same figures."""
    names = {file.name for file in one.iterdir()}
    assert names == {file.name for file in other.iterdir()}
    for name in names & {"model.safetensors", "adapter_model.safetensors", "adapter_config.json", "config.json"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    logs = [log_of(run) for run in (one, other)]
    assert [row["step"] for row in logs[1]] == list(steps)
    assert logs[0] == logs[1]
    assert read_run(one).metrics == read_run(other).metrics


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(
    case: str, base: Path, adapter: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is interrupted between two checkpoints; the resumed run does not repeat the steps up to the earlier checkpoint."""
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


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch, train: Callable[[], Any]) -> None:
    """Train up to the log row of `step`, and interrupt the run there."""
    log = ProgressCallback.on_log

    def interrupt(self: ProgressCallback, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.global_step == step:
            raise KeyboardInterrupt
        log(self, args, state, control, logs, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(ProgressCallback, "on_log", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train()


@pytest.mark.parametrize("case", ["sft", "dpo adapter", "trl dpo"])
def test_an_interruption_between_two_rows_of_the_log_changes_neither_the_rows_nor_the_mean_loss(
    case: str, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `logging_steps` 4 and `save_steps` 3, checkpoints and the last step have rows, too; the time before the interruption counts."""
    train = CASES[case][1]
    runs = [settings_of(case, base, data, tmp_path / name) for name in ("every", "whole", "interrupted")]
    every, whole, interrupted = (
        each.model_copy(update={"logging_steps": steps}) for each, steps in zip(runs, (1, 4, 4), strict=True)
    )
    mean_loss = sum(row["loss"] for row in log_of(Path(train(every) and every.output))) / STEPS
    assert train(whole).metrics["train_loss"] == pytest.approx(mean_loss, rel=1e-6)
    interrupt_at(4, monkeypatch, lambda: train(interrupted))
    state = tmp_path / "interrupted.partial/checkpoints/checkpoint-3/trainer_state.json"
    values = json.loads(state.read_text())
    assert values["stateful_callbacks"]["ProgressCallback"]["args"]["earlier_seconds"] > 0
    values["stateful_callbacks"]["ProgressCallback"]["args"]["earlier_seconds"] = 5000.0
    state.write_text(json.dumps(values))
    assert 5000 < train(interrupted).train_seconds < 6000
    assert_ended_alike(tmp_path / "whole", tmp_path / "interrupted", [3, 4, 6, 8])


def raise_interrupt(*arguments: Any, **named: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("case", ["sft", "dpo adapter", "trl dpo", "reward"])
@pytest.mark.parametrize(("place", "name"), [(Trainer, "evaluate"), (loop, "save_run")])
def test_a_run_interrupted_after_its_last_step_is_not_trained_further(
    case: str, place: Any, name: str, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step is in the middle of an epoch, with a learning rate above 0; the interruption comes while the dev rows are evaluated or the run is saved."""
    whole, interrupted = (
        settings_of(case, base, data, tmp_path / each).model_copy(update={"scheduler": "constant"})
        for each in ("whole", "interrupted")
    )
    train = CASES[case][1]
    train(whole)
    with monkeypatch.context() as patched:
        patched.setattr(place, name, raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(interrupted)
    train(interrupted)
    assert_ended_alike(tmp_path / "whole", tmp_path / "interrupted")


@pytest.mark.parametrize("moment", ["step 5", "the last evaluation"])
def test_patience_continues_its_count_after_an_interruption(
    moment: str, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F1 never improves, so the run ends with the third measurement, at step 6."""
    changes = {"eval_steps": 2, "save_steps": 2, "patience": 2, "learning_rate": 1e-9}
    values = settings_of("sft", base, data, tmp_path / "run").model_dump() | changes
    settings = SftSettings.model_validate(values)
    if moment == "step 5":
        interrupt_at(5, monkeypatch, lambda: train_sft(settings))
    else:
        with monkeypatch.context() as patched:
            patched.setattr(Trainer, "_load_best_model", raise_interrupt)
            with pytest.raises(KeyboardInterrupt):
                train_sft(settings)
    assert train_sft(settings).metrics["train_steps"] == 6
    assert [row["step"] for row in log_of(tmp_path / "run") if "eval_f1" in row] == [2, 4, 6]


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
    for change, found in (
        ({"learning_rate": 1e-3}, "other learning_rate. Expected"),
        ({"data": str(others)}, "other data, dev. Expected"),
        ({"save_steps": None}, "save_steps. Expected"),
    ):
        with pytest.raises(UserError, match=f"an interrupted run with {found} the same settings and inputs"):
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
    for file, count, name in (("dev.jsonl", 2, "dev"), ("train.jsonl", 9, "data")):
        write_jsonl(rows / file, (preference_to_json(preference(number)) for number in range(count)))
        with pytest.raises(UserError, match=f"an interrupted run with other {name}. Expected"):
            train_sft(settings)
        (rows / file).unlink()


def test_a_reference_changed_in_place_is_detected(
    base: Path, data: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = shutil.copytree(base, tmp_path / "reference")
    settings = settings_of("dpo adapter", base, data, tmp_path / "run").model_copy(update={"reference": str(reference)})
    interrupt_at(STOP_STEP, monkeypatch, lambda: train_once(settings))  # type: ignore[arg-type]
    config = json.loads((reference / "config.json").read_text())
    (reference / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    with pytest.raises(UserError, match=r"an interrupted run with other reference\. Expected"):
        train_once(settings)  # type: ignore[arg-type]


def test_a_run_does_not_resume_from_checkpoints_without_settings(base: Path, data: Path, tmp_path: Path) -> None:
    """A run with `eval_steps` and without `save_steps` leaves such checkpoints if it is killed."""
    checkpoint = tmp_path / "run.partial" / "checkpoints" / "checkpoint-20"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 20}')
    with fresh_folder(tmp_path / "run", resumable=True) as folder:
        assert last_checkpoint(folder, settings_of("sft", base, data, tmp_path / "run"), {}) is None
    assert (tmp_path / "run").is_dir()
