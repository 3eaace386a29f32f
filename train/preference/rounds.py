"""On-policy rounds: each samples the policy's responses to prompts of `data`, computes their rewards and trains on them; the next starts from the result.

A round is `synth responses`, then `train ms` or `train dpo`, in the folders `round-K/responses` and `round-K/run`. Parts that are
complete are not made again, so a resumed run ends with the same rows and weights. The folder of all rounds is itself a run
like any other, from the first round's starting model to the last round's adapter or model; `rounds.jsonl` has the figures of each round."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean

from data_synth.dataset.write import SUMMARY, ledger_of, write_dataset
from data_synth.responses.responses import PROMPTS_AT_ONCE, SampledTexts, sample_texts
from data_synth.responses.rewards import RESPONSES, REWARDS, gold_reward
from data_synth.rows import Dropped, ResponseRow, Sampling, response_to_json
from graph.answer.prompt import NOT_FOUND, is_no_answer
from graph.answer.template import prompt_ids
from graph.errors import UserError
from graph.models.checkpoint import RUN_RECORD, is_adapter, model_name
from graph.shared.console import say, track
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl, write_jsonl
from graph.shared.progress import check_idle, note_progress, report_progress
from graph.shared.runs import LOG
from graph.text.word_forms import count_words
from graph.types import LanguageModel, OpenModel
from train.model.load import load_tokenizer
from train.preference.groups import combine_rewards, nonzero_weights
from train.preference.preference import KL, stage_of, train_once
from train.run.data import Prompt, read_prompts, read_responses, refuses
from train.run.loop import check_adapter, check_tracker
from train.run.record import Alignment, RunRecord, read_run
from train.run.save import (
    CHECKPOINTS,
    NO_OUTCOME,
    SETTINGS,
    about_run,
    check_output,
    check_same_run,
    run_record,
    save_record,
)
from train.run.settings import DpoSettings, MsSettings, RoundsSettings

FIGURES = "rounds.jsonl"
TOO_FEW = "fewer than two usable responses (empty ones, those refused by the engine and, if `rounds.refusal_responses` is left_out, refusals are not usable)"
EQUAL = "responses that all have the same reward"


@dataclass(frozen=True)
class Round:
    """One round: its number from 1, its folder, the model that it starts from, and the settings of the whole run."""

    number: int
    folder: Path
    policy: str
    settings: MsSettings | DpoSettings
    rounds: RoundsSettings

    @property
    def responses(self) -> Path:
        return self.folder / "responses"

    @property
    def samples(self) -> Path:
        """The file of all sampled responses; a round that trains on exactly these has none."""
        return self.folder / "samples.jsonl"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def seed(self) -> int:
        """The seed of this round's prompts and responses."""
        return int(content_id("round", str(self.settings.seed), str(self.number))[:8], 16) >> 1


def train_preference(settings: MsSettings | DpoSettings, open_model: OpenModel) -> RunRecord:
    """Train a model and write the run to `settings.output`, in rounds if the settings have any; UserError for bad input before the first step."""
    if settings.rounds is not None:
        return train_in_rounds(settings, settings.rounds, open_model)
    return train_once(settings)


