"""The report of a run: tables for people, report.json for programs, answers to judge, and one HTML page that needs no other file: a table to sort, cost against quality, questions to look into.

The page is eval/run/templates/report.html; what it shows is one JSON object inside it, set with textContent only."""

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
    """The page. No text of documents, questions or models is markup: "<" is written as its escape in the JSON."""
    template = files("eval.run").joinpath("templates/report.html").read_text(encoding="utf-8")
    data = json.dumps(page_data(matrix, figures, headline), ensure_ascii=False, allow_nan=False)
    safe = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    before, _, after = template.partition(DATA_PLACEHOLDER)
    return f"{before}{safe}{after}"


def page_data(matrix: Matrix, figures: RunFigures, headline: str) -> dict[str, Any]:
    """Rows of the table, and of each task the shown questions with every system's evidence, steps and answer."""
    metrics = list(dict.fromkeys(name for one in figures.scored for name in one.means))
    return {
        "headline": headline,
        "metrics": metrics,
        "leads": dict(figures.leads),
        "baseline": figures.baseline,
        "rows": [_system_row(one, figures) for one in figures.scored],
        "tasks": {task.name: _questions(matrix, figures, task.name) for task in matrix.tasks},
    }


def _system_row(one: SystemScores, figures: RunFigures) -> dict[str, Any]:
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


def _questions(matrix: Matrix, figures: RunFigures, task_name: str) -> list[dict[str, Any]]:
    task = next(task for task in matrix.tasks if task.name == task_name)
    questions = questions_by_id(task)
    own = [one for one in figures.scored if one.task == task_name]
    return [
        {
            "id": key,
            "question": questions[key].text,
            "answers": list(questions[key].answers),
            "gold": list(questions[key].gold_sources),
            "systems": {
                one.system: _system_result(next(a for a in one.results if a.id == key), one, key) for one in own
            },
        }
        for key in questions
        if key in task.shown
    ]


def _system_result(result: QuestionResult, one: SystemScores, key: str) -> dict[str, Any]:
    return {
        "answer": result.text,
        "values": {name: values[key] for name, values in one.values.items() if values[key] is not None},
        "seconds": result.seconds + result.encoder_seconds + result.answer_seconds,
        "steps": list(result.steps),
        "evidence": [[title, source, _shortened(text)] for title, source, text in result.evidence],
    }


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + " …"


COST_COLUMNS = ("s/question", "tokens/question")
MACRO_TITLE = "mean of tasks"


def result_tables(matrix: Matrix, figures: RunFigures) -> list[Table]:
    """One table a task, the mean over tasks where there are several and all share their leading metric, then where summaries stood."""
    tables = [table for task in matrix.tasks if (table := _task_table(task.name, figures))]
    leads = set(figures.leads.values())
    if len(matrix.tasks) > 1 and len(leads) == 1:
        tables.append(_macro_table(matrix, figures, leads.pop()))
    return [*tables, *(table for task in matrix.tasks if (table := layers_table(task.name, figures.scored)))]


def run_headline(matrix: Matrix, figures: RunFigures, outcome: Outcome) -> str:
    """What was run, how much of it anew, and what the tests say."""
    shown = sum(verdict.shown for verdict in figures.verdicts.values())
    again = f" ({outcome.again:,} of them again: the code has changed)" if outcome.again else ""
    cells = f"{outcome.filled:,} cells filled{again}, {outcome.found:,} were there"
    differences, tests = (
        len(figures.verdicts),
        "sign test with Holm's correction over all of them, and an interval that leaves out 0",
    )
    told = [f"{len(matrix.systems):,} systems on {len(matrix.tasks):,} tasks: {cells}."]
    told.append(
        f"Of {differences:,} differences from {figures.baseline}, {shown:,} are shown ({tests}); for the other {differences - shown:,}, no difference is shown."
    )
    told += [f"Failed: {one.system} on {one.task}: {one.problem}" for one in outcome.failures]
    told += [f"{one.system} on {one.task} wrote {one.empty:,} empty answers." for one in figures.scored if one.empty]
    told += [f"{one.system} on {one.task}: {untimed_note(one.untimed)}" for one in figures.scored if one.untimed]
    return "\n".join(told)


