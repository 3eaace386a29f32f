"""A judge's figures as a table, in words and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.judge.score import is_complete
from eval.judge.types import CRITERIA, CriterionResult, Judgement
from eval.shared.statistics import LEVEL
from eval.shared.tables import Table, figure
from graph.shared.jsonl import write_json, write_jsonl

OPEN = "open"
PROBLEMS_SHOWN = 5


def judge_table(results: Mapping[str, CriterionResult], a: str, b: str) -> Table:
    """One row a criterion."""
    header = (
        "criterion",
        f"{a} wins",
        "95 %",
        "length-controlled",
        "ties",
        "orders agree",
        "position bias",
        "first",
        "p (Holm)",
        "pairs",
        "invalid",
    )
    rows = []
    for name, one in results.items():
        low, high = figure(one.win_rate.low, True), figure(one.win_rate.high, True)
        controlled = OPEN if one.length_controlled is None else figure(one.length_controlled, True)
        shares = [figure(value, True) for value in (one.ties, one.agreement, one.position_bias, one.first_place)]
        counts = (f"{one.corrected_p:.2g}", f"{one.complete:,}", f"{one.invalid:,}")
        rows.append((name, figure(one.win_rate.mean, True), f"{low} … {high}", controlled, *shares, *counts))
    note = (
        f"{a} against {b}, every pair judged in both orders, ties counting half; intervals: bootstrap over questions. Position bias: "
        "both orders name the same place (first: always the first). Length-controlled: win rate at equal lengths (AlpacaEval 2 LC); "
        f"'{OPEN}' where one side is nearly always the longer. Pairs with an invalid verdict are counted and left out of the rates."
    )
    return Table("Judge", header, tuple(rows), note)


def in_words(results: Mapping[str, CriterionResult], a: str, b: str) -> Iterator[str]:
    """Who wins by the overall verdict, what the judge is worth, and how many verdicts were lost."""
    overall = results["overall"]
    rate = overall.win_rate
    if overall.complete and overall.corrected_p < LEVEL and not rate.low <= 0.5 <= rate.high:
        yield f"{a} is judged {'better' if rate.mean > 0.5 else 'worse'} than {b} overall ({figure(rate.mean, True)})."
    else:
        yield f"No difference shown between {a} and {b} overall."
    if overall.complete and overall.position_bias > overall.agreement:
        yield "The judge follows the place of an answer more often than the answer: do not rely on it."
    lost = sum(one.invalid for one in results.values())
    if lost:
        asked = 2 * sum(one.complete + one.incomplete for one in results.values())
        yield f"{lost:,} of {asked:,} verdicts were invalid; their pairs are left out of the rates."


def judge_json(
    results: Mapping[str, CriterionResult], judgements: Sequence[Judgement], a: str, b: str
) -> dict[str, Any]:
    """Everything but the texts."""
    problems = Counter(problem for judgement in judgements for problem in judgement.problems)
    return {
        "a": a,
        "b": b,
        "pairs": len(judgements),
        "criteria": {name: asdict(one) for name, one in results.items()},
        "problems": dict(problems.most_common(PROBLEMS_SHOWN)),
        "in_words": list(in_words(results, a, b)),
    }


def write_judgements(judgements: Sequence[Judgement], summary: dict[str, Any], out: Path) -> None:
    """judge.json and judgements.jsonl with both orders' words on every pair, into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    rows = (
        {
            "id": one.pair.id,
            "a_first": dict(one.a_first),
            "b_first": dict(one.b_first),
            "complete": [name for name in CRITERIA if is_complete(one, name)],
            "problems": list(one.problems),
        }
        for one in judgements
    )
    write_jsonl(out / "judgements.jsonl", rows)
    write_json(out / "judge.json", summary)
