"""The report as one HTML file that needs no other: a table to sort, cost against quality, and questions to look into.

The page is eval/matrix/templates/report.html; what it shows is one JSON object inside it, set with textContent only.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from eval.matrix.fill.figures import Figures, Scored
from eval.matrix.fill.list_cells import by_id
from eval.matrix.fill.types import Matrix, QuestionResult

MAX_SHOWN = 600
PLACE = "/*DATA*/null"


def to_html(matrix: Matrix, figures: Figures, headline: str) -> str:
    """The page. No text of documents, questions or models is markup: "<" is written as its escape in the JSON."""
    template = files("eval.matrix.report").joinpath("templates/report.html").read_text(encoding="utf-8")
    data = json.dumps(page_data(matrix, figures, headline), ensure_ascii=False, allow_nan=False)
    safe = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    before, _, after = template.partition(PLACE)
    return f"{before}{safe}{after}"


def page_data(matrix: Matrix, figures: Figures, headline: str) -> dict[str, Any]:
    """Rows of the table, and of each task the shown questions with every system's evidence, steps and answer."""
    metrics = list(dict.fromkeys(name for one in figures.scored for name in one.means))
    return {
        "headline": headline,
        "metrics": metrics,
        "leads": dict(figures.leads),
        "baseline": figures.baseline,
        "rows": [_row(one, figures) for one in figures.scored],
        "tasks": {task.name: _questions(matrix, figures, task.name) for task in matrix.tasks},
    }


def _row(one: Scored, figures: Figures) -> dict[str, Any]:
    verdict = figures.verdicts.get((one.task, one.system))
    return {
        "task": one.task,
        "system": one.system,
        "means": {name: [mean.mean, mean.low, mean.high] for name, mean in one.means.items()},
        "seconds": one.seconds,
        "tokens": one.tokens,
        "difference": [verdict.interval.mean, verdict.interval.low, verdict.interval.high] if verdict else None,
        "p": verdict.corrected_p if verdict else None,
        "shown": verdict.shown if verdict else None,
    }


def _questions(matrix: Matrix, figures: Figures, task_name: str) -> list[dict[str, Any]]:
    task = next(task for task in matrix.tasks if task.name == task_name)
    questions = by_id(task)
    own = [one for one in figures.scored if one.task == task_name]
    return [
        {
            "id": key,
            "question": questions[key].text,
            "answers": list(questions[key].answers),
            "gold": list(questions[key].gold_sources),
            "systems": {one.system: _did(next(a for a in one.results if a.id == key), one, key) for one in own},
        }
        for key in questions
        if key in task.shown
    ]


def _did(result: QuestionResult, one: Scored, key: str) -> dict[str, Any]:
    return {
        "answer": result.text,
        "values": {name: values[key] for name, values in one.values.items() if values[key] is not None},
        "seconds": result.seconds + result.encoder_seconds + result.answer_seconds,
        "steps": list(result.steps),
        "evidence": [[title, source, _cut(text)] for title, source, text in result.evidence],
    }


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " …"
