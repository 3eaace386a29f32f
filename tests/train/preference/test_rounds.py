"""On-policy rounds with a tiny model: new rows in each, a rising reward, killed runs that resume to the same result, bad input refused before sampling."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from data_synth.responses.responses import usable_texts
from data_synth.rows import ResponseRow, Sampling, message_to_json, response_to_json
from graph.answer.prompt import NOT_FOUND, answer_messages
from graph.errors import UserError
from graph.shared.jsonl import read_jsonl, write_jsonl
from graph.types import Completion, CompletionRequest
from modegraph.train import ms
from serve.engines import open_model
from tests.commands import run
from tests.fakes import ScriptedModel
from tests.places import ROOT
from tests.train.world import response_row
from train.model.load import load_policy, load_tokenizer
from train.model.packing import plain_logps
from train.preference.groups import scored_groups
from train.preference.preference import train_once
from train.preference.rounds import (
    change_refusals,
    choose_prompts,
    figures_of,
    lacks_answer,
    respond,
    train_preference,
    usable_prompts,
    with_rewards,
)
from train.run.data import Prompt, prompt_from_json, read_prompts, read_responses, rows_fingerprint
from train.run.record import read_run
from train.run.settings import DpoSettings, LoraSettings, MsSettings, RoundsSettings, SftSettings
from train.sft import train_sft

PEOPLE = ("Ida", "Tobias", "Hanne", "Gideon", "Ada", "Piers")
SAMPLES = 8
RUN = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from serve.engines import open_model
from serve.engines.hf import HfModel
from train.preference import rounds
from train.run.loop import ProgressCallback
from train.run.settings import MsSettings

def kill_at(call, function):
    left = [call]
    def run(*arguments, **named):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return run

def train(moment, file):
    if moment == "sampling":
        HfModel.run = kill_at(5, HfModel.run)
    elif moment == "before training":
        rounds.train = kill_at(2, rounds.train)
    elif moment == "training":
        ProgressCallback.on_log = kill_at(6, ProgressCallback.on_log)
    elif moment == "at the end":
        rounds.save_record = kill_at(1, rounds.save_record)  # after the third round
    rounds.train_preference(MsSettings.model_validate_json(file.read_text()), open_model)

for file in sorted(Path(sys.argv[1]).glob("*.json")):
    if (child := os.fork()) == 0:
        try:
            train(file.stem, file)
        finally:
            os._exit(1)
    print(file.stem, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep=": ")
"""
"""For each settings file in a folder, trains in a child process that is killed at the moment that the file's name gives."""
MOMENTS = ("at the end", "before training", "sampling", "training")


def row(number: int, answer: str = "yes") -> dict[str, Any]:
    """A reading row that asks whether a person is here; the first of its two passages is gold."""
    question = f"Is {PEOPLE[number]} here?"
    return {
        "id": f"q{number}",
        "prompt": [{"role": "user", "content": question}],
        "completion": [{"role": "assistant", "content": answer}],
        "question_id": f"q{number}",
        "question": question,
        "answers": ["yes"],
        "kind": "single",
        "split": "train",
        "context_ids": ["a", "b"],
        "gold_ids": ["a"],
    }


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompts")
    write_jsonl(folder / "train.jsonl", (row(number) for number in range(len(PEOPLE))))
    return folder


