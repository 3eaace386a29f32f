"""Measure runs on held-out prompts: draw samples, reward them, score them under the policy and its reference, and cache the figures.

Figures are cached by everything that determines them (`cache_key`), so that a killed command can resume and commands can share figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from data_synth.responses.rewards import REWARDS, answer_reward, format_reward
from data_synth.rows import ResponseRow, response_to_json
from eval.alignment.sample import Draw, Policy, Prompt, Samples, SamplingSettings, logps_of_samples
from eval.metrics.answers import bleu
from eval.statistics import SeedVerdict
from graph.answer.citations import own_citations
from graph.answer.match import normalise
from graph.answer.prompt import CitedSentence, form_of_prompt, parse_answer, write_answer
from graph.errors import UserError
from graph.models.checkpoint import model_name
from graph.shared.console import track
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json
from train.model.load import Precision
from train.model.logps import tokenize_row
from train.model.packing import packing_problem
from train.run.record import RunRecord, read_run, reference_of


@dataclass(frozen=True)
class PromptFigures:
    """The figures of one held-out prompt under one policy: means over its samples. `kl` (log π − log π_ref) and `entropy` (−log π) are in nats.

    Diversity: `distinct` is the number of different answers as a share of the samples, `self_bleu` the mean BLEU of each sample against the
    others (Zhu et al. 2018). A policy that has collapsed to one mode has few distinct answers and a self-BLEU near 1.
    """

    reward: float
    kl: float
    entropy: float
    words: float
    correct: float
    well_formed: float
    cited: float
    distinct: float
    self_bleu: float


METHODS = {"ipo": "IPO", "lambda": "LiPO-λ", "nca": "NCA", "rloo": "RLOO", "simpo": "SimPO", "orpo": "ORPO"}
"""Losses of `train dpo` other than DPO, by the setting `loss`."""


def system_of(record: RunRecord) -> str:
    """The name of a run's system: method, K, ε (of runs on pairs), and whether each pair is the best and the worst of the scored responses; β is left out.

    TRL's IPO is called "per token", because it takes means over tokens.
    """
    settings, smoothing = record.settings, record.label_smoothing
    method = METHODS.get(settings.get("loss", ""), record.stage.upper())
    per_token = " per token" if (settings.get("loss"), settings.get("trainer")) == ("ipo", "trl") else ""
    parts = [f"{method}{per_token} K = {record.responses_per_prompt}"]
    parts += [] if smoothing is None else [f"ε = {smoothing:g}"]
    parts += ["best against worst"] if settings.get("best_against_worst") else []
    return ", ".join(parts)


@dataclass(frozen=True)
class MeasuredRun:
    """A run and its figures on every held-out prompt, in prompt order."""

    folder: Path
    record: RunRecord
    figures: tuple[PromptFigures, ...]

    @property
    def system(self) -> str:
        """The name of the run's system (`system_of`)."""
        return system_of(self.record)

    @property
    def seed(self) -> int:
        return int(self.record.settings["seed"])

    @property
    def reward(self) -> float:
        """Mean reward over all prompts."""
        return fmean(one.reward for one in self.figures)

    @property
    def kl(self) -> float:
        """Mean KL to the reference over all prompts, in nats; an estimate, which may be a little below 0 near the reference."""
        return fmean(one.kl for one in self.figures)


@dataclass(frozen=True)
class RewardAtKl:
    """A system's reward at a given KL, its difference from the first system's (None for the first), and each seed's mean reward over the prompts."""

    system: str
    kl: float
    reward: float
    difference: SeedVerdict | None
    by_seed: tuple[float, ...]


def cache_key(
    source: str,
    reference: str,
    rows: Sequence[ResponseRow],
    weights: Mapping[str, float],
    sampling: SamplingSettings,
    engine: str,
    precision: Precision,
) -> str:
    """A hash of both models, the prompts with their gold answers, the reward weights, sampling, engine and precision.

    A folder is identified by its name and a hash of its weights and tokenizer, any other model by its hub name.
    """
    row_texts = [json.dumps({**response_to_json(row), "responses": [], "rewards": {}}, sort_keys=True) for row in rows]
    settings = json.dumps([dict(weights), asdict(sampling), engine, precision], sort_keys=True)
    return content_id(model_name(source), model_name(reference), settings, *row_texts)


