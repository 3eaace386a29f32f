"""The report of a run: each metric of each system on each task, with intervals; differences from the baseline, with p-values corrected together; and the layers
of the hierarchy that evidence came from (GraphMPA's Tables 5 and 6).

Files: report.json, report.md, report.html, every question's values, answers/ for `modegraph eval judge`, and ragas/ for ragas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from eval.metrics.registry import Output, find_metric, score_output
from eval.report import Sample, escape_markdown, report_html, sections
from eval.retrieval import replayed_note
from eval.run.cells import read_cell
from eval.run.config import Cell, CellContent, Failure, MatrixSettings, QuestionResult, TaskData
from eval.statistics import Interval, Verdict, bootstrap_mean, compare_paired, verdict_text
from eval.tables import NONE, Table, as_text, figure, verdict_cell
from graph.answer.prompt import with_title
from graph.shared.console import counted
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json, write_jsonl, write_text
from graph.types import Evidence, Excerpt

Values = Mapping[str, float | None]
"""A metric's value by question id; None where it does not apply."""
MAX_SHOWN_CHARACTERS = 600


@dataclass(frozen=True)
class SystemScores:
    """One system on one task: its results, and values and means by metric."""

    cell: Cell
    content: CellContent
    values: Mapping[str, Values]
    means: Mapping[str, Interval]

    @property
    def name(self) -> tuple[str, str]:
        """Task and system."""
        return self.cell.task.name, self.cell.system.name

    @property
    def seconds(self) -> float:
        """Mean seconds per question, with the encoder and the answer."""
        return fmean(result.all_seconds for result in self.content.results)

    @property
    def tokens(self) -> float:
        """Mean tokens per question, read and written."""
        return fmean(result.tokens for result in self.content.results)

    def total(self, count: str) -> int:
        """The sum over questions of a count: calls or replayed."""
        return sum(getattr(result, count) for result in self.content.results)


@dataclass(frozen=True)
class RunReport:
    """A run's figures. `leads` contains, for each task, the metric by which systems are compared.

    `verdicts`, by (task, system), are on differences from the baseline. `found` is the number of `cells` that an earlier run had finished;
    `revision` is that of this run's code.
    """

    cells: tuple[Cell, ...]
    all_scores: tuple[SystemScores, ...]
    leads: Mapping[str, str]
    verdicts: Mapping[tuple[str, str], Verdict]
    baseline: str
    settings: Mapping[str, Any]
    revision: str
    found: int
    failures: tuple[Failure, ...]

    @property
    def tasks(self) -> list[tuple[TaskData, list[SystemScores]]]:
        """The systems with a finished cell on each task."""
        tasks = {cell.task.name: cell.task for cell in self.cells}
        return [
            (task, [scores for scores in self.all_scores if scores.cell.task.name == name])
            for name, task in tasks.items()
        ]


def make_report(
    cells: tuple[Cell, ...], settings: MatrixSettings, revision: str, found: int, failures: tuple[Failure, ...]
) -> RunReport:
    """The figures of the finished cells; UserError when a metric is not a number."""
    all_scores = tuple(_scores_of(cell, settings.seed) for cell in cells if cell.file.is_file())
    baseline = settings.baseline or cells[0].system.name
    leads = {name: lead for name in settings.tasks if (lead := _lead(name, all_scores))}
    base = {scores.name[0]: scores.values for scores in all_scores if scores.name[1] == baseline}
    pairs = {
        (task, system): paired_values(scores.values[leads[task]], base[task][leads[task]])
        for scores in all_scores
        for task, system in [scores.name]
        if task in base and task in leads and system != baseline
    }
    verdicts = compare_paired({name: pair for name, pair in pairs.items() if pair[0]}, settings.seed)
    return RunReport(cells, all_scores, leads, verdicts, baseline, settings.recorded(), revision, found, failures)


def _scores_of(cell: Cell, seed: int) -> SystemScores:
    content = read_cell(cell)
    values = {name: _values_of(name, cell, content.results) for name in cell.task.metrics}
    applicable = {name: [value for value in of.values() if value is not None] for name, of in values.items()}
    means = {name: bootstrap_mean(numbers, seed=seed) for name, numbers in applicable.items() if numbers}
    return SystemScores(cell, content, values, means)


