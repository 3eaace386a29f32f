"""Whole runs on the CPU: which files they leave, what they learn, whether they are repeatable, and how they fail."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import TrainerState, TrainingArguments

from graph.errors import UserError
from graph.models.checkpoint import is_adapter
from graph.shared.progress import PROGRESS, FolderProgress, read_progress
from tests.train.pair_losses import pair_dpo_loss, pair_mode_seeking_loss
from tests.train.world import log_of, preference
from train.model.load import load_model, load_policy, load_tokenizer
from train.model.logps import completion_logps, pad_rows, tokenize_row
from train.preference.preference import (
    Loss,
    pair_trainer,
    read_preference_data,
    reference_free_trainer,
    response_group_trainer,
    train_once,
)
from train.reward import reward_trainer
from train.run.data import read_preferences, rows_fingerprint
from train.run.loop import ProgressCallback, prepare, run_trainer
from train.run.record import model_card, read_run
from train.run.save import fresh_folder
from train.run.settings import DpoSettings, LoraSettings, MsSettings, RewardSettings, SftSettings
from train.sft import read_sft_data, sft_trainer, train_sft

STEPS = 5
SFT_CURVE = [6.040, 5.864, 5.724, 5.624, 5.565]


def common(base: Path, data: Path, output: Path, /, **changes: Any) -> dict[str, Any]:
    """Settings of a run that takes seconds."""
    values = {"model": str(base), "data": str(data), "output": str(output), "learning_rate": 3e-3}
    return {**values, "max_steps": STEPS, "logging_steps": 1} | changes


def weights_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def sft_run(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full fine-tuning run of a few steps."""
    output = tmp_path_factory.mktemp("sft") / "run"
    train_sft(SftSettings(**common(base, data, output)))
    return output


