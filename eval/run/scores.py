"""From cells to figures: each metric of each system on each task, with intervals; differences from the baseline, corrected together; and the layers of the hierarchy that evidence came from (GraphMPA's Tables 5 and 6)."""

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
class RunFigures:
    """All that a report tells. `leads` is the compared metric of each task; `verdicts` are by (task, system), from the baseline."""

    scored: tuple[SystemScores, ...]
    leads: Mapping[str, str]
    verdicts: Mapping[tuple[str, str], Verdict]
    baseline: str


def figures_of(
    matrix: Matrix, cells: Mapping[tuple[str, str], Sequence[QuestionResult]], baseline: str, seed: int
) -> RunFigures:
    """`cells` are the filled ones by (task, system); UserError when a metric is no number."""
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
            one.id: one.values[name]
            if name in one.values
            else score_output(metric, questions[one.id], Output(ranked=one.ranked, answer=one.answer, text=one.text))
            for one in results
        }
    found = {name: [value for value in of.values() if value is not None] for name, of in values.items()}
    return SystemScores(
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


def _lead(task: TaskData, scored: Sequence[SystemScores]) -> str:
    """The first metric that every system of the task has; "" for none."""
    own = [one for one in scored if one.task == task.name]
    return next((name for name in task.metrics if own and all(name in one.means for one in own)), "")


def _verdicts(
    scored: Sequence[SystemScores], leads: Mapping[str, str], baseline: str, seed: int
) -> dict[tuple[str, str], Verdict]:
    """Every system against the baseline on every task's leading metric, all corrected together."""
    base = {one.task: one for one in scored if one.system == baseline}
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    names: dict[str, tuple[str, str]] = {}
    for one in scored:
        if one.system != baseline and one.task in base and one.task in leads:
            key = f"{one.task}\n{one.system}"
            names[key] = (one.task, one.system)
            pairs[key] = paired_values(one.values[leads[one.task]], base[one.task].values[leads[one.task]])
    return {names[key]: verdict for key, verdict in compare_paired(pairs, seed).items()}


def paired_values(values: Values, baseline: Values) -> tuple[list[float], list[float]]:
    """The values of the questions to which the metric applies on both sides, in order."""
    kept = [(value, base) for key, value in values.items() if value is not None and (base := baseline[key]) is not None]
    return [value for value, _ in kept], [base for _, base in kept]


BINS = ((0, 20), (20, 50), (50, 80), (80, 100))
"""Per cent of what a question found, each without its lower end: 0 to 2, 3 to 5, 6 to 8 and 9 to 10 of 10, as in the paper."""


def count_layers(evidence: Evidence) -> tuple[int, ...]:
    """How many of the passages and summaries are of each layer, from 0 to the highest found; empty for no evidence."""
    found = Counter(one.item.layer for one in evidence.summaries) + Counter({0: len(evidence.passages)})
    return tuple(found[layer] for layer in range(max(found, default=-1) + 1))


def layer_shares(results: Sequence[QuestionResult]) -> list[tuple[float, ...]]:
    """The share of each layer for every question that found something, in per cent, all of one length."""
    filled = [one.layers for one in results if sum(one.layers)]
    depth = max(map(len, filled), default=0)
    return [tuple(100 * count / sum(of) for count in (*of, *[0] * (depth - len(of)))) for of in filled]


def mean_layer_shares(results: Sequence[QuestionResult]) -> tuple[float, ...]:
    """The mean share of each layer, from 0 to 1."""
    found = layer_shares(results)
    return tuple(sum(layer) / len(found) / 100 for layer in zip(*found, strict=True))


def layers_table(task: str, scored: Sequence[SystemScores]) -> Table | None:
    """One row for each layer of each system that found summaries; None where none did."""
    rows = []
    for one in scored:
        found = layer_shares(one.results) if one.task == task else []
        if any(sum(of[1:]) for of in found):
            for layer, mean in enumerate(mean_layer_shares(one.results)):
                values = [of[layer] for of in found]
                rows.append((one.system, str(layer), figure(mean, True), *_binned(values)))
    if not rows:
        return None
    header = ("system", "layer", "mean share", *(f"{low}–{high} %" for low, high in BINS))
    note = (
        "Layer 0: passages and summaries of chunks; above it, summaries of communities (GraphMPA counts from 1). The right-hand columns: "
        "the share of questions for which so much of what was found is of the layer, each without its lower end but for 0."
    )
    return Table(f"{task}: layers of what was found", header, tuple(rows), note)


def _binned(values: Sequence[float]) -> list[str]:
    """The share of the values in each bin."""
    return [
        figure(sum(low < value <= high or value == low == 0 for value in values) / len(values), True)
        for low, high in BINS
    ]
