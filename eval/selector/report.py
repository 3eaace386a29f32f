"""The one table of `modegraph eval selector`: for the terminal, as JSON, and as Markdown in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.compare.report import markdown_table
from eval.retrieval.measure import COMPARED, told_replays, write_retrieval
from eval.selector.compare import OFFERED, SELECTION, SelectorReport
from eval.shared.tables import NONE, Table, figure, interval_text
from eval.shared.types import Measure
from graph.shared.console import say
from graph.shared.jsonl import write_json

SHOWN = ("Recall@2", COMPARED, "all gold@5")
COSTS = ("tokens/query", "s/query without encoder")
REPORT, JSON = "selectors.md", "selectors.json"


def shown_measures(report: SelectorReport) -> list[Measure]:
    """Quality first, costs last."""
    by_name = {measure.name: measure for measure in report.retrieval.measures}
    selection = [report.selection] if report.selection is not None else []
    return [*(by_name[name] for name in SHOWN), *selection, report.calls, *(by_name[name] for name in COSTS)]


def selector_table(report: SelectorReport, mode: str) -> Table:
    """One row a selector."""
    measures = shown_measures(report)
    first, *_ = report.retrieval.rankings
    with_selection = report.selection is not None
    rows = []
    for name in report.retrieval.rankings:
        means = [figure(measure.mean(name), measure.share) for measure in measures]
        differences = [report.retrieval.differences, *([report.selection_differences] if with_selection else [])]
        told = [interval_text(each[name], 1) if name != first else NONE for each in differences]
        rows.append((name, *means, *told))
    of = [COMPARED, *([SELECTION] if with_selection else [])]
    header = ("selector", *(measure.name for measure in measures), *(f"{each} minus {first}" for each in of))
    return Table(f"Selectors in {mode}", header, tuple(rows), note_of(report))


def note_of(report: SelectorReport) -> str:
    """How to read the table."""
    note = (
        f"{len(report.retrieval.questions)} questions with gold documents; documents in the order of the "
        f"{report.retrieval.top_k} passages retrieved. Only llm has a model. Brackets: 95 % interval of a paired bootstrap over "
        "questions; * leaves out 0."
    )
    note = " ".join(filter(None, [note, told_replays(report.retrieval)]))
    if report.selection is None:
        return note
    return note + (
        f" {SELECTION}: average precision of what is selected, in its order, of the same {OFFERED} propositions; over "
        f"{len(report.selection.clusters)} questions with a gold sentence among these."
    )


def selector_json(report: SelectorReport, mode: str) -> dict[str, Any]:
    """Means by selector, and intervals of the differences from the first."""
    first, *_ = report.retrieval.rankings
    measures = shown_measures(report)
    return {
        "mode": mode,
        "questions": len(report.retrieval.questions),
        "questions_with_gold_sentences": len(report.selection.clusters) if report.selection is not None else 0,
        "top_k": report.retrieval.top_k,
        "selectors": {name: {m.name: m.mean(name) for m in measures} for name in report.retrieval.rankings},
        "differences_from": first,
        f"{COMPARED} differences": {name: asdict(each) for name, each in report.retrieval.differences.items()},
        f"{SELECTION} differences": {name: asdict(each) for name, each in report.selection_differences.items()},
    }


def write_selectors(report: SelectorReport, mode: str, out: Path) -> None:
    """selectors.md and selectors.json beside the files of `eval retrieval`, into `out`."""
    write_retrieval(report.retrieval, out)
    table = selector_table(report, mode)
    (out / REPORT).write_text(f"# {table.title}\n\n{markdown_table(table)}\n\n{table.note}\n", encoding="utf-8")
    write_json(out / JSON, selector_json(report, mode))
    say(f"wrote {out / REPORT} and {out / JSON}")
