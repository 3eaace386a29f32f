"""From cells to figures: each metric of each system on each task, with intervals; differences from the baseline, corrected together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.matrix.fill.list_cells import by_id
from eval.matrix.fill.types import Matrix, QuestionResult, TaskData
from eval.metrics.registry import Output, find_metric, score_output
from eval.shared.statistics import Interval, Verdict, bootstrap_mean, compare_paired

Values = Mapping[str, float | None]
"""A metric's value by question id; None where it does not apply."""


@dataclass(frozen=True)
class Scored:
    """One system on one task: values and means by metric, and what a question costs (seconds with the encoder, tokens, calls).

    `replayed` calls of all questions came from a ledger; of `untimed` ones among them the time is not known.
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
class Figures:
    """All that a report tells. `leads` is the compared metric of each task; `verdicts` are by (task, system), from the baseline."""

    scored: tuple[Scored, ...]
    leads: Mapping[str, str]
    verdicts: Mapping[tuple[str, str], Verdict]
    baseline: str


def figures_of(
    matrix: Matrix, cells: Mapping[tuple[str, str], Sequence[QuestionResult]], baseline: str, seed: int
) -> Figures:
    """`cells` are the filled ones by (task, system); UserError when a metric is no number."""
    tasks = {task.name: task for task in matrix.tasks}
    scored = tuple(_scored(tasks[task], system, results, seed) for (task, system), results in cells.items())
    leads = {name: lead for name in tasks if (lead := _lead(tasks[name], scored))}
    return Figures(scored, leads, _verdicts(scored, leads, baseline, seed), baseline)


def _scored(task: TaskData, system: str, results: Sequence[QuestionResult], seed: int) -> Scored:
    questions = by_id(task)
    values: dict[str, Values] = {}
    for name in task.metrics:
        metric = find_metric(name)
        values[name] = {
            one.id: one.values[name]
            if name in one.values
            else score_output(metric, questions[one.id], Output(ranked=one.ranked, answer=one.answer, text=one.text))
            for one in results
        }
    found = {name: [value for value in of.values() if value is not None] for name, of in values.items()}
    return Scored(
        system=system,
        task=task.name,
        values=values,
        means={name: bootstrap_mean(of, seed=seed) for name, of in found.items() if of},
        seconds=sum(one.seconds + one.encoder_seconds + one.answer_seconds for one in results) / len(results),
        tokens=sum(one.prompt_tokens + one.completion_tokens for one in results) / len(results),
        calls=sum(one.calls for one in results) / len(results),
        replayed=sum(one.replayed for one in results),
        untimed=sum(one.untimed for one in results),
        empty=sum(one.text is not None and not one.text.strip() for one in results),
        results=results,
    )


def _lead(task: TaskData, scored: Sequence[Scored]) -> str:
    """The first metric that every system of the task has; "" for none."""
    own = [one for one in scored if one.task == task.name]
    return next((name for name in task.metrics if own and all(name in one.means for one in own)), "")


def _verdicts(
    scored: Sequence[Scored], leads: Mapping[str, str], baseline: str, seed: int
) -> dict[tuple[str, str], Verdict]:
    """Every system against the baseline on every task's leading metric, all corrected together."""
    base = {one.task: one for one in scored if one.system == baseline}
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    names: dict[str, tuple[str, str]] = {}
    for one in scored:
        if one.system != baseline and one.task in base and one.task in leads:
            key = f"{one.task}\n{one.system}"
            names[key] = (one.task, one.system)
            pairs[key] = paired(one.values[leads[one.task]], base[one.task].values[leads[one.task]])
    return {names[key]: verdict for key, verdict in compare_paired(pairs, seed).items()}


def paired(values: Values, baseline: Values) -> tuple[list[float], list[float]]:
    """The values of the questions to which the metric applies on both sides, in order."""
    kept = [(value, base) for key, value in values.items() if value is not None and (base := baseline[key]) is not None]
    return [value for value, _ in kept], [base for _, base in kept]
