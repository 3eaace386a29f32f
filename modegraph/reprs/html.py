"""The parts that every notebook view is made of. Text is escaped here; what is of type Html is markup already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NewType

Html = NewType("Html", str)
STYLE = (
    "<style>.modegraph{font:14px/1.45 system-ui,sans-serif;max-width:72rem}"
    ".modegraph table{border-collapse:collapse;margin:.4rem 0}"
    ".modegraph th,.modegraph td{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid #8886}"
    ".modegraph .soft{opacity:.7;font-size:.9em}.modegraph .text{white-space:pre-wrap;overflow-wrap:anywhere}"
    ".modegraph svg{max-width:100%;height:auto}.modegraph svg text{fill:currentColor}</style>"
)


def text(content: object, kind: str = "") -> Html:
    """Foreign text, escaped; with `kind` in a span of that class.

    >>> text("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    told = escape(str(content))
    return Html(f'<span class="{kind}">{told}</span>' if kind else told)


def tag(name: str, *inside: Html) -> Html:
    """An element around markup."""
    return Html(f"<{name}>{''.join(inside)}</{name}>")


def table(header: Sequence[str], rows: Iterable[Sequence[Html]]) -> Html:
    """A table; its header is text, its cells are markup."""
    head = tag("tr", *(tag("th", text(each)) for each in header))
    body = (tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    return tag("table", tag("thead", head), tag("tbody", *body))


def view(*parts: Html) -> str:
    """A whole view."""
    return f'<div class="modegraph">{STYLE}{"".join(parts)}</div>'
