"""A plan compared with the run that it describes: steps, tokens and operations; no files left behind; the output of the command."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import Trainer, TrainingArguments

import train.preference.preference as preference_training
import train.preference.trainer as preference_trainer
import train.sft as sft_training
from graph.errors import UserError
from tests.commands import run
from tests.places import ROOT
from train.model.load import load_policy
from train.model.packing import choose_layout
from train.plan.jobs import job_of
from train.plan.memory import Launch
from train.plan.plan import Calibration, TrainingPlan, chosen_rows, hours_of, padded_tokens, plan_training, updates
from train.preference.preference import train_once
from train.reward import train_reward
from train.run.loop import completion_logits_only
from train.run.settings import DpoSettings, LoraSettings, MsSettings, RewardSettings, SftSettings, TrainSettings
from train.sft import train_sft

PAD = 0
"""The tiny model's pad id, which no text contains."""
SCORED = {"rewards": {"correct": 1.0}}
CASES: dict[str, tuple[type[TrainSettings], Callable[[Any], Any], dict[str, Any]]] = {
    "ms": (MsSettings, train_once, {"gradient_accumulation": 2}),
    "ms plain": (MsSettings, train_once, {"layout": "plain"}),
    "ms scored": (MsSettings, train_once, {**SCORED, "batch_size": 2}),
    "ms scored, groups of 2": (MsSettings, train_once, {**SCORED, "responses": 2, "batch_size": 4}),
    "dpo adapter": (DpoSettings, train_once, {"lora": LoraSettings(rank=2), "epochs": 1}),
    "dpo with TRL's trainer": (DpoSettings, train_once, {"trainer": "trl"}),
    "simpo with TRL's trainer": (DpoSettings, train_once, {"trainer": "trl", "loss": "simpo"}),
    "sft": (SftSettings, train_sft, {"gradient_accumulation": 2, "gradient_checkpointing": True}),
    "sft, refusals anchored": (SftSettings, train_sft, {"anchor_refusals": True, "lora": LoraSettings(rank=2)}),
    "reward": (RewardSettings, train_reward, {}),
}


def settings_of(case: str, base: Path, data: Path, scored_data: Path, output: Path) -> TrainSettings:
    kind, _, changes = CASES[case]
    rows = scored_data if "scored" in case else data
    return kind(model=str(base), data=str(rows), output=str(output), logging_steps=1, **changes)


