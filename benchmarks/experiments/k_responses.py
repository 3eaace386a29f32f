"""A study of preference training with K responses: arms with paired seeds, measured on held-out prompts, compared at equal KL.

    python -P benchmarks/experiments/k_responses.py draw STUDY FOLDER PROMPTS.jsonl --model MODEL
    python -P benchmarks/experiments/k_responses.py train STUDY FOLDER RESULTS --model MODEL --seeds 100 --rates 1e-4 3e-4 1e-3 --part 0/8
    python -P benchmarks/experiments/k_responses.py train STUDY FOLDER RESULTS --model MODEL --seeds 0 1 2 3 4 5 --part 0/8
    python -P benchmarks/experiments/k_responses.py report STUDY RESULTS --json

STUDY is a file like configs/study/k-responses.yaml; PROMPTS are files of reading rows that MODEL, a full model, was not trained on. `draw`
samples responses to prompts with distinct passages and questions: the first prompts become dev and test rows, later ones training rows if their
responses differ in reward.
With --rates the runs are trials, measured on dev; without it, each arm uses the rate that did best in its trials, or else the rate in its settings.
--part I/N does every N-th run, starting with run I (counted from 0), so that several processes can share a machine.

Legend: B rows of a batch, T tokens, R responses.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
from transformers import TrainerCallback

from data_synth.responses.responses import SampledTexts
from data_synth.rows import ResponseRow, Sampling, response_to_json
from eval.alignment.measure import reward_of
from eval.alignment.sample import Samples, cut_at_end, samples_of
from eval.statistics import bootstrap_seeds, equality_test, holm, sign_flip_test
from eval.study import StudySettings, train_settings
from graph.answer.match import normalise
from graph.answer.prompt import parse_answer
from graph.answer.template import prompt_ids
from graph.config import load_settings
from graph.shared.console import track
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json, write_jsonl
from graph.types import CompletionRequest
from serve.engines.hf import GumbelSampler, decode_side_by_side
from train.model.load import load_policy, load_tokenizer
from train.model.packing import LogpsOf
from train.preference.groups import combine_rewards
from train.preference.preference import method_of, read_preference_data, response_group_trainer
from train.preference.rounds import with_rewards
from train.run.data import Prompt, read_prompts, read_responses
from train.run.loop import quiet_libraries, run_trainer
from train.run.settings import DpoSettings, MsSettings, PreferenceSettings, machine_precision

ANSWER_TOKENS = 32
PROMPTS_PER_BATCH = 32
GRID = 5
"""Number of KLs at which two frontiers are compared, from the lowest to the highest that both reach."""


def draw(
    model: Any, tokenizer: Any, prompts: Sequence[tuple[str, Sequence[int]]], samples: int, seed: int
) -> Iterator[Samples]:
    """`samples` responses to each prompt (id and tokens) at temperature 1, in order; each response has its own seed, the same for every policy."""
    ends = frozenset([tokenizer.eos_token_id])
    for first in range(0, len(prompts), PROMPTS_PER_BATCH):
        batch = prompts[first : first + PROMPTS_PER_BATCH]
        rows = [ids for _, ids in batch for _ in range(samples)]
        longest = max(map(len, rows))
        ids_BT = torch.tensor([[0] * (longest - len(ids)) + list(ids) for ids in rows], device=model.device)
        mask_BT = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in rows], device=model.device)
        seeds = (int(content_id(str(seed), key, str(n))[:8], 16) for key, _ in batch for n in range(samples))
        sampler = GumbelSampler(
            [CompletionRequest((), ANSWER_TOKENS, 1.0, each) for each in seeds], device=model.device
        )
        with torch.no_grad():
            drawn = decode_side_by_side(model, ids_BT, mask_BT, sampler.noisy_scores, ANSWER_TOKENS, ends)
        for number, (_, ids) in enumerate(batch):
            responses_ids = drawn[number * samples : (number + 1) * samples]
            yield samples_of(tokenizer, ids, [cut_at_end(list(each), tokenizer.eos_token_id) for each in responses_ids])


def row_of(prompt: Prompt, drawn: Samples, sampling: Sampling, policy: str, end_id: int) -> ResponseRow:
    """The row of a prompt with its sampled responses and their rewards; an empty response becomes a dash."""
    cut = tuple(number for number, ids in enumerate(drawn.group.responses) if ids[-1] != end_id)
    texts = SampledTexts(tuple(text or "–" for text in drawn.texts), cut)
    return replace(with_rewards(prompt, texts), sampling=sampling, policy=policy)


def without_repeats(prompts: Iterable[Prompt]) -> list[Prompt]:
    """The prompts sharing neither passage nor question with an earlier chosen one. A prompt's passage is its first gold one, or its first if none is gold
    (a passage may serve once in each of these two cases); a question and its changed version count as one.
    """
    chosen: dict[tuple[bool, str], Prompt] = {}
    questions: set[str] = set()
    for prompt in prompts:
        row, answered = prompt.row, bool(prompt.gold)
        key = answered, row.context_ids[min(prompt.gold or {1}) - 1]
        question = row.question_id.removesuffix("-changed")
        if key not in chosen and question not in questions:
            chosen[key] = prompt
            questions.add(question)
    return list(chosen.values())


def draw_data(study: StudySettings, files: Sequence[Path], folder: Path, model_name: str, seed: int) -> None:
    """Write dev.jsonl and test.jsonl, and train/train.jsonl of prompts whose responses differ in reward."""
    weights = train_settings(study.arms[study.contrast[0]])["rewards"]
    model, tokenizer = load_policy(model_name, machine_precision())
    found = (prompt for file in files for prompt in read_prompts(file))
    prompts = without_repeats(sorted(found, key=lambda each: content_id(str(seed), each.row.id, each.row.question)))
    folder.joinpath("train").mkdir(parents=True, exist_ok=True)
    held_out = {"dev": study.dev_prompts, "test": study.test_prompts}
    taken = 0
    for split, count in held_out.items():
        rows = list(rows_of(model, tokenizer, prompts[taken : taken + count], study.test_samples, seed))
        write_jsonl(folder / f"{split}.jsonl", map(response_to_json, rows))
        taken += count
    train: list[ResponseRow] = []
    while len(train) < study.train_prompts and taken < len(prompts):
        batch = prompts[taken : taken + PROMPTS_PER_BATCH]
        rows = list(rows_of(model, tokenizer, batch, study.train_samples, seed))
        train += [row for row in rows if len(set(combine_rewards(row, weights))) > 1]
        taken += len(batch)
    write_jsonl(folder / "train" / "train.jsonl", map(response_to_json, train[: study.train_prompts]))
    print(f"{len(train)} of {taken - sum(held_out.values())} prompts have responses that differ in reward", flush=True)


def rows_of(model: Any, tokenizer: Any, prompts: Sequence[Prompt], samples: int, seed: int) -> Iterator[ResponseRow]:
    """The rows of prompts, with newly sampled responses of the model."""
    sampling = Sampling(samples, 1.0, ANSWER_TOKENS, seed, as_drawn=True)
    ids = [(prompt.row.id, prompt_ids(tokenizer, prompt.row.prompt)) for prompt in prompts]
    for prompt, drawn in zip(prompts, draw(model, tokenizer, ids, samples, seed), strict=True):
        yield row_of(prompt, drawn, sampling, "reader", tokenizer.eos_token_id)


@dataclass(frozen=True)
class Checkpoint:
    """A measured checkpoint: its update, and for each prompt the mean reward, the share of correct answers, KL to the reference and entropy (nats), the
    share of distinct answers, and the mean number of words.
    """

    update: int
    reward: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    distinct: list[float] = field(default_factory=list)
    words: list[float] = field(default_factory=list)


def measure(
    model: Any,
    tokenizer: Any,
    logps_of: LogpsOf,
    rows: Sequence[ResponseRow],
    weights: Mapping[str, float],
    samples: int,
    update: int,
) -> Checkpoint:
    """Measure a policy (an adapter on the reference model) on `rows`; the seeds of a prompt's responses are the same for every policy."""
    prompts = [(row.id, prompt_ids(tokenizer, row.prompt)) for row in rows]
    checkpoint = Checkpoint(update)
    drawn = list(draw(model, tokenizer, prompts, samples, seed=1))
    for first in range(0, len(rows), PROMPTS_PER_BATCH):
        groups = [each.group for each in drawn[first : first + PROMPTS_PER_BATCH]]
        with torch.no_grad():
            logps_R = logps_of(model, groups)
            with model.disable_adapter():
                reference_R = logps_of(model, groups)
        checkpoint.kl.extend((logps_R - reference_R).view(-1, samples).mean(1).tolist())
        checkpoint.entropy.extend((-logps_R).view(-1, samples).mean(1).tolist())
    for row, each in zip(rows, drawn, strict=True):
        answers = [normalise(parse_answer(text).answer) for text in each.texts]
        checkpoint.reward.append(fmean(reward_of(text, row, weights) for text in each.texts))
        checkpoint.right.append(fmean(reward_of(text, row, {"correct": 1.0}) == 1 for text in each.texts))
        checkpoint.distinct.append(len(set(answers)) / len(answers))
        checkpoint.words.append(fmean(len(text.split()) for text in each.texts))
    return checkpoint


