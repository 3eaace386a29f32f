"""The report of a run: tables, report.json, answers for the judge, and one self-contained HTML page with a sortable table, cost against quality, and questions to inspect.

The page is eval/run/templates/report.html; its data is one JSON object inside it, shown through textContent only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from eval.report import escape_markdown, sections
from eval.retrieval import replayed_note, untimed_note
from eval.run.cells import question_texts, questions_by_id
from eval.run.config import Matrix, Outcome, QuestionResult
from eval.run.fingerprints import cell_code
from eval.run.scores import RunFigures, SystemScores, layers_table, mean_layer_shares
from eval.statistics import Verdict, verdict_text
from eval.tables import NONE, Table, figure
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json, write_jsonl, write_text

MAX_SHOWN_CHARACTERS = 600
DATA_PLACEHOLDER = "/*DATA*/null"


def run_html(matrix: Matrix, figures: RunFigures, headline: str) -> str:
    """The page. Text of documents, questions and models is never markup: "<" is escaped in the JSON."""
    template = files("eval.run").joinpath("templates/report.html").read_text(encoding="utf-8")
    data = json.dumps(page_data(matrix, figures, headline), ensure_ascii=False, allow_nan=False)
    safe = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    before, _, after = template.partition(DATA_PLACEHOLDER)
    return f"{before}{safe}{after}"


def page_data(matrix: Matrix, figures: RunFigures, headline: str) -> dict[str, Any]:
    """The rows of the table, and for each task the shown questions with every system's evidence, steps and answer."""
    metrics = list(dict.fromkeys(name for scores in figures.scored for name in scores.means))
    return {
        "headline": headline,
        "metrics": metrics,
        "leads": dict(figures.leads),
        "baseline": figures.baseline,
        "rows": [_system_row(scores, figures) for scores in figures.scored],
        "tasks": {task.name: _questions(matrix, figures, task.name) for task in matrix.tasks},
    }


def _system_row(scores: SystemScores, figures: RunFigures) -> dict[str, Any]:
    verdict = figures.verdicts.get((scores.task, scores.system))
    return {
        "task": scores.task,
        "system": scores.system,
        "means": {name: [mean.mean, mean.low, mean.high] for name, mean in scores.means.items()},
        "seconds": scores.seconds,
        "tokens": scores.tokens,
        "difference": [verdict.interval.mean, verdict.interval.low, verdict.interval.high] if verdict else None,
        "p": verdict.corrected_p if verdict else None,
        "shown": verdict.shown if verdict else None,
    }


def _questions(matrix: Matrix, figures: RunFigures, task_name: str) -> list[dict[str, Any]]:
    task = next(task for task in matrix.tasks if task.name == task_name)
    questions = questions_by_id(task)
    task_scores = [scores for scores in figures.scored if scores.task == task_name]
    return [
        {
            "id": key,
            "question": questions[key].text,
            "answers": list(questions[key].answers),
            "gold": list(questions[key].gold_sources),
            "systems": {
                scores.system: _system_result(
                    next(result for result in scores.results if result.id == key), scores, key
                )
                for scores in task_scores
            },
        }
        for key in questions
        if key in task.shown
    ]


def _system_result(result: QuestionResult, scores: SystemScores, key: str) -> dict[str, Any]:
    return {
        "answer": result.text,
        "values": {name: values[key] for name, values in scores.values.items() if values[key] is not None},
        "seconds": result.seconds + result.encoder_seconds + result.answer_seconds,
        "steps": list(result.steps),
        "evidence": [[title, source, _shortened(text)] for title, source, text in result.evidence],
    }


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + " …"


COST_COLUMNS = ("s/question", "tokens/question")
MACRO_TITLE = "mean of tasks"


def result_tables(matrix: Matrix, figures: RunFigures) -> list[Table]:
    """One table per task, then the mean over tasks if there are several and all share their leading metric, then the layers that evidence came from."""
    tables = [table for task in matrix.tasks if (table := _task_table(task.name, figures))]
    leads = set(figures.leads.values())
    if len(matrix.tasks) > 1 and len(leads) == 1:
        tables.append(_macro_table(matrix, figures, leads.pop()))
    return [*tables, *(table for task in matrix.tasks if (table := layers_table(task.name, figures.scored)))]


def run_headline(matrix: Matrix, figures: RunFigures, outcome: Outcome) -> str:
    """The run's size, how much of it was filled now, and what the tests show."""
    shown = sum(verdict.shown for verdict in figures.verdicts.values())
    again = f" ({outcome.again:,} of them again: the code has changed)" if outcome.again else ""
    cells = f"{outcome.filled:,} cells filled{again}, {outcome.found:,} were there"
    differences, tests = (
        len(figures.verdicts),
        "sign test with Holm's correction over all of them, and an interval that leaves out 0",
    )
    lines = [f"{len(matrix.systems):,} systems on {len(matrix.tasks):,} tasks: {cells}."]
    lines.append(
        f"Of {differences:,} differences from {figures.baseline}, {shown:,} are shown ({tests}); for the other {differences - shown:,}, no difference is shown."
    )
    lines += [f"Failed: {one.system} on {one.task}: {one.problem}" for one in outcome.failures]
    lines += [f"{one.system} on {one.task} wrote {one.empty:,} empty answers." for one in figures.scored if one.empty]
    lines += [f"{one.system} on {one.task}: {untimed_note(one.untimed)}" for one in figures.scored if one.untimed]
    return "\n".join(lines)


