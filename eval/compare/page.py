"""A report as one HTML file that needs no other: inline style, figures as data URIs, light and dark."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from eval.compare.samples import Sample
from eval.shared.tables import Table

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

EMPTY = '<span class="note">(nothing)</span>'


@dataclass(frozen=True)
class ReportFigure:
    """A PNG of a report: the heading above it, its file beside the page, its bytes, and what it shows in a word and in a sentence."""

    title: str
    file: str
    png: bytes
    alt: str
    caption: str


def to_html(
    title: str, headline: str, tables: Sequence[Table], pictures: Sequence[ReportFigure], samples: Sequence[Sample] = ()
) -> str:
    """The page; every text that comes from data or models is escaped."""
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(headline)}</p>",
        *(_table(table) for table in tables),
        *(_picture(picture) for picture in pictures),
        *(["<h2>Answers side by side</h2>"] if samples else []),
        *(_sample(sample) for sample in samples),
    ]
    body = "\n".join(parts)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>modegraph: {escape(title.lower())}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _picture(picture: ReportFigure) -> str:
    image = f"data:image/png;base64,{b64encode(picture.png).decode('ascii')}"
    return (
        f'<h2>{escape(picture.title)}</h2><figure><img src="{image}" alt="{escape(picture.alt)}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    return (
        f'<h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>'
        f'</table></div><p class="note">{escape(table.note)}</p>'
    )


def _sample(sample: Sample) -> str:
    answers = "".join(f"<dt>{escape(who)}</dt><dd>{escape(text) or EMPTY}</dd>" for who, text in sample.answers)
    prompt = "\n\n".join(f"{role}: {content}" for role, content in sample.prompt)
    return (
        f"<article><h3>{escape(sample.question)}</h3><details><summary>The prompt</summary>"
        f"<pre>{escape(prompt)}</pre></details><dl>{answers}</dl></article>"
    )
