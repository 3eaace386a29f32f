"""Plain tables of text, shared by the Markdown reports, the HTML reports and the terminal; the tables of a comparison, and that of the runs
below a folder (`modegraph runs`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eval.comparison import Comparison, Measure, PolicyResult
from eval.statistics import Interval, SeedVerdict, Verdict
from graph.shared.console import duration
from graph.shared.runs import FoundRun

NONE = "–"


@dataclass(frozen=True)
class Table:
    """A titled table; `note` explains how to read it. The first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def tables_of(comparison: Comparison) -> list[Table]:
    """Every table of the report, in reading order."""
    tables = [run_table(comparison), measure_table(comparison), difference_table(comparison)]
    tables += [seed_table(comparison)] if comparison.by_seed else []
    return [*tables, choice_table(comparison)] if comparison.choices else tables


def run_table(comparison: Comparison) -> Table:
    """The models compared: each policy's stage, source and reference, and its training: K, ε, β, data and seconds."""
    header = ("model", "stage", "folder or name", "reference π_ref", "K", "ε", "β", "trained on", "training, s")
    note = (
        "K responses per prompt (2 = pairs), ε label smoothing, β weight of the log-ratios to the reference. A margin is "
        "measured against π_ref; a model without β or π_ref has no implicit reward."
    )
    return Table("Models", header, tuple(_run_row(result) for result in comparison.results), note)


def _run_row(result: PolicyResult) -> tuple[str, ...]:
    policy, record = result.policy, result.policy.record
    if record is None:
        return (policy.name, "untuned", policy.source, *[NONE] * 6)
    figures = [
        figure_or_dash(value, "g") for value in (record.responses_per_prompt, record.label_smoothing, record.beta)
    ]
    reference = policy.reference or NONE
    return (policy.name, record.stage, policy.source, reference, *figures, record.data, f"{record.train_seconds:.1f}")


def figure_or_dash(value: float | None, spec: str) -> str:
    """`value` in the format `spec`, or a dash for None."""
    return NONE if value is None else f"{value:{spec}}"


def measure_table(comparison: Comparison) -> Table:
    """The mean of every measure for every policy."""
    names = _names(comparison)
    rows = [(measure.name, *(_mean(measure, name) for name in names)) for measure in comparison.measures]
    note = (
        f"Means over {len(comparison.prompts)} prompts and {len(comparison.pairs)} pairs of "
        f"{len({row.question_id for row in comparison.prompts})} questions. Answers are greedy, at most "
        f"{comparison.max_answer_tokens} tokens. log π is summed over the tokens of a completion, including its end token "
        "(nats). The chosen completion is usually longer than the rejected one, unless a row names a length-matched hard negative in "
        "brackets, so read the figures per token as well as the sums."
    )
    return Table("Results", ("measure", *names), tuple(rows), note)


def _mean(measure: Measure, policy: str) -> str:
    return figure(measure.mean(policy), measure.share) if policy in measure.values else NONE


def figure(value: float, share: bool) -> str:
    """A mean as text: a share as a percentage, any other mean with three decimals, or with one if it is 10 or more."""
    return f"{100 * value:.1f} %" if share else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def difference_table(comparison: Comparison) -> Table:
    """Every policy minus the first: differences with their intervals, Holm-corrected over the policies; * marks an interval that excludes 0."""
    first, *others = _names(comparison)
    shares = {measure.name: measure.share for measure in comparison.measures}
    rows = []
    for measure, intervals in comparison.differences.items():
        scale = 100 if shares[measure] else 1
        cells = (interval_text(intervals[name], scale) if name in intervals else NONE for name in others)
        rows.append((measure, *cells))
    note = (
        f"Mean difference with its 95 % interval from a paired bootstrap over questions (2,000 resamples, seed {comparison.seed}), widened "
        "by Holm's method over the models of a row; shares in percentage points; * marks intervals that exclude 0. Many rows are tested: "
        "about one in twenty has a * by chance. Runs with one seed say nothing about other seeds."
    )
    return Table(f"Difference from {first}", ("measure", *others), tuple(rows), note)


def seed_table(comparison: Comparison) -> Table:
    """Every system trained with several seeds minus the first such system; * marks differences that test and interval support (`SeedVerdict.shown`)."""
    first, *others = comparison.systems
    shares = {measure.name: measure.share for measure in comparison.measures}
    rows = []
    for measure, verdicts in comparison.by_seed.items():
        scale = 100 if shares[measure] else 1
        rows.append((measure, *(verdict_cell(verdicts[name], scale) if name in verdicts else NONE for name in others)))
    count = len(comparison.systems[first])
    note = (
        "Runs that differ only in their seed are one system. Mean difference, its 95 % interval from a bootstrap over paired seeds and over questions, "
        f"and p of the exact sign-flip test over the {count} seeds, Holm-corrected over the systems of a row; {count} seeds give a p of at least "
        f"{2.0 ** (1 - count):.2g}. * marks a difference that both the test and the interval support."
    )
    return Table(f"Difference from {first}", ("measure", *others), tuple(rows), note)