def _task_table(task: str, figures: RunFigures) -> Table | None:
    task_scores = [scores for scores in figures.scored if scores.task == task]
    if not task_scores:
        return None
    names = list(dict.fromkeys(name for scores in task_scores for name in scores.means))
    rows = [
        (
            scores.system,
            *(figure(scores.means[name].mean, False) if name in scores.means else NONE for name in names),
            f"{scores.seconds:.3f}",
            f"{scores.tokens:,.0f}",
            verdict_cell(figures.verdicts.get((task, scores.system))),
        )
        for scores in task_scores
    ]
    lead = figures.leads.get(task, "")
    compared = f"{lead} minus {figures.baseline} (95 %, p)" if lead else "difference"
    replayed = replayed_note(sum(scores.replayed for scores in task_scores))
    note = f"{len(task_scores[0].results):,} questions; * difference shown.{f' {replayed}' if replayed else ''}"
    return Table(task, ("system", *names, *COST_COLUMNS, compared), tuple(rows), note)


def verdict_cell(verdict: Verdict | None) -> str:
    """A difference with its interval and corrected p; * where it is shown."""
    if verdict is None:
        return ""
    interval = verdict.interval
    star = " *" if verdict.shown else ""
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}] p {verdict.corrected_p:.2g}{star}"


def _macro_table(matrix: Matrix, figures: RunFigures, lead: str) -> Table:
    rows = []
    for system in matrix.systems:
        system_scores = [scores for scores in figures.scored if scores.system == system.name and lead in scores.means]
        if len(system_scores) == len(matrix.tasks):
            mean = sum(scores.means[lead].mean for scores in system_scores) / len(system_scores)
            rows.append(
                (
                    system.name,
                    figure(mean, False),
                    f"{sum(scores.seconds for scores in system_scores) / len(system_scores):.3f}",
                )
            )
    return Table(MACRO_TITLE, ("system", lead, COST_COLUMNS[0]), tuple(rows), "Each task counts the same.")


def report_json(matrix: Matrix, figures: RunFigures, outcome: Outcome) -> dict[str, Any]:
    """All figures, without texts."""
    return {
        "baseline": figures.baseline,
        "leads": dict(figures.leads),
        "results": [_result_json(scores, figures) for scores in figures.scored],
        "cells": {"found": outcome.found, "filled": outcome.filled},
        "code": {"version": cell_code(), "filled_again": outcome.again},
        "failures": [asdict(failure) for failure in outcome.failures],
        "tasks": {task.name: {"task": task.benchmark, "questions": len(task.questions)} for task in matrix.tasks},
    }


def _result_json(scores: SystemScores, figures: RunFigures) -> dict[str, Any]:
    verdict = figures.verdicts.get((scores.task, scores.system))
    return {
        "system": scores.system,
        "task": scores.task,
        "metrics": {name: asdict(mean) for name, mean in scores.means.items()},
        "seconds": scores.seconds,
        "tokens": scores.tokens,
        "calls": scores.calls,
        "replayed": scores.replayed,
        "untimed": scores.untimed,
        "empty": scores.empty,
        "layers": list(mean_layer_shares(scores.results)),
        "difference": asdict(verdict) if verdict is not None else None,
        "in_words": verdict_text(verdict, scores.system, figures.baseline) if verdict is not None else "",
    }


def write_report(matrix: Matrix, figures: RunFigures, outcome: Outcome, out: Path) -> None:
    """Write report.json, report.md, report.html, values.jsonl (every question's values) and answers/ for `modegraph eval judge`."""
    write_json(out / "report.json", report_json(matrix, figures, outcome))
    write_jsonl(out / "values.jsonl", _value_rows(matrix, figures))
    write_text(out / "report.md", _markdown(matrix, figures, outcome))
    write_text(out / "report.html", run_html(matrix, figures, run_headline(matrix, figures, outcome)))
    texts = {task.name: question_texts(task) for task in matrix.tasks}
    for scores in figures.scored:
        rows = [
            {"id": result.id, "question": texts[scores.task][result.id], "answer": result.text}
            for result in scores.results
            if result.text is not None
        ]
        if rows:
            (out / "answers").mkdir(exist_ok=True)
            write_jsonl(out / "answers" / answers_file(scores.task, scores.system), rows)


def answers_file(task: str, system: str) -> str:
    """The file name for a system's answers to a task, unique whatever characters the names contain."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in f"{task}-{system}")
    return f"{plain[:80]}-{content_id(task, system)[:6]}.jsonl"


def _value_rows(matrix: Matrix, figures: RunFigures) -> Iterator[dict[str, Any]]:
    texts = {task.name: question_texts(task) for task in matrix.tasks}
    for scores in figures.scored:
        for name, values in scores.values.items():
            for key, value in values.items():
                row = {"task": scores.task, "system": scores.system, "metric": name, "id": key}
                yield {**row, "question": texts[scores.task][key], "value": value}


def _markdown(matrix: Matrix, figures: RunFigures, outcome: Outcome) -> str:
    headline = [escape_markdown(line) for line in run_headline(matrix, figures, outcome).splitlines()]
    return "\n\n".join(["# Evaluation", *headline, *sections(result_tables(matrix, figures), ())]) + "\n"
