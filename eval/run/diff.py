"""`modegraph eval diff A B`: two runs of `modegraph eval run` on the same questions, compared question by question."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from eval.run.run_report import paired_values
from eval.statistics import Verdict, check_same_questions, compare_paired, verdict_text
from graph.errors import UserError
from graph.shared.jsonl import read_jsonl

VALUES = "values.jsonl"
Key = tuple[str, str, str]
"""Task, system, metric."""


@dataclass(frozen=True)
class Difference:
    """One task, system and metric: the mean in A and in B, and the verdict on B minus A."""

    task: str
    system: str
    metric: str
    mean_a: float
    mean_b: float
    verdict: Verdict


def diff_runs(a: Path, b: Path, seed: int = 0) -> list[Difference]:
    """Compare everything that both runs measured; all p-values are corrected together. UserError for runs on different questions or with nothing in common."""
    (questions_a, values_a), (questions_b, values_b) = read_values(a), read_values(b)
    for task in questions_a:
        if task in questions_b:
            check_same_questions(questions_a[task], questions_b[task])
    shared = [key for key in values_a if key in values_b]
    if not shared:
        found = f"{a} and {b} have no combination of task, system and metric in common"
        raise UserError(found, "runs of the same configuration", "compare runs that share a task, system and metric")
    pairs = {key: paired_values(values_b[key], values_a[key]) for key in shared}
    measured = {key: pair for key, pair in pairs.items() if pair[0]}
    return [
        Difference(*key, fmean(measured[key][1]), fmean(measured[key][0]), verdict)
        for key, verdict in compare_paired(measured, seed).items()
    ]


def read_values(run: Path) -> tuple[dict[str, dict[str, str]], dict[Key, dict[str, float | None]]]:
    """(question texts by task and id, values by task, system and metric) of a run; UserError for a folder without VALUES, and for an invalid row."""
    file = run / VALUES
    if not file.is_file():
        raise UserError(f"{file}: does not exist", "the folder of a run of `modegraph eval run`", "check the path")
    questions: dict[str, dict[str, str]] = {}
    values: dict[Key, dict[str, float | None]] = {}
    for line, row in read_jsonl(file):
        where, remedy = f"{file} line {line}", "repeat `modegraph eval run`"
        for field in ("task", "system", "metric", "id", "question"):
            if not isinstance(row.get(field), str):
                raise UserError(f"{where}: {field!r} is {row.get(field)!r}", "a string", remedy)
        value = row.get("value", "missing")
        if value is not None and not (type(value) in (int, float) and math.isfinite(value)):
            raise UserError(f"{where}: 'value' is {value!r}", "a number or null", remedy)
        questions.setdefault(row["task"], {})[row["id"]] = row["question"]
        values.setdefault((row["task"], row["system"], row["metric"]), {})[row["id"]] = value
    return questions, values


def diff_text(differences: list[Difference]) -> str:
    """One line per difference, significant ones first, then the number of significant ones."""
    ordered = sorted(differences, key=lambda one: (not one.verdict.shown, one.task, one.system, one.metric))
    lines = [
        f"{one.task} · {one.system} · {one.metric}: {one.mean_a:.3f} → {one.mean_b:.3f}; {verdict_text(one.verdict, 'B', 'A')}"
        for one in ordered
    ]
    shown = sum(one.verdict.shown for one in differences)
    return "\n".join([*lines, f"{shown:,} of {len(differences):,} differences are significant."])


def diff_json(differences: list[Difference]) -> dict[str, Any]:
    """All differences."""
    return {"differences": [{**asdict(one), "shown": one.verdict.shown} for one in differences]}
