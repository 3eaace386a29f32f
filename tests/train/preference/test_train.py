"""Training on K responses: at K = 2 its losses equal TRL's step by step; a run can be resumed, and two processes make the same updates as one; the
reference never changes, and a reference cache of another model is refused.
"""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import logsigmoid

from data_synth.rows import PreferenceRow, preference_to_json, response_to_json
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.places import ROOT
from tests.processes import until
from tests.train.world import log_of, preference, response_row
from train.model.load import load_model, load_policy, load_tokenizer
from train.model.logps import tokenize_row
from train.preference.groups import (
    best_worst_groups,
    combine_rewards,
    pair_groups,
    scored_groups,
    split_into_groups,
    standardise,
    tokenize_group,
)
from train.preference.losses import (
    LOSSES,
    Objective,
    dpo_loss,
    mean_figures,
    mode_seeking_loss,
    prompt_losses,
    ranking_accuracy,
)
from train.preference.preference import (
    Loss,
    alignment_of,
    pair_trainer,
    read_preference_data,
    reference_of,
    response_group_trainer,
    train_once,
)
from train.run.data import read_preferences, read_responses
from train.run.loop import prepare, run_trainer
from train.run.record import OTHER_LOSSES, read_run
from train.run.save import last_checkpoint
from train.run.settings import DpoSettings, LoraSettings, MsSettings, PreferenceSettings, SftSettings
from train.sft import train_sft

STEPS = 20


