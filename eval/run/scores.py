"""Compute figures from cells: each metric of each system on each task, with intervals; differences from the baseline, corrected together; and the layers of the hierarchy that evidence came from (GraphMPA's Tables 5 and 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.metrics.registry import Output, find_metric, score_output
from eval.run.cells import questions_by_id
from eval.run.config import Matrix, QuestionResult, TaskData
from eval.statistics import Interval, Verdict, bootstrap_mean, compare_paired
from eval.tables import Table, figure
from graph.types import Evidence

Values = Mapping[str, float | None]
"""A metric's value by question id; None where it does not apply."""


@dataclass(frozen=True)
class SystemScores:
    """One system on one task: values and means by metric, and the cost per question (seconds with the encoder, tokens, calls).

    `replayed` calls of all questions came from a ledger; the time of the `untimed` ones among them is unknown.
    """

    system: str
    task: str
    values: Mapping[str, Values]
    means: Mapping[str, Interval]
    seconds: float
    tokens: float
    calls: float
    replayed: int
    untimed: int
    empty: int
    results: Sequence[QuestionResult]


@dataclass(frozen=True)
class RunFigures:
    """All figures of a report. `leads` is the compared metric of each task; `verdicts` are by (task, system), from the baseline."""

    scored: tuple[SystemScores, ...]
    leads: Mapping[str, str]
    verdicts: Mapping[tuple[str, str], Verdict]
    baseline: str


def figures_of(
    matrix: Matrix, cells: Mapping[tuple[str, str], Sequence[QuestionResult]], baseline: str, seed: int
) -> RunFigures:
    """`cells` are the filled cells by (task, system); UserError when a metric is not a number."""
    tasks = {task.name: task for task in matrix.tasks}
    scored = tuple(_system_scores(tasks[task], system, results, seed) for (task, system), results in cells.items())
    leads = {name: lead for name in tasks if (lead := _lead(tasks[name], scored))}
    return RunFigures(scored, leads, _verdicts(scored, leads, baseline, seed), baseline)


def _system_scores(task: TaskData, system: str, results: Sequence[QuestionResult], seed: int) -> SystemScores:
    questions = questions_by_id(task)
    values: dict[str, Values] = {}
    for name in task.metrics:
        metric = find_metric(name)
        values[name] = {
            result.id: result.values[name]
            if name in result.values
            else score_output(
                metric, questions[result.id], Output(ranked=result.ranked, answer=result.answer, text=result.text)
            )
            for result in results
        }
    applicable = {
        name: [value for value in metric_values.values() if value is not None] for name, metric_values in values.items()
    }
    return SystemScores(
        system=system,
        task=task.name,
        values=values,
        means={
            name: bootstrap_mean(metric_values, seed=seed)
            for name, metric_values in applicable.items()
            if metric_values
        },
        seconds=sum(result.seconds + result.encoder_seconds + result.answer_seconds for result in results)
        / len(results),
        tokens=sum(result.prompt_tokens + result.completion_tokens for result in results) / len(results),
        calls=sum(result.calls for result in results) / len(results),
        replayed=sum(result.replayed for result in results),
        untimed=sum(result.untimed for result in results),
        empty=sum(result.text is not None and not result.text.strip() for result in results),
        results=results,
    )


def _lead(task: TaskData, scored: Sequence[SystemScores]) -> str:
    """The first metric that every system of the task has; "" if there is none."""
    task_scores = [scores for scores in scored if scores.task == task.name]
    return next(
        (name for name in task.metrics if task_scores and all(name in scores.means for scores in task_scores)), ""
    )


def _verdicts(
    scored: Sequence[SystemScores], leads: Mapping[str, str], baseline: str, seed: int
) -> dict[tuple[str, str], Verdict]:
    """Every system against the baseline on every task's leading metric; p-values are corrected over all of them."""
    base = {scores.task: scores for scores in scored if scores.system == baseline}
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    names: dict[str, tuple[str, str]] = {}
    for scores in scored:
        if scores.system != baseline and scores.task in base and scores.task in leads:
            key = f"{scores.task}\n{scores.system}"
            names[key] = (scores.task, scores.system)
            pairs[key] = paired_values(scores.values[leads[scores.task]], base[scores.task].values[leads[scores.task]])
    return {names[key]: verdict for key, verdict in compare_paired(pairs, seed).items()}


def paired_values(values: Values, baseline: Values) -> tuple[list[float], list[float]]:
    """The values of the questions to which the metric applies on both sides, in order."""
    pairs = [
        (value, base) for key, value in values.items() if value is not None and (base := baseline[key]) is not None
    ]
    return [value for value, _ in pairs], [base for _, base in pairs]


BINS = ((0, 20), (20, 50), (50, 80), (80, 100))
"""Percentages of what a question found, each range without its lower end: 0 to 2, 3 to 5, 6 to 8 and 9 to 10 of 10, as in the paper."""


def count_layers(evidence: Evidence) -> tuple[int, ...]:
    """The number of passages and summaries in each layer, from 0 to the highest found; empty without evidence."""
    counts = Counter(one.item.layer for one in evidence.summaries) + Counter({0: len(evidence.passages)})
    return tuple(counts[layer] for layer in range(max(counts, default=-1) + 1))


def layer_shares(results: Sequence[QuestionResult]) -> list[tuple[float, ...]]:
    """The percentage of each layer for every question that found something, all of one length."""
    layer_counts = [result.layers for result in results if sum(result.layers)]
    depth = max(map(len, layer_counts), default=0)
    return [
        tuple(100 * count / sum(counts) for count in (*counts, *[0] * (depth - len(counts)))) for counts in layer_counts
    ]


def mean_layer_shares(results: Sequence[QuestionResult]) -> tuple[float, ...]:
    """The mean share of each layer, from 0 to 1."""
    shares = layer_shares(results)
    return tuple(sum(layer) / len(shares) / 100 for layer in zip(*shares, strict=True))


def layers_table(task: str, scored: Sequence[SystemScores]) -> Table | None:
    """One row for each layer of each system that found summaries; None if none did."""
    rows = []
    for scores in scored:
        shares = layer_shares(scores.results) if scores.task == task else []
        if any(sum(question_shares[1:]) for question_shares in shares):
            for layer, mean in enumerate(mean_layer_shares(scores.results)):
                values = [question_shares[layer] for question_shares in shares]
                rows.append((scores.system, str(layer), figure(mean, True), *_binned(values)))
    if not rows:
        return None
    header = ("system", "layer", "mean share", *(f"{low}–{high} %" for low, high in BINS))
    note = (
        "Layer 0: passages and summaries of chunks; above it, summaries of communities (GraphMPA counts from 1). The right-hand columns: "
        "the share of questions for which that percentage of what was found is in the layer, each range without its lower end, except 0."
    )
    return Table(f"{task}: layers of what was found", header, tuple(rows), note)


def _binned(values: Sequence[float]) -> list[str]:
    """The share of the values in each bin."""
    return [
        figure(sum(low < value <= high or value == low == 0 for value in values) / len(values), True)
        for low, high in BINS
    ]