def _task_table(task: str, figures: RunFigures) -> Table | None:
    own = [one for one in figures.scored if one.task == task]
    if not own:
        return None
    names = list(dict.fromkeys(name for one in own for name in one.means))
    rows = [
        (
            one.system,
            *(figure(one.means[name].mean, False) if name in one.means else NONE for name in names),
            f"{one.seconds:.3f}",
            f"{one.tokens:,.0f}",
            verdict_cell(figures.verdicts.get((task, one.system))),
        )
        for one in own
    ]
    lead = figures.leads.get(task, "")
    compared = f"{lead} minus {figures.baseline} (95 %, p)" if lead else "difference"
    replayed = replayed_note(sum(one.replayed for one in own))
    note = f"{len(own[0].results):,} questions; * difference shown.{f' {replayed}' if replayed else ''}"
    return Table(task, ("system", *names, *COST_COLUMNS, compared), tuple(rows), note)


def verdict_cell(verdict: Verdict | None) -> str:
    """A difference with its interval and corrected p; * where it is shown."""
    if verdict is None:
        return ""
    found = verdict.interval
    star = " *" if verdict.shown else ""
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}] p {verdict.corrected_p:.2g}{star}"


def _macro_table(matrix: Matrix, figures: RunFigures, lead: str) -> Table:
    rows = []
    for system in matrix.systems:
        own = [one for one in figures.scored if one.system == system.name and lead in one.means]
        if len(own) == len(matrix.tasks):
            mean = sum(one.means[lead].mean for one in own) / len(own)
            rows.append((system.name, figure(mean, False), f"{sum(one.seconds for one in own) / len(own):.3f}"))
    return Table(MACRO_TITLE, ("system", lead, COST_COLUMNS[0]), tuple(rows), "Each task counts the same.")


def report_json(matrix: Matrix, figures: RunFigures, outcome: Outcome) -> dict[str, Any]:
    """All figures, no texts."""
    return {
        "baseline": figures.baseline,
        "leads": dict(figures.leads),
        "results": [_result_json(one, figures) for one in figures.scored],
        "cells": {"found": outcome.found, "filled": outcome.filled},
        "code": {"version": cell_code(), "filled_again": outcome.again},
        "failures": [asdict(one) for one in outcome.failures],
        "tasks": {task.name: {"task": task.benchmark, "questions": len(task.questions)} for task in matrix.tasks},
    }


def _result_json(one: SystemScores, figures: RunFigures) -> dict[str, Any]:
    verdict = figures.verdicts.get((one.task, one.system))
    return {
        "system": one.system,
        "task": one.task,
        "metrics": {name: asdict(mean) for name, mean in one.means.items()},
        "seconds": one.seconds,
        "tokens": one.tokens,
        "calls": one.calls,
        "replayed": one.replayed,
        "untimed": one.untimed,
        "empty": one.empty,
        "layers": list(mean_layer_shares(one.results)),
        "difference": asdict(verdict) if verdict is not None else None,
        "in_words": verdict_text(verdict, one.system, figures.baseline) if verdict is not None else "",
    }


def write_report(matrix: Matrix, figures: RunFigures, outcome: Outcome, out: Path) -> None:
    """report.json, report.md, report.html, values.jsonl (every question's values) and answers/ for `modegraph eval judge`."""
    write_json(out / "report.json", report_json(matrix, figures, outcome))
    write_jsonl(out / "values.jsonl", _value_rows(matrix, figures))
    write_text(out / "report.md", _markdown(matrix, figures, outcome))
    write_text(out / "report.html", run_html(matrix, figures, run_headline(matrix, figures, outcome)))
    texts = {task.name: question_texts(task) for task in matrix.tasks}
    for one in figures.scored:
        rows = [
            {"id": result.id, "question": texts[one.task][result.id], "answer": result.text}
            for result in one.results
            if result.text is not None
        ]
        if rows:
            (out / "answers").mkdir(exist_ok=True)
            write_jsonl(out / "answers" / answers_file(one.task, one.system), rows)


def answers_file(task: str, system: str) -> str:
    """A file name that says which answers these are, whatever the names hold."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in f"{task}-{system}")
    return f"{plain[:80]}-{content_id(task, system)[:6]}.jsonl"


def _value_rows(matrix: Matrix, figures: RunFigures) -> Iterator[dict[str, Any]]:
    texts = {task.name: question_texts(task) for task in matrix.tasks}
    for one in figures.scored:
        for name, values in one.values.items():
            for key, value in values.items():
                row = {"task": one.task, "system": one.system, "metric": name, "id": key}
                yield {**row, "question": texts[one.task][key], "value": value}


def _markdown(matrix: Matrix, figures: RunFigures, outcome: Outcome) -> str:
    told = [escape_markdown(line) for line in run_headline(matrix, figures, outcome).splitlines()]
    return "\n\n".join(["# Evaluation", *told, *sections(result_tables(matrix, figures), ())]) + "\n"