def _values_of(name: str, cell: Cell, results: Sequence[QuestionResult]) -> Values:
    """A metric's values: those in the cell, or computed from its rankings and answers."""
    metric, retrieves = find_metric(name), cell.system.retrieve is not None

    def score(result: QuestionResult) -> float | None:
        output = Output(result.ranked if retrieves else None, answer=result.answer, text=result.text)
        return score_output(metric, cell.task.by_id[result.id], output)

    return {result.id: result.values[name] if name in result.values else score(result) for result in results}


def _lead(task: str, all_scores: Sequence[SystemScores]) -> str:
    """The first metric that applies to every system on the task; "" if there is none."""
    task_scores = [scores for scores in all_scores if scores.name[0] == task]
    metrics = task_scores[0].values if task_scores else ()
    return next((name for name in metrics if all(name in scores.means for scores in task_scores)), "")


def paired_values(values: Values, baseline: Values) -> tuple[list[float], list[float]]:
    """The values of the questions to which the metric applies on both sides, in order."""
    pairs = [
        (value, base) for key, value in values.items() if value is not None and (base := baseline[key]) is not None
    ]
    return [value for value, _ in pairs], [base for _, base in pairs]


BINS = ((0, 20), (20, 50), (50, 80), (80, 100))
"""Ranges of the percentage of a question's results that are in a layer; each excludes its lower bound, except 0.
With 10 results these are 0 to 2, 3 to 5, 6 to 8 and 9 to 10 results, as in GraphMPA."""


def count_layers(evidence: Evidence) -> tuple[int, ...]:
    """The number of passages and summaries in each layer, from 0 to the highest found; empty without evidence."""
    counts = Counter(one.item.layer for one in evidence.summaries) + Counter({0: len(evidence.passages)})
    return tuple(counts[layer] for layer in range(max(counts, default=-1) + 1))


def layer_shares(results: Sequence[QuestionResult]) -> list[tuple[float, ...]]:
    """For every question with passages or summaries, the percentage of them in each layer; all tuples have the same length."""
    layer_counts = [result.layers for result in results if sum(result.layers)]
    depth = max(map(len, layer_counts), default=0)
    return [
        tuple(100 * count / sum(counts) for count in (*counts, *[0] * (depth - len(counts)))) for counts in layer_counts
    ]


def mean_layer_shares(results: Sequence[QuestionResult]) -> tuple[float, ...]:
    """The mean share of each layer, from 0 to 1."""
    shares = layer_shares(results)
    return tuple(sum(layer) / len(shares) / 100 for layer in zip(*shares, strict=True))


def layers_table(task: str, by_system: Mapping[str, Sequence[QuestionResult]]) -> Table | None:
    """One row for each layer of each system that found summaries of communities; None if none did."""
    rows = []
    for system, results in by_system.items():
        shares = layer_shares(results)
        if any(sum(question_shares[1:]) for question_shares in shares):
            for layer, mean in enumerate(mean_layer_shares(results)):
                values = [question_shares[layer] for question_shares in shares]
                counts = (sum(low < value <= high or value == low == 0 for value in values) for low, high in BINS)
                bins = (figure(count / len(values), True) for count in counts)
                rows.append((system, str(layer), figure(mean, True), *bins))
    if not rows:
        return None
    header = ("system", "layer", "mean share", *(f"{low}–{high} %" for low, high in BINS))
    note = (
        "Layer 0: passages and summaries of chunks; above it, summaries of communities (GraphMPA counts from 1). The right-hand columns: "
        "the share of questions for which that percentage of the results is in the layer; each range excludes its lower bound, except 0."
    )
    return Table(f"{task}: layers of the results", header, tuple(rows), note)


COST_COLUMNS = ("s/question", "tokens/question")


def report_text(report: RunReport) -> str:
    """The report for a terminal."""
    return "\n\n".join([*map(as_text, result_tables(report)), headline(report)])


def result_tables(report: RunReport) -> list[Table]:
    """One table per task, then the mean over tasks if there are several and all share their leading metric, then the layers that evidence came from."""
    tables = [_task_table(task, task_scores, report) for task, task_scores in report.tasks if task_scores]
    leads = set(report.leads.values())
    if len(report.tasks) > 1 and len(leads) == 1:
        tables.append(_macro_table(report, leads.pop()))
    for task, task_scores in report.tasks:
        table = layers_table(task.name, {scores.name[1]: scores.content.results for scores in task_scores})
        tables += [table] if table else []
    return tables