@pytest.fixture
def token_counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Tokens that reach a model's embeddings, without padding, counted for each phase, and the calls of each phase; trial steps are not counted."""
    counts_by_phase: Counter[str] = Counter()
    phase = [""]

    def within(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            phase[0] = name
            counts_by_phase[f"calls: {name}"] += 1
            try:
                return function(*arguments, **named)
            finally:
                phase[0] = ""

        return call

    monkeypatch.setattr(Trainer, "training_step", within("training", Trainer.training_step))
    monkeypatch.setattr(Trainer, "evaluate", within("dev", Trainer.evaluate))
    monkeypatch.setattr(preference_training, "group_logps", within("reference", preference_training.group_logps))
    monkeypatch.setattr(sft_training, "reading_figures", within("answers", sft_training.reading_figures))
    monkeypatch.setattr(preference_trainer, "greedy_answers", within("answers", preference_trainer.greedy_answers))

    def count_tokens(module: Any, inputs: Any) -> None:
        if phase[0] and isinstance(module, torch.nn.Embedding):
            of_reference = phase[0] == "training" and not torch.is_grad_enabled()
            counts_by_phase["reference" if of_reference else phase[0]] += int((inputs[0] != PAD).sum())

    hook = torch.nn.modules.module.register_module_forward_pre_hook(count_tokens)
    yield counts_by_phase
    hook.remove()


@pytest.mark.parametrize("case", CASES)
def test_the_counts_equal_those_of_the_run(
    case: str, base: Path, data: Path, scored_data: Path, tmp_path: Path, token_counts: Counter[str]
) -> None:
    settings = settings_of(case, base, data, scored_data, tmp_path / "run")
    plan = plan_training(settings, Launch(), steps=0)
    assert not token_counts
    record = CASES[case][1](settings)
    counts = plan.counts
    assert counts.steps == record.metrics["train_steps"]
    assert counts.tokens == token_counts["training"] > 0
    in_dev = counts.dev_tokens if case == "dpo with TRL's trainer" else 0
    assert counts.reference_tokens == token_counts["reference"] + in_dev
    assert counts.dev_tokens == token_counts["dev"] - in_dev > 0
    assert counts.packed == (
        case in ("ms", "ms scored", "ms scored, groups of 2", "dpo adapter", "sft", "sft, refusals anchored")
    )
    assert plan.hours is plan.calibration is plan.memory.total is None


@pytest.mark.parametrize(
    ("case", "changes", "passes", "answers"),
    [("sft", {"eval_steps": 2}, 4, 4), ("sft", {"eval_steps": 4}, 3, 3), ("ms", {"sample_steps": 2}, 1, 3)],
)
def test_evaluations_during_training_are_counted_and_their_answers_timed(
    case: str,
    changes: dict[str, Any],
    passes: int,
    answers: int,
    base: Path,
    data: Path,
    scored_data: Path,
    tmp_path: Path,
    token_counts: Counter[str],
) -> None:
    once = settings_of(case, base, data, scored_data, tmp_path / "run")
    settings = once.model_copy(update={"gradient_accumulation": 1, **changes})
    plan = plan_training(settings, Launch(), steps=1)
    token_counts.clear()
    CASES[case][1](settings)
    assert plan.counts.dev_tokens == token_counts["dev"]
    assert plan.counts.answer_sets == token_counts["calls: answers"] == answers
    only_once = plan_training(once, Launch(), steps=0)
    assert plan.counts.dev_tokens == passes * only_once.counts.dev_tokens
    assert plan.flops.dev == pytest.approx(passes * only_once.flops.dev)
    assert plan.calibration is not None and plan.hours is not None and plan.calibration.answer_seconds > 0
    without = replace(plan.calibration, answer_seconds=0.0)
    for launch in (Launch(), Launch(4)):
        more = hours_of(plan.counts, plan.flops, launch, replace(without, answer_seconds=36.0))
        assert more - hours_of(plan.counts, plan.flops, launch, without) == pytest.approx(answers / 100)


@pytest.mark.parametrize("in_one_row", [True, False])
def test_the_planned_padding_equals_that_of_the_rows_in_training(
    base: Path, data: Path, tmp_path: Path, in_one_row: bool
) -> None:
    """On a CPU, all groups are in one row; with a mask, as on a GPU, they are in rows as long as the longest group."""
    settings = MsSettings(model=str(base), data=str(data), output=str(tmp_path / "run"))
    groups, sizes = job_of(settings).train[:3], []
    model = load_policy(str(base))[0]
    logps_of = choose_layout(model, 200, None)
    if not in_one_row:
        model.set_attn_implementation("sdpa")
    model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].numel()))
    logps_of(model, groups)
    assert sizes == [padded_tokens(groups, True, None, in_one_row)]
    assert (sizes[0] > sum(group.tokens for group in groups)) == (not in_one_row)


@pytest.mark.parametrize("case", CASES)
def test_the_operations_equal_those_of_the_trainers(
    case: str, base: Path, data: Path, scored_data: Path, tmp_path: Path
) -> None:
    """All rows are trained on once, in batches of one. If pairs are not packed, the shorter response is padded; only torch's counter includes this padding."""
    changes = {"batch_size": 1, "gradient_accumulation": 1, "epochs": 1, "gradient_checkpointing": False}
    settings = settings_of(case, base, data, scored_data, tmp_path / "run").model_copy(update=changes)
    plan, job = plan_training(settings, Launch(), steps=0), job_of(settings)
    trainer = job.trainer_of(range(len(job.train)), settings, tmp_path)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, completion_logits_only():
        trainer.train()
    predicted = plan.flops.training + plan.flops.reference_in_steps
    padded = not plan.counts.packed
    share = counter.get_total_flops() / predicted
    assert 1.0 < share < 1.35 if padded else 0.97 < share < 1.005


