"""Markdown as the generated pages need it."""

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells keep their Markdown, but for line ends and bars.

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
    """Text as code, whatever backticks it holds; nothing for no text.

    >>> code("a `b`"), code("")
    ('`` a `b` ``', '')
    """
    return "" if not text else f"`` {text} ``" if "`" in text else f"`{text}`"


def page(title: str, about: str, *parts: str) -> str:
    """A whole page, saying that it is made and by what."""
    made = "<!-- Made by `make reference`: change the code, not this page. -->"
    return "\n\n".join([made, f"# {title}", about, *(part for part in parts if part)]) + "\n"


def anchor(heading: str) -> str:
    """The anchor that the site gives a heading.

    >>> anchor("`train ms`")
    'train-ms'
    """
    kept = "".join(each for each in heading.lower() if each.isalnum() or each in " -_")
    return "-".join(kept.split())


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"
