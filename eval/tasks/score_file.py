"""`modegraph eval score`: score a file of predictions for a task's questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.metrics.registry import Metric, Output, check_answer, score_output
from eval.statistics import Interval, bootstrap_mean
from eval.tables import NONE, Table, figure
from graph.answer.citations import check_citations
from graph.answer.prompt import parse_answer
from graph.documents.questions import Question
from graph.errors import UserError
from graph.shared.jsonl import read_jsonl
from graph.text.replies import without_thinking


@dataclass(frozen=True)
class Scores:
    """By metric, the mean with its interval (None if the metric applies to no question) and the number of questions to which the metric applies.

    `questions` is the number of all questions.
    """

    means: Mapping[str, Interval | None]
    counts: Mapping[str, int]
    questions: int


def read_predictions(file: Path, questions: Sequence[Question], empty_is_wrong: bool) -> dict[str, str]:
    """Answers by question id, from lines of {"id", "answer"}.

    UserError for an invalid row, a missing or unknown id and, unless `empty_is_wrong`, an empty answer.
    """
    known = {question.id: question for question in questions}
    answers: dict[str, str] = {}
    for line, row in read_jsonl(file):
        key, answer = row.get("id"), row.get("answer")
        if not isinstance(key, str) or key not in known:
            raise UserError(
                f"{file} line {line}: 'id' is {key!r}",
                "the id of a question of the task and, if given, of --split",
                "fix the row",
            )
        if not isinstance(answer, str):
            raise UserError(f"{file} line {line}: 'answer' is {answer!r}", "a string", "fix the row")
        if key in answers:
            raise UserError(f"{file} line {line}: id {key!r} appears twice", "one answer per question", "remove one")
        if not empty_is_wrong:
            check_answer(known[key], answer)
        answers[key] = answer
    missing = [key for key in known if key not in answers]
    if missing:
        found = f"{file}: {len(missing):,} of {len(known):,} questions have no prediction; the first is {missing[0]!r}"
        raise UserError(found, "one for every question", "answer them, or choose another --split")
    return answers


def output_from_text(text: str) -> Output:
    """A model's text as an Output, without thinking; its answer is the part after ###Answer: (the whole text if it has no markers), without citations."""
    text = without_thinking(text)
    return Output(answer=check_citations(parse_answer(text).answer, 0).text, text=text)


def score_predictions(
    questions: Sequence[Question], predictions: Mapping[str, str], metrics: Sequence[Metric]
) -> Scores:
    """The scores of the predictions by all metrics; UserError if a metric's value is not a finite number."""
    outputs = {question.id: output_from_text(predictions[question.id]) for question in questions}
    values = {
        metric.name: [v for q in questions if (v := score_output(metric, q, outputs[q.id])) is not None]
        for metric in metrics
    }
    means = {name: bootstrap_mean(metric_values) if metric_values else None for name, metric_values in values.items()}
    return Scores(means, {name: len(metric_values) for name, metric_values in values.items()}, len(questions))


def score_table(scores: Scores) -> Table:
    rows = [
        (name, NONE, NONE, "0")
        if mean is None
        else (name, figure(mean.mean, False), f"[{mean.low:.3f}, {mean.high:.3f}]", f"{scores.counts[name]:,}")
        for name, mean in scores.means.items()
    ]
    return Table("Scores", ("metric", "mean", "95 % interval", "questions"), tuple(rows), "")


def score_json(scores: Scores) -> dict[str, Any]:
    means = {name: None if mean is None else asdict(mean) for name, mean in scores.means.items()}
    return {"questions": scores.questions, "metrics": means, "counts": dict(scores.counts)}
