"""The report of a run: tables for people, report.json for programs, answers to judge, and the page (eval/matrix/report/page.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.compare.report import escape_markdown, sections
from eval.matrix.fill.code import cell_code
from eval.matrix.fill.figures import Figures, Scored
from eval.matrix.fill.layers import layers_table, mean_shares
from eval.matrix.fill.list_cells import question_texts
from eval.matrix.fill.types import Matrix, Outcome
from eval.matrix.report.page import to_html
from eval.retrieval.replays import replayed_calls, untimed_calls
from eval.shared.statistics import Verdict, in_words
from eval.shared.tables import NONE, Table, figure
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json, write_jsonl, write_text

COSTS = ("s/question", "tokens/question")
MACRO = "mean of tasks"


def result_tables(matrix: Matrix, figures: Figures) -> list[Table]:
    """One table a task, the mean over tasks where there are several and all share their leading metric, then where summaries stood."""
    tables = [table for task in matrix.tasks if (table := _task_table(task.name, figures))]
    leads = set(figures.leads.values())
    if len(matrix.tasks) > 1 and len(leads) == 1:
        tables.append(_macro_table(matrix, figures, leads.pop()))
    return [*tables, *(table for task in matrix.tasks if (table := layers_table(task.name, figures.scored)))]


def headline(matrix: Matrix, figures: Figures, outcome: Outcome) -> str:
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
    told += [f"{one.system} on {one.task}: {untimed_calls(one.untimed)}" for one in figures.scored if one.untimed]
    return "\n".join(told)


def _task_table(task: str, figures: Figures) -> Table | None:
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
    replayed = replayed_calls(sum(one.replayed for one in own))
    note = f"{len(own[0].results):,} questions; * difference shown.{f' {replayed}' if replayed else ''}"
    return Table(task, ("system", *names, *COSTS, compared), tuple(rows), note)


def verdict_cell(verdict: Verdict | None) -> str:
    """A difference with its interval and corrected p; * where it is shown."""
    if verdict is None:
        return ""
    found = verdict.interval
    star = " *" if verdict.shown else ""
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}] p {verdict.corrected_p:.2g}{star}"


def _macro_table(matrix: Matrix, figures: Figures, lead: str) -> Table:
    rows = []
    for system in matrix.systems:
        own = [one for one in figures.scored if one.system == system.name and lead in one.means]
        if len(own) == len(matrix.tasks):
            mean = sum(one.means[lead].mean for one in own) / len(own)
            rows.append((system.name, figure(mean, False), f"{sum(one.seconds for one in own) / len(own):.3f}"))
    return Table(MACRO, ("system", lead, COSTS[0]), tuple(rows), "Each task counts the same.")


def report_json(matrix: Matrix, figures: Figures, outcome: Outcome) -> dict[str, Any]:
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


def _result_json(one: Scored, figures: Figures) -> dict[str, Any]:
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
        "layers": list(mean_shares(one.results)),
        "difference": asdict(verdict) if verdict is not None else None,
        "in_words": in_words(verdict, one.system, figures.baseline) if verdict is not None else "",
    }


def write_report(matrix: Matrix, figures: Figures, outcome: Outcome, out: Path) -> None:
    """report.json, report.md, report.html, values.jsonl (every question's values) and answers/ for `modegraph eval judge`."""
    write_json(out / "report.json", report_json(matrix, figures, outcome))
    write_jsonl(out / "values.jsonl", _value_rows(matrix, figures))
    write_text(out / "report.md", _markdown(matrix, figures, outcome))
    write_text(out / "report.html", to_html(matrix, figures, headline(matrix, figures, outcome)))
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


def _value_rows(matrix: Matrix, figures: Figures) -> Iterator[dict[str, Any]]:
    texts = {task.name: question_texts(task) for task in matrix.tasks}
    for one in figures.scored:
        for name, values in one.values.items():
            for key, value in values.items():
                row = {"task": one.task, "system": one.system, "metric": name, "id": key}
                yield {**row, "question": texts[one.task][key], "value": value}


def _markdown(matrix: Matrix, figures: Figures, outcome: Outcome) -> str:
    told = [escape_markdown(line) for line in headline(matrix, figures, outcome).splitlines()]
    return "\n\n".join(["# Evaluation", *told, *sections(result_tables(matrix, figures), ())]) + "\n"
