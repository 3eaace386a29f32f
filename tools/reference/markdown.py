"""Markdown helpers for the generated pages."""

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells keep their Markdown, but line breaks become spaces and vertical bars are escaped.

    >>> print(table(["a", "b"], [["1|2", "x"]]))
    | a | b |
    |---|---|
    | 1\\|2 | x |
    """
    lines = [
        _line(heads),
        "|" + "---|" * len(heads),
        *(_line([cell.replace("|", "\\|") for cell in row]) for row in rows),
    ]
    return "\n".join(lines)


def code(text: str) -> str:
    """Text as code, even if it contains backticks; "" for no text.

    >>> code("a `b`"), code("")
    ('`` a `b` ``', '')
    """
    return "" if not text else f"`` {text} ``" if "`" in text else f"`{text}`"


def page(title: str, about: str, *parts: str) -> str:
    """A complete page, marked as generated."""
    marker = "<!-- Made by `make reference`: change the code, not this page. -->"
    return "\n\n".join([marker, f"# {title}", about, *(part for part in parts if part)]) + "\n"


def anchor(heading: str) -> str:
    """A heading's anchor on the site.

    >>> anchor("`train ms`")
    'train-ms'
    """
    plain = "".join(character for character in heading.lower() if character.isalnum() or character in " -_")
    return "-".join(plain.split())


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"
