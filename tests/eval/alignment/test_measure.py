"""Measuring real policies: log-probabilities of samples, a reference with KL 0, rewards computed by hand, and runs that cannot be compared."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import Result

from data_synth.rows import ResponseRow, response_to_json
from eval.alignment.frontier import align_runs
from eval.alignment.measure import (
    cache_key,
    common_precision,
    common_reference,
    common_weights,
    constant_answers,
    figures_of_prompt,
    measure_runs,
    reward_of,
    self_bleu,
)
from eval.alignment.sample import Policy, Prompt, Samples, SamplingSettings, draw_by_transformers, logps_of_samples
from eval.held_out import check_held_out
from graph.answer.prompt import answer_messages
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from graph.types import Excerpt, Message
from tests.commands import run
from tests.train.world import TEXTS, response_row
from train.model.load import load_policy
from train.model.packing import TokenizedGroup
from train.preference.preference import train_once
from train.run.record import read_run, write_run
from train.run.settings import DpoSettings, MsSettings, TinySettings
from train.tiny import new_llama, train_tokenizer

WEIGHTS = {"correct": 1.0, "format": 0.5}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference model, scored responses, and two runs trained on them from that model."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("alignment")
    settings = TinySettings(texts="", output="", vocabulary=600, hidden_size=32, layers=2, heads=2, context_tokens=256)
    tokenizer = train_tokenizer(TEXTS, settings.vocabulary, settings.context_tokens)
    new_llama(settings, tokenizer).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    (folder / "data").mkdir()
    write_jsonl(folder / "data" / "train.jsonl", (response_to_json(response_row(number)) for number in range(4)))
    write_jsonl(folder / "data" / "test.jsonl", map(response_to_json, held_out()))
    values: dict[str, Any] = {"model": str(folder / "base"), "data": str(folder / "data"), "max_steps": 4}
    values |= {"learning_rate": 3e-3, "rewards": WEIGHTS}
    train_once(MsSettings(**values, output=str(folder / "ms")))
    train_once(DpoSettings(**values, output=str(folder / "dpo"), responses=2))
    return folder


def held_out() -> list[ResponseRow]:
    """Other questions about the same people."""
    return [
        replace(
            row,
            id=f"h{row.id}",
            question_id=f"h{row.id}",
            prompt=answer_messages(f"In which place is {row.answers[0]}?", []),
        )
        for row in (response_row(number) for number in range(4))
    ]


def rows() -> list[ResponseRow]:
    return [response_row(number) for number in range(3)]


def draw_samples(model: Any, tokenizer: Any, ids: list[int], sampling: SamplingSettings, prompt_id: str) -> Samples:
    return next(draw_by_transformers(Policy("", model, tokenizer), [Prompt(prompt_id, tuple(ids))], sampling))


def test_the_score_of_a_sample_is_its_log_probability(world: Path) -> None:
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


def test_samples_come_from_the_policy(world: Path) -> None:
    """A policy that is certain of its next token always samples it, with log π = 0; a uniform policy scores each token −log(vocabulary size)."""
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


def test_the_reference_has_kl_0_and_trained_runs_have_a_higher_kl(world: Path, tmp_path: Path) -> None:
    folders = [world / "ms", world / "dpo"]
    measured, reference = measure_runs(
        folders, rows(), WEIGHTS, SamplingSettings(8, 8, 0), load_policy, draw_by_transformers, tmp_path
    )
    assert [run.system for run in measured] == ["MS K = 6", "DPO K = 2"]
    assert all(one.kl == pytest.approx(0.0, abs=1e-4) for one in reference)
    assert all(run.kl > 0.01 for run in measured), "four steps at a high learning rate should change the policy"
    assert all(one.entropy > 0 for run in measured for one in run.figures)
    assert all(0 <= one.reward <= 1.5 and 0 <= one.correct <= 1 for one in reference)


def test_a_reward_is_the_weighted_sum_of_its_components() -> None:
    row = response_row(0)
    right, wrong = row.responses[0], row.responses[1]
    assert (reward_of(right, row, WEIGHTS), reward_of(wrong, row, WEIGHTS)) == (1.5, 0.5)
    assert reward_of(row.responses[4], row, {"correct": 2.0, "length": 1.0}) == 3.0


def test_runs_that_cannot_be_compared_are_refused(world: Path, tmp_path: Path) -> None:
    ms = read_run(world / "ms")
    for other, check, message in [
        (replace(ms, settings={"rewards": {"correct": 2.0}}), common_weights, "for {'correct': 1.0"),
        (replace(ms, base_model="elsewhere"), common_reference, "its reference is elsewhere"),
        (replace(ms, beta=None, stage="sft"), common_reference, "a run of stage sft"),
    ]:
        with pytest.raises(UserError, match=message):
            check([world / "ms", tmp_path], [ms, other])


def test_a_component_that_cannot_be_measured_is_refused_with_an_error_that_names_it(
    world: Path, tmp_path: Path
) -> None:
    """Leaving out a component would change the reward, so the command is refused, unless the component has weight 0."""
    ms = read_run(world / "ms")
    unmeasurable = replace(ms, settings={"rewards": {"correct": 1.0, "grounded": 0.5}})
    with pytest.raises(UserError, match="'grounded' cannot be measured on new texts") as refused:
        common_weights([tmp_path], [unmeasurable])
    assert "--reward COMPONENT=WEIGHT" in str(refused.value)
    unweighted = replace(ms, settings={"rewards": {"correct": 1.0, "grounded": 0.0}})
    assert common_weights([tmp_path], [unweighted]) == {"correct": 1.0}


def command(world: Path, out: Path, *more: str, split: str = "test") -> Result:
    words = ["eval", "alignment", "--runs", str(world / "ms"), str(world / "dpo"), "--data", str(world / "data")]
    words += ["--samples", "2", "--max-answer-tokens", "4", "--limit", "2", "--split", split, "--out", str(out), *more]
    return run(*words)


def test_the_rewards_to_measure_can_be_chosen(world: Path, tmp_path: Path) -> None:
    done = command(world, tmp_path / "out", "--reward", "length=2")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out" / "alignment.json").read_text())
    assert all(prompt["reward"] == 2.0 for run in report["runs"] for prompt in run["prompts"]), (
        "every answer is short, so its reward should be the weight of `length`"
    )
    for words, message in (
        (["--reward", "length"], "--reward length"),
        (["--reward", "gold=1"], "'gold' cannot be measured"),
        (["--reward", "length=nan"], "--reward length=nan"),
        (["--reward", "length=0", "correct=0"], "--reward length=0 correct=0"),
    ):
        refused = command(world, tmp_path / "out", *words)
        assert isinstance(refused.exception, UserError) and message in str(refused.exception)


def test_a_test_prompt_in_the_training_data_is_refused_with_an_error_that_names_it(world: Path, tmp_path: Path) -> None:
    """The error comes before anything is measured, and names the row and the run; the train split itself is measured if it is requested."""
    leaked = [*held_out()[:1], response_row(2)]
    write_jsonl(world / "data" / "leaky.jsonl", map(response_to_json, leaked))
    refused = command(world, tmp_path / "out", split="leaky")
    assert isinstance(refused.exception, UserError)
    assert "leaky.jsonl: row 'r2' is in the training data of" in str(refused.exception) and "line 3" in str(
        refused.exception
    )
    assert not (tmp_path / "out").exists()
    assert command(world, tmp_path / "train", split="train").exit_code == 0


def test_the_training_data_of_the_initial_model_is_checked_too(world: Path, tmp_path: Path) -> None:
    """A question counts as a training question even in another context, and the rows of the SFT run are checked too, whatever their format."""
    sft, run = tmp_path / "sft", tmp_path / "ms"
    (tmp_path / "rows").mkdir()
    conversation = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ida"}]}
    in_other_context = {"prompt": "In another context", "question_id": "hr1", "question": response_row(1).question}
    write_jsonl(tmp_path / "rows" / "train.jsonl", [conversation, in_other_context])
    for folder, stage, base, data in (
        (sft, "sft", world / "base", tmp_path / "rows"),
        (run, "ms", sft, world / "data"),
    ):
        folder.mkdir()
        write_run(folder, replace(read_run(world / "ms"), stage=stage, base_model=str(base), data=str(data)))  # type: ignore[arg-type]
    check_held_out([run], [held_out()[0]], Path("test.jsonl"))
    with pytest.raises(UserError, match=r"row 'hr1' is in the training data of .*sft .*line 2"):
        check_held_out([run], held_out(), Path("test.jsonl"))
    copied = replace(response_row(0), id="m", question_id="m", prompt=(Message("user", "Who?"),))
    with pytest.raises(UserError, match=r"row 'm' is in the training data of .*sft .*line 1"):
        check_held_out([run], [copied], Path("test.jsonl"))


def test_an_unpaired_seed_is_refused_before_anything_is_measured(world: Path, tmp_path: Path) -> None:
    for name, seed in (("ms", 0), ("ms", 1), ("dpo", 0)):
        copy = tmp_path / f"{name}-{seed}"
        copy.mkdir()
        record = read_run(world / name)
        write_run(copy, replace(record, settings={**record.settings, "seed": seed}))
    folders = [tmp_path / name for name in ("ms-0", "ms-1", "dpo-0")]

    def load(source: str) -> tuple[Any, Any]:
        raise AssertionError(f"{source} was loaded; no model should be loaded")

    with pytest.raises(UserError, match="seed 1 is unpaired: DPO K = 2 has no run with it"):
        align_runs(
            folders, world / "data", "test", None, SamplingSettings(2, 4, 0), load, draw_by_transformers, tmp_path
        )


def test_the_scores_of_constant_answers_match_values_computed_by_hand() -> None:
    """Each constant answer is well-formed and cites a passage if there is one; “yes” is right only for the yes/no row, “no” for neither row."""
    row = response_row(0)
    yes_no = replace(
        row,
        prompt=answer_messages("Is it?", [Excerpt("a", "A", "Yes it is.", "a", 0, 10)]),
        answers=("yes",),
        context_size=1,
    )
    found = {
        each.answer: each
        for each in constant_answers([row, yes_no], {"correct": 1.0, "format": 0.5, "citations": 0.25})
    }
    assert found["yes"].correct == 0.5 and found["no"].correct == 0.0
    assert found["yes"].well_formed == found["no"].well_formed == 1.0 and found["yes"].cited == 0.5
    assert found["yes"].reward == pytest.approx((0.0 + 1.0) / 2 + 0.5 + 0.25)


def test_the_command_prints_tables_and_writes_the_report(world: Path, tmp_path: Path) -> None:
    words = ["eval", "alignment", "--runs", str(world / "ms"), str(world / "dpo"), "--data", str(world / "data")]
    words += ["--samples", "4", "--max-answer-tokens", "8", "--limit", "2", "--out", str(tmp_path / "out")]
    done = run(*words)
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


def test_measurements_are_cached_until_their_inputs_change(world: Path, tmp_path: Path) -> None:
    """A killed command resumes with the runs that remain; with other gold answers, all policies are measured again."""
    folders, sampling = [world / "ms", world / "dpo"], SamplingSettings(4, 8, 0)
    loaded: list[str] = []

    def load(source: str) -> tuple[Any, Any]:
        loaded.append(Path(source).name)
        return load_policy(source)

    def stop_at_dpo(source: str) -> tuple[Any, Any]:
        if Path(source).name == "dpo":
            raise KeyboardInterrupt
        return load(source)

    with pytest.raises(KeyboardInterrupt):
        measure_runs(folders, rows(), WEIGHTS, sampling, stop_at_dpo, draw_by_transformers, tmp_path)
    loaded.clear()
    whole = measure_runs(folders, rows(), WEIGHTS, sampling, load, draw_by_transformers, tmp_path)
    assert "ms" not in loaded and "dpo" in loaded
    assert whole == measure_runs(
        folders, rows(), WEIGHTS, sampling, load_policy, draw_by_transformers, tmp_path / "anew"
    )
    loaded.clear()
    assert (
        measure_runs(folders, rows(), WEIGHTS, sampling, load, draw_by_transformers, tmp_path) == whole and not loaded
    )
    half = [replace(read_run(folder), settings={"precision": "bfloat16"}) for folder in folders]
    assert common_precision(half) == "bfloat16" and common_precision([half[0], read_run(folders[1])]) == "float32"
    keys = {cache_key("a", "b", rows(), {}, sampling, "hf", each) for each in ("bfloat16", "float32")}
    assert len(keys) == 2, "figures measured in one precision should not be reused for the other"
    changed = [replace(row, answers=("elsewhere",)) for row in rows()]
    measure_runs(folders, changed, WEIGHTS, sampling, load, draw_by_transformers, tmp_path)
    assert {"ms", "dpo", "base"} <= set(loaded)


def test_the_figures_of_a_prompt_and_self_bleu_match_values_computed_by_hand(world: Path) -> None:
    model, _ = load_policy(str(world / "base"))
    row = response_row(0)
    texts = (row.responses[0], row.responses[0], row.responses[1], "Ida lives in Corrow")
    drawn = Samples(TokenizedGroup((5,), tuple((number + 5,) for number in range(4))), texts)
    found = figures_of_prompt(row, drawn, WEIGHTS, model, model)
    assert (found.distinct, found.well_formed, found.correct, found.kl) == (0.75, 0.75, 0.5, 0.0)
    assert self_bleu(["a b c d e"] * 3) == pytest.approx(1.0) and self_bleu(["one"]) == 1.0
    assert self_bleu(["a b c d e", "f g h i j"]) < 0.05 < self_bleu(["a b c d e", "a b c d x"]) < 1.0


def test_runs_on_pairs_use_the_reward_weights_of_the_other_runs(world: Path, tmp_path: Path) -> None:
    ms = read_run(world / "ms")
    # A run on pairs records the default of `rewards`, which it did not use.
    pairs = replace(ms, beta_reward=None, settings={"rewards": {"correct": 1.0, "grounded": 0.5}})
    assert common_weights([tmp_path, world / "ms"], [pairs, ms]) == WEIGHTS
    assert common_weights([tmp_path], [pairs]) == {"correct": 1.0}


def test_text_sampled_inside_an_open_thinking_block_is_not_an_answer(world: Path) -> None:
    model, tokenizer = load_policy(str(world / "base"))
    sampling = SamplingSettings(4, 8, 1)
    plain = draw_samples(model, tokenizer, [5, 6, 7], sampling, "q")
    tokenizer.chat_template += "{{ '<think>\\n' }}"
    thinking = draw_samples(model, tokenizer, [5, 6, 7], sampling, "q")
    assert any(plain.texts) and thinking.texts == ("",) * 4 and thinking.group == plain.group


def test_an_answer_that_repeats_the_prompt_cites_no_passage(world: Path) -> None:
    model, tokenizer = load_policy(str(world / "base"))
    drawn = draw_samples(model, tokenizer, [5, 6, 7], SamplingSettings(4, 8, 1), "q")
    row = replace(response_row(0), context_size=2)
    for text, cited in (
        ("###Reason: The reasoning, citing passages by number like [1]. ###Answer: the short answer.", 0.0),
        ("###Reason: so [1] ###Answer: Tarn", 1.0),
    ):
        samples = replace(drawn, texts=(text,) * len(drawn.texts))
        assert figures_of_prompt(row, samples, WEIGHTS, model, model).cited == cited
