"""A comparison on disk: report.md, report.html, report.json, answers.jsonl and its figures in one folder.

The folder's files are replaced one by one by finished ones; anything else in it stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eval.compare.figures import draw_logps
from eval.compare.page import ReportFigure, to_html
from eval.compare.samples import Sample, samples_of
from eval.shared.tables import Table, tables_of
from eval.shared.types import Comparison
from graph.shared.jsonl import write_json, write_jsonl, write_text

FIGURE = "logps.png"
CAPTION = (
    "log π(y|x) of the chosen and the rejected side under every model (box: quartiles, line: median, whiskers: 1.5 "
    "interquartile ranges), as in GraphMPA's Figure 6."
)


@dataclass(frozen=True)
class Appendix:
    """What another measurement of the same runs adds to a report; `data` is what it adds to report.json."""

    tables: tuple[Table, ...] = ()
    pictures: tuple[ReportFigure, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)


def write_report(comparison: Comparison, out: Path, appendix: Appendix | None = None) -> None:
    """Write all files into `out`, which is made if it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    added = appendix or Appendix()
    tables, samples = [*tables_of(comparison), *added.tables], samples_of(comparison)
    for picture in added.pictures:
        (out / picture.file).write_bytes(picture.png)
    pictures = [*([draw_boxes(comparison, out / FIGURE)] if comparison.pairs else []), *added.pictures]
    write_jsonl(out / "answers.jsonl", answer_rows(comparison))
    write_text(out / "report.md", to_markdown(comparison, tables, pictures, samples))
    write_text(out / "report.html", to_html("Comparison", headline(comparison), tables, pictures, samples))
    write_json(out / "report.json", to_json(comparison) | added.data)


def draw_boxes(comparison: Comparison, file: Path) -> ReportFigure:
    """The log-probabilities of the pairs as box plots, drawn into `file`."""
    drawn = paper_pairs(comparison)
    scores = {each.policy.name: [each.scores[index] for index in drawn] for each in comparison.results}
    draw_logps(scores, f"{len(drawn)} held-out pairs", file)
    return ReportFigure("Log-probabilities", FIGURE, file.read_bytes(), "Box plots of log π(y|x) per model", CAPTION)


def paper_pairs(comparison: Comparison) -> list[int]:
    """The pairs to draw: the paper's own, or the first kind of length-matched ones where the data has no others."""
    hard_negative = min(row.hard_negative for row in comparison.pairs)
    return [index for index, row in enumerate(comparison.pairs) if row.hard_negative == hard_negative]


def headline(comparison: Comparison) -> str:
    """What was compared on what, in one sentence."""
    sizes = ", ".join(str(size) for size in sorted({row.context_size for row in comparison.prompts}))
    questions = len({row.question_id for row in comparison.prompts})
    names = ", ".join(result.policy.name for result in comparison.results)
    return f"{names} on {questions} questions of {comparison.data}, {comparison.split} split, context size {sizes}."


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The whole comparison but its texts; answers are in answers.jsonl."""
    return {
        "data": comparison.data,
        "split": comparison.split,
        "seed": comparison.seed,
        "max_answer_tokens": comparison.max_answer_tokens,
        "questions": len({row.question_id for row in comparison.prompts}),
        "prompts": len(comparison.prompts),
        "pairs": len(comparison.pairs),
        "context_sizes": sorted({row.context_size for row in comparison.prompts}),
        "policies": [{**asdict(result.policy), "seconds": round(result.seconds, 3)} for result in comparison.results],
        "measures": {
            measure.name: {name: measure.mean(name) for name in measure.values} for measure in comparison.measures
        },
        "differences_from": comparison.results[0].policy.name,
        "differences": {
            measure: {name: asdict(interval) for name, interval in intervals.items()}
            for measure, intervals in comparison.differences.items()
        },
        "choices": [asdict(score) for score in comparison.choices],
        "gold_choices": dict(comparison.gold_choices),
    }


def answer_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Every answer with its prompt's gold answers: one JSON object for each policy and prompt."""
    for result in comparison.results:
        for row, answer in zip(comparison.prompts, result.answers, strict=True):
            gold = {"question": row.question, "answers": list(row.answers), "context_size": row.context_size}
            yield {"policy": result.policy.name, **gold, **asdict(answer)}


def to_markdown(
    comparison: Comparison, tables: Sequence[Table], pictures: Sequence[ReportFigure], samples: Sequence[Sample]
) -> str:
    """The report for a repository or a terminal."""
    parts = [
        "# Comparison",
        escape_markdown(headline(comparison)),
        *sections(tables, pictures),
        "## Answers side by side",
    ]
    for sample in samples:
        parts.append(f"### {escape_markdown(sample.question)}")
        parts += [f"{escape_markdown(name)}:\n\n{_fenced(text)}" for name, text in sample.answers]
    return "\n\n".join(parts) + "\n"


def sections(tables: Sequence[Table], pictures: Sequence[ReportFigure]) -> Iterator[str]:
    """Tables and pictures in Markdown, each under its heading."""
    for table in tables:
        yield from (f"## {escape_markdown(table.title)}", markdown_table(table), escape_markdown(table.note))
    for picture in pictures:
        yield from (f"## {picture.title}", f"![{picture.alt}]({picture.file})", picture.caption)


def markdown_table(table: Table) -> str:
    """A table in Markdown, figures aligned to the right."""
    lines = [table.header, ("---", *["---:"] * (len(table.header) - 1)), *table.rows]
    cells = [[cell if number == 1 else escape_markdown(cell) for cell in line] for number, line in enumerate(lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def escape_markdown(text: str) -> str:
    """Text as one line in which nothing is markup.

    >>> escape_markdown("y_w | *\\n<b>")
    'y\\\\_w \\\\| \\\\* \\\\<b>'
    """
    return re.sub(r"([\\`*_\[<#|~])", r"\\\1", " ".join(text.split()))


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