@pytest.mark.parametrize("case", CASES)
def test_a_calibration_takes_real_steps_and_leaves_no_files(
    case: str, base: Path, data: Path, scored_data: Path, tmp_path: Path
) -> None:
    settings = settings_of(case, base, data, scored_data, tmp_path / "run")
    if "ms" in case:
        settings = settings.model_copy(update={"reference_cache": str(tmp_path / "cache"), "save_steps": 1})
    plan = plan_training(settings, Launch(), steps=2)
    calibration = plan.calibration
    assert calibration is not None and (calibration.steps, calibration.device) == (2, "cpu")
    assert calibration.seconds > 0 and plan.hours is not None and plan.hours > 0
    assert 2 * settings.batch_size * 20 < calibration.tokens < 10_000
    assert plan.memory.activations is not None and plan.memory.total is not None
    assert plan.memory.activations > plan.counts.tokens / plan.counts.steps * 32 * 4
    assert plan.counts == plan_training(settings, Launch(), steps=0).counts
    assert not list(tmp_path.iterdir())


def test_activations_grow_with_the_batch_and_shrink_with_checkpointing(
    base: Path, data: Path, scored_data: Path, tmp_path: Path
) -> None:
    settings = settings_of("ms", base, data, scored_data, tmp_path / "run")

    def activations(**changes: Any) -> float:
        found = plan_training(settings.model_copy(update=changes), Launch(), steps=1).memory.activations
        assert found is not None
        return found

    whole = activations(batch_size=4)
    assert whole > 1.5 * activations(batch_size=2)
    assert activations(batch_size=4, gradient_checkpointing=True) < 0.8 * whole


@pytest.mark.parametrize("rows", [1, 7, 12, 13])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize(("epochs", "max_steps"), [(2, None), (0.5, None), (1, 5)])
def test_steps_are_counted_as_the_trainer_counts_them(
    base: Path, rows: int, batch: int, accumulation: int, epochs: float, max_steps: int | None, tmp_path: Path
) -> None:
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        num_train_epochs=epochs,
        max_steps=max_steps or -1,
        use_cpu=True,
        report_to="none",
    )
    trainer = Trainer(torch.nn.Linear(1, 1), arguments, data_collator=list, train_dataset=list(range(rows)))
    loader = trainer.get_train_dataloader()
    steps, passes = updates(rows, batch, 1, accumulation, epochs, max_steps)
    assert steps == trainer.set_initial_training_values(arguments, loader)[-1]
    assert passes >= steps * accumulation * batch / (rows + accumulation * batch)


def test_processes_share_the_steps() -> None:
    assert updates(12, 2, 2, 1, 2, None) == (6, 2.0)
    assert updates(13, 2, 2, 1, 1, None) == (4, 1.0)
    assert updates(12, 1, 2, 3, 1, None) == (2, 1.0)


def test_memory_is_measured_on_the_longest_rows_and_time_on_random_rows() -> None:
    rows = chosen_rows([5, 9, 3, 8], 2, 3, random.Random(0))
    assert rows[:2] == [1, 3] and len(rows) == 8 and set(rows[2:6]) == {0, 1, 2, 3}
    assert chosen_rows([5], 2, 1, random.Random(0)) == [0, 0, 0, 0]


def test_hours_are_seconds_per_token_times_tokens(base: Path, data: Path, scored_data: Path, tmp_path: Path) -> None:
    plan = plan_training(settings_of("ms", base, data, scored_data, tmp_path / "run"), Launch(), steps=0)
    calibration = Calibration("cpu", 3, 1000, 2.0, 0)
    training = 0.002 * plan.counts.tokens
    alone = replace(plan.flops, reference=0.0, dev=0.0)
    assert hours_of(plan.counts, alone, Launch(), calibration) == pytest.approx(training / 3600)
    assert hours_of(plan.counts, alone, Launch(4), calibration) == pytest.approx(training / 3600 / 4)
    as_much = replace(alone, reference=alone.training)
    assert hours_of(plan.counts, as_much, Launch(4), calibration) == pytest.approx((training / 4 + training) / 3600)
    half_in_steps = replace(as_much, reference=2 * alone.training, reference_in_steps=alone.training)
    assert hours_of(plan.counts, half_in_steps, Launch(), calibration) == pytest.approx(
        (training + training / 2) / 3600
    )


@pytest.fixture
def config(base: Path, data: Path, tmp_path: Path) -> Path:
    file = tmp_path / "dpo-mine.yaml"
    file.write_text(f"model: {base}\ndata: {data}\noutput: {tmp_path / 'run'}\nbatch_size: 2\n")
    return file