def train_in_rounds(settings: MsSettings | DpoSettings, rounds: RoundsSettings, open_model: OpenModel) -> RunRecord:
    """Do the rounds that are not complete yet; UserError for bad input before the first response is sampled."""
    output, data = Path(settings.output), Path(settings.data)
    check_rounds_folder(output)
    check_tracker(settings.report_to)
    check_adapter(settings)
    prompts = usable_prompts(data / "train.jsonl", rounds)
    check_rewards(settings, prompts)
    check_lengths(settings, rounds, prompts)
    start = run_record(stage_of(settings), settings.model, settings.data, settings, NO_OUTCOME)
    origin = {"data": start.data_fingerprint, "weights": model_name(settings.model), "reference": start.reference_name}
    output.mkdir(parents=True, exist_ok=True)
    check_same_run(output, settings, origin)
    figures: list[dict[str, float]] = []
    records: list[RunRecord] = []
    policy = settings.model
    with report_progress(output, about_run(stage_of(settings), settings)):
        for number in range(1, rounds.count + 1):
            this = Round(number, output / f"round-{number}", policy, settings, rounds)
            samples = sample(this, prompts, open_model)
            round_figures = figures_of(samples, settings.rewards)
            summary = ", ".join(f"{name} {value:.3g}" for name, value in round_figures.items())
            say(f"round {number} of {rounds.count}: {summary}")
            records.append(train(this, samples))
            kl = records[-1].metrics.get(KL, 0.0 if number == 1 else None)
            figures.append({"round": number, **round_figures, **({} if kl is None else {KL: kl})})
            write_jsonl(output / FIGURES, figures)
            note_progress(output, number, rounds.count, figures[-1])
            policy = str(this.run)
        record = finish(start, records, figures, output, Path(policy))
    shutil.rmtree(output / CHECKPOINTS)
    return record


def sample(this: Round, prompts: Sequence[Prompt], open_model: OpenModel) -> list[ResponseRow]:
    """Sample responses and write the rows to train on, unless these exist; return rows with all samples. UserError if no prompt has usable responses.

    Calls recorded in the round's ledger are not repeated.
    """
    if not (this.responses / SUMMARY).exists():
        rounds = this.rounds
        model = open_model(f"{rounds.engine}:{this.policy}", ledger_of(this.responses, None))
        chosen = choose_prompts(prompts, rounds.prompts, this.seed, rounds.refusals)
        sampling = Sampling(rounds.samples, rounds.temperature, rounds.max_answer_tokens, this.seed, as_drawn=True)
        origin = {
            "Prompts": f"{len(chosen):,} of {Path(this.settings.data).name}, {sum(map(lacks_answer, chosen)):,} of them without the answer in their passages",
            "Policy": f"{model.name}, at the start of round {this.number}",
            "Sampling": f"{rounds.samples} responses per prompt at temperature {rounds.temperature:g}, up to {rounds.max_answer_tokens:,} tokens, seed {this.seed}",
        }
        responded = track(respond(chosen, model, sampling), f"round {this.number}: prompts", len(chosen))
        rows: Iterable[ResponseRow | Dropped] = responded
        if rounds.refusal_responses != "as_sampled" or rounds.only_different or this.settings.best_against_worst:
            samples = list(responded)
            this.folder.mkdir(parents=True, exist_ok=True)
            write_jsonl(this.samples, (response_to_json(row) for row in samples if isinstance(row, ResponseRow)))
            rows = change_refusals(chosen, samples, rounds.refusal_responses)
        if rounds.only_different:
            rows = drop_equal(rows, this.settings.rewards)
        form = replace(RESPONSES, made_by=f"train {stage_of(this.settings)}")
        write_dataset(this.responses, rows, form, origin)
    if not (this.responses / "train.jsonl").exists():
        reasons = f"{TOO_FEW}, or {EQUAL}" if this.rounds.only_different else TOO_FEW
        found = f"{this.responses}: every prompt has {reasons}"
        raise UserError(found, "a policy that answers", "start from a model that was tuned to answer (`train sft`)")
    return read_responses(this.samples if this.samples.exists() else this.responses / "train.jsonl")


def respond(prompts: Sequence[Prompt], model: LanguageModel, sampling: Sampling) -> Iterator[ResponseRow | Dropped]:
    """Each prompt with its responses, as sampled, and their rewards; Dropped in place of a prompt with too few responses to compare."""
    remaining = iter(prompts)
    while batch := list(islice(remaining, PROMPTS_AT_ONCE)):
        sampled = sample_texts([((prompt.row.id,), prompt.row.prompt) for prompt in batch], model, sampling)
        for prompt, texts in zip(batch, sampled, strict=True):
            row = replace(with_rewards(prompt, texts), sampling=sampling, policy=model.name)
            yield row if len(row.responses) > 1 else Dropped(TOO_FEW)


