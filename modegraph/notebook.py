"""Notebook views: HTML without scripts, paths as inline SVG. Text of documents and models is escaped; values of type Html are markup."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NewType
from unicodedata import east_asian_width

from graph.shared.console import counted

if TYPE_CHECKING:
    from eval.tables import Table
    from graph.build.lifecycle import IndexStatus
    from graph.types import Evidence, Passage, Scored, Summary
    from serve.pipeline import Answer

Html = NewType("Html", str)
STYLE = (
    "<style>.modegraph{font:14px/1.45 system-ui,sans-serif;max-width:72rem}"
    ".modegraph table{border-collapse:collapse;margin:.4rem 0}"
    ".modegraph th,.modegraph td{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid #8886}"
    ".modegraph .soft{opacity:.7;font-size:.9em}.modegraph .text{white-space:pre-wrap;overflow-wrap:anywhere}"
    ".modegraph svg{max-width:100%;height:auto}.modegraph svg text{fill:currentColor}</style>"
)


def text(content: object, kind: str = "") -> Html:
    """Untrusted text, escaped; with `kind`, in a span of that class.

    >>> text("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    escaped = escape(str(content))
    return Html(f'<span class="{kind}">{escaped}</span>' if kind else escaped)


def tag(name: str, *inside: Html) -> Html:
    """An element containing markup."""
    return Html(f"<{name}>{''.join(inside)}</{name}>")


def table(header: Sequence[str], rows: Iterable[Sequence[Html]]) -> Html:
    """A table; its header is text, its cells are markup."""
    head = tag("tr", *(tag("th", text(cell)) for cell in header))
    body = (tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    return tag("table", tag("thead", head), tag("tbody", *body))


def notebook_view(*parts: Html) -> str:
    """The parts and their style sheet as one element."""
    return f'<div class="modegraph">{STYLE}{"".join(parts)}</div>'


MAX_PASSAGES = 5
MAX_WIDTH = 30
"""The largest width of a box's text, in characters."""
WIDTH, HEIGHT, GAP_X, GAP_Y = 210, 30, 36, 12
"""Sizes of a box and of the gaps between boxes, in pixels."""

Node = tuple[int, str]
"""A node's column (0 for the question) and its label."""


def paths_svg(evidence: Evidence) -> Html:
    """The paths as boxes, from left to right: the question, the steps (a shared step once), the passages; "" if there are no paths."""
    paths = node_paths(evidence)
    if not any(len(path) > 2 for path in paths):
        return Html("")
    nodes = sorted(dict.fromkeys(node for path in paths for node in path), key=itemgetter(0))
    position: dict[Node, tuple[int, int]] = {}
    for node in nodes:
        row = sum(other[0] == node[0] for other in position)
        position[node] = (1 + node[0] * (WIDTH + GAP_X), 1 + row * (HEIGHT + GAP_Y))
    lines = {pair for path in paths for pair in pairwise(path)}
    drawn = [_svg_line(position[start], position[end]) for start, end in sorted(lines)]
    drawn += [_svg_box(position[node], node) for node in nodes]
    width = max(x for x, _ in position.values()) + WIDTH + 1
    height = max(y for _, y in position.values()) + HEIGHT + 1
    title = "<title>Paths from the question to the passages</title>"
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="12">{title}{"".join(drawn)}</svg>'
    )


def node_paths(evidence: Evidence) -> list[list[Node]]:
    """The path to each of the best passages, as nodes from the question to the passage; all passages are in the last column."""
    ranked = list(zip(evidence.passages, evidence.paths, strict=False))[:MAX_PASSAGES]
    last = 1 + max((len(path) for _, path in ranked), default=0)
    paths = []
    for rank, (passage, path) in enumerate(ranked, start=1):
        steps = [(column, step) for column, step in enumerate(path, start=1)]
        paths.append([(0, evidence.query), *steps, (last, f"{rank}. {passage.item.title or passage.item.source}")])
    return paths


def clip(words: str) -> str:
    """The words on one line, cut to fit a box; a Chinese, Japanese or Korean character takes the width of two others.

    >>> clip("short"), clip("a line that is longer than any box can be"), clip("東京は日本の首都であり、世界最大の都市")
    ('short', 'a line that is longer than an…', '東京は日本の首都であり、世界…')
    """
    line = " ".join(words.split())
    widths = list(accumulate(2 if east_asian_width(character) in "FW" else 1 for character in line))
    return line if not line or widths[-1] <= MAX_WIDTH else line[: bisect_right(widths, MAX_WIDTH - 1)] + "…"


def _svg_line(start: tuple[int, int], end: tuple[int, int]) -> str:
    points = (start[0] + WIDTH, start[1] + HEIGHT // 2, end[0], end[1] + HEIGHT // 2)
    return '<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="currentColor" stroke-opacity=".5"/>'.format(*points)


def _svg_box(position: tuple[int, int], node: Node) -> str:
    x, y = position
    return (
        f'<g><title>{text(node[1])}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="none" '
        f'stroke="currentColor" stroke-opacity=".6"/><text x="{x + 8}" y="{y + 20}">{text(clip(node[1]))}</text></g>'
    )


def evidence_html(evidence: Evidence) -> str:
    """The question, the cost of the search, each passage with rank, title, score, text and path; then a drawing of the paths."""
    return notebook_view(
        tag("p", tag("strong", text(evidence.query))),
        cost_line(evidence),
        passages_table(evidence),
        paths_svg(evidence),
    )


def cost_line(evidence: Evidence) -> Html:
    """One line: mode, seconds, model calls if any, and why the search stopped early, if it did."""
    trace = evidence.trace
    calls = f" · {counted(trace.model_calls, 'model call')}" if trace.model_calls else ""
    stopped = f" · stopped: {trace.stopped}" if trace.stopped else ""
    return text(f"{trace.mode} · {trace.seconds + trace.encoder_seconds:.2f} s{calls}{stopped}", "soft")


def passages_table(evidence: Evidence) -> Html:
    """The passages, best first; then the summaries, where the mode found any."""

    def row(rank: object, title: str, found: Scored[Passage] | Scored[Summary], path: Html) -> tuple[Html, ...]:
        return text(rank), text(title), text(f"{found.score:.3f}"), text(found.item.text, "text"), path

    paths = evidence.paths or ((),) * len(evidence.passages)
    rows = [
        row(rank, found.item.title or found.item.source, found, text(" → ".join(path), "soft"))
        for rank, (found, path) in enumerate(zip(evidence.passages, paths, strict=True), start=1)
    ]
    rows += [row("–", f"summary, layer {found.item.layer}", found, text("")) for found in evidence.summaries]
    if not rows:
        return tag("p", text("Nothing found."))
    return table(("rank", "title", "score", "text", "path"), rows)


def answer_html(answer: Answer) -> str:
    """The answer with its reason, the cited passages, removed citations, unsupported and unchecked sentences, the cost, and the paths to the evidence.

    Without an answer and citations, all passages found are listed.
    """
    from serve.show import no_answer, unsupported_line

    rows = [
        (
            text(f"[{number}]"),
            text(f"{each.title or each.source}{' (attributed, not cited by the model)' if each.attributed else ''}"),
            text(each.text, "text"),
        )
        for number, each in answer.citations.items()
    ]
    removed = ", ".join(f"[{number}]" for number in answer.removed)
    return notebook_view(
        tag("p", text(answer.question, "soft")),
        tag("p", tag("strong", text(answer.answer or no_answer(answer.reason), "text"))),
        *([tag("p", text(answer.reason, "text"))] if answer.reason else []),
        *([table(("", "title", "passage"), rows)] if rows else []),
        *([passages_table(answer.evidence)] if not answer.answer and not rows else []),
        *([tag("p", text(f"Removed: {removed}, cited but not among the passages.", "soft"))] if removed else []),
        *(tag("p", text(unsupported_line(sentence), "soft")) for sentence in answer.unsupported),
        *(tag("p", text(f"Not checked: “{each.text}” {each.because}.", "soft")) for each in answer.not_checked),
        *([tag("p", text("Cut at the token limit.", "soft"))] if answer.finish_reason == "length" else []),
        cost_line(answer.evidence),
        text(f" · {answer.model} · {answer.writing.seconds:.2f} s", "soft"),
        paths_svg(answer.evidence),
    )


def index_html(status: IndexStatus) -> str:
    """Folder, generation, encoder, size, and the number of rows of each table; a note if the last run did not finish."""
    summary = f"generation {status.generation} · encoder {status.encoder} · {status.disk_bytes / 1e6:,.1f} MB"
    rows = [(text(name), text(f"{count:,}")) for name, count in status.rows.items()]
    return notebook_view(
        tag("p", tag("strong", text(status.folder))),
        text(summary, "soft"),
        table(("table", "rows"), rows),
        *([tag("p", text(status.unfinished))] if status.unfinished else []),
    )


SHOWN_SETTINGS = (
    *("model", "data", "texts", "learning_rate", "epochs", "max_steps", "steps", "batch_size", "gradient_accumulation"),
    *("lora", "quantise", "precision", "beta", "beta_reward", "label_smoothing"),
    *("responses", "size", "seed"),
)
"""The settings that are shown, because runs often differ in them."""


def run_html(folder: str, stage: str, settings: Mapping[str, Any], metrics: Mapping[str, float], seconds: float) -> str:
    """The folder, the training time, the settings of SHOWN_SETTINGS that have a value, and the figures."""
    chosen = [(text(name), text(settings[name])) for name in SHOWN_SETTINGS if settings.get(name) is not None]
    figures = [(text(name), text(f"{value:.4g}")) for name, value in metrics.items()]
    return notebook_view(
        tag("p", tag("strong", text(f"{stage}: {folder}"))),
        text(f"trained in {seconds:.1f} s", "soft"),
        table(("setting", "value"), chosen),
        table(("figure", "value"), figures),
    )


def comparison_html(tables: Sequence[Table]) -> str:
    """Each table under its title, with the note on how to read it."""
    parts = []
    for result in tables:
        rows = [[text(cell) for cell in row] for row in result.rows]
        parts += [tag("h4", text(result.title)), table(result.header, rows), tag("p", text(result.note, "soft"))]
    return notebook_view(*parts)