@pytest.fixture(scope="module")
def adapter(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SFT adapter, from which our trainer and TRL's both start."""
    output = tmp_path_factory.mktemp("start") / "adapter"
    values = common(base, data, output, lora=LoraSettings(rank=4, alpha=8), max_steps=3)
    train_sft(SftSettings(**values))
    return output


def common(model: Path, data: Path, output: Path, /, **changes: Any) -> dict[str, Any]:
    values = {"model": str(model), "data": str(data), "output": str(output), "learning_rate": 2e-3}
    return {**values, "max_steps": STEPS, "logging_steps": 1, "seed": 3} | changes


TRL_FIGURES = (
    *("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"),
    *("logps/chosen", "logps/rejected"),
)


def losses_of(run: Path) -> list[float]:
    return [row["loss"] for row in log_of(run)]


@pytest.mark.parametrize(
    ("case", "method"),
    [("whole", "ms"), ("whole", "dpo"), ("accumulated", "dpo"), ("adapter", "ms"), ("cached", "ms"), ("plain", "dpo")],
)
def test_pairs_equal_trl_step_by_step(
    method: str, case: str, base: Path, adapter: Path, data: Path, tmp_path: Path
) -> None:
    """`exo_pair` and `sigmoid` of TRL's DPOTrainer against ours at K = 2: the same losses for 20 steps, to 1e-5, and the same figures."""
    changes: dict[str, Any] = {"beta": 0.5} | ({"label_smoothing": 0.05} if method == "ms" else {})
    if case == "accumulated":
        changes |= {"batch_size": 2, "gradient_accumulation": 2}
    own = {"plain": {"layout": "plain"}, "cached": {"reference_cache": str(tmp_path / "reference.safetensors")}}
    ours = changes | own.get(case, {})
    start = adapter if case == "adapter" else base
    kind = MsSettings if method == "ms" else DpoSettings
    record = train_once(kind(**common(start, data, tmp_path / "ours", **ours)))
    if case == "cached":
        train_once(kind(**common(start, data, tmp_path / "again", **ours)))
        assert losses_of(tmp_path / "again") == losses_of(tmp_path / "ours")
    settings = kind(**common(start, data, tmp_path / "trl", trainer="trl", **changes))
    loss: tuple[Loss, float | None] = ("exo_pair", 0.05) if method == "ms" else ("sigmoid", None)
    outcome = run_trainer(pair_trainer(settings, prepare(settings), tmp_path / "t", *loss), method)
    assert losses_of(tmp_path / "ours") == pytest.approx([row["loss"] for row in outcome.log], abs=1e-5)
    assert len(outcome.log) == STEPS and outcome.log[0]["loss"] > 1.5 * outcome.log[-1]["loss"]
    for name in TRL_FIGURES:
        found, theirs = ([row[name] for row in log] for log in (log_of(tmp_path / "ours"), outcome.log))
        assert found == pytest.approx(theirs, abs=1e-3, rel=1e-5), name
        assert record.metrics[f"eval_{name}"] == pytest.approx(outcome.metrics[f"eval_{name}"], abs=1e-3), name
    assert outcome.log[-1]["rewards/margins"] > 0.1, "the margins should grow: otherwise the comparison shows nothing"


@pytest.mark.parametrize("trainer", ["modegraph", "trl"])
def test_ipo_starts_at_its_formula_and_learns(trainer: str, base: Path, data: Path, tmp_path: Path) -> None:
    """(Δ_chosen − Δ_rejected − 1/(2τ))² is 1/(4τ²) where the policy is the reference, for our sums over tokens as for TRL's means."""
    values = common(base, data, tmp_path / "ipo", loss="ipo", beta=0.25, trainer=trainer)
    train_once(DpoSettings(**values))
    losses = losses_of(tmp_path / "ipo")
    assert losses[0] == pytest.approx(4.0, abs=1e-4) and losses[-1] < 3.5
    assert log_of(tmp_path / "ipo")[-1]["rewards/margins"] > 0


def test_nca_equals_trl_step_by_step(base: Path, data: Path, tmp_path: Path) -> None:
    runs = []
    for trainer in ("modegraph", "trl"):
        values = common(base, data, tmp_path / trainer, loss="nca", beta=0.5, max_steps=6, trainer=trainer)
        train_once(DpoSettings(**values))
        runs.append(losses_of(tmp_path / trainer))
    assert runs[0] == pytest.approx(runs[1], abs=1e-5) and runs[0][-1] < runs[0][0] == pytest.approx(2 * math.log(2))


@pytest.mark.parametrize("loss", ["ipo", "lambda", "nca", "rloo"])
def test_the_other_losses_train_on_k_responses(loss: str, base: Path, scored_data: Path, tmp_path: Path) -> None:
    """The first loss is that of the formula at Δ = 0; training then makes the best responses likelier relative to the worst."""
    weights = {"correct": 1.0, "format": 0.5}
    changes = {"loss": loss, "beta": 0.2, "beta_reward": 0.4, "rewards": weights, "batch_size": 3}
    record = train_once(DpoSettings(**common(base, scored_data, tmp_path / "run", **changes)))
    rewards = [torch.tensor([combine_rewards(response_row(number), weights)]) for number in range(3)]
    expected = [LOSSES[loss](torch.zeros(1, 6), each, 0.2, 0.4).item() for each in rewards]
    losses = losses_of(tmp_path / "run")
    assert losses[0] == pytest.approx(sum(expected) / 3, rel=1e-4, abs=1e-6) and losses[-1] < losses[0]
    assert log_of(tmp_path / "run")[-1]["rewards/margins"] > 0.05
    assert record.stage == "dpo" and OTHER_LOSSES[loss] in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_label_smoothing_changes_the_steps_of_dpo(base: Path, data: Path, tmp_path: Path) -> None:
    """ε of `train dpo` softens the labels, is in the record, and leads to steps that differ from those of hard labels."""
    for epsilon in (0.0, 0.3):
        values = common(base, data, tmp_path / f"{epsilon}", beta=0.5, label_smoothing=epsilon, max_steps=6)
        record = train_once(DpoSettings(**values))
        assert record.label_smoothing == (epsilon or None)
    hard, soft = losses_of(tmp_path / "0.0"), losses_of(tmp_path / "0.3")
    assert hard[0] == pytest.approx(soft[0]) == pytest.approx(math.log(2)) and soft[-1] > hard[-1]


def test_losses_with_incompatible_settings_are_refused(base: Path, scored_data: Path, tmp_path: Path) -> None:
    values = common(base, scored_data, tmp_path / "run", rewards={"correct": 1.0})
    for changes, message in (
        ({"loss": "lambda", "trainer": "trl"}, "TRL has no loss lambda"),
        (
            {"label_smoothing": 0.1, "trainer": "trl"},
            "label_smoothing = 0.1 would not soften the labels of TRL's losses",
        ),
        ({"label_smoothing": 0.1, "loss": "lambda"}, "would not soften the labels of lambda"),
        ({"reference_cache": "cache", "trainer": "trl"}, "TRL's trainer does not support reference_cache: unset"),
        ({"over_long": "drop", "trainer": "trl"}, "TRL's trainer does not support over_long: unset"),
        ({"loss": "simpo"}, "simpo has no reference, which this trainer needs: set trainer to trl"),
        ({"loss": "rloo", "best_against_worst": True}, "rloo compares a response with all others"),
        (
            {"loss": "rloo", "reference": str(base)},
            "rloo's reference is the model that the responses were sampled from: unset",
        ),
        ({"loss": "rloo", "rounds": {"count": 2}}, "set rounds.reference to round"),
        (
            {"loss": "rloo", "rounds": {"reference": "round", "refusal_responses": "added"}},
            "set rounds.refusal_responses to as_sampled",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            DpoSettings(**values, **changes)
    with pytest.raises(UserError, match=r"label_smoothing: 0\.1 with K scored responses"):
        train_once(DpoSettings(**values, label_smoothing=0.1))
    train_once(DpoSettings(**{**values, "max_steps": 1}, label_smoothing=0.1, best_against_worst=True))


@pytest.mark.parametrize("loss", ["simpo", "orpo"])
def test_losses_without_a_reference_train_with_trl_on_our_tokens(
    loss: str, base: Path, data: Path, tmp_path: Path
) -> None:
    """The first loss, of one batch of all pairs, equals that computed by hand from completions with end tokens; the last loss is lower."""
    rows = read_preferences(data / "train.jsonl")
    values = common(base, data, tmp_path / "run", loss=loss, trainer="trl", beta=0.4, batch_size=len(rows), max_steps=9)
    train_once(DpoSettings(**values))
    model, tokenizer = load_model(str(base), "float32"), load_tokenizer(str(base))

    def token_logps(row: PreferenceRow, completion: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of all tokens but the first, and of the completion's tokens."""
        tokenized = tokenize_row(tokenizer, row.prompt, completion)
        with torch.no_grad():
            logps_TV = model(torch.tensor([tokenized.ids])).logits[0, :-1].log_softmax(-1)
        logps_T = logps_TV[range(len(logps_TV)), tokenized.ids[1:]]
        return logps_T, logps_T[tokenized.prompt_tokens - 1 :]

    chosen = [token_logps(row, row.chosen) for row in rows]
    rejected = [token_logps(row, row.rejected) for row in rows]
    chosen_Q, rejected_Q = (torch.stack([each.mean() for _, each in side]) for side in (chosen, rejected))
    if loss == "simpo":
        expected = -logsigmoid(0.4 * (chosen_Q - rejected_Q) - 0.5).mean()
    else:
        odds_Q = chosen_Q - rejected_Q - torch.log1p(-chosen_Q.exp()) + torch.log1p(-rejected_Q.exp())
        expected = -torch.cat([whole for whole, _ in chosen]).mean() - 0.4 * logsigmoid(odds_Q).mean()
    losses = losses_of(tmp_path / "run")
    assert losses[0] == pytest.approx(expected.item(), abs=2e-4) and losses[-1] < losses[0]
    assert OTHER_LOSSES[loss] in (tmp_path / "run/README.md").read_text(encoding="utf-8")


def test_rloo_refuses_pairs(base: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="loss: rloo with pairs"):
        train_once(DpoSettings(**common(base, data, tmp_path / "run", loss="rloo")))


@pytest.mark.parametrize("method", ["ms", "dpo"])
def test_training_on_scored_responses_follows_the_formula_and_favours_the_best_responses(
    method: str, base: Path, scored_data: Path, tmp_path: Path
) -> None:
    """The first loss equals that computed at Δ = 0: KL(uniform ‖ p_r) for MS, the cross-entropy for DPO; training then favours the best responses."""
    weights = {"correct": 1.0, "format": 0.5}
    changes = {"beta": 0.2, "beta_reward": 0.4, "rewards": weights, "batch_size": 3}
    kind = MsSettings if method == "ms" else DpoSettings
    record = train_once(kind(**common(base, scored_data, tmp_path / "run", **changes)))
    zero = torch.zeros(1, 6)
    expected = []
    for number in range(3):
        rewards = torch.tensor([combine_rewards(response_row(number), weights)])
        loss = mode_seeking_loss if method == "ms" else dpo_loss
        expected.append(loss(zero, rewards, 0.2, 0.4).item())
    losses = losses_of(tmp_path / "run")
    assert losses[0] == pytest.approx(sum(expected) / 3, abs=1e-4) and losses[-1] < losses[0] - 0.1
    assert (record.beta, record.beta_reward, record.responses_per_prompt, record.label_smoothing) == (0.2, 0.4, 6, None)
    assert record.metrics["eval_loss"] > 0 and 0 <= record.metrics["eval_rewards/accuracies"] <= 1
    last = log_of(tmp_path / "run")[-1]
    assert last["rewards/chosen"] > last["rewards/rejected"]
    assert read_run(tmp_path / "run") == record


def test_the_reference_is_the_initial_model_and_never_changes(base: Path, scored_data: Path, tmp_path: Path) -> None:
    values = common(base, scored_data, tmp_path / "run", rewards={"correct": 1.0}, batch_size=3)
    settings = MsSettings(**values, gradient_checkpointing=True)
    tokenizer = load_tokenizer(str(base))
    trainer = response_group_trainer(
        settings, "ms", read_preference_data(settings, tokenizer), tokenizer, tmp_path / "work"
    )
    reference_R = torch.cat([example.reference_K for example in trainer.train_dataset])
    assert not reference_R.requires_grad and reference_R.dtype == torch.float32
    model, _ = load_policy(str(base))
    groups = [example.group.tokenized for example in trainer.train_dataset]
    assert torch.allclose(trainer.logps_of(model, groups), reference_R, atol=1e-4)
    run_trainer(trainer, "ms")
    assert torch.equal(torch.cat([example.reference_K for example in trainer.train_dataset]), reference_R)
    assert not torch.allclose(trainer.logps_of(trainer.model.eval(), groups), reference_R, atol=0.1)


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
def test_in_bfloat16_the_policy_starts_at_its_reference(
    lora: LoraSettings | None, base: Path, data: Path, tmp_path: Path
) -> None:
    """The head, whose logits are as large as those of a trained model, has the same precision in the passes of the reference and in steps."""
    model = load_model(str(base), "float32")
    with torch.no_grad():
        model.lm_head.weight *= 8
    model.save_pretrained(tmp_path / "base")
    load_tokenizer(str(base)).save_pretrained(tmp_path / "base")
    values = common(tmp_path / "base", data, tmp_path / "run", lora=lora, precision="bfloat16", max_steps=1)
    train_once(DpoSettings(**values, batch_size=12))
    (row,) = log_of(tmp_path / "run")
    assert row["rewards/chosen"] == pytest.approx(0, abs=1e-5) == row["rewards/rejected"]


def test_a_reference_cache_of_another_model_or_other_data_is_refused(
    base: Path, adapter: Path, data: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "reference.safetensors"
    values = {"reference_cache": str(cache), "max_steps": 1}
    train_once(MsSettings(**common(base, data, tmp_path / "a", **values)))
    before = cache.read_bytes()
    with pytest.raises(UserError, match=r"reference log-probabilities with model .* Expected model "):
        train_once(MsSettings(**common(adapter, data, tmp_path / "b", **values)))
    with pytest.raises(UserError, match="with precision"):
        train_once(MsSettings(**common(base, data, tmp_path / "b", **values, precision="bfloat16")))
    quantised = MsSettings(**common(base, data, tmp_path / "b", **values)).model_copy(update={"quantise": "nf4"})
    with pytest.raises(UserError, match="with quantise"):
        reference_of(quantised, [], list)
    fewer_rows = tmp_path / "fewer"
    fewer_rows.mkdir()
    write_jsonl(fewer_rows / "train.jsonl", (preference_to_json(preference(number)) for number in range(11)))
    with pytest.raises(UserError, match="with data"):
        train_once(MsSettings(**common(base, fewer_rows, tmp_path / "b", **values)))
    assert cache.read_bytes() == before and not (tmp_path / "b").exists()
    cache.write_bytes(b"no tensors")
    with pytest.raises(UserError, match="not a reference cache"):
        train_once(MsSettings(**common(base, data, tmp_path / "b", **values)))


def test_an_unsuitable_reference_is_refused(base: Path, data: Path, tmp_path: Path) -> None:
    """Its tokenizer gives other ids to two tokens, its weights are not numbers, or its embeddings lack a token."""

    def check(message: str) -> None:
        with pytest.raises(UserError, match=message):
            train_once(MsSettings(**common(base, data, tmp_path / "run", reference=str(tmp_path / "other"))))

    model, tokenizer = load_model(str(base), "float32"), load_tokenizer(str(base))
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    ids = definition["model"]["vocab"]
    ids["e"], ids["i"] = ids["i"], ids["e"]
    model.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "tokenizer.json").write_text(json.dumps(definition))
    check(rf"reference '.*other': its token {min(ids['e'], ids['i'])} is '[ei]', that of '.*base' is '[ei]'")
    tokenizer.save_pretrained(tmp_path / "other")
    with torch.no_grad():
        model.model.norm.weight *= math.nan
    model.save_pretrained(tmp_path / "other")
    check("its log-probabilities are not numbers")
    model.resize_token_embeddings(len(tokenizer) - 1)
    model.save_pretrained(tmp_path / "other")
    check("model '.*other': its tokenizer has tokens beyond the model's")


def test_an_adapter_of_another_base_is_refused(base: Path, adapter: Path, data: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(adapter, tmp_path / "moved")
    other = load_model(str(base), "float32")
    with torch.no_grad():
        other.model.norm.weight += 0.1
    other.save_pretrained(tmp_path / "other")
    config = json.loads((moved / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tmp_path / "other")
    (moved / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"does not belong to base model .*trained on weights"):
        train_once(MsSettings(**common(moved, data, tmp_path / "run")))
    (moved / "run.json").unlink()
    narrow = load_model(str(base), "float32").config
    narrow.intermediate_size //= 2
    type(other)(narrow).save_pretrained(tmp_path / "narrow")
    config["base_model_name_or_path"] = str(tmp_path / "narrow")
    (moved / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="does not belong to base model"):
        train_once(MsSettings(**common(moved, data, tmp_path / "run")))


RUN = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from train.preference.preference import train_once
from train.run.settings import MsSettings
train_once(MsSettings.model_validate_json(Path(sys.argv[1]).read_text()))
"""


def start(settings: PreferenceSettings, file: Path, *launcher: str) -> subprocess.Popen[bytes]:
    file.write_text(settings.model_dump_json())
    script = file.with_suffix(".py")
    script.write_text(RUN)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *launcher, str(script), str(file)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_with_the_same_weights(base: Path, data: Path, tmp_path: Path) -> None:
    whole = MsSettings(**common(base, data, tmp_path / "whole", max_steps=60, save_steps=3))
    train_once(whole)
    killed = whole.model_copy(update={"output": str(tmp_path / "killed")})
    process = start(killed, tmp_path / "killed.json")
    checkpoints = tmp_path / "killed.partial" / "checkpoints"
    until(lambda: process.poll() is not None or any(checkpoints.glob("checkpoint-*/trainer_state.json")), 240)
    assert process.poll() is None, process.stderr.read().decode()  # type: ignore[union-attr]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "killed").exists(), "the run should be killed before it ends: set max_steps higher"
    with pytest.raises(UserError, match="an interrupted run with other beta"):
        train_once(killed.model_copy(update={"beta": 0.9}))
    train_once(killed)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "killed")]
    assert weights[0] == weights[1] and log_of(tmp_path / "whole") == log_of(tmp_path / "killed")
    assert not (tmp_path / "killed" / "checkpoints").exists() and not (tmp_path / "killed.partial").exists()


def test_an_incomplete_checkpoint_is_skipped(base: Path, data: Path, tmp_path: Path) -> None:
    settings = MsSettings(**common(base, data, tmp_path / "run", save_steps=2))
    assert last_checkpoint(tmp_path, settings, {"data": "a"}) is None
    for step, state in [(2, '{"global_step": 2}'), (10, '{"global_step": 10}'), (12, '{"glob'), (14, None)]:
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path, settings, {"data": "a"}) == str(tmp_path / "checkpoints" / "checkpoint-10")
    with pytest.raises(UserError, match=r"an interrupted run with other data\. Expected"):
        last_checkpoint(tmp_path, settings, {"data": "b"})
    with pytest.raises(UserError, match="an interrupted run with other reference, or by another version of modegraph"):
        last_checkpoint(tmp_path, settings, {"data": "a", "reference": ""})


@pytest.mark.slow
@pytest.mark.machines
def test_two_processes_make_the_same_updates_as_one(base: Path, data: Path, tmp_path: Path) -> None:
    """Two processes with batches of one row equal one process with batches of two: gradients are averaged over processes as a loss is over rows."""
    one = MsSettings(**common(base, data, tmp_path / "one", batch_size=2, max_steps=5))
    train_once(one)
    two = one.model_copy(update={"output": str(tmp_path / "two"), "batch_size": 1})
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone")
    process = start(two, tmp_path / "two.json", *launcher)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors.decode()[-2000:]
    left, right = (load_model(str(tmp_path / run), "float32") for run in ("one", "two"))
    for name, weight in left.named_parameters():
        assert torch.allclose(weight, right.get_parameter(name), atol=2e-5), name
    assert {path.name for path in (tmp_path / "two").iterdir()} == {path.name for path in (tmp_path / "one").iterdir()}


def test_responses_stay_whole_in_split_groups_and_keep_their_rewards(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    row, weights = response_row(1), {"correct": 2.0, "format": 0.25}
    assert combine_rewards(row, weights) == (0.25, 2.25, 0.25, 0.25, 2.0, 0.0)
    groups = list(scored_groups([row], tokenizer, weights, False, 2, seed=0))
    assert [group.id for group in groups] == ["r1/0", "r1/1", "r1/2"]
    whole = tokenize_group(tokenizer, row.prompt, row.responses)
    by_tokens = dict(zip(whole.responses, combine_rewards(row, weights), strict=True))
    rewarded = {r: w for group in groups for r, w in zip(group.tokenized.responses, group.rewards, strict=True)}
    assert rewarded == by_tokens and {group.tokenized.prompt for group in groups} == {whole.prompt}
    for text, tokens in zip(row.responses, whole.responses, strict=True):
        alone = tokenize_row(tokenizer, row.prompt, text)
        assert alone.ids == whole.prompt + tokens and tokens[-1] == tokenizer.eos_token_id
    other = list(scored_groups([row], tokenizer, weights, False, 2, seed=1))
    assert [c.tokenized for c in other] != [c.tokenized for c in groups]
    with pytest.raises(UserError, match="row 'r1' has no reward 'judge', only correct, format"):
        combine_rewards(row, {"judge": 1.0})
    assert combine_rewards(row, {**weights, "judge": 0.0}) == combine_rewards(row, weights)


def test_rewards_that_differ_only_by_rounding_are_equal(base: Path) -> None:
    row = replace(response_row(0), responses=("a", "b"), rewards={"correct": (0.1, 0.3), "format": (0.2, 0.0)})
    weights = {"correct": 1.0, "format": 1.0}
    assert combine_rewards(row, weights) == (0.3, 0.3) != (0.1 + 0.2, 0.3)
    assert standardise(combine_rewards(row, weights)) == (0.0, 0.0)
    assert not list(best_worst_groups([row], load_tokenizer(str(base)), weights, 0.1))


def test_the_recorded_k_is_at_most_the_size_of_the_largest_group(base: Path, scored_data: Path, tmp_path: Path) -> None:
    for responses, recorded in ((None, 6), (8, 6), (4, 4)):
        values = common(base, scored_data, tmp_path / "run", rewards={"correct": 1.0}, responses=responses)
        settings = MsSettings(**values)
        data = read_preference_data(settings, load_tokenizer(str(base)))
        assert alignment_of(settings, data).responses_per_prompt == recorded


@pytest.mark.parametrize("count", range(2, 20))
@pytest.mark.parametrize("size", [2, 3, 8, None])
def test_each_response_is_in_exactly_one_group_of_at_least_two(count: int, size: int | None) -> None:
    groups = split_into_groups(count, size, random.Random(count))
    assert sorted(number for group in groups for number in group) == list(range(count))
    assert all(len(group) >= 2 for group in groups)
    assert all(len(group) <= (size or count) + 1 for group in groups)


def test_standardised_rewards_do_not_depend_on_offset_and_scale() -> None:
    assert standardise([0.0, 10.0, 20.0]) == pytest.approx(standardise([1.0, 2.0, 3.0]))
    assert sum(standardise([0.3, 0.9, 0.1])) == pytest.approx(0)


def test_the_rewards_of_a_pair_encode_its_smoothed_label(base: Path) -> None:
    rows, tokenizer = [preference(0)], load_tokenizer(str(base))
    (soft,) = pair_groups(rows, tokenizer, 0.1)
    (hard,) = pair_groups(rows, tokenizer, 0.0)
    assert torch.softmax(torch.tensor(soft.rewards), 0).tolist() == pytest.approx([0.9, 0.1])
    assert hard.rewards == (0.0, -math.inf) and hard.longest_tokens == len(
        tokenize_row(tokenizer, rows[0].prompt, rows[0].chosen).ids
    )


def test_the_best_response_is_paired_with_the_worst(base: Path, tmp_path: Path) -> None:
    tokenizer, weights = load_tokenizer(str(base)), {"correct": 1.0, "format": 0.5}
    row = response_row(1)
    alike = replace(row, id="alike", rewards={"correct": (1.0,) * 6, "format": (0.0,) * 6})
    (group,) = best_worst_groups([row, alike], tokenizer, weights, 0.1)
    assert combine_rewards(row, weights) == (0.5, 1.5, 0.5, 0.5, 1.0, 0.0), (
        "the second response should be the best, the last the worst"
    )
    assert group.tokenized == tokenize_group(tokenizer, row.prompt, (row.responses[1], row.responses[5]))
    assert torch.softmax(torch.tensor(group.rewards), 0).tolist() == pytest.approx([0.9, 0.1])
    write_jsonl(tmp_path / "train.jsonl", [response_to_json(row)])
    values = {"model": str(base), "data": str(tmp_path), "output": str(tmp_path / "run"), "max_steps": 1}
    record = train_once(MsSettings(**values, rewards=weights, best_against_worst=True, label_smoothing=0.1))  # type: ignore[arg-type]
    assert (record.responses_per_prompt, record.label_smoothing, record.beta_reward) == (2, 0.1, None)
    write_jsonl(tmp_path / "train.jsonl", [response_to_json(alike)])
    with pytest.raises(UserError, match="every prompt's responses have equal rewards"):
        train_once(MsSettings(**{**values, "output": str(tmp_path / "b")}, rewards=weights, best_against_worst=True))  # type: ignore[arg-type]


def test_prompts_with_different_k_have_the_same_losses_together_as_alone() -> None:
    logps = torch.tensor([-1.0, -2.0, -3.0, -1.0, -1.0])
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.0, 1.0])
    objective = Objective("ms", 0.5, 0.5)
    losses, figures = prompt_losses(objective, logps, torch.zeros(5), rewards, [3, 2])
    parts = [
        prompt_losses(objective, logps[part], torch.zeros(size), rewards[part], [size])[0].item()
        for part, size in ((slice(0, 3), 3), (slice(3, 5), 2))
    ]
    assert losses.tolist() == pytest.approx(parts)
    assert [each["rewards/accuracies"] for each in figures] == [2 / 3, 0.0], (
        "the first prompt's two worse responses are in the wrong order; the second prompt's best response is no likelier than its other one"
    )
    assert mean_figures(figures)["logps/chosen"] == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("log_ratios", "rewards", "right"),
    [
        ([0.0, 0.0], [0.0, -math.inf], 0.0),
        ([0.1, 0.0], [0.0, -math.inf], 1.0),
        ([0.0, 0.1], [0.0, -math.inf], 0.0),
        ([0.0, 0.0, 0.0], [1.0, 0.5, 0.0], 0.0),
        ([0.1, 0.3, 0.2], [1.0, 1.0, 0.0], 0.5),
        ([0.4, 0.3, 0.3], [1.0, 1.0, 0.0], 0.5),
        ([0.2, 0.3, 0.1, 0.0], [1.0, 0.5, 0.5, 0.0], 0.8),
        ([0.3, 0.1], [1.0, 1.0], None),
    ],
)
def test_pairs_with_equal_log_ratios_are_wrong_and_pairs_with_equal_rewards_are_not_counted(
    log_ratios: list[float], rewards: list[float], right: float | None
) -> None:
    assert ranking_accuracy(torch.tensor(log_ratios), torch.tensor(rewards)) == (
        None if right is None else pytest.approx(right)
    )


def test_the_accuracy_of_a_short_run_on_k_responses_counts_pairs(base: Path, scored_data: Path, tmp_path: Path) -> None:
    """After a few steps, hardly any group is ranked correctly as a whole, but most pairs within groups are: an accuracy over groups would stay near 0."""
    values = common(base, scored_data, tmp_path / "run", max_steps=6, learning_rate=1e-4, batch_size=1)
    train_once(MsSettings(**values, rewards={"correct": 1.0, "format": 0.5}))
    accuracies = [row["rewards/accuracies"] for row in log_of(tmp_path / "run")]
    assert accuracies[0] == 0 and all(0.5 < each <= 1 for each in accuracies[1:])


def test_dev_figures_are_means_over_prompts_not_over_batches(base: Path, tmp_path: Path) -> None:
    """Five pairs with given Δ, only the last one wrong, in batches of four and one: the accuracy is 4/5, not (1 + 0) / 2; the loss is averaged likewise."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", (preference_to_json(preference(number)) for number in range(4)))
    write_jsonl(folder / "dev.jsonl", (preference_to_json(preference(number)) for number in range(4, 9)))
    settings = DpoSettings(**common(base, folder, tmp_path / "run", beta=1.0, batch_size=4))
    tokenizer = load_tokenizer(str(base))
    trainer = response_group_trainer(
        settings, "dpo", read_preference_data(settings, tokenizer), tokenizer, tmp_path / "work"
    )
    initial = trainer.evaluate()
    assert initial["eval_rewards/accuracies"] == 0 and initial["eval_loss"] == pytest.approx(math.log(2), abs=1e-5)
    margins = {
        example.group.tokenized: margin for example, margin in zip(trainer.eval_dataset, (1, 1, 1, 1, -3), strict=True)
    }
    references = {example.group.tokenized: example.reference_K for example in trainer.eval_dataset}

    def logps_with_margins(model: Any, groups: Any) -> torch.Tensor:
        return torch.cat([references[group] + torch.tensor([margins[group], 0.0]) for group in groups])

    trainer.logps_of = logps_with_margins
    measured = trainer.evaluate()
    assert measured["eval_rewards/accuracies"] == pytest.approx(0.8)
    assert measured["eval_rewards/chosen"] == pytest.approx((4 * 1 - 3) / 5, abs=1e-5)
    assert measured["eval_rewards/margins"] == pytest.approx((4 * 1 - 3) / 5, abs=1e-5)
    assert measured["eval_loss"] == pytest.approx(
        (4 * math.log1p(math.exp(-1)) + math.log1p(math.exp(3))) / 5, abs=1e-5
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": {"beauty": 1.0}}, "has no reward 'beauty'"),
        ({"max_length_tokens": 20}, "3 of 3 rows are longer than max_length_tokens = 20"),
        ({"max_length_tokens": 20, "over_long": "drop"}, "all rows are longer than 20 tokens"),
        ({"trainer": "trl"}, "trainer: trl with scored responses"),
        ({"quantise": "nf4"}, "quantise = nf4 without an adapter"),
    ],
)
def test_unusable_settings_are_refused_before_the_first_step(
    base: Path, scored_data: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    values = common(base, scored_data, tmp_path / "run", rewards={"correct": 1.0}) | change
    with pytest.raises(UserError, match=message):
        train_once(MsSettings(**values))
    assert not (tmp_path / "run").exists()


def test_with_over_long_drop_long_rows_are_dropped_and_counted(
    base: Path, scored_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = load_tokenizer(str(base))
    settings = MsSettings(**common(base, scored_data, tmp_path / "run", rewards={"correct": 1.0}))
    lengths = sorted(group.longest_tokens for group in read_preference_data(settings, tokenizer).train)
    short = settings.model_copy(update={"max_length_tokens": lengths[0], "over_long": "drop"})
    shortened = read_preference_data(short, tokenizer)
    assert len(shortened.train) == sum(length == lengths[0] for length in lengths) < 3
    assert f"longer than {lengths[0]:,} dropped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"responses": ["a"]}, "line 1: 1 responses, 1 of them distinct"),
        ({"responses": ["a", "a"]}, "line 1: 2 responses, 1 of them distinct"),
        ({"responses": ["a", " "]}, "line 1: response 2 is ' '"),
        ({"rewards": {"correct": [1.0]}}, r"line 1: reward 'correct' is \[1.0\]"),
        ({"rewards": {"correct": [1.0, float("nan")]}}, "line 1: reward 'correct' is"),
        ({"rewards": {"correct": ["x", "y"]}}, r"line 1: reward 'correct' is \['x', 'y'\]"),
        ({"responses": "ab"}, r"line 1: prompt, responses or rewards is malformed \(expected a list, got 'ab'\)"),
        ({"rewards": 3}, "line 1: prompt, responses or rewards is malformed"),
        ({"prompt": []}, "line 1: the prompt does not end with a user turn"),
    ],
)
def test_bad_rows_are_reported_with_their_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row = response_to_json(response_row(0)) | {"responses": ["a", "b"], "rewards": {"correct": [1.0, 0.0]}} | change
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=message):
        read_responses(file)


def test_qlora_trains_through_the_quantised_layers(base: Path, scored_data: Path, tmp_path: Path) -> None:
    """After a pass without gradients, the adapter of the first layer must still get gradients (on CPUs with AVX512-BF16)."""
    pytest.importorskip("bitsandbytes")
    values = common(base, scored_data, tmp_path / "run", rewards={"correct": 1.0}, batch_size=3, max_steps=6)
    settings = MsSettings(**values, lora=LoraSettings(rank=4, alpha=8), quantise="nf4")
    tokenizer = load_tokenizer(str(base))
    trainer = response_group_trainer(
        settings, "ms", read_preference_data(settings, tokenizer), tokenizer, tmp_path / "work"
    )
    from bitsandbytes.nn.modules import Linear4bit

    layers = [module for module in trainer.model.modules() if isinstance(module, Linear4bit)]
    assert len(layers) == 14 and not any(layer.support_avx512bf16_for_cpu for layer in layers)
    trainer.model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=2, pad_token_id=0)
    trainer.compute_loss(trainer.model.train(), trainer.train_dataset[:2]).backward()
    first = [w for name, w in trainer.model.named_parameters() if "layers.0" in name and "lora_B" in name]
    assert first and all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in first)
    trainer.model.zero_grad()
    record = train_once(settings)
    losses = losses_of(tmp_path / "run")
    assert losses[-1] < losses[0] and record.metrics["train_steps"] == 6
    load_policy(str(tmp_path / "run"))