def change_refusals(
    prompts: Sequence[Prompt], rows: Iterable[ResponseRow | Dropped], refusal_responses: str
) -> Iterator[ResponseRow | Dropped]:
    """The rows of the prompts: with "added", rows without a refusal get one; with "left_out", refusals are left out.

    Dropped in place of a row with too few other responses.
    """
    for prompt, row in zip(prompts, rows, strict=True):
        if isinstance(row, Dropped):
            yield row
            continue
        texts = SampledTexts(row.responses, row.cut)
        if refusal_responses == "left_out":
            texts = texts.without(refuses)
        elif refusal_responses == "added" and not any(map(refuses, row.responses)):
            texts = replace(texts, texts=(*texts.texts, NOT_FOUND))
        yield with_rewards(Prompt(row, prompt.gold), texts) if len(texts.texts) > 1 else Dropped(TOO_FEW)


def drop_equal(rows: Iterable[ResponseRow | Dropped], weights: Mapping[str, float]) -> Iterator[ResponseRow | Dropped]:
    """The rows, with Dropped in place of each row whose responses all have the same reward."""
    for row in rows:
        equal = isinstance(row, ResponseRow) and len(set(combine_rewards(row, weights))) == 1
        yield Dropped(EQUAL) if equal else row


def with_rewards(prompt: Prompt, responses: SampledTexts) -> ResponseRow:
    """The row of a prompt with its responses and every reward that can be computed from the two."""
    row, gold = prompt.row, prompt.gold
    rewards = {name: tuple(reward(text, row) for text in responses.texts) for name, reward in REWARDS.items()}
    if gold is not None:
        rewards["gold"] = tuple(gold_reward(text, gold, row.context_size) for text in responses.texts)
    rounded = {name: tuple(round(value, 4) for value in values) for name, values in rewards.items()}
    return replace(row, responses=responses.texts, cut=responses.cut, rewards=rounded)


def figures_of(rows: Sequence[ResponseRow], weights: Mapping[str, float]) -> dict[str, float]:
    """Over all responses: mean reward, share of correct ones, share of those cut at the token limit, mean number of words."""
    responses = [text for row in rows for text in row.responses]
    return {
        "reward": fmean(reward for row in rows for reward in combine_rewards(row, weights)),
        "right": fmean(value == 1 for row in rows for value in row.rewards["correct"]),
        "cut": sum(len(row.cut) for row in rows) / len(responses),
        "words": fmean(map(count_words, responses)),
    }


def train(this: Round, samples: Sequence[ResponseRow]) -> RunRecord:
    """Train the round's model on its rows, unless its run is complete; return the run's record. The KL is measured over all `samples`."""
    if not (this.run / RUN_RECORD).exists():
        settings, first = this.settings, this.number == 1
        reference = settings.reference or (None if first or this.rounds.reference == "round" else settings.model)
        changes = {
            "model": this.policy,
            "lora": settings.lora if first else None,
            "data": str(this.responses),
            "output": str(this.run),
            "epochs": this.rounds.epochs,
            "reference": reference,
            "rounds": None,
        }
        gc.collect()  # the models of engines and trainers are in reference cycles, and the next step needs their memory
        train_once(settings.model_copy(update=changes), samples if reference and this.samples.exists() else ())
        gc.collect()
    return read_run(this.run)


def finish(
    start: RunRecord, records: Sequence[RunRecord], figures: Sequence[Mapping[str, float]], output: Path, last: Path
) -> RunRecord:
    """Write the run of all rounds: the files of the last round's run, with a log and a record that cover every round.

    `start` is the record before the first round.
    """
    shutil.copytree(last, output, ignore=shutil.ignore_patterns(RUN_RECORD), dirs_exist_ok=True)
    log = [
        {"round": number, **row}
        for number in range(1, len(records) + 1)
        for _, row in read_jsonl(last.parent.with_name(f"round-{number}") / last.name / LOG)
    ]
    end = records[-1]
    metrics = dict(end.metrics) | {
        f"round {row['round']} {name}": value for row in figures for name, value in row.items() if name != "round"
    }
    seconds = sum(record.train_seconds for record in records)
    alignment = Alignment(end.beta, end.responses_per_prompt, end.beta_reward, end.label_smoothing)
    record = replace(start, metrics=metrics, train_seconds=seconds, **vars(alignment))
    save_record(output, record, log, adapter=is_adapter(str(output)))
    return record


