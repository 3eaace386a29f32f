"""The reward model: it learns with the Bradley–Terry loss which response is preferred, and scores responses for `train ms`."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BloomConfig, BloomForSequenceClassification

from data_synth.responses.rewards import COMPONENTS, response_problems
from data_synth.rows import response_to_json
from graph.errors import UserError
from graph.models.checkpoint import is_adapter
from graph.shared.jsonl import read_jsonl, write_jsonl
from tests import commands
from tests.train.world import response_row
from train.model.load import load_model, load_tokenizer
from train.model.logps import tokenize_row
from train.preference.groups import combine_rewards
from train.reward import COMPONENT, reward_trainer, score_responses, score_texts, train_reward
from train.run.data import read_preferences, read_responses, rows_fingerprint
from train.run.loop import prepare
from train.run.record import read_run
from train.run.settings import LoraSettings, RewardSettings, SftSettings
from train.sft import train_sft

STEPS = 12


def quick_settings(base: Path, data: Path, output: Path, /, **changes: Any) -> dict[str, Any]:
    """Settings of a run that takes seconds."""
    values = {"model": str(base), "data": str(data), "output": str(output), "learning_rate": 3e-3}
    return {**values, "max_steps": STEPS, "logging_steps": 1} | changes


@pytest.fixture(scope="module")
def run(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model trained as a reward model."""
    output = tmp_path_factory.mktemp("reward") / "run"
    train_reward(RewardSettings(**quick_settings(base, data, output)))
    return output


@pytest.fixture(scope="module")
def adapter_run(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter trained as a reward model, with a new head that is fully trained."""
    output = tmp_path_factory.mktemp("reward") / "adapter"
    train_reward(
        RewardSettings(**quick_settings(base, data, output, lora=LoraSettings(rank=4, alpha=8), learning_rate=1e-2))
    )
    return output


@pytest.fixture
def responses(scored_data: Path, tmp_path: Path) -> Path:
    """A copy of the scored responses that a test may change."""
    return shutil.copytree(scored_data, tmp_path / "responses")


def reward_of(model: Any, tokenizer: Any, prompt: Any, text: str) -> float:
    """The model's reward of one response, computed alone."""
    with torch.no_grad():
        return float(model(torch.tensor([tokenize_row(tokenizer, prompt, text).ids])).logits)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["run", "adapter_run"])
def test_a_reward_model_learns_which_response_is_preferred(
    kind: str, data: Path, request: pytest.FixtureRequest
) -> None:
    """On rows outside its training data, the chosen response gets a higher reward than the rejected one, and the record states the accuracy."""
    folder = request.getfixturevalue(kind)
    rows = read_preferences(data / "dev.jsonl")
    prompts = [row.prompt for row in rows]
    chosen = score_texts(folder, prompts, [row.chosen for row in rows])
    rejected = score_texts(folder, prompts, [row.rejected for row in rows])
    assert all(0 < low < high < 1 for low, high in zip(rejected, chosen, strict=True))
    record = read_run(folder)
    assert record.stage == "reward" and record.metrics["eval_accuracy"] == 1.0
    assert record.data_fingerprint == rows_fingerprint(data) != ""
    assert is_adapter(str(folder)) == (kind == "adapter_run")