class MeasureCallback(TrainerCallback):  # type: ignore[misc]
    """Measures the policy after each of the given updates."""

    def __init__(self, updates: Sequence[int], measure_at: Any) -> None:
        self.updates, self.measure_at = updates, measure_at
        self.points: list[Checkpoint] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Measure the policy if this update is one of the given ones."""
        if state.global_step in self.updates:
            model.eval()
            self.points.append(self.measure_at(model, state.global_step))
            model.train()


@dataclass(frozen=True)
class Job:
    """One run: an arm, a seed and a rate; a run with `trial` is measured on dev, and only at its end."""

    arm: str
    seed: int
    rate: float
    trial: bool

    @property
    def file(self) -> str:
        return f"{'trial' if self.trial else 'run'}-{self.arm}-s{self.seed}-{self.rate:g}.json"


def jobs_of(
    study: StudySettings, results: Path, arms: Sequence[str], seeds: Sequence[int], rates: Sequence[float]
) -> list[Job]:
    """The runs to do, seed by seed, so that the arms of a seed run at about the same time."""
    names = arms or list(study.arms)
    if rates:
        return [Job(arm, seed, rate, True) for seed in seeds for arm in names for rate in rates]
    best = best_rates(results)
    default = PreferenceSettings.model_fields["learning_rate"].default
    rate_of = {
        arm: best.get(arm) or float(train_settings(study.arms[arm]).get("learning_rate", default)) for arm in names
    }
    return [Job(arm, seed, rate_of[arm], False) for seed in seeds for arm in names]


def best_rates(results: Path) -> dict[str, float]:
    """The best learning rate of each arm, from the trial with the highest mean reward on dev."""
    trials: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for file in sorted(results.glob("trial-*.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        trials[run["arm"]].append((fmean(run["points"][-1]["reward"]), run["rate"]))
    return {arm: max(found)[1] for arm, found in trials.items()}


def train_job(study: StudySettings, job: Job, folder: Path, results: Path, model_name: str) -> None:
    """Train and measure one run, and write its file."""
    arm = study.arms[job.arm]
    kind = MsSettings if arm.stage == "ms" else DpoSettings
    changes = {
        "model": model_name,
        "data": str(folder / "train"),
        "seed": job.seed,
        "learning_rate": job.rate,
        "max_steps": study.updates,
        "save_steps": None,
    }
    if not {"responses", "best_against_worst"} & arm.settings.keys():
        # All responses to a prompt are one group, whatever the seed, so all runs of the arm can share the reference's log-probabilities.
        changes["reference_cache"] = str(folder / f"reference-{job.arm}.safetensors")
    with tempfile.TemporaryDirectory() as scratch:
        settings = kind(**{**train_settings(arm), **changes, "output": f"{scratch}/run"})
        tokenizer = load_tokenizer(model_name)
        rows = read_responses(folder / ("dev.jsonl" if job.trial else "test.jsonl"))
        data = read_preference_data(settings, tokenizer)
        started = time.perf_counter()
        trainer = response_group_trainer(settings, method_of(settings), data, tokenizer, Path(scratch))
        at = [study.updates * number // study.checkpoints for number in range(1, study.checkpoints + 1)]
        callback = MeasureCallback(
            at[-1:] if job.trial else at,
            lambda model, update: measure(
                model, tokenizer, trainer.logps_of, rows, settings.rewards, study.test_samples, update
            ),
        )
        trainer.add_callback(callback)
        run_trainer(trainer, job.file)
    seconds = time.perf_counter() - started
    points = [vars(point) for point in callback.points]
    write_json(
        results / job.file, {"arm": job.arm, "seed": job.seed, "rate": job.rate, "seconds": seconds, "points": points}
    )


def frontier(run: Mapping[str, Any], kl: float) -> list[float]:
    """A run's reward by prompt at a KL, interpolated linearly between the two checkpoints around that KL."""
    points = sorted((fmean(point["kl"]), point["reward"]) for point in run["points"])
    kls = [point[0] for point in points]
    after = min(max(int(np.searchsorted(kls, kl)), 1), len(kls) - 1)
    share = (kl - kls[after - 1]) / max(kls[after] - kls[after - 1], 1e-9)
    return [low + share * (high - low) for low, high in zip(points[after - 1][1], points[after][1], strict=True)]