def headline(report: RunReport) -> str:
    """The run's size, how much of it this run filled, which other versions of the code filled the rest, and what the tests show."""
    shown, count = sum(verdict.shown for verdict in report.verdicts.values()), len(report.verdicts)
    filled = len(report.all_scores) - report.found
    older = {each.content.revision for each in report.all_scores} - {report.revision}
    lines = [
        f"{len(report.cells):,} cells: {filled:,} filled by modegraph {report.revision}, {report.found:,} reused.",
        *([f"Some were filled by other versions of the code: {', '.join(sorted(older))}."] if older else []),
        (
            f"Of {count:,} differences from {report.baseline}, {shown:,} are significant (sign test with Holm's correction over all of them, and "
            f"an interval on the same side of 0); the other {count - shown:,} are not."
        ),
        *(f"Failed: {one.system} on {one.task}: {one.problem}" for one in report.failures),
    ]
    for scores in report.all_scores:
        where = f"{scores.name[1]} on {scores.name[0]}"
        lines += [f"{where} wrote {counted(empty, 'empty answer')}."] if (empty := _count_empty(scores)) else []
    return "\n".join(lines)


def _count_empty(scores: SystemScores) -> int:
    return sum(result.text is not None and not result.text.strip() for result in scores.content.results)


def _task_table(task: TaskData, task_scores: Sequence[SystemScores], report: RunReport) -> Table:
    names = list(dict.fromkeys(name for scores in task_scores for name in scores.means))
    rows = []
    for scores in task_scores:
        means = (figure(scores.means[name].mean, False) if name in scores.means else NONE for name in names)
        verdict = report.verdicts.get(scores.name)
        difference = verdict_cell(verdict, 1) if verdict else ""
        rows.append((scores.name[1], *means, f"{scores.seconds:.3f}", f"{scores.tokens:,.0f}", difference))
    lead = report.leads.get(task.name, "")
    compared = f"{lead} minus {report.baseline} (95 %, p)" if lead else "difference"
    replayed = replayed_note(sum(scores.total("replayed") for scores in task_scores))
    note = f"{len(task.questions):,} questions; * marks a significant difference. {replayed}".rstrip()
    return Table(task.name, ("system", *names, *COST_COLUMNS, compared), tuple(rows), note)


def _macro_table(report: RunReport, lead: str) -> Table:
    """The mean over tasks of each system that has the metric on all of them."""
    rows = []
    for system in dict.fromkeys(cell.system.name for cell in report.cells):
        system_scores = [scores for scores in report.all_scores if scores.name[1] == system and lead in scores.means]
        if len(system_scores) == len(report.tasks):
            mean = fmean(each.means[lead].mean for each in system_scores)
            seconds = fmean(each.seconds for each in system_scores)
            rows.append((system, figure(mean, False), f"{seconds:.3f}"))
    return Table("mean of tasks", ("system", lead, COST_COLUMNS[0]), tuple(rows), "All tasks have equal weight.")


def report_json(report: RunReport) -> dict[str, Any]:
    """Means, differences, costs and failures, the revision of the code, and the settings; no values of single questions."""
    return {
        "revision": report.revision,
        "settings": report.settings,
        "baseline": report.baseline,
        "leads": dict(report.leads),
        "results": [_result_json(scores, report) for scores in report.all_scores],
        "cells": {"found": report.found, "filled": len(report.all_scores) - report.found},
        "failures": [asdict(failure) for failure in report.failures],
        "tasks": {task.name: {"task": task.benchmark, "questions": len(task.questions)} for task, _ in report.tasks},
    }


def _result_json(scores: SystemScores, report: RunReport) -> dict[str, Any]:
    verdict, (task, system) = report.verdicts.get(scores.name), scores.name
    return {
        "system": system,
        "task": task,
        "revision": scores.content.revision,
        "metrics": {name: asdict(mean) for name, mean in scores.means.items()},
        "seconds": scores.seconds,
        "tokens": scores.tokens,
        "calls": scores.total("calls") / len(scores.content.results),
        "replayed": scores.total("replayed"),
        "empty": _count_empty(scores),
        "layers": list(mean_layer_shares(scores.content.results)),
        "difference": asdict(verdict) if verdict else None,
        "in_words": verdict_text(verdict, system, report.baseline) if verdict else "",
    }