def test_the_first_loss_is_the_bradley_terry_loss(base: Path, data: Path, tmp_path: Path) -> None:
    """−log σ(r_chosen − r_rejected) + c (r_chosen + r_rejected)², averaged over a batch, equals the value from a loop over its rows."""
    settings = RewardSettings(**quick_settings(base, data, tmp_path / "run", batch_size=12, max_steps=1, center=0.3))
    torch.manual_seed(0)
    trainer = reward_trainer(settings, prepare(settings, head="score"), tmp_path / "work")
    tokenizer, model = load_tokenizer(str(base)), trainer.model.eval()
    losses = []
    for row in read_preferences(data / "train.jsonl"):
        high, low = (reward_of(model, tokenizer, row.prompt, text) for text in (row.chosen, row.rejected))
        losses.append(math.log1p(math.exp(low - high)) + 0.3 * (high + low) ** 2)
    trainer.model.train()
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_dev_figures_are_means_over_rows_not_over_batches(base: Path, data: Path, tmp_path: Path) -> None:
    """Five rows, batches of up to four: the margin and the accuracy of `evaluate` are those of a loop over the rows."""
    five = tmp_path / "data"
    five.mkdir()
    lines = [line for name in ("dev", "train") for line in (data / f"{name}.jsonl").read_text().splitlines(True)]
    (five / "train.jsonl").write_text("".join(lines[5:]))
    (five / "dev.jsonl").write_text("".join(lines[:5]))
    settings = RewardSettings(**quick_settings(base, five, tmp_path / "run", batch_size=4))
    torch.manual_seed(2)
    trainer = reward_trainer(settings, prepare(settings, head="score"), tmp_path / "work")
    measured = trainer.evaluate()
    tokenizer, rows = load_tokenizer(str(base)), read_preferences(five / "dev.jsonl")
    chosen = [reward_of(trainer.model, tokenizer, row.prompt, row.chosen) for row in rows]
    rejected = [reward_of(trainer.model, tokenizer, row.prompt, row.rejected) for row in rows]
    margins = [high - low for high, low in zip(chosen, rejected, strict=True)]
    assert len(margins) == 5 and measured["eval_margin"] == pytest.approx(sum(margins) / 5, abs=1e-5)
    assert measured["eval_accuracy"] == pytest.approx(sum(margin > 0 for margin in margins) / 5)


def test_scores_are_sigmoids_that_do_not_depend_on_the_batch(run: Path, data: Path) -> None:
    """Padding to the length of longer texts changes nothing: each score is the sigmoid of the reward of that text alone."""
    rows = read_preferences(data / "train.jsonl")
    prompts, texts = [row.prompt for row in rows], [row.chosen for row in rows]
    together = score_texts(run, prompts, texts)
    model, tokenizer = load_model(str(run), "float32", head="score").eval(), load_tokenizer(str(run))
    assert len({len(tokenize_row(tokenizer, p, t).ids) for p, t in zip(prompts, texts, strict=True)}) > 3
    for prompt, text, found in zip(prompts, texts, together, strict=True):
        reward = reward_of(model, tokenizer, prompt, text)
        assert found == pytest.approx(1 / (1 + math.exp(-reward)), abs=1e-5)


def test_on_a_base_in_bf16_the_head_learns_in_float32(base: Path, data: Path, tmp_path: Path) -> None:
    """A step of 1e-5 is lost to rounding in bf16 weights of 0.02; the head must still move."""
    values = quick_settings(base, data, tmp_path / "run", lora=LoraSettings(rank=2, alpha=4), precision="bfloat16")
    settings = RewardSettings(**values | {"learning_rate": 1e-5, "max_steps": 2})
    trainer = reward_trainer(settings, prepare(settings, head="score"), tmp_path / "work")
    trainable = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    assert {weight.dtype for weight in trainable.values()} == {torch.float32}
    (head,) = (weight for name, weight in trainable.items() if "score" in name)
    before = head.detach().clone()
    trainer.train()
    moved = (head.detach() - before).abs()
    assert 0 < moved.max() < 3e-5 and (moved > 0).float().mean() > 0.9
    train_reward(settings)
    assert 0 < score_texts(tmp_path / "run", [response_row(0).prompt], ["Corrow"])[0] < 1


def test_the_same_seed_gives_the_same_reward_model_and_another_does_not(
    run: Path, base: Path, data: Path, tmp_path: Path
) -> None:
    """The initial weights of the new head depend on the seed, too."""
    train_reward(RewardSettings(**quick_settings(base, data, tmp_path / "again")))
    train_reward(RewardSettings(**quick_settings(base, data, tmp_path / "other", seed=1)))
    again, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("again", "other"))
    assert again == (run / "model.safetensors").read_bytes() != other


def test_scoring_adds_a_reward_component_to_responses(run: Path, responses: Path, tmp_path: Path) -> None:
    scores = score_responses(run, responses, tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"train.jsonl", "dev.jsonl"}
    rewards: list[float] = []
    for name in ("train.jsonl", "dev.jsonl"):
        before, after = read_responses(responses / name), read_responses(tmp_path / "out" / name)
        for old, new in zip(before, after, strict=True):
            assert response_to_json(new) | {"rewards": None} == response_to_json(old) | {"rewards": None}
            assert {c: v for c, v in new.rewards.items() if c != COMPONENT} == old.rewards
            assert not response_problems(new)
            prompts = [new.prompt] * len(new.responses)
            assert new.rewards[COMPONENT] == pytest.approx(score_texts(run, prompts, new.responses), abs=1e-5)
            assert combine_rewards(new, {COMPONENT: 2.0})[0] == 2 * new.rewards[COMPONENT][0]
            rewards += new.rewards[COMPONENT]
    assert COMPONENT in COMPONENTS
    assert (scores.prompts, scores.responses) == (4, 23)
    assert scores.mean_reward == pytest.approx(sum(rewards) / len(rewards), abs=1e-5)


