"""Measuring real policies: samples that are scored as drawn, a reference with KL 0, rewards by hand, and runs that do not belong together."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from data_synth.rows import ResponseRow, response_to_json
from eval.alignment.measure import (
    REWARDS,
    common_reference,
    common_weights,
    figures_of_prompt,
    measure_runs,
    reward_of,
    self_bleu,
)
from eval.alignment.sample import Samples, SamplingSettings, draw_here, draw_samples, logps_of_samples
from graph.answer.prompt import answer_messages
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from graph.types import Excerpt
from modegraph.cli import build_app
from tests.train.world import TEXTS, scored
from train.model.load import load_policy
from train.model.packing import TokenizedGroup
from train.preference.preference import train_dpo, train_ms
from train.run.record import read_run
from train.run.settings import DpoSettings, MsSettings, TinySettings
from train.tiny import new_llama, train_tokenizer

WEIGHTS = {"correct": 1.0, "format": 0.5}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference, scored responses, and two runs from it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("alignment")
    settings = TinySettings(texts="", output="", vocabulary=600, hidden_size=32, layers=2, heads=2, context_tokens=256)
    tokenizer = train_tokenizer(TEXTS, settings.vocabulary, settings.context_tokens)
    new_llama(settings, tokenizer).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    (folder / "data").mkdir()
    for split in ("train", "test"):
        write_jsonl(folder / "data" / f"{split}.jsonl", (response_to_json(scored(number)) for number in range(4)))
    values: dict[str, Any] = {"model": str(folder / "base"), "data": str(folder / "data"), "max_steps": 4}
    values |= {"learning_rate": 3e-3, "rewards": WEIGHTS}
    train_ms(MsSettings(**values, output=str(folder / "ms")))
    train_dpo(DpoSettings(**values, output=str(folder / "dpo"), responses=2))
    return folder


def test_the_form_is_that_of_the_rows_prompt() -> None:
    """A row that asks for a few words and a citation: what is in form for it is not for another."""
    plain = rows()[0]
    cited = replace(plain, prompt=answer_messages("Who?", [Excerpt("a", "A", "Ada did.", "a", 0, 8)], "cited"))
    texts = ("Ada [1]", "###Reason: So [1]. ###Answer: Ada")
    assert [REWARDS["format"](text, cited) for text in texts] == [1.0, 0.0]
    assert [REWARDS["format"](text, plain) for text in texts] == [0.0, 1.0]


def rows() -> list[ResponseRow]:
    return [scored(number) for number in range(3)]


def test_samples_are_scored_as_they_were_drawn(world: Path) -> None:
    model, tokenizer = load_policy(str(world / "base"))
    drawn = draw_samples(model, tokenizer, [5, 6, 7], SamplingSettings(6, 8, 1), "q")
    again = draw_samples(model, tokenizer, [5, 6, 7], SamplingSettings(6, 8, 1), "q")
    assert drawn == again != draw_samples(model, tokenizer, [5, 6, 7], SamplingSettings(6, 8, 1), "other")
    assert len(set(drawn.group.responses)) > 1 and all(len(ids) <= 8 for ids in drawn.group.responses)
    logps = logps_of_samples(model, drawn)
    for ids, logp in zip(drawn.group.responses, logps.tolist(), strict=True):
        logits = model(torch.tensor([[5, 6, 7, *ids]])).logits[0].log_softmax(-1)
        slow = sum(logits[2 + place, token].item() for place, token in enumerate(ids))
        assert logp == pytest.approx(slow, abs=1e-3)


def test_samples_follow_the_policy(world: Path) -> None:
    """A policy that is sure of its next token always draws it; −log π is then 0."""
    model, tokenizer = load_policy(str(world / "base"))
    sure = type(model)(model.config)
    with torch.no_grad():
        for weight in sure.parameters():
            weight.zero_()
        sure.model.norm.weight.fill_(1.0)
        sure.model.embed_tokens.weight[:, 0] = 1.0
        sure.lm_head.weight[9, 0] = 50.0
    drawn = draw_samples(sure.eval(), tokenizer, [5], SamplingSettings(3, 2, 0), "q")
    assert drawn.group.responses == ((9, 9),) * 3
    assert logps_of_samples(sure, drawn).tolist() == pytest.approx([0.0] * 3, abs=1e-4)
    even = Samples(TokenizedGroup((5,), ((7, 8),)), ("x",))
    with torch.no_grad():
        sure.lm_head.weight.zero_()
    expected = -2 * math.log(model.config.vocab_size)
    assert logps_of_samples(sure, even).item() == pytest.approx(expected, abs=1e-3)


def test_the_reference_is_at_kl_0_and_runs_are_not(world: Path) -> None:
    folders = [world / "ms", world / "dpo"]
    measured, reference = measure_runs(folders, rows(), SamplingSettings(8, 8, 0), load_policy)
    assert [run.system for run in measured] == ["MS K = 6", "DPO K = 2"]
    assert all(one.kl == pytest.approx(0.0, abs=1e-4) for one in reference)
    assert all(run.kl > 0.01 for run in measured), "four steps at a high rate"
    assert all(one.entropy > 0 for run in measured for one in run.figures)
    assert all(0 <= one.reward <= 1.5 and 0 <= one.correct <= 1 for one in reference)


def test_a_reward_is_the_weighted_sum_of_its_components() -> None:
    row = scored(0)
    right, wrong = row.responses[0], row.responses[1]
    assert (reward_of(right, row, WEIGHTS), reward_of(wrong, row, WEIGHTS)) == (1.5, 0.5)
    assert reward_of(row.responses[4], row, {"correct": 2.0, "grounded": 9.0}) == 2.0, "grounded needs an index"


def test_runs_that_do_not_belong_together_are_refused(world: Path, tmp_path: Path) -> None:
    ms = read_run(world / "ms")
    for other, check, message in [
        (replace(ms, settings={"rewards": {"correct": 2.0}}), common_weights, "not {'correct': 1.0"),
        (replace(ms, base_model="elsewhere"), common_reference, "started from elsewhere"),
        (replace(ms, beta=None, stage="sft"), common_reference, "a run of stage sft"),
    ]:
        with pytest.raises(UserError, match=message):
            check([world / "ms", tmp_path], [ms, other])
    with pytest.raises(UserError, match="at least one of correct, format"):
        common_weights([tmp_path], [replace(ms, settings={"rewards": {"grounded": 1.0}})])


def test_the_command_prints_tables_and_writes_the_report(world: Path, tmp_path: Path) -> None:
    words = ["eval", "alignment", "--runs", str(world / "ms"), str(world / "dpo"), "--data", str(world / "data")]
    words += ["--samples", "4", "--max-answer-tokens", "8", "--limit", "2", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, done.output
    assert "Reward at equal KL" in done.stdout and "MS K = 6" in done.stdout
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "alignment.html",
        "alignment.json",
        "alignment.md",
        "frontier.png",
        "measured",
    }
    page = (tmp_path / "out" / "alignment.html").read_text()
    assert "MS K = 6" in page and "data:image/png;base64," in page


def test_what_was_measured_is_kept_until_what_it_comes_from_changes(world: Path, tmp_path: Path) -> None:
    """A killed command goes on with the runs that are left; other prompts, samples or weights are measured anew."""
    folders, drawing = [world / "ms", world / "dpo"], SamplingSettings(4, 8, 0)
    counted: list[str] = []

    def load(source: str) -> tuple[Any, Any]:
        counted.append(Path(source).name)
        return load_policy(source)

    def stop_at_dpo(source: str) -> tuple[Any, Any]:
        if Path(source).name == "dpo":
            raise KeyboardInterrupt
        return load(source)

    with pytest.raises(KeyboardInterrupt):
        measure_runs(folders, rows(), drawing, stop_at_dpo, draw_here, tmp_path)
    counted.clear()
    whole = measure_runs(folders, rows(), drawing, load, draw_here, tmp_path)
    assert "ms" not in counted and "dpo" in counted
    assert whole == measure_runs(folders, rows(), drawing, load_policy, draw_here, None)
    counted.clear()
    assert measure_runs(folders, rows(), drawing, load, draw_here, tmp_path) == whole and not counted
    changed = [replace(row, answers=("elsewhere",)) for row in rows()]
    measure_runs(folders, changed, drawing, load, draw_here, tmp_path)
    assert {"ms", "dpo", "base"} <= set(counted)


def test_samples_that_are_alike_are_told(world: Path) -> None:
    model, _ = load_policy(str(world / "base"))
    row = scored(0)
    texts = (row.responses[0], row.responses[0], row.responses[1], "Ida lives in Corrow")
    drawn = Samples(TokenizedGroup((5,), tuple((number + 5,) for number in range(4))), texts)
    found = figures_of_prompt(row, drawn, WEIGHTS, model, model)
    assert (found.distinct, found.well_formed, found.correct, found.kl) == (0.75, 0.75, 0.5, 0.0)
    assert self_bleu(["a b c d e"] * 3) == pytest.approx(1.0) and self_bleu(["one"]) == 1.0
    assert self_bleu(["a b c d e", "f g h i j"]) < 0.05 < self_bleu(["a b c d e", "a b c d x"]) < 1.0


def test_runs_on_pairs_follow_the_reward_of_the_others(world: Path, tmp_path: Path) -> None:
    ms = read_run(world / "ms")
    pairs = replace(ms, settings={"rewards": {}})
    assert common_weights([tmp_path, world / "ms"], [pairs, ms]) == WEIGHTS
    assert common_weights([tmp_path], [pairs]) == {"correct": 1.0}


def test_what_is_drawn_within_an_open_thinking_block_is_no_answer(world: Path) -> None:
    model, tokenizer = load_policy(str(world / "base"))
    drawing = SamplingSettings(4, 8, 1)
    spoken = draw_samples(model, tokenizer, [5, 6, 7], drawing, "q")
    tokenizer.chat_template += "{{ '<think>\\n' }}"
    thought = draw_samples(model, tokenizer, [5, 6, 7], drawing, "q")
    assert any(spoken.texts) and thought.texts == ("",) * 4 and thought.group == spoken.group


def test_the_prompt_written_back_cites_no_passage(world: Path) -> None:
    model, tokenizer = load_policy(str(world / "base"))
    drawn = draw_samples(model, tokenizer, [5, 6, 7], SamplingSettings(4, 8, 1), "q")
    row = replace(scored(0), context_size=2)
    for text, cited in (
        ("###Reason: The reasoning, citing passages by number like [1]. ###Answer: the short answer.", 0.0),
        ("###Reason: so [1] ###Answer: Tarn", 1.0),
    ):
        texts = replace(drawn, texts=(text,) * len(drawn.texts))
        assert figures_of_prompt(row, texts, WEIGHTS, model, model).cited == cited