@pytest.fixture(scope="module")
def yes_no_model(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers yes or no, about equally often."""
    folder = tmp_path_factory.mktemp("yes_no_model")
    rows = [row(number, answer) for number in range(len(PEOPLE)) for answer in ("yes", "no")]
    write_jsonl(folder / "train.jsonl", rows)
    values = {"model": str(base), "data": str(folder), "output": str(folder / "sft"), "learning_rate": 1e-2}
    train_sft(SftSettings(**values, max_steps=60, batch_size=12))
    return folder / "sft"


def settings_of(model: Path, data: Path, output: Path, /, **changes: Any) -> MsSettings:
    rounds = {"count": 3, "samples": SAMPLES, "max_answer_tokens": 4, **changes.pop("rounds", {})}
    values = {"learning_rate": 3e-3, "batch_size": 2, "logging_steps": 1, "lora": LoraSettings(rank=4, alpha=8)}
    places = {"model": str(model), "data": str(data), "output": str(output)}
    return MsSettings.model_validate({**places, **values, "rewards": {"correct": 1.0}, "rounds": rounds, **changes})


@pytest.fixture(scope="module")
def uninterrupted_run(yes_no_model: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three rounds that was not interrupted."""
    output = tmp_path_factory.mktemp("uninterrupted_run") / "run"
    train_preference(settings_of(yes_no_model, prompts, output), open_model)
    return output


def rows_of(run: Path, number: int) -> list[ResponseRow]:
    return read_responses(run / f"round-{number}" / "responses" / "train.jsonl")


def test_the_reward_rises_on_fresh_responses_of_the_policy(uninterrupted_run: Path, yes_no_model: Path) -> None:
    figures = [figure for _, figure in read_jsonl(uninterrupted_run / "rounds.jsonl")]
    assert 0.2 < figures[0]["right"] < 0.8 and figures[2]["reward"] > figures[0]["reward"] + 0.1
    assert figures[0]["kl_to_reference"] == 0 < figures[1]["kl_to_reference"]
    first, second = rows_of(uninterrupted_run, 1), rows_of(uninterrupted_run, 2)
    assert first[0].policy.startswith("sft#") and second[0].policy.startswith("run#")
    assert first[0].sampling.seed != second[0].sampling.seed
    assert [len(each.responses) for each in first] == [SAMPLES] * len(PEOPLE), (
        "repeated responses should not be removed"
    )
    assert any(len(set(each.responses)) < SAMPLES for each in first)
    right = [text == "yes" for each in second for text in each.responses]
    assert figures[1]["right"] == pytest.approx(sum(right) / len(right))
    inner = read_run(uninterrupted_run / "round-2" / "run")
    assert (inner.base_model, inner.settings["reference"]) == (
        str(uninterrupted_run / "round-1" / "run"),
        str(yes_no_model),
    )


def test_all_rounds_are_saved_as_one_run_with_the_adapter_of_the_last_round(
    uninterrupted_run: Path, yes_no_model: Path, prompts: Path
) -> None:
    record, last = read_run(uninterrupted_run), read_run(uninterrupted_run / "round-3" / "run")
    assert (record.stage, record.base_model, record.data) == ("ms", str(yes_no_model), str(prompts))
    assert record.settings["rounds"]["count"] == 3 and record.responses_per_prompt == SAMPLES
    assert record.metrics["round 1 right"] < record.metrics["round 3 right"]
    assert record.metrics["train_loss"] == last.metrics["train_loss"]
    weights = [
        folder / "adapter_model.safetensors" for folder in (uninterrupted_run, uninterrupted_run / "round-3" / "run")
    ]
    assert (
        weights[0].read_bytes()
        == weights[1].read_bytes()
        != (uninterrupted_run / "round-1/run" / weights[0].name).read_bytes()
    )
    assert [line["round"] for _, line in read_jsonl(uninterrupted_run / "log.jsonl")] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert not {"checkpoints", "progress.jsonl"} & {file.name for file in uninterrupted_run.iterdir()}
    load_policy(str(uninterrupted_run))


@pytest.fixture(scope="module")
def killed_runs(yes_no_model: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, MsSettings]:
    """The settings of runs that SIGKILL ended in the second round or at the end, without clean-up, by the moment of the kill."""
    folder = tmp_path_factory.mktemp("killed_runs")
    (folder / "settings").mkdir()
    runs = {moment: settings_of(yes_no_model, prompts, folder / moment) for moment in MOMENTS}
    for moment, settings in runs.items():
        (folder / f"settings/{moment}.json").write_text(settings.model_dump_json())
    (folder / "run.py").write_text(RUN)
    command = [sys.executable, folder / "run.py", folder / "settings"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert process.stdout.splitlines() == [f"{moment}: -9" for moment in MOMENTS], process.stderr[-2000:]
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_resumed_run_ends_like_an_uninterrupted_one(
    moment: str, uninterrupted_run: Path, killed_runs: dict[str, MsSettings]
) -> None:
    """The same rows, figures and weights, byte for byte."""
    settings = killed_runs[moment]
    output = Path(settings.output)
    assert (output / "round-1/run/run.json").exists() and not (output / "run.json").exists()
    assert (output / "round-2/responses/train.jsonl").exists() == (moment != "sampling")
    with pytest.raises(UserError, match="an interrupted run with other beta"):
        train_preference(settings.model_copy(update={"beta": 0.2}), open_model)
    train_preference(settings, open_model)
    for name in (
        *("round-1/responses/train.jsonl", "round-2/responses/train.jsonl", "rounds.jsonl"),
        *("round-1/run/adapter_model.safetensors", "adapter_model.safetensors", "log.jsonl"),
    ):
        assert (output / name).read_bytes() == (uninterrupted_run / name).read_bytes(), name


def test_each_round_chooses_prompts_at_random_and_may_use_its_initial_policy_as_reference(
    yes_no_model: Path, prompts: Path, tmp_path: Path
) -> None:
    settings = settings_of(
        yes_no_model, prompts, tmp_path / "run", rounds={"count": 2, "prompts": 2, "reference": "round"}
    )
    train_preference(settings, open_model)
    sampled = [{each.id for each in rows_of(tmp_path / "run", number)} for number in (1, 2)]
    assert [len(ids) for ids in sampled] == [2, 2]
    assert read_run(tmp_path / "run/round-2/run").settings["reference"] is None
    many = read_prompts(prompts / "train.jsonl")
    draws = {tuple(prompt.row.id for prompt in choose_prompts(many, 2, seed)) for seed in range(8)}
    assert len(draws) > 1 and choose_prompts(many, None, 0) == many


def test_the_requested_share_of_prompts_lacks_the_answer(prompts: Path) -> None:
    (first, *_) = read_prompts(prompts / "train.jsonl")

    def prompt_with(number: int, answers: tuple[str, ...]) -> Prompt:
        return replace(first, row=replace(first.row, id=str(number), answers=answers))

    many = [prompt_with(number, ("Tarn",) if number % 10 else (NOT_FOUND,)) for number in range(90)]
    for seed in range(5):
        prompts_of_round = choose_prompts(many, 12, seed, 1 / 3)
        answers = [prompt.row.answers for prompt in prompts_of_round]
        assert answers.count((NOT_FOUND,)) == 4 and len({*map(id, prompts_of_round)}) == 12
        assert prompts_of_round == sorted(prompts_of_round, key=lambda prompt: int(prompt.row.id))
        too_few = choose_prompts(many, 60, seed, 1 / 3)
        assert len(too_few) == 60 and sum(map(lacks_answer, too_few)) == 9, "only nine of the prompts lack the answer"
        assert not any(map(lacks_answer, choose_prompts(many, 40, seed, 0)))


def test_the_words_of_responses_are_counted_in_scripts_without_spaces() -> None:
    spaced, unspaced = (
        replace(response_row(0), responses=texts, cut=()) for texts in (("a b", "c d"), ("東京都" * 4,) * 2)
    )
    assert figures_of([spaced], {"correct": 1.0})["words"] == 2.0 < figures_of([unspaced], {"correct": 1.0})["words"]


def test_rloo_learns_in_rounds(yes_no_model: Path, prompts: Path, tmp_path: Path) -> None:
    """The reward rises as with MS; each round's reference is the policy that generated its responses."""
    values = settings_of(yes_no_model, prompts, tmp_path / "run", rounds={"reference": "round"}).model_dump()
    values |= {"loss": "rloo", "label_smoothing": 0.0}
    train_preference(DpoSettings.model_validate(values), open_model)
    figures = [figure for _, figure in read_jsonl(tmp_path / "run/rounds.jsonl")]
    assert figures[2]["reward"] > figures[0]["reward"] + 0.1
    assert "RLOO" in (tmp_path / "run/README.md").read_text()


def test_truncated_and_repeated_responses_stay_as_sampled() -> None:
    completions = [Completion("yes", "stop", 1, 1), Completion("yes", "stop", 1, 1), Completion(" ", "stop", 1, 1)]
    completions += [Completion("no one", "length", 1, 4), Completion("busy", "refused", 0, 0)]
    assert usable_texts(completions, as_drawn=True).texts == ("yes", "yes", "no one")
    assert usable_texts(completions, as_drawn=True).cut == (2,)
    assert usable_texts(completions).texts == ("yes",)


def test_an_answer_of_several_lines_is_rewarded_as_sampled() -> None:
    """Folded into one line, it would be well-formed, and training would learn tokens that were not sampled."""
    prompt = prompt_from_json(
        {**row(0), "prompt": [message_to_json(turn) for turn in answer_messages("Who?", [], "cited")]}
    )
    responses = usable_texts(
        [Completion("yes [1]\n\nQuestion: Who? <|im_end|> no [1] ", "stop", 1, 9)] * 2, as_drawn=True
    )
    assert responses.texts[0] == "yes [1]\n\nQuestion: Who? < |im_end| > no [1]"
    assert with_rewards(prompt, responses).rewards["format"] == (0.0, 0.0)


REFUSALS = (
    "Not in the documents.",
    "not in the documents [1]",
    "###Reason: No passage says so. ###Answer: not in the documents",
)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_added_where_none_was_sampled(refusal: str) -> None:
    """The added refusal teaches that refusing earns no reward if there is an answer."""
    replies = {"Is Ida here?": ["yes [1]", "no"], "Is Tobias here?": ["no", refusal]}
    model = ScriptedModel(lambda request: replies[request.messages[-1].content][request.seed % 2])
    prompts = [prompt_from_json(row(0)), prompt_from_json(row(1))]
    sampled = list(respond(prompts, model, Sampling(8, 1.0, 9, 0, as_drawn=True)))
    ida, tobias = change_refusals(prompts, sampled, "added")
    assert ida.responses == (*sampled[0].responses, NOT_FOUND) and len(sampled[0].responses) == 8
    assert ida.rewards["correct"][-1] == ida.rewards["gold"][-1] == 0 and max(ida.rewards["correct"]) == 1
    assert tobias == sampled[1] and refusal in tobias.responses
    _, without = change_refusals(prompts, sampled, "left_out")
    assert set(without.responses) == {"no"} and set(without.rewards["correct"]) == {0}


def test_a_round_may_leave_out_refusals_and_prompts_with_equal_rewards(
    yes_no_model: Path, base: Path, tmp_path: Path
) -> None:
    """Prompts whose passages lack the answer and responses that refuse are left out, then prompts whose other responses have equal rewards.

    The figures and the KL count every sample. The record describes the prompts at the start of the run.
    """
    rows = [row(0), row(1), row(2), {**row(3), "answers": [], "gold_ids": []}]
    (tmp_path / "data").mkdir()
    write_jsonl(tmp_path / "data/train.jsonl", rows)
    replies = {
        "Is Ida here?": ["yes [1]", "not in the documents", "no"],
        "Is Tobias here?": ["not in the documents", "yes [1]"],
        "Is Hanne here?": ["no"],
    }
    sampled: list[str] = []

    def reply(request: CompletionRequest) -> str:
        (tmp_path / "data/train.jsonl").write_text("changed in the meantime")
        texts = replies[request.messages[-1].content]
        sampled.append(texts[(request.seed or 0) % len(texts)])
        return sampled[-1]

    before = rows_fingerprint(tmp_path / "data")
    changes = {"rounds": {"count": 1, "samples": 8, "refusal_responses": "left_out", "only_different": True}}
    settings = settings_of(yes_no_model, tmp_path / "data", tmp_path / "run", reference=str(base), **changes)
    record = train_preference(settings, lambda spec, ledger: ScriptedModel(reply))
    assert record.data_fingerprint == before != rows_fingerprint(tmp_path / "data")
    assert len(sampled) == 24
    assert record.metrics["round 1 right"] == sum(text.startswith("yes") for text in sampled) / 24
    rows_sampled = read_responses(tmp_path / "run/round-1/samples.jsonl")
    scored = scored_groups(rows_sampled, load_tokenizer(str(base)), {"correct": 1.0}, False, None, 0)
    groups = [group.tokenized for group in scored]
    with torch.no_grad():
        own, reference = (plain_logps(load_policy(str(model))[0], groups) for model in (yes_no_model, base))
    assert len(own) == 24
    assert record.metrics["kl_to_reference"] == pytest.approx(float((own - reference).mean()), rel=1e-4)
    (ida,) = rows_of(tmp_path / "run", 1)
    assert (
        ida.question == "Is Ida here?"
        and set(ida.responses) == {"yes [1]", "no"}
        and set(ida.rewards["correct"]) == {0, 1}
    )


def test_prompts_without_an_answer_are_not_enough_if_refusals_are_left_out(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{**row(0), "answers": [], "gold_ids": []}])
    assert len(usable_prompts(tmp_path / "train.jsonl", RoundsSettings())) == 1
    with pytest.raises(UserError, match="the passages of every prompt lack the answer"):
        usable_prompts(tmp_path / "train.jsonl", RoundsSettings(refusal_responses="left_out"))


def test_a_share_of_refusals_needs_a_number_of_prompts() -> None:
    with pytest.raises(ValidationError, match="refusals is a share of prompts: set prompts, too"):
        RoundsSettings(refusals=0.3)
    assert RoundsSettings(refusals=0.3, prompts=9).refusals == 0.3


def test_a_truncated_response_is_learned_without_an_end_token(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    cut = replace(response_row(0), cut=(1, 4))
    (group,) = scored_groups([cut], tokenizer, {"correct": 1.0}, False, None, 0)
    ends = [ids[-1] == tokenizer.eos_token_id for ids in group.tokenized.responses]
    assert ends == [True, False, True, True, False, True]


def test_rewards_follow_the_gold_passages_and_answers_of_the_row() -> None:
    """Citations of gold passages are rewarded; where a row has no answers, a refusal is right."""
    prompt = prompt_from_json(row(0))
    responses = usable_texts([Completion(text, "stop", 1, 1) for text in ("yes [1]", "yes [2]", "no")], as_drawn=True)
    rewards = with_rewards(prompt, responses).rewards
    assert rewards["correct"] == (1.0, 1.0, 0.0) and rewards["gold"] == (1.0, 0.0, 0.0)
    unanswerable = prompt_from_json({**row(0), "answers": [], "gold_ids": []})
    refusal = usable_texts([Completion(text, "stop", 1, 1) for text in ("not in the documents", "yes [1]")])
    assert with_rewards(unanswerable, refusal).rewards["correct"] == (1.0, 0.0)
    assert with_rewards(unanswerable, refusal).rewards["gold"] == (1.0, 0.0)


def test_a_reference_other_than_the_initial_model_changes_the_losses(
    base: Path, scored_data: Path, tmp_path: Path
) -> None:
    """The losses are the same if the reference is the initial model itself; another model as the reference changes them, and the KL to that model is not 0."""
    runs = {}
    changes = {"rounds": None, "lora": None, "max_steps": 3, "beta": 0.5, "max_length_tokens": 256}
    for name, reference in (("unset", None), ("same", str(base)), ("other", str(tmp_path / "unset"))):
        settings = settings_of(base, scored_data, tmp_path / name, reference=reference).model_copy(update=changes)
        runs[name] = train_once(settings)
    assert "kl_to_reference" not in runs["unset"].metrics and runs["same"].metrics["kl_to_reference"] == 0
    losses = {name: [line["loss"] for _, line in read_jsonl(tmp_path / name / "log.jsonl")] for name in runs}
    assert losses["unset"] == losses["same"] and losses["other"][0] != pytest.approx(losses["unset"][0], abs=1e-3)
    assert abs(runs["other"].metrics["kl_to_reference"]) > 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": {"correct": 1.0, "grounded": 0.5}}, "'grounded' cannot be computed for the responses of a round"),
        ({"rounds": {"max_answer_tokens": 1020}}, "less than max_length_tokens = 1,024 together"),
        ({"data": "nowhere"}, "nowhere/train.jsonl"),
        ({"model": "nowhere/else/at/all"}, "no such folder"),
    ],
)
def test_bad_input_leaves_nothing_behind(
    changes: dict[str, Any], message: str, yes_no_model: Path, prompts: Path, tmp_path: Path
) -> None:
    settings = settings_of(yes_no_model, prompts, tmp_path / "run", **changes)
    with pytest.raises(UserError, match=message):
        train_preference(settings, open_model)
    assert not (tmp_path / "run").exists()