def test_scoring_again_replaces_the_component(run: Path, responses: Path, tmp_path: Path) -> None:
    rows = [values for _, values in read_jsonl(responses / "dev.jsonl")]
    rows[0]["rewards"][COMPONENT] = [0.125] * 5
    write_jsonl(responses / "dev.jsonl", rows)
    score_responses(run, responses, tmp_path / "out")
    (row,) = read_responses(tmp_path / "out" / "dev.jsonl")
    assert len(row.rewards[COMPONENT]) == 5 and 0.125 not in row.rewards[COMPONENT]


def test_unusable_inputs_of_scoring_and_training_are_refused(
    run: Path, base: Path, data: Path, responses: Path, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="taken: already exists"):
        score_responses(tmp_path / "no-run", responses, tmp_path / "taken")
    with pytest.raises(UserError, match=r"no train\.jsonl"):
        score_responses(run, tmp_path, tmp_path / "out")
    with pytest.raises(UserError, match="no 'responses'"):
        score_responses(run, data, tmp_path / "out")
    with pytest.raises(UserError, match=r"no 'chosen'"):
        train_reward(RewardSettings(**quick_settings(base, responses, tmp_path / "out")))
    prompt = response_row(0).prompt
    with pytest.raises(UserError, match="at most the model's context of 256"):
        score_texts(run, [prompt], ["far " * 300])
    sft = tmp_path / "sft"
    train_sft(SftSettings(**quick_settings(base, data, sft, lora=LoraSettings(rank=2, alpha=4), max_steps=1)))
    with pytest.raises(UserError, match="a run of `train sft`"):
        score_texts(sft, [prompt], ["Corrow"])
    with pytest.raises(UserError, match="an adapter of a language model"):
        train_reward(RewardSettings(**quick_settings(sft, data, tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_stated_window_scores_texts(run: Path, tmp_path: Path) -> None:
    """BLOOM's positions have no limit."""
    folder = shutil.copytree(run, tmp_path / "bloom")
    config = BloomConfig(vocab_size=600, hidden_size=32, n_layer=1, n_head=2, num_labels=1)
    BloomForSequenceClassification(config).save_pretrained(folder)
    assert 0 < score_texts(folder, [response_row(0).prompt], ["Corrow"])[0] < 1


def test_a_reward_adapter_of_a_changed_base_is_refused(adapter_run: Path, base: Path, tmp_path: Path) -> None:
    adapter, changed_base = tmp_path / "adapter", tmp_path / "base"
    shutil.copytree(adapter_run, adapter)
    shutil.copytree(base, changed_base)
    values = json.loads((base / "config.json").read_text())
    (changed_base / "config.json").write_text(json.dumps(values | {"rms_norm_eps": 0.5}))
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": str(changed_base)}))
    with pytest.raises(UserError, match="does not belong to base model"):
        score_texts(adapter, [response_row(0).prompt], ["Corrow"])


def test_the_card_shows_how_to_compute_rewards(run: Path) -> None:
    card = (run / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card and "score_texts" in card and "load_policy" not in card
    assert read_run(run).data_fingerprint in card and "###Reason" not in card


def test_the_commands_train_a_reward_model_and_score_responses(
    base: Path, data: Path, responses: Path, tmp_path: Path
) -> None:
    config = tmp_path / "reward.yaml"
    config.write_text(f"model: {base}\ndata: {data}\noutput: {tmp_path / 'reward'}\nmax_steps: 2\nlogging_steps: 1\n")
    reward = commands.run("train", "reward", "--config", config, "--json")
    assert reward.exit_code == 0, reward.stderr
    assert json.loads(reward.stdout)["stage"] == "reward"
    command = ["train", "score", str(tmp_path / "reward"), "--data", str(responses), "--out", str(tmp_path / "scored")]
    score = commands.run(*command, "--json")
    assert score.exit_code == 0, score.stderr
    assert json.loads(score.stdout)["responses"] == 23