def test_the_command_prints_the_plan_in_lines_and_in_json(config: Path, tmp_path: Path) -> None:
    result = run("plan", "train", config, "--trial-steps", 1)
    assert result.exit_code == 0, result.exception
    lines = result.stdout.splitlines()
    assert lines[0] == f"{config}: dpo, 12 rows with 24 responses in all" and lines[1] == "steps: 12 (2 passes)"
    assert lines[-1].startswith("time: ") and "1 steps on cpu" in lines[-1] and "activations" in lines[-2]
    described = json.loads(run("plan", "train", config, "--trial-steps", 0, "--json", "--set", "max_steps=3").stdout)
    assert (described["stage"], described["counts"]["steps"], described["hours"]) == ("dpo", 3, None)
    assert described["flops"]["total"] == pytest.approx(
        sum(described["flops"][name] for name in ("training", "reference", "dev"))
    )
    sharded = run(
        "plan", "train", config, "--trial-steps", 0, "--accelerate", ROOT / "configs/accelerate/fsdp.yaml"
    ).stdout
    assert "steps: 6 (2 passes)" in sharded and "each of 2 processes" in sharded and "time: not measured" in sharded
    assert [file.name for file in tmp_path.iterdir()] == [config.name]


def test_the_stage_comes_from_the_file_or_from_the_option(config: Path, tmp_path: Path) -> None:
    plain = config.rename(tmp_path / "mine.yaml")
    problem = run("plan", "train", plain, "--trial-steps", 0).exception
    assert (
        isinstance(problem, UserError)
        and "settings of `train sft` or `train ms`" in str(problem)
        and "--stage" in str(problem)
    )
    assert run("plan", "train", plain, "--trial-steps", 0, "--stage", "sft").stdout.startswith(
        f"{plain}: sft, 12 rows with 12"
    )
    assert "one of sft, ms, dpo, reward" in str(run("plan", "train", plain, "--stage", "rl").exception)
    trees = run("plan", "train", ROOT / "configs/train/selector-light.yaml").exception
    assert isinstance(trees, UserError) and "settings of `train selector`" in str(trees)


@pytest.mark.parametrize(
    ("changes", "found"),
    [({"loss": "rloo"}, "loss: rloo with pairs"), ({"label_smoothing": 0.1, **SCORED}, "0.1 with K scored responses")],
)
def test_a_loss_that_does_not_suit_the_rows_has_no_plan(
    changes: dict[str, Any], found: str, base: Path, data: Path, scored_data: Path, tmp_path: Path
) -> None:
    rows = scored_data if "rewards" in changes else data
    settings = DpoSettings(model=str(base), data=str(rows), output=str(tmp_path / "run"), **changes)
    for refused in (lambda: plan_training(settings, Launch(), steps=0), lambda: train_once(settings)):
        with pytest.raises(UserError, match=found):
            refused()


def test_a_run_that_would_be_refused_has_no_plan(config: Path) -> None:
    problem = run("plan", "train", config, "--set", "max_length_tokens=20").exception
    assert isinstance(problem, UserError) and "longer than max_length_tokens = 20" in str(problem)
    problem = run("plan", "train", config, "--set", "model=./nowhere").exception
    assert isinstance(problem, UserError) and "no such folder" in str(problem)


def test_a_documents_folder_called_train_is_planned_as_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.md").write_text("# Tarn\n\nTarn is a village of 312 people.")
    monkeypatch.chdir(tmp_path)
    result = run("plan", "./train", "--out", "my-index")
    assert result.exit_code == 0 and result.stdout.startswith("my-index: 1 new")


def test_the_json_of_a_plan_has_all_its_fields_and_only_finite_numbers(config: Path) -> None:
    def numbers(value: Any) -> list[float]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        own = [float(value)] if isinstance(value, int | float) else []
        return own + [each for one in inner for each in numbers(one)]

    described = json.loads(run("plan", "train", config, "--trial-steps", 1, "--json").stdout)
    assert all(math.isfinite(each) for each in numbers(described))
    assert set(described) == {"file", "stage", *TrainingPlan.__dataclass_fields__}
