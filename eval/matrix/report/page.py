"""The report as one HTML file that needs no other: a table to sort, cost against quality, and questions to look into.

The page is eval/matrix/templates/report.html; what it shows is one JSON object inside it, set with textContent only.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from eval.matrix.fill.figures import Figures, Scored
from eval.matrix.fill.plan import by_id
from eval.matrix.fill.types import Asked, Plan

MAX_SHOWN = 600
PLACE = "/*DATA*/null"


def to_html(plan: Plan, figures: Figures, headline: str) -> str:
    """The page. No text of documents, questions or models is markup: "<" is written as its escape in the JSON."""
    template = files("eval.matrix.report").joinpath("templates/report.html").read_text(encoding="utf-8")
    data = json.dumps(page_data(plan, figures, headline), ensure_ascii=False, allow_nan=False)
    safe = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    before, _, after = template.partition(PLACE)
    return f"{before}{safe}{after}"


def page_data(plan: Plan, figures: Figures, headline: str) -> dict[str, Any]:
    """Rows of the table, and of each task the shown questions with every system's evidence, steps and answer."""
    metrics = list(dict.fromkeys(name for one in figures.scored for name in one.means))
    return {
        "headline": headline,
        "metrics": metrics,
        "leads": dict(figures.leads),
        "baseline": figures.baseline,
        "rows": [_row(one, figures) for one in figures.scored],
        "tasks": {bench.name: _questions(plan, figures, bench.name) for bench in plan.benches},
    }


def _row(one: Scored, figures: Figures) -> dict[str, Any]:
    verdict = figures.verdicts.get((one.bench, one.system))
    return {
        "task": one.bench,
        "system": one.system,
        "means": {name: [mean.mean, mean.low, mean.high] for name, mean in one.means.items()},
        "seconds": one.seconds,
        "tokens": one.tokens,
        "difference": [verdict.interval.mean, verdict.interval.low, verdict.interval.high] if verdict else None,
        "p": verdict.corrected_p if verdict else None,
        "shown": verdict.shown if verdict else None,
    }


def _questions(plan: Plan, figures: Figures, bench_name: str) -> list[dict[str, Any]]:
    bench = next(bench for bench in plan.benches if bench.name == bench_name)
    questions = by_id(bench)
    own = [one for one in figures.scored if one.bench == bench_name]
    return [
        {
            "id": key,
            "question": questions[key].text,
            "answers": list(questions[key].answers),
            "gold": list(questions[key].gold_sources),
            "systems": {one.system: _did(next(a for a in one.asked if a.id == key), one, key) for one in own},
        }
        for key in questions
        if key in bench.shown
    ]


def _did(asked: Asked, one: Scored, key: str) -> dict[str, Any]:
    return {
        "answer": asked.text,
        "values": {name: values[key] for name, values in one.values.items() if values[key] is not None},
        "seconds": asked.seconds + asked.encoder_seconds + asked.answer_seconds,
        "steps": list(asked.steps),
        "evidence": [[title, source, _cut(text)] for title, source, text in asked.evidence],
    }


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " …"
