"""`modegraph compare`: each policy answers the held-out prompts greedily and scores the held-out pairs, if asked to; then the measures.

One model is in memory at a time, and a model that serves twice (the SFT run is also the reference of MS and DPO) scores once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from eval.compare.measures import choice_scores, differences_of, measures_of
from eval.compare.score import score_pairs
from eval.metrics import contains_answer, exact_match, read_choice, token_f1
from eval.shared.rows import HeldOutRow, unique_prompts
from eval.shared.types import Comparison, PairScore, Policy, PolicyResult, ScoredAnswer
from graph.prompt.answer import form_of_prompt, parse_answer
from graph.prompt.citations import check_citations
from graph.prompt.own_citations import own_citations
from graph.shared.console import track
from graph.shared.types import Completion, CompletionRequest, LanguageModel, OpenModel

PROMPTS_PER_CALL = 16
LoadPolicy = Callable[[str], tuple[Any, Any]]


def compare(
    policies: Sequence[Policy],
    rows: Sequence[HeldOutRow],
    train_rows: Sequence[HeldOutRow],
    open_model: OpenModel,
    load_policy: LoadPolicy,
    *,
    data: Path,
    split: str,
    max_answer_tokens: int,
    seed: int,
    answers_only: bool = False,
) -> Comparison:
    """Every policy on `rows`; `train_rows` only tell the majority class. Differences are taken from the first policy."""
    prompts, pairs = unique_prompts(rows), [] if answers_only else rows
    scores: dict[str, list[PairScore]] = {}

    def scores_of(source: str) -> list[PairScore]:
        key = str(Path(source).resolve())
        if key not in scores:
            scores[key] = score_with(source, pairs, load_policy)
        return scores[key]

    results = []
    for policy in policies:
        started = time.perf_counter()
        answers = answer_with(policy, prompts, open_model, max_answer_tokens)
        own = tuple(scores_of(policy.source)) if pairs else ()
        reference = tuple(scores_of(policy.reference)) if pairs and policy.reference else None
        results.append(PolicyResult(policy, answers, own, reference, time.perf_counter() - started))
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
        choices=choices,
        gold_choices=gold_choices,
    )


def answer_with(
    policy: Policy, prompts: Sequence[HeldOutRow], open_model: OpenModel, max_answer_tokens: int
) -> tuple[ScoredAnswer, ...]:
    """Greedy answers of one policy, through the engine that serves it."""
    model = open_model(f"hf:{policy.source}")
    completions = track(_complete(model, prompts, max_answer_tokens), f"{policy.name}: answers", len(prompts))
    return tuple(score_answer(row, completion) for row, completion in zip(prompts, completions, strict=True))


def _complete(model: LanguageModel, prompts: Sequence[HeldOutRow], max_answer_tokens: int) -> Iterator[Completion]:
    requests = [CompletionRequest(row.prompt, max_tokens=max_answer_tokens) for row in prompts]
    for start in range(0, len(requests), PROMPTS_PER_CALL):
        yield from model.complete(requests[start : start + PROMPTS_PER_CALL])


def score_answer(row: HeldOutRow, completion: Completion) -> ScoredAnswer:
    """One completion against its row's gold answers and its prompt's passages."""
    parsed = parse_answer(completion.text, form_of_prompt(row.prompt))
    citations = own_citations(completion.text, row.passages)
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


def score_with(source: str, rows: Sequence[HeldOutRow], load_policy: LoadPolicy) -> list[PairScore]:
    """Log-probabilities of the rows' pairs under the model at `source`, which is loaded for this and let go."""
    model, tokenizer = load_policy(source)
    model.eval()
    return score_pairs(model, tokenizer, rows)
