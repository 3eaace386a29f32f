"""`modegraph compare`: resolve the models, collect their greedy answers and their log-probabilities of held-out pairs, then compute the measures.

One model is in memory at a time, and a model with two roles (the SFT run is also the reference of MS and DPO) is scored once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_synth.rows import PreferenceRow
from eval.compare.measures import choice_scores, differences_by_seed, differences_of, measures_of, seed_systems
from eval.comparison import (
    Comparison,
    PairScore,
    Policy,
    PolicyResult,
    ScoredAnswer,
    read_rows,
    select_rows,
    short_names,
    unique_prompts,
)
from eval.held_out import check_held_out
from eval.metrics.answers import read_choice
from eval.statistics import check_paired_seeds
from graph.answer.citations import check_citations, own_citations
from graph.answer.match import contains_answer, exact_match, token_f1
from graph.answer.prompt import form_of_prompt, parse_answer
from graph.errors import UserError
from graph.models.checkpoint import RUN_RECORD
from graph.shared.console import track
from graph.types import Completion, CompletionRequest, LanguageModel, OpenModel
from train.model.load import load_policy
from train.model.packing import choose_layout
from train.preference.groups import pair_groups
from train.preference.reference import group_logps
from train.run.record import read_run, reference_of
from train.run.settings import WITHOUT_REFERENCE

TUNED_STAGES = ("sft", "ms", "dpo")


def policies_of(runs: Sequence[Path], base: str | None) -> list[Policy]:
    """The runs in the order given, then the untuned model: `base`, or else the one that the first run was fine-tuned from (`untuned_model`).

    Raises UserError for a folder that is not a finished run, and for a model given twice.
    """
    policies = []
    for folder, name in zip(runs, short_names(runs, reserved="untuned"), strict=True):
        record = read_run(folder)
        has_reference = record.beta is not None and record.settings.get("loss") not in WITHOUT_REFERENCE
        policies.append(Policy(name, str(folder), record, reference_of(record) if has_reference else ""))
    untuned = base if base is not None else untuned_model(runs[0])
    sources = [*(Path(policy.source).resolve() for policy in policies), Path(untuned).resolve()]
    for source in sources:
        if sources.count(source) > 1:
            raise UserError(f"{source}: given twice", "different models as runs and --base", "give each model once")
    return [*policies, Policy("untuned", untuned, record=None, reference="")]


def untuned_model(run: Path) -> str:
    """Follow `base_model` back to the first model that is not one of our fine-tuned runs: a hub name or a pretrained folder."""
    model, visited = str(run), set[Path]()
    while (Path(model) / RUN_RECORD).is_file() and (record := read_run(Path(model))).stage in TUNED_STAGES:
        if Path(model).resolve() in visited:
            found = f"{model}: its base models form a cycle"
            raise UserError(found, "a chain that ends at an untuned model", "give --base")
        visited.add(Path(model).resolve())
        model = record.base_model
    return model


PAIRS_PER_PASS = 4
"""Pairs in one forward pass."""


def score_pairs(model: Any, tokenizer: Any, rows: Sequence[PreferenceRow]) -> list[PairScore]:
    """log π(y_w|x) and log π(y_l|x) of every row, in order; the two sides of a pair share one copy of the prompt, if the model allows that."""
    groups = list(pair_groups(rows, tokenizer, 0.0))
    layout = choose_layout(model, max((group.longest_tokens for group in groups), default=0), None)
    return [
        PairScore(*logps_K.tolist(), *map(len, group.tokenized.responses))
        for group, logps_K in zip(groups, group_logps(model, groups, layout, PAIRS_PER_PASS), strict=True)
    ]


PROMPTS_PER_CALL = 16


def compare_runs(
    runs: Sequence[Path],
    data: Path,
    open_model: OpenModel,
    *,
    split: str,
    base: str | None,
    context_sizes: Collection[int],
    max_answer_tokens: int,
    limit: int | None,
    seed: int,
    answers_only: bool,
) -> Comparison:
    """Compare the runs and their untuned model on held-out rows; differences are relative to the first run.

    `context_sizes` selects rows by their number of excerpts; `answers_only` scores no pairs. UserError, before any answer is generated, for a
    folder that is not a finished run, for a model given twice, for data without rows of this split or of these sizes, for rows that a run was
    trained on (except for the split train), and for seeds as in `check_paired_seeds`.
    """
    policies = policies_of(runs, base)
    rows = select_rows(read_rows(data, split), context_sizes, limit, seed)
    if split != "train":
        check_held_out(runs, rows, data / f"{split}.jsonl")
    train_rows = read_rows(data, "train") if (data / "train.jsonl").exists() else []
    systems = seed_systems(policies)
    if systems:
        check_paired_seeds(systems, next(iter(systems)))
    prompts, pairs = unique_prompts(rows), [] if answers_only else rows
    scores: dict[str, list[PairScore]] = {}

    def scores_of(source: str) -> list[PairScore]:
        key = str(Path(source).resolve())
        if key not in scores:
            model, tokenizer = load_policy(source)
            scores[key] = score_pairs(model.eval(), tokenizer, pairs)
        return scores[key]

    results = []
    for policy in policies:
        start = time.perf_counter()
        answers = answer_with(policy, prompts, open_model, max_answer_tokens)
        policy_scores = tuple(scores_of(policy.source)) if pairs else ()
        reference = tuple(scores_of(policy.reference)) if pairs and policy.reference else None
        results.append(PolicyResult(policy, answers, policy_scores, reference, time.perf_counter() - start))
    measures = measures_of(prompts, pairs, results)
    choices, gold_choices = choice_scores(prompts, results, train_rows)
    return Comparison(
        data=str(data),
        split=split,
        seed=seed,
        max_answer_tokens=max_answer_tokens,
        prompts=tuple(prompts),
        pairs=tuple(pairs),
        results=tuple(results),
        measures=measures,
        differences=differences_of(measures, policies[0].name, seed),
        systems=systems,
        by_seed=differences_by_seed(measures, systems, seed),
        choices=choices,
        gold_choices=gold_choices,
    )


def answer_with(
    policy: Policy, prompts: Sequence[PreferenceRow], open_model: OpenModel, max_answer_tokens: int
) -> tuple[ScoredAnswer, ...]:
    """Greedy answers of one policy, by the engine `hf:`."""
    model = open_model(f"hf:{policy.source}")
    completions = track(_complete(model, prompts, max_answer_tokens), f"{policy.name}: answers", len(prompts))
    return tuple(score_answer(row, completion) for row, completion in zip(prompts, completions, strict=True))


def _complete(model: LanguageModel, prompts: Sequence[PreferenceRow], max_answer_tokens: int) -> Iterator[Completion]:
    requests = [CompletionRequest(row.prompt, max_tokens=max_answer_tokens) for row in prompts]
    for start in range(0, len(requests), PROMPTS_PER_CALL):
        yield from model.complete(requests[start : start + PROMPTS_PER_CALL])


def score_answer(row: PreferenceRow, completion: Completion) -> ScoredAnswer:
    """Score one completion against its row's gold answers and its prompt's passages."""
    parsed = parse_answer(completion.text, form_of_prompt(row.prompt))
    citations = own_citations(completion.text, len(row.context_ids))
    answer = check_citations(parsed.answer, 0).text
    return ScoredAnswer(
        row_id=row.id,
        question_id=row.question_id,
        text=completion.text,
        answer=answer,
        exact_match=exact_match(answer, row.answers),
        f1=token_f1(answer, row.answers),
        contains=contains_answer(answer, row.answers),
        well_formed=float(parsed.well_formed),
        choice=read_choice(answer),
        cited=citations.existing,
        missing=citations.missing,
        tokens=completion.completion_tokens,
        cut=completion.finish_reason == "length",
    )