def verdict_cell(verdict: Verdict | SeedVerdict, scale: int) -> str:
    """A difference, its interval and its corrected p; * marks a difference whose verdict is `shown`."""
    interval = interval_text(verdict.interval, scale).removesuffix(" *")
    return f"{interval}, p {verdict.corrected_p:.2g}{' *' if verdict.shown else ''}"


def interval_text(interval: Interval, scale: int) -> str:
    """A difference and its interval, multiplied by `scale`; * marks an interval that excludes 0."""
    scaled = Interval(scale * interval.mean, scale * interval.low, scale * interval.high)
    return f"{scaled:+.3g}{' *' if scaled.low > 0 or scaled.high < 0 else ''}"


def choice_table(comparison: Comparison) -> Table:
    """Yes/no/maybe accuracy, also per class, of each policy and of always giving the train split's majority label."""
    labels = list(comparison.gold_choices)
    header = ("model", "accuracy", *(f"{label} (n = {comparison.gold_choices[label]})" for label in labels))
    rows = [
        (score.name, figure(score.accuracy, True), *(figure(score.per_class[label], True) for label in labels))
        for score in comparison.choices
    ]
    note = (
        f"{sum(comparison.gold_choices.values())} prompts whose gold answer is yes, no or maybe; only the first word of the "
        "answer is compared. The constant answer is the most common label of the train split, not of these questions."
    )
    return Table("Yes / no / maybe", header, tuple(rows), note)


def _names(comparison: Comparison) -> list[str]:
    return [result.policy.name for result in comparison.results]


def as_text(table: Table) -> str:
    """The table for a terminal, without its note: the first column is aligned to the left, the others to the right."""
    lines = [table.header, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rendered = []
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        rendered.append("  ".join(cells).rstrip())
    rendered.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join([table.title, *rendered])


SHOWN_FIGURES, SHOWN_SETTINGS = 3, 6
ONLY_RUN_SETTINGS = ("model", "data")
"""Settings shown for a run that differs from no other of its stage."""
UNINFORMATIVE = ("output",)
"""Settings that differ in every run and so are uninformative."""
FIRST_FIGURES = ("eval_loss", "train_loss", "loss")
"""Figures listed before others."""


def runs_table(runs: Sequence[FoundRun]) -> Table:
    """One row per run."""
    rows = []
    for run in runs:
        same_stage = [other for other in runs if other.stage == run.stage]
        written = datetime.fromtimestamp(run.ended, UTC).strftime("%Y-%m-%d %H:%M")
        rows.append((run.name, run.stage, state_text(run), written, figures_text(run), settings_text(run, same_stage)))
    note = "Settings are those in which runs of one stage differ, or else model and data; --json has all settings and figures. Times are UTC."
    return Table(f"{len(runs):,} runs", ("run", "stage", "state", "written", "figures", "settings"), tuple(rows), note)


def state_text(run: FoundRun) -> str:
    """The state; of a finished run, also its duration, and of others, their progress and the time left, as far as they are known."""
    if run.state == "finished":
        return "finished" if run.seconds is None else f"finished in {duration(run.seconds)}"
    progress = f" at {run.step:,} of {run.steps:,}" if run.step is not None and run.steps is not None else ""
    left = f", about {duration(run.seconds_left)} left" if run.state == "running" and run.seconds_left else ""
    return f"{run.state}{progress}{left}"


def figures_text(run: FoundRun) -> str:
    """The first figures, losses before others."""
    first = [name for name in FIRST_FIGURES if name in run.figures]
    names = list(dict.fromkeys([*first, *run.figures]))
    texts = [f"{name} {run.figures[name]:.4g}" for name in names[:SHOWN_FIGURES]]
    more = len(names) - len(texts)
    return ", ".join(texts + [f"{more:,} more"] * (more > 0)) or NONE


def settings_text(run: FoundRun, same_stage: Sequence[FoundRun]) -> str:
    """The settings in which this run differs from another of its stage; if there are none, as for the only run of a stage, its model and data."""
    flat = [dict(flatten(other.settings)) for other in same_stage]
    settings = dict(flatten(run.settings))
    names = [
        name
        for name in dict.fromkeys(name for other in flat for name in other)
        if name not in UNINFORMATIVE and any(other.get(name, "") != settings.get(name, "") for other in flat)
    ] or [name for name in ONLY_RUN_SETTINGS if name in settings]
    texts = [f"{name}={settings[name]}" for name in names if name in settings][:SHOWN_SETTINGS]
    return ", ".join(texts) or NONE


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its key; nested keys are joined by dots.

    >>> dict(flatten({"lora": {"rank": 8}, "seed": 0}))
    {'lora.rank': 8, 'seed': 0}
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