def test_gold_rewards_need_rows_that_name_gold_passages(yes_no_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [response_to_json(response_row(0))])
    settings = settings_of(yes_no_model, tmp_path, tmp_path / "run", rewards={"gold": 1.0})
    with pytest.raises(UserError, match="do not name their gold passages"):
        train_preference(settings, open_model)
    write_jsonl(tmp_path / "train.jsonl", [])
    with pytest.raises(UserError, match="no rows"):
        train_preference(settings, open_model)


def test_a_finished_run_is_not_overwritten_and_train_once_refuses_rounds(
    uninterrupted_run: Path, yes_no_model: Path
) -> None:
    settings = settings_of(yes_no_model, Path(read_run(uninterrupted_run).data), uninterrupted_run)
    with pytest.raises(UserError, match="already exists"):
        train_preference(settings, open_model)
    with pytest.raises(UserError, match="have not been sampled yet"):
        train_once(settings.model_copy(update={"output": str(uninterrupted_run) + "-2"}))


def test_the_command_and_the_python_function_sample_the_same_rows(
    yes_no_model: Path, prompts: Path, tmp_path: Path
) -> None:
    values = settings_of(yes_no_model, prompts, tmp_path / "command", rounds={"prompts": 2}).model_dump(mode="json")
    (tmp_path / "ms.yaml").write_text(json.dumps(values))
    done = run("train", "ms", "--config", tmp_path / "ms.yaml", "--rounds", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["settings"]["rounds"]["count"] == 1
    assert "round 1 of 1: reward" in done.stderr and not (tmp_path / "command" / "round-2").exists()
    record = ms(tmp_path / "ms.yaml", out=tmp_path / "python", rounds={"count": 1})
    assert rows_of(tmp_path / "python", 1) == rows_of(tmp_path / "command", 1)
    assert record.settings["rounds"]["prompts"] == 2
    zero = run("train", "ms", "--config", tmp_path / "ms.yaml", "--rounds", "0")
    assert isinstance(zero.exception, UserError) and "rounds.count = 0" in str(zero.exception)