def shared_range(*runs: Mapping[str, Any]) -> tuple[float, float]:
    """The lowest and the highest KL that all runs reach; they share no range if the first is not below the second."""
    ends = [[fmean(point["kl"]) for point in run["points"]] for run in runs]
    return max(map(min, ends)), min(map(max, ends))


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[float] | None:
    """The reward of one run minus another's, by prompt, averaged over KLs that both reach; None if they share no range."""
    low, high = shared_range(one, other)
    if low >= high:
        return None
    at = [low + (high - low) * number / (GRID - 1) for number in range(GRID)]
    by_kl = [[a - b for a, b in zip(frontier(one, kl), frontier(other, kl), strict=True)] for kl in at]
    return [fmean(values) for values in zip(*by_kl, strict=True)]


def report(study: StudySettings, results: Path) -> dict[str, Any]:
    """The statistics of every arm, and the differences between the first arm of the contrast and every other arm, by paired seeds."""
    runs: defaultdict[str, dict[int, Any]] = defaultdict(dict)
    for file in sorted(results.glob("run-*.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        runs[run["arm"]][run["seed"]] = run
    table = [arm_figures(arm, list(by_seed.values())) for arm, by_seed in runs.items()]
    first, second = study.contrast
    contrasts = {arm: contrast(runs.get(first, {}), runs[arm], study.equal_within) for arm in runs if arm != first}
    others = {arm: found["p"] for arm, found in contrasts.items() if arm != second and found["p"] is not None}
    for arm, p in holm(others).items():
        contrasts[arm]["p, Holm"] = p
    return {"best rates": best_rates(results), "arms": table, f"{first} minus": contrasts}


def arm_figures(arm: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over prompts and seeds at every checkpoint, with the standard deviation of the reward across seeds."""
    points = []
    for at in zip(*(run["points"] for run in runs), strict=True):
        rewards = [fmean(point["reward"]) for point in at]
        means = {
            name: round(fmean(fmean(point[name]) for point in at), 4)
            for name in vars(Checkpoint(0))
            if name != "update"
        }
        points.append(
            {"update": at[0]["update"], **means, "reward sd": round(stdev(rewards), 4) if len(rewards) > 1 else None}
        )
    return {
        "arm": arm,
        "seeds": len(runs),
        "rate": runs[0]["rate"],
        "seconds": round(fmean(run["seconds"] for run in runs)),
        "points": points,
    }


def contrast(first: Mapping[int, Any], other: Mapping[int, Any], margin: float) -> dict[str, Any]:
    """The difference at equal KL and at the end, by paired seeds: mean, interval, exact p, and p of the equivalence test.

    There are no figures if the arms share no seed; if the two runs of a seed have no common KL, the number of such seeds replaces the figures at equal KL.
    """
    seeds = sorted(set(first) & set(other))
    if not seeds:
        return {"seeds": 0, "p": None}
    equal = [difference(first[seed], other[seed]) for seed in seeds]
    at_end = [fmean(first[seed]["points"][-1]["reward"]) - fmean(other[seed]["points"][-1]["reward"]) for seed in seeds]
    found: dict[str, Any] = {
        "seeds": len(seeds),
        "at the end": round(fmean(at_end), 4),
        "p at the end": sign_flip_test(at_end),
    }
    usable = [values for values in equal if values is not None]
    if len(usable) < len(seeds):
        return {**found, "seeds without a common KL": len(seeds) - len(usable), "p": None}
    by_seed = [fmean(values) for values in usable]
    interval = bootstrap_seeds(usable)
    return {
        **found,
        "at equal KL": round(fmean(by_seed), 4),
        "interval": [round(interval.low, 4), round(interval.high, 4)],
        "by seed": [round(value, 4) for value in by_seed],
        "seed sd": round(stdev(by_seed), 4) if len(by_seed) > 1 else None,
        "p": sign_flip_test(by_seed),
        f"p of equality within {margin:g}": equality_test(by_seed, margin),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, places in (("draw", ("folder",)), ("train", ("folder", "results")), ("report", ("results",))):
        command = commands.add_parser(name)
        command.add_argument("study", type=Path)
        for place in places:
            command.add_argument(place, type=Path)
        if name != "report":
            command.add_argument("--model", required=True)
    commands.choices["draw"].add_argument("prompts", type=Path, nargs="+")
    commands.choices["draw"].add_argument("--seed", type=int, default=0)
    train = commands.choices["train"]
    train.add_argument("--arms", nargs="*", default=[])
    train.add_argument("--seeds", nargs="+", type=int, required=True)
    train.add_argument("--rates", nargs="*", type=float, default=[])
    train.add_argument("--part", default="0/1")
    commands.choices["report"].add_argument("--json", action="store_true")
    options = parser.parse_args()
    study = load_settings(StudySettings, options.study)
    quiet_libraries()
    if options.command == "draw":
        draw_data(study, options.prompts, options.folder, options.model, options.seed)
    elif options.command == "train":
        options.results.mkdir(parents=True, exist_ok=True)
        index, count = map(int, options.part.split("/"))
        jobs = jobs_of(study, options.results, options.arms, options.seeds, options.rates)[index::count]
        for job in track(jobs, "runs", len(jobs)):
            if not (options.results / job.file).exists():
                train_job(study, job, options.folder, options.results, options.model)
    else:
        print(json.dumps(report(study, options.results), indent=None if options.json else 2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
