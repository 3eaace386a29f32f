"""The paths from a question to its passages as one small picture: inline SVG, nothing to run, nothing to load."""

from __future__ import annotations

from itertools import pairwise

from graph.shared.types import Evidence
from modegraph.reprs.html import Html, text

MOST_PASSAGES = 5
MOST_CHARACTERS = 30
WIDTH, HEIGHT, GAP_X, GAP_Y = 210, 30, 36, 12
"""Of a box and of the space between boxes, in pixels."""

Node = tuple[int, str]
"""A column from 0, the question's, and what the node says."""


def paths_svg(evidence: Evidence) -> Html:
    """Boxes from left to right: the question, the steps that paths share or do not, the passages; "" where no path is told."""
    ways = node_ways(evidence)
    if not any(len(way) > 2 for way in ways):
        return Html("")
    nodes = sorted({node for way in ways for node in way}, key=lambda node: (node[0], _first(ways, node)))
    place: dict[Node, tuple[int, int]] = {}
    for node in nodes:
        row = sum(other[0] == node[0] for other in place)
        place[node] = (1 + node[0] * (WIDTH + GAP_X), 1 + row * (HEIGHT + GAP_Y))
    lines = {pair for way in ways for pair in pairwise(way)}
    drawn = [_line(place[start], place[end]) for start, end in sorted(lines)] + [
        _box(place[node], node) for node in nodes
    ]
    width = max(x for x, _ in place.values()) + WIDTH + 1
    height = max(y for _, y in place.values()) + HEIGHT + 1
    title = "<title>Paths from the question to the passages</title>"
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="12">{title}{"".join(drawn)}</svg>'
    )


def node_ways(evidence: Evidence) -> list[list[Node]]:
    """For each of the best passages the nodes of its path, question first; passages stand in one column, the last."""
    told = list(zip(evidence.passages, evidence.paths, strict=False))[:MOST_PASSAGES]
    last = 1 + max((len(path) for _, path in told), default=0)
    ways = []
    for rank, (found, path) in enumerate(told, start=1):
        steps = [(column, step) for column, step in enumerate(path, start=1)]
        ways.append([(0, evidence.query), *steps, (last, f"{rank}. {found.item.title or found.item.source}")])
    return ways


def clipped(words: str) -> str:
    """As much of a text as fits a box, in one line.

    >>> clipped("short"), clipped("a text that is longer than any box can be")
    ('short', 'a text that is longer than an…')
    """
    line = " ".join(words.split())
    return line if len(line) <= MOST_CHARACTERS else line[: MOST_CHARACTERS - 1] + "…"


def _first(ways: list[list[Node]], node: Node) -> int:
    return next(rank for rank, way in enumerate(ways) if node in way)


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    points = (start[0] + WIDTH, start[1] + HEIGHT // 2, end[0], end[1] + HEIGHT // 2)
    return '<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="currentColor" stroke-opacity=".5"/>'.format(*points)


def _box(at: tuple[int, int], node: Node) -> str:
    x, y = at
    return (
        f'<g><title>{text(node[1])}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="none" '
        f'stroke="currentColor" stroke-opacity=".6"/><text x="{x + 8}" y="{y + 20}">{text(clipped(node[1]))}</text></g>'
    )