def choose_prompts(
    prompts: Sequence[Prompt], count: int | None, seed: int, refusals: float | None = None
) -> list[Prompt]:
    """A sample of `count` prompts, determined by `seed`, in their original order; all if `count` is None or too large.

    `refusals` is the share of prompts whose passages lack the answer (lower if there are too few; if the others are too few, fewer than
    `count` are sampled); None samples from all prompts alike.
    """
    order = sorted(range(len(prompts)), key=lambda number: content_id(str(seed), prompts[number].row.id, str(number)))
    if count is not None and refusals is not None:
        lacking = [number for number in order if lacks_answer(prompts[number])][: round(count * refusals)]
        order = [*lacking, *(number for number in order if not lacks_answer(prompts[number]))]
    return [prompts[number] for number in sorted(order[:count])]


def usable_prompts(file: Path, rounds: RoundsSettings) -> list[Prompt]:
    """The prompts of a file, without those whose passages lack the answer if refusals are left out; UserError if none is left."""
    prompts = read_prompts(file)
    if rounds.refusal_responses != "left_out":
        return prompts
    answerable = [prompt for prompt in prompts if not lacks_answer(prompt)]
    if not answerable:
        found = f"{file}: the passages of every prompt lack the answer, and rounds.refusal_responses is left_out"
        remedy = "add prompts with an answer, or set rounds.refusal_responses to as_sampled"
        raise UserError(found, "prompts whose passages have the answer", remedy)
    return answerable


def lacks_answer(prompt: Prompt) -> bool:
    """Whether "not in the documents" is the only right answer."""
    return all(is_no_answer(answer) for answer in prompt.row.answers)


def check_rounds_folder(output: Path) -> None:
    """UserError if several processes were launched, if `output` contains anything but an interrupted run, or if another process is working on it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        found = f"rounds in {os.environ['WORLD_SIZE']} processes"
        raise UserError(found, "one process", "start the run without a launcher")
    if not (output / CHECKPOINTS / SETTINGS).exists():
        check_output(output)
    check_idle(output)


def check_rewards(settings: MsSettings | DpoSettings, prompts: Sequence[Prompt]) -> None:
    """UserError naming the first component of the reward that cannot be computed for new responses to the prompts."""
    for component in nonzero_weights(settings.rewards):
        if component == "gold" and any(prompt.gold is None for prompt in prompts):
            found = f"rewards: 'gold', but the rows of {settings.data} do not name their gold passages"
            expected = "rows of `synth reading`, which name them"
            raise UserError(found, expected, "use such rows, or drop gold from `rewards`")
        if component not in (*REWARDS, "gold"):
            found = f"rewards: {component!r} cannot be computed for the responses of a round"
            expected = f"components among {', '.join((*REWARDS, 'gold'))}"
            raise UserError(found, expected, "give weights in `rewards` only to these")


def check_lengths(settings: MsSettings | DpoSettings, rounds: RoundsSettings, prompts: Sequence[Prompt]) -> None:
    """UserError if the longest prompt and the longest allowed response together reach `max_length_tokens`, unless such rows are dropped."""
    tokenizer = load_tokenizer(settings.model)
    longest = max(len(prompt_ids(tokenizer, prompt.row.prompt)) for prompt in prompts)
    if longest + rounds.max_answer_tokens >= settings.max_length_tokens and settings.over_long == "refuse":
        raise UserError(
            f"a prompt of {longest:,} tokens and responses of up to {rounds.max_answer_tokens:,}",
            f"less than max_length_tokens = {settings.max_length_tokens:,} together",
            "raise max_length_tokens, lower rounds.max_answer_tokens, or set over_long to drop",
        )
