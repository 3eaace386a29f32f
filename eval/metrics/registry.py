"""Metrics by name, for tasks and configurations, and the scoring of outputs with them.

A metric is a pure function of a question and a system's output for it. Where it does not apply (no gold answer, no gold
documents, no retrieval, no model) its value is None; a value that is not a finite number is an error and is never averaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Literal

from eval.metrics.answers import CHOICES, bleu, gold_letters, meteor, mirage_letter, read_choice, read_option, rouge_f
from eval.metrics.grounding import Grounding, all_gold_at, ndcg_at, recall_at, reciprocal_rank
from graph.answer.match import contains_answer, exact_match, hotpot_f1, normalise, token_f1
from graph.documents.questions import Question
from graph.errors import UserError, did_you_mean

Needs = Literal["answer", "ranking", "context", "grounding"]


@dataclass(frozen=True)
class Output:
    """A system's output for one question.

    `ranked`: the unique documents in the order of the evidence. `context`: the texts of the prompt's excerpts. Both are None without retrieval.
    `text` is the model's full text and `answer` the answer in it; both are None if there is no model. `grounding` contains the figures of
    eval/metrics/grounding.py and SUPPORTED, if requested.
    """

    ranked: tuple[str, ...] | None = None
    context: tuple[str, ...] | None = None
    answer: str | None = None
    text: str | None = None
    grounding: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A metric by name, the part of the output that it needs, and its function."""

    name: str
    needs: Needs
    of: Callable[[Question, Output], float | None]


def _of_answer(name: str, score: Callable[[str, tuple[str, ...]], float]) -> Metric:
    return Metric(name, "answer", lambda question, output: score(output.answer or "", question.answers))


def _of_ranking(name: str, score: Callable[[tuple[str, ...], tuple[str, ...]], float]) -> Metric:
    return Metric(name, "ranking", lambda question, output: score(output.ranked or (), question.gold_sources))


def _yes_no_maybe(question: Question, output: Output) -> float | None:
    labels = {normalise(answer) for answer in question.answers}
    return float(read_choice(output.answer or "") in labels) if labels <= set(CHOICES) else None


def _choice(question: Question, output: Output) -> float | None:
    if question.options is None or question.kind == "boolean":
        return None
    return float(read_option(output.answer or "", question.options) in gold_letters(question))


def _mirage_choice(question: Question, output: Output) -> float | None:
    if question.options is None or tuple(question.options) != ("A", "B", "C", "D"):
        return None
    return float(mirage_letter(output.answer or "") in gold_letters(question))


def _answer_in_context(question: Question, output: Output) -> float | None:
    """Whether the excerpts contain a gold answer; None if the question has none, or only yes, no or maybe, which occur anywhere."""
    if not question.answers or {normalise(answer) for answer in question.answers} <= set(CHOICES):
        return None
    return contains_answer("\n".join(output.context or ()), question.answers)


def _grounding(name: str) -> Metric:
    return Metric(f"{name}{BY_ENCODER}", "grounding", lambda _, output: output.grounding.get(name))


BY_ENCODER = "_by_encoder"
SUPPORTED = "supported"
"""The share of the judged sentences of an answer that its passages support, according to the verifier that comes with modegraph."""
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _of_answer("em", exact_match),
        _of_answer("f1", token_f1),
        _of_answer("hotpot_f1", hotpot_f1),
        _of_answer("contains", contains_answer),
        *(_of_answer(kind, partial(rouge_f, kind=kind)) for kind in ("rouge1", "rouge2", "rougeL")),
        _of_answer("bleu", bleu),
        _of_answer("meteor", meteor),
        Metric("yes_no_maybe", "answer", _yes_no_maybe),
        Metric("choice", "answer", _choice),
        Metric("mirage_choice", "answer", _mirage_choice),
        *(_of_ranking(f"recall@{k}", partial(recall_at, k=k)) for k in (2, 5, 10)),
        _of_ranking("all_gold@5", partial(all_gold_at, k=5)),
        _of_ranking("mrr", reciprocal_rank),
        _of_ranking("ndcg@10", partial(ndcg_at, k=10)),
        Metric("answer_in_context", "context", _answer_in_context),
        *(_grounding(one.name) for one in fields(Grounding)),
        Metric(SUPPORTED, "grounding", lambda _, output: output.grounding.get(SUPPORTED)),
    )
}


def find_metric(name: str) -> Metric:
    """The metric called `name`; UserError, with the most similar name if there is one, for an unknown metric."""
    if name not in METRICS:
        raise UserError(f"no metric {name!r}", did_you_mean(name, METRICS), f"known metrics: {', '.join(METRICS)}")
    return METRICS[name]


def score_output(metric: Metric, question: Question, output: Output) -> float | None:
    """The metric's value, or None where it does not apply; UserError for a value that is not a finite number."""
    if metric.needs == "answer" and (output.answer is None or not question.answers):
        return None
    if metric.needs == "ranking" and (output.ranked is None or not question.gold_sources):
        return None
    if metric.needs == "context" and output.context is None:
        return None
    value = metric.of(question, output)
    if value is not None and not math.isfinite(value):
        found = f"metric {metric.name!r} of question {question.id!r} is {value}"
        raise UserError(found, "a finite number", "fix the metric, or leave the question out")
    return value


def check_answer(question: Question, answer: str) -> None:
    """UserError for an empty prediction, which would otherwise silently score 0."""
    if not answer.strip():
        found = f"question {question.id!r}: the prediction is empty"
        remedy = (
            "find out why the model wrote nothing, or count it as wrong (empty_answers: wrong, or --empty-is-wrong)"
        )
        raise UserError(found, "some text", remedy)