@pytest.fixture(scope="module")
def sft_adapter(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps with LoRA."""
    output = tmp_path_factory.mktemp("lora") / "run"
    train_sft(SftSettings(**common(base, data, output, lora=LoraSettings(rank=4, alpha=8), learning_rate=3e-2)))
    return output


def test_sft_follows_the_committed_curve(sft_run: Path) -> None:
    """Other losses mean that the tokens, the masks, the loss or the optimiser have changed."""
    assert [row["loss"] for row in log_of(sft_run)] == pytest.approx(SFT_CURVE, abs=0.01)


def test_a_finished_run_contains_all_promised_files(sft_run: Path, base: Path, data: Path) -> None:
    names = {path.name for path in sft_run.iterdir()}
    promised = {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "settings.yaml",
        "log.jsonl",
        "README.md",
        "run.json",
    }
    assert names >= promised
    record = read_run(sft_run)
    assert (record.stage, record.base_model, record.data) == ("sft", str(base), str(data))
    assert record.beta is record.label_smoothing is record.responses_per_prompt is None
    assert record.metrics["train_steps"] == STEPS and "eval_loss" in record.metrics
    settings = yaml.safe_load((sft_run / "settings.yaml").read_text())
    assert SftSettings(**settings).learning_rate == 3e-3
    assert settings == dict(record.settings)
    load_policy(str(sft_run))


def test_the_model_card_describes_the_run_and_omits_the_paths_of_its_folder_and_of_home(
    sft_run: Path, base: Path
) -> None:
    card = (sft_run / "README.md").read_text(encoding="utf-8")
    assert f"| base model | {base} |" in card and "| train_loss |" in card
    assert str(Path.home()) not in card and str(Path(__file__).parent) not in card
    assert str(sft_run.parent) not in card
    record = read_run(sft_run)
    anchored = replace(record, settings={**record.settings, "anchor_refusals": True})
    assert "train/refusals.py" in model_card(anchored, adapter=True) and "train/refusals.py" not in card


def test_the_same_seed_gives_the_same_weights_and_another_seed_gives_different_ones(
    sft_run: Path, base: Path, data: Path, tmp_path: Path
) -> None:
    train_sft(SftSettings(**common(base, data, tmp_path / "again")))
    train_sft(SftSettings(**common(base, data, tmp_path / "other", seed=1)))
    assert weights_of(tmp_path / "again") == weights_of(sft_run)
    assert weights_of(tmp_path / "other") != weights_of(sft_run)


def test_accumulated_batches_equal_one_large_batch(base: Path, data: Path, tmp_path: Path) -> None:
    """One batch of twelve rows and three accumulated batches of four give the same first step, up to rounding."""
    whole = common(base, data, tmp_path / "whole", batch_size=12, max_steps=1)
    parts = common(base, data, tmp_path / "parts", batch_size=4, gradient_accumulation=3, max_steps=1)
    for values in (whole, parts):
        train_once(MsSettings(**values, beta=0.5, label_smoothing=0.1))
    one, other = (load_model(values["output"], "float32") for values in (whole, parts))
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-4)


@pytest.mark.parametrize("stage", ["ms", "dpo"])
def test_trl_logs_the_losses_of_our_formulas(stage: str, base: Path, data: Path, tmp_path: Path) -> None:
    """Full batches, so that order does not matter: our loop with AdamW and our losses against TRL's log, step by step."""
    beta, epsilon, rate = 0.5, 0.05, 2e-3
    values = common(base, data, tmp_path / "run", batch_size=12, learning_rate=rate)
    loss: tuple[Loss, float | None] = ("exo_pair", epsilon) if stage == "ms" else ("sigmoid", None)
    settings = (
        MsSettings(**values, beta=beta, label_smoothing=epsilon) if stage == "ms" else DpoSettings(**values, beta=beta)
    )
    trainer = pair_trainer(settings, prepare(settings), tmp_path / "trl", *loss)
    outcome = run_trainer(trainer, stage)

    model, tokenizer = load_policy(str(base))
    model.requires_grad_(True)
    rows = read_preferences(data / "train.jsonl")
    pairs = [tokenize_row(tokenizer, row.prompt, side) for row in rows for side in (row.chosen, row.rejected)]
    batch = pad_rows(pairs, tokenizer.pad_token_id)
    with torch.no_grad():
        reference_B = completion_logps(model, *batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    for step in range(STEPS):
        log_ratios_Q2 = (completion_logps(model, *batch) - reference_B).view(-1, 2)
        loss = (
            pair_mode_seeking_loss(log_ratios_Q2, beta, epsilon)
            if stage == "ms"
            else pair_dpo_loss(log_ratios_Q2, beta)
        ).mean()
        assert outcome.log[step]["loss"] == pytest.approx(loss.item(), abs=1e-5)
        assert outcome.log[step]["rewards/chosen"] == pytest.approx(beta * log_ratios_Q2[:, 0].mean().item(), abs=1e-4)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = rate * (1 - step / STEPS)
        optimizer.step()


@pytest.mark.parametrize("stage", ["ms", "dpo"])
def test_the_policy_learns_to_prefer_the_chosen_answers(stage: str, sft_run: Path, data: Path, tmp_path: Path) -> None:
    values = common(sft_run, data, tmp_path / "run", batch_size=12)
    if stage == "ms":
        record = train_once(MsSettings(**values, beta=0.5, label_smoothing=0.01))
    else:
        record = train_once(DpoSettings(**values, beta=0.5))
    log = log_of(tmp_path / "run")
    margins = [row["rewards/margins"] for row in log]
    assert margins[0] == pytest.approx(0.0, abs=1e-5), "the policy should start at its reference"
    assert margins[-1] > margins[1] > 0
    assert {"logps/chosen", "logps/rejected", "rewards/accuracies", "learning_rate", "step"} <= log[0].keys()
    assert log[0]["shares/chosen"] == pytest.approx(0.5, abs=1e-5)
    assert log[0]["shares/entropy"] == pytest.approx(1.0, abs=1e-5)
    assert (record.beta, record.responses_per_prompt) == (0.5, 2)
    assert record.label_smoothing == (0.01 if stage == "ms" else None)


@torch.no_grad()
def test_training_continues_from_an_adapter_on_the_same_base(
    base: Path, sft_adapter: Path, data: Path, tmp_path: Path
) -> None:
    """SFT adapter → MS adapter: same base, reference = the SFT adapter, which the run does not change."""
    before = (sft_adapter / "adapter_model.safetensors").read_bytes()
    with torch.enable_grad():
        train_once(MsSettings(**common(sft_adapter, data, tmp_path / "ms"), beta=0.5, label_smoothing=0.1))
    assert is_adapter(str(tmp_path / "ms")) and not (tmp_path / "ms/ref").exists()
    config = json.loads((tmp_path / "ms/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    assert (sft_adapter / "adapter_model.safetensors").read_bytes() == before
    assert (tmp_path / "ms/adapter_model.safetensors").read_bytes() != before

    first = log_of(tmp_path / "ms")[0]
    assert first["rewards/chosen"] == pytest.approx(0.0, abs=1e-5)
    row = tokenize_row(load_policy(str(base))[1], preference(0).prompt, preference(0).chosen)
    logps = {
        run: completion_logps(load_policy(str(run))[0], *pad_rows([row], 0)).item()
        for run in (base, sft_adapter, tmp_path / "ms")
    }
    assert len({round(value, 2) for value in logps.values()}) == 3
    assert logps[sft_adapter] > logps[base], "SFT should make the chosen answer likelier"


def test_no_gradient_reaches_the_reference_of_an_adapter(sft_adapter: Path, data: Path, tmp_path: Path) -> None:
    settings = MsSettings(**common(sft_adapter, data, tmp_path / "ms"), beta=0.5, label_smoothing=0.1)
    trainer = pair_trainer(settings, prepare(settings), tmp_path / "trl", "exo_pair", 0.1)
    frozen = {name: w.clone() for name, w in trainer.model.named_parameters() if ".default." not in name}
    assert any(".ref." in name for name in frozen)
    run_trainer(trainer, "ms")
    for name, weight in trainer.model.named_parameters():
        if name in frozen:
            assert weight.grad is None and torch.equal(weight, frozen[name]), name


def test_an_adapter_with_lora_settings_is_refused(sft_adapter: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is already an adapter, and lora is set"):
        train_once(DpoSettings(**common(sft_adapter, data, tmp_path / "run", lora=LoraSettings())))


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_no_files(base: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"the loss is (nan|inf) at step \d of 5\. Expected a finite loss\. Lower learning_rate"
    ):
        train_sft(SftSettings(**common(base, data, tmp_path / "run", learning_rate=1e30)))
    assert not list(tmp_path.iterdir())


def test_a_run_never_overwrites_an_existing_path(base: Path, data: Path, sft_run: Path, tmp_path: Path) -> None:
    before = weights_of(sft_run)
    with pytest.raises(UserError, match=r"already exists\. Expected a new folder for the run\. Remove it"):
        train_sft(SftSettings(**common(base, data, sft_run)))
    assert weights_of(sft_run) == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        train_sft(SftSettings(**common(base, data, tmp_path / "file")))
    with pytest.raises(UserError, match=r"file: no run\.json\. Expected the folder of a finished training run"):
        read_run(tmp_path / "file")


def test_the_working_directory_and_its_parent_are_refused_as_outputs(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for output in (".", ".."):
        with pytest.raises(UserError, match="this folder, or one above it"):
            train_sft(SftSettings(**common(base, data, Path(output))))


def test_a_run_does_not_delete_the_files_of_another_that_is_still_working(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "run", about={}) as folder:
        (folder / "model").write_text("mine")
        for resumable in (False, True):
            with (
                pytest.raises(UserError, match=r"run\.partial: another process is working on it"),
                fresh_folder(tmp_path / "run", resumable, about={}),
            ):
                pass
        assert (folder / "model").exists()
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "./nowhere"}, "model './nowhere': no such folder"),
        ({"data": "nowhere"}, r"nowhere/train\.jsonl: no such file"),
        (
            {"data": __file__},
            r"test_runs\.py: a file\. Expected a folder that contains train\.jsonl\. Put it into a folder",
        ),
        ({"max_length_tokens": 100}, r"train\.jsonl: \d+ of 12 rows are longer than max_length_tokens = 100"),
        ({"report_to": "trackio"}, "report_to = 'trackio', but trackio is not installed.*pip install trackio"),
    ],
)
def test_bad_input_is_refused_before_the_first_step(
    base: Path, data: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        train_once(DpoSettings(**common(base, data, tmp_path / "run", **change)))
    assert not list(tmp_path.iterdir())


def test_tensorboard_files_are_in_the_folder_of_the_run(base: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="written by tensorboardX, which is not installed")
    train_sft(SftSettings(**common(base, data, tmp_path / "run", report_to="tensorboard", save_steps=2)))
    (events,) = (file.read_bytes() for file in (tmp_path / "run" / "tensorboard").iterdir())
    assert b"train/loss" in events and b"eval/loss" in events and not (tmp_path / "run" / "checkpoints").exists()


def test_a_run_reports_its_progress_and_the_time_left(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    snapshots: list[FolderProgress] = []
    original = ProgressCallback.on_log

    def on_log(self: ProgressCallback, args: Any, *rest: Any, **named: Any) -> None:
        original(self, args, *rest, **named)
        snapshots.append(read_progress(tmp_path / "run.partial"))

    monkeypatch.setattr(ProgressCallback, "on_log", on_log)
    train_once(DpoSettings(**common(base, data, tmp_path / "run")))
    steps = [each.last["step"] for each in snapshots]
    assert steps[:STEPS] == list(range(1, STEPS + 1)) and all(each.alive for each in snapshots)
    assert snapshots[0].about["stage"] == "dpo" and snapshots[0].last["loss"] == log_of(tmp_path / "run")[0]["loss"]
    assert not (tmp_path / "run" / PROGRESS).exists()
    output = capfd.readouterr().err
    assert f"step 1 of {STEPS}" in output and "left" in output and f"step {STEPS} of {STEPS}" in output


def test_only_the_first_of_several_processes_prints_the_progress(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = TrainingArguments(str(tmp_path / "run" / "checkpoints"))
    for is_first in (True, False):
        state = TrainerState(global_step=1, max_steps=2, is_world_process_zero=is_first)
        ProgressCallback("sft").on_log(arguments, state, None, {"loss": 0.5})
        assert ("sft: step 1 of 2, loss 0.5000" in capfd.readouterr().err) == is_first
        with pytest.raises(UserError, match="the loss is nan at step 1 of 2"):
            ProgressCallback("sft").on_log(arguments, state, None, {"loss": math.nan})


def test_a_record_describes_the_data_before_the_first_step(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are changed while the run trains on those that it has read."""
    rows = shutil.copytree(data, tmp_path / "data")
    before = rows_fingerprint(rows)
    original = ProgressCallback.on_log

    def on_log(self: ProgressCallback, *arguments: Any, **named: Any) -> None:
        (rows / "train.jsonl").write_text("{}\n")
        original(self, *arguments, **named)

    monkeypatch.setattr(ProgressCallback, "on_log", on_log)
    assert train_sft(SftSettings(**common(base, rows, tmp_path / "run"))).data_fingerprint == before
    assert rows_fingerprint(rows) != before


def test_every_trainer_uses_one_of_several_gpus(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would otherwise split batches among them with DataParallel. Here its arguments count two GPUs."""
    original = TrainingArguments.__post_init__

    def count_two(self: TrainingArguments) -> None:
        original(self)
        self._n_gpu = 2

    monkeypatch.setattr(TrainingArguments, "__post_init__", count_two)
    assert TrainingArguments(str(tmp_path)).n_gpu == 2
    tokenizer, values = load_tokenizer(str(base)), common(base, data, tmp_path / "run")
    sft, dpo, reward = SftSettings(**values), DpoSettings(**values), RewardSettings(**values)
    simpo, orpo = (DpoSettings(**values, trainer="trl", loss=loss) for loss in ("simpo", "orpo"))
    pairs = read_preference_data(dpo, tokenizer)
    for trainer in (
        sft_trainer(sft, read_sft_data(sft, tokenizer), tokenizer, tmp_path / "work"),
        response_group_trainer(dpo, "dpo", pairs, tokenizer, tmp_path / "work"),
        pair_trainer(dpo, prepare(dpo), tmp_path / "work", "sigmoid"),
        reference_free_trainer(simpo, prepare(simpo), tmp_path / "work"),
        reference_free_trainer(orpo, prepare(orpo), tmp_path / "work"),
        reward_trainer(reward, prepare(reward, head="score"), tmp_path / "work"),
    ):
        assert (trainer.args.n_gpu, trainer.args.train_batch_size) == (1, sft.batch_size), type(trainer)


def test_the_first_loss_with_bfloat16_and_checkpointing_is_close_to_that_in_float32(
    sft_run: Path, base: Path, data: Path, tmp_path: Path
) -> None:
    values = common(base, data, tmp_path / "run", precision="bfloat16", gradient_checkpointing=True, max_steps=2)
    train_sft(SftSettings(**values))
    losses = [row["loss"] for row in log_of(tmp_path / "run")]
    assert losses[0] == pytest.approx(log_of(sft_run)[0]["loss"], abs=0.05)
    assert load_model(str(tmp_path / "run"), "float32").dtype == torch.float32