def write_report(report: RunReport, out: Path) -> None:
    """Write all files; those of systems are named by task and system."""
    tables, summary = result_tables(report), headline(report)
    lines = [escape_markdown(line) for line in summary.splitlines()]
    write_json(out / "report.json", report_json(report))
    write_text(out / "report.md", "\n\n".join(["# Evaluation", *lines, *sections(tables, ())]) + "\n")
    write_text(out / "report.html", report_html("Evaluation", summary, tables, (), list(shown_samples(report))))
    write_jsonl(out / "values.jsonl", _value_rows(report))
    for scores in report.all_scores:
        for folder, rows in (("answers", answer_rows(scores)), ("ragas", ragas_rows(scores))):
            if rows:
                (out / folder).mkdir(exist_ok=True)
                write_jsonl(out / folder / _file_name(*scores.name), rows)


def _file_name(task: str, system: str) -> str:
    """A file name that is unique whatever characters the names contain."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in f"{task}-{system}")
    return f"{plain[:80]}-{content_id(task, system)[:6]}.jsonl"


def _value_rows(report: RunReport) -> Iterator[dict[str, Any]]:
    for scores in report.all_scores:
        questions, (task, system) = scores.cell.task.by_id, scores.name
        for metric, values in scores.values.items():
            for key, value in values.items():
                row = {"task": task, "system": system, "metric": metric, "id": key}
                yield {**row, "question": questions[key].text, "value": value}


def answer_rows(scores: SystemScores) -> list[dict[str, Any]]:
    """The answers of a system to a task; none if only retrieval is measured."""
    questions = scores.cell.task.by_id
    return [
        {"id": result.id, "question": questions[result.id].text, "answer": result.text}
        for result in scores.content.results
        if result.text is not None
    ]


def ragas_rows(scores: SystemScores) -> list[dict[str, Any]]:
    """Rows of ragas's SingleTurnSample (ragas 0.2 to 0.4); for a system that retrieves, only of the questions whose passages are stored.

    All rows have the same fields, except for `reference`: ragas decides by the first row what it can measure.
    """
    task, retrieves = scores.cell.task, scores.cell.system.retrieve is not None
    rows = []
    for result in scores.content.results:
        question = task.by_id[result.id]
        contexts = [with_title(Excerpt(source, title, text)) for title, source, text in result.evidence]
        if not retrieves or question.id in task.shown:
            row = {
                "user_input": question.text,
                "retrieved_contexts": contexts if retrieves else None,
                "response": result.text,
                "reference": question.answers[0] if question.answers else None,
            }
            rows.append({key: value for key, value in row.items() if value is not None})
    return rows


def shown_samples(report: RunReport) -> Iterator[Sample]:
    """Each task's questions to show: every system's answer and, in a collapsed part, its values and evidence."""
    for task, task_scores in report.tasks:
        for place, question in enumerate(task.questions):
            if question.id in task.shown:
                results = [(scores, scores.content.results[place]) for scores in task_scores]
                answers = [("gold answer", "; ".join(question.answers))]
                answers += [("gold documents", ", ".join(question.gold_sources))]
                answers += [(scores.name[1], one.text) for scores, one in results if one.text is not None]
                folded = tuple((_values_text(scores, one), _evidence_text(one)) for scores, one in results)
                yield Sample(f"{task.name}: {question.text}", folded, tuple(answers))


def _values_text(scores: SystemScores, result: QuestionResult) -> str:
    values = {name: of[result.id] for name, of in scores.values.items()}
    texts = [f"{name} {figure(value, False)}" for name, value in values.items() if value is not None]
    return f"{scores.name[1]}: {', '.join([*texts, f'{result.all_seconds:.3f} s'])}"


def _evidence_text(result: QuestionResult) -> str:
    passages = [
        f"[{number}] {title} · {source}\n{text[:MAX_SHOWN_CHARACTERS]}"
        for number, (title, source, text) in enumerate(result.evidence, start=1)
    ]
    return "\n\n".join([*passages, *result.steps])
