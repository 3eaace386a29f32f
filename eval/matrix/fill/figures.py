"""From cells to figures: each metric of each system on each bench, with intervals; differences from the baseline, corrected together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.matrix.fill.plan import by_id
from eval.matrix.fill.types import Asked, Bench, Plan
from eval.metrics.registry import Output, find_metric, score_output
from eval.shared.statistics import Interval, Verdict, bootstrap_mean, compare_paired

Values = Mapping[str, float | None]
"""A metric's value by question id; None where it does not apply."""


@dataclass(frozen=True)
class Scored:
    """One system on one bench: values and means by metric, and what a question costs (seconds with the encoder, tokens, calls).

    `replayed` calls of all questions came from a ledger; of `untimed` ones among them the time is not known.
    """

    system: str
    bench: str
    values: Mapping[str, Values]
    means: Mapping[str, Interval]
    seconds: float
    tokens: float
    calls: float
    replayed: int
    untimed: int
    empty: int
    asked: Sequence[Asked]


@dataclass(frozen=True)
class Figures:
    """All that a report tells. `leads` is the compared metric of each bench; `verdicts` are by (bench, system), from the baseline."""

    scored: tuple[Scored, ...]
    leads: Mapping[str, str]
    verdicts: Mapping[tuple[str, str], Verdict]
    baseline: str


def figures_of(plan: Plan, cells: Mapping[tuple[str, str], Sequence[Asked]], baseline: str, seed: int) -> Figures:
    """`cells` are the filled ones by (bench, system); UserError when a metric is no number."""
    benches = {bench.name: bench for bench in plan.benches}
    scored = tuple(_scored(benches[bench], system, asked, seed) for (bench, system), asked in cells.items())
    leads = {name: lead for name in benches if (lead := _lead(benches[name], scored))}
    return Figures(scored, leads, _verdicts(scored, leads, baseline, seed), baseline)


def _scored(bench: Bench, system: str, asked: Sequence[Asked], seed: int) -> Scored:
    questions = by_id(bench)
    values: dict[str, Values] = {}
    for name in bench.metrics:
        metric = find_metric(name)
        values[name] = {
            one.id: one.values[name]
            if name in one.values
            else score_output(metric, questions[one.id], Output(ranked=one.ranked, answer=one.answer, text=one.text))
            for one in asked
        }
    found = {name: [value for value in of.values() if value is not None] for name, of in values.items()}
    return Scored(
        system=system,
        bench=bench.name,
        values=values,
        means={name: bootstrap_mean(of, seed=seed) for name, of in found.items() if of},
        seconds=sum(one.seconds + one.encoder_seconds + one.answer_seconds for one in asked) / len(asked),
        tokens=sum(one.prompt_tokens + one.completion_tokens for one in asked) / len(asked),
        calls=sum(one.calls for one in asked) / len(asked),
        replayed=sum(one.replayed for one in asked),
        untimed=sum(one.untimed for one in asked),
        empty=sum(one.text is not None and not one.text.strip() for one in asked),
        asked=asked,
    )


def _lead(bench: Bench, scored: Sequence[Scored]) -> str:
    """The first metric that every system of the bench has; "" for none."""
    own = [one for one in scored if one.bench == bench.name]
    return next((name for name in bench.metrics if own and all(name in one.means for one in own)), "")


def _verdicts(
    scored: Sequence[Scored], leads: Mapping[str, str], baseline: str, seed: int
) -> dict[tuple[str, str], Verdict]:
    """Every system against the baseline on every bench's leading metric, all corrected together."""
    base = {one.bench: one for one in scored if one.system == baseline}
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    names: dict[str, tuple[str, str]] = {}
    for one in scored:
        if one.system != baseline and one.bench in base and one.bench in leads:
            key = f"{one.bench}\n{one.system}"
            names[key] = (one.bench, one.system)
            pairs[key] = paired(one.values[leads[one.bench]], base[one.bench].values[leads[one.bench]])
    return {names[key]: verdict for key, verdict in compare_paired(pairs, seed).items()}


def paired(values: Values, baseline: Values) -> tuple[list[float], list[float]]:
    """The values of the questions to which the metric applies on both sides, in order."""
    kept = [(value, base) for key, value in values.items() if value is not None and (base := baseline[key]) is not None]
    return [value for value, _ in kept], [base for _, base in kept]
