"""Reports on disk: tables and figures as Markdown and as one self-contained HTML page; and the report of a comparison.

A comparison's folder contains report.md, report.html, report.json, answers.jsonl and, if pairs were scored, logps.png; each is replaced once its new version is
finished, and an earlier logps.png is deleted if no pairs were scored; other files are not changed."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from eval.comparison import Comparison
from eval.plots import draw_logps
from eval.tables import Table, tables_of
from graph.shared.jsonl import write_json, write_jsonl, write_text

SAMPLES = 6


@dataclass(frozen=True)
class Sample:
    """A question and its answers as (name, text), the gold answer among them; `folded` texts (title, text) open on a click."""

    question: str
    folded: tuple[tuple[str, str], ...]
    answers: tuple[tuple[str, str], ...]


def samples_of(comparison: Comparison) -> list[Sample]:
    """At most `SAMPLES` prompts: the first of each kind of question, then the second of each, and so on; chosen without regard to the answers."""
    by_kind: dict[str, list[int]] = {}
    for index, row in enumerate(comparison.prompts):
        by_kind.setdefault(row.kind, []).append(index)
    depth = max(len(indices) for indices in by_kind.values())
    turns = [indices[turn] for turn in range(depth) for indices in by_kind.values() if turn < len(indices)]
    return [_sample_of(comparison, index) for index in turns[:SAMPLES]]


def _sample_of(comparison: Comparison, index: int) -> Sample:
    row = comparison.prompts[index]
    answers = [("gold answer", "; ".join(row.answers)), ("chosen response", row.chosen)]
    answers += [(result.policy.name, result.answers[index].text) for result in comparison.results]
    prompt = "\n\n".join(f"{turn.role}: {turn.content}" for turn in row.prompt)
    return Sample(row.question, (("The prompt", prompt),), tuple(answers))


STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5b6875; --line: #d8dee5; --page: #fff; --band: #f4f6f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ef; --soft: #9aa7b4; --line: #36414d; --page: #14191f; --band: #1d242c; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
.note, figcaption { color: var(--soft); font-size: .9rem; max-width: 50rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .35rem .75rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap;
         font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
tbody tr:nth-child(even) { background: var(--band); }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; border-radius: .4rem; }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .25rem 1rem 1rem; margin: 1rem 0; }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0; }
dd, pre { white-space: pre-wrap; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); }
pre { background: var(--band); padding: .75rem; border-radius: .4rem; font-size: .85rem; }
"""

NOTHING = '<span class="note">(nothing)</span>'


@dataclass(frozen=True)
class ReportFigure:
    """A PNG of a report: its heading, its file name in the report's folder, its bytes, an alternative text and a caption."""

    title: str
    file: str
    png: bytes
    alt: str
    caption: str


def report_html(
    title: str, headline: str, tables: Sequence[Table], pictures: Sequence[ReportFigure], samples: Sequence[Sample] = ()
) -> str:
    """The HTML page; every text that comes from data or models is escaped."""
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(headline)}</p>",
        *(_table_html(table) for table in tables),
        *(_figure_html(picture) for picture in pictures),
        *(["<h2>Answers side by side</h2>"] if samples else []),
        *(_sample_html(sample) for sample in samples),
    ]
    body = "\n".join(parts)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>modegraph: {escape(title.lower())}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _figure_html(picture: ReportFigure) -> str:
    image = f"data:image/png;base64,{b64encode(picture.png).decode('ascii')}"
    return (
        f'<h2>{escape(picture.title)}</h2><figure><img src="{image}" alt="{escape(picture.alt)}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _table_html(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    return (
        f'<h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>'
        f'</table></div><p class="note">{escape(table.note)}</p>'
    )


def _sample_html(sample: Sample) -> str:
    answers = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text) or NOTHING}</dd>" for name, text in sample.answers)
    folded = "".join(
        f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
        for title, text in sample.folded
    )
    return f"<article><h3>{escape(sample.question)}</h3>{folded}<dl>{answers}</dl></article>"


def write_comparison(comparison: Comparison, out: Path) -> None:
    """Write the files of the report into `out`, creating it if it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    tables, samples = tables_of(comparison), samples_of(comparison)
    pictures = [draw_boxes(comparison, out / "logps.png")] if comparison.pairs else []
    write_jsonl(out / "answers.jsonl", answer_rows(comparison))
    write_text(out / "report.md", comparison_markdown(comparison, tables, pictures, samples))
    write_text(
        out / "report.html", report_html("Comparison", comparison_headline(comparison), tables, pictures, samples)
    )
    write_json(out / "report.json", comparison_json(comparison))
    if not pictures:
        (out / "logps.png").unlink(missing_ok=True)


def draw_boxes(comparison: Comparison, file: Path) -> ReportFigure:
    """Draw the log-probabilities of the pairs as box plots into `file`.

    Only the pairs without hard negatives are drawn (as in GraphMPA) or, if there are none, those with the alphabetically first kind of hard negative.
    """
    hard_negative = min(row.hard_negative for row in comparison.pairs)
    indices = [index for index, row in enumerate(comparison.pairs) if row.hard_negative == hard_negative]
    scores = {result.policy.name: [result.scores[index] for index in indices] for result in comparison.results}
    draw_logps(scores, f"{len(indices)} pairs", file)
    caption = (
        "log π(y|x) of the chosen and the rejected response under every model (box: quartiles, line: median, whiskers: 1.5 "
        "interquartile ranges), after GraphMPA's Figure 6."
    )
    alt = "Box plots of log π(y|x) per model"
    return ReportFigure("Log-probabilities", file.name, file.read_bytes(), alt, caption)


def comparison_headline(comparison: Comparison) -> str:
    """One sentence: the models, the questions, the split and the context sizes compared."""
    sizes = ", ".join(str(size) for size in sorted({row.context_size for row in comparison.prompts}))
    questions = len({row.question_id for row in comparison.prompts})
    names = ", ".join(result.policy.name for result in comparison.results)
    return f"{names} on {questions} questions of {comparison.data}, {comparison.split} split, context size {sizes}."


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison without its texts; answers are in answers.jsonl."""
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
        "systems": {name: dict(by_seed) for name, by_seed in comparison.systems.items()},
        "by_seed": {
            measure: {name: {**asdict(verdict), "shown": verdict.shown} for name, verdict in verdicts.items()}
            for measure, verdicts in comparison.by_seed.items()
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


def comparison_markdown(
    comparison: Comparison, tables: Sequence[Table], pictures: Sequence[ReportFigure], samples: Sequence[Sample]
) -> str:
    """The report as Markdown."""
    parts = ["# Comparison", escape_markdown(comparison_headline(comparison)), *sections(tables, pictures)]
    parts.append("## Answers side by side")
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
    """A Markdown table with right-aligned columns of numbers."""
    lines = [table.header, ("---", *["---:"] * (len(table.header) - 1)), *table.rows]
    cells = [[cell if number == 1 else escape_markdown(cell) for cell in line] for number, line in enumerate(lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def escape_markdown(text: str) -> str:
    """Text as one line with the characters of inline Markdown escaped.

    >>> escape_markdown("y_w | *\\n<b>")
    'y\\\\_w \\\\| \\\\* \\\\<b>'
    """
    return re.sub(r"([\\`*_\[<#|~])", r"\\\1", " ".join(text.split()))


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