def common_precision(records: Sequence[RunRecord]) -> Precision:
    """The precision to measure runs in: bfloat16 if all were trained in it, else float32."""
    return "bfloat16" if all(one.settings.get("precision") == "bfloat16" for one in records) else "float32"


Load = Callable[[str], tuple[Any, Any]]
"""A function from a model's source to (model, tokenizer), ready to generate and to score."""


def measure_runs(
    folders: Sequence[Path],
    rows: Sequence[ResponseRow],
    weights: Mapping[str, float],
    sampling: SamplingSettings,
    load: Load,
    draw: Draw,
    cache_folder: Path,
) -> tuple[list[MeasuredRun], list[PromptFigures]]:
    """Measure all runs and their reference on every row; figures in `cache_folder` are not measured again. UserError unless all runs share one reference."""
    records = [read_run(folder) for folder in folders]
    source, precision = common_reference(folders, records), common_precision(records)
    reference = cache(lambda: load(source)[0])

    def figures_of(policy: str) -> list[PromptFigures]:
        # The engine is part of the key, because engines generate different random numbers.
        key = cache_key(policy, source, rows, weights, sampling, draw.__name__, precision)
        file = cache_folder / f"{key}.json"
        if file.is_file():
            return [PromptFigures(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
        figures = measure_run(Policy(policy, *load(policy)), rows, weights, reference(), sampling, draw)
        cache_folder.mkdir(parents=True, exist_ok=True)
        write_json(file, [asdict(one) for one in figures])
        return figures

    runs = [
        MeasuredRun(folder, record, tuple(figures_of(str(folder))))
        for folder, record in zip(folders, records, strict=True)
    ]
    return runs, figures_of(source)


def measure_run(
    policy: Policy,
    rows: Sequence[ResponseRow],
    weights: Mapping[str, float],
    reference: Any,
    sampling: SamplingSettings,
    draw: Draw,
) -> list[PromptFigures]:
    """The figures of one policy on each row; samples of a prompt have the same seed under every policy."""
    if reason := packing_problem(policy.model):
        found = f"{policy.source}: its samples cannot be scored together ({reason})"
        raise UserError(found, "a model with full attention", "leave this model out")
    tokenized = [tokenize_row(policy.tokenizer, row.prompt, row.responses[0]) for row in rows]
    prompts = [Prompt(row.id, one.ids[: one.prompt_tokens]) for row, one in zip(rows, tokenized, strict=True)]
    samples_of_prompts = draw(policy, prompts, sampling)
    progress = track(zip(rows, samples_of_prompts, strict=True), Path(policy.source).name, len(rows))
    return [figures_of_prompt(row, samples, weights, policy.model, reference) for row, samples in progress]


def figures_of_prompt(
    row: ResponseRow, samples: Samples, weights: Mapping[str, float], model: Any, reference: Any
) -> PromptFigures:
    """The figures of one prompt from its samples."""
    logps, reference_logps = logps_of_samples(model, samples), logps_of_samples(reference, samples)
    answers = {normalise(parse_answer(text, form_of_prompt(row.prompt)).answer) for text in samples.texts}
    return PromptFigures(
        kl=float((logps - reference_logps).mean()),
        entropy=float(-logps.mean()),
        distinct=len(answers) / len(samples.texts),
        self_bleu=self_bleu(samples.texts),
        **text_figures(samples.texts, [row] * len(samples.texts), weights),
    )


def text_figures(texts: Sequence[str], rows: Sequence[ResponseRow], weights: Mapping[str, float]) -> dict[str, float]:
    """The figures that need no model, by name: means over texts, each of which answers the prompt of its row."""
    pairs = list(zip(texts, rows, strict=True))
    citations = [own_citations(text, row.context_size) for text, row in pairs]
    return {
        "reward": fmean(reward_of(text, row, weights) for text, row in pairs),
        "correct": fmean(answer_reward(text, row.answers) == 1.0 for text, row in pairs),
        "well_formed": fmean(format_reward(text, form_of_prompt(row.prompt)) for text, row in pairs),
        "cited": fmean(bool(one.existing) and not one.missing for one in citations),
        "words": fmean(len(text.split()) for text in texts),
    }


@dataclass(frozen=True)
class ConstantAnswer:
    """The figures of one constant answer, in the form that each prompt asks for, citing the prompt's first passage if it has one."""

    answer: str
    reward: float
    correct: float
    well_formed: float
    cited: float
    words: float


def constant_answers(rows: Sequence[ResponseRow], weights: Mapping[str, float]) -> list[ConstantAnswer]:
    """The baselines that ignore the prompt: always yes, and always no."""
    constants = []
    for answer in ("yes", "no"):
        texts = [write_answer(answer, [CitedSentence(1, "So it is.")], form_of_prompt(row.prompt)) for row in rows]
        texts = [text if row.context_size else text.replace(" [1]", "") for text, row in zip(texts, rows, strict=True)]
        constants.append(ConstantAnswer(answer, **text_figures(texts, rows, weights)))
    return constants


def self_bleu(texts: Sequence[str]) -> float:
    """Mean BLEU of each text against all others (Zhu et al. 2018, Texygen); 1 for a single text."""
    if len(texts) < 2:
        return 1.0
    return fmean(bleu(text, [*texts[:index], *texts[index + 1 :]]) for index, text in enumerate(texts))


def reward_of(text: str, row: ResponseRow, weights: Mapping[str, float]) -> float:
    """Σ_c w_c r_c of one text."""
    return sum(weight * REWARDS[component](text, row) for component, weight in weights.items())


def common_weights(folders: Sequence[Path], records: Sequence[RunRecord]) -> dict[str, float]:
    """The reward weights of the runs trained on scored responses; runs on pairs, which used none, are measured with the same weights.

    If all runs were trained on pairs, correct answers are rewarded. UserError when weights differ, or when a component cannot be measured.
    """
    run_weights = [
        (folder, dict(record.settings.get("rewards") or {}))
        for folder, record in zip(folders, records, strict=True)
        if record.beta_reward is not None or record.settings.get("best_against_worst")
    ]
    weighted = [(folder, weights) for folder, weights in run_weights if weights]
    if not weighted:
        return {"correct": 1.0}
    first = weighted[0][1]
    for folder, weights in weighted:
        if weights != first:
            found = f"{folder}: trained for the rewards {weights}, but {weighted[0][0]} for {first}"
            remedy = "compare runs trained for the same reward, or name the reward with --reward COMPONENT=WEIGHT"
            raise UserError(found, "runs that were trained for the same reward", remedy)
    return measurable_weights(first, str(weighted[0][0]), trained=True)


def measurable_weights(weights: Mapping[str, float], where: str, trained: bool = False) -> dict[str, float]:
    """The weights that are not 0; UserError naming the first component that cannot be measured on a new text. `trained`: a run was trained for them."""
    remedy = "leave this component out"
    if trained:
        remedy = "name the components to measure with --reward COMPONENT=WEIGHT, or train without this one"
    nonzero = {component: weight for component, weight in weights.items() if weight}
    for component in nonzero:
        if component not in REWARDS:
            raise UserError(
                f"{where}: the reward component {component!r} cannot be measured on new texts, so the reward would be incomplete",
                f"components among {', '.join(REWARDS)}",
                remedy,
            )
    return nonzero


def common_reference(folders: Sequence[Path], records: Sequence[RunRecord]) -> str:
    """The reference model that all runs share, by default the model that they started from.

    UserError for a run that is not a preference run, and for one with another reference.
    """
    references = [reference_of(record) for record in records]
    for folder, record, reference in zip(folders, records, references, strict=True):
        if record.beta is None:
            found = f"{folder}: a run of stage {record.stage}"
            raise UserError(found, "preference runs (ms or dpo)", "leave this run out")
        if reference != references[0]:
            found = f"{folder}: its reference is {reference}, that of {folders[0]} is {references[0]}"
            raise UserError(found, "runs with the same reference", "leave out the runs with another reference")
    return references[0]
