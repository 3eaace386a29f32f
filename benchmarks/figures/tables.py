"""The tables of docs/results.md, which figures are drawn from: what a figure shows is what stands there."""

from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results.md"
DATA = Path(__file__).parent / "data"
"""What measure.py has measured."""
Row = dict[str, str]


def table(begins: str, page: Path = RESULTS) -> list[Row]:
    """The rows of the one table whose head begins so, by the names of its columns; ValueError when there is not just one."""
    lines = page.read_text(encoding="utf-8").splitlines()
    heads = [place for place, line in enumerate(lines) if line.startswith(begins)]
    if len(heads) != 1:
        raise ValueError(f"{len(heads)} tables begin with {begins!r}")
    names = cells(lines[heads[0]])
    rows = []
    for line in lines[heads[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, cells(line), strict=True)))
    return rows


def cells(line: str) -> list[str]:
    """The cells of a line, without emphasis and backticks."""
    return [cell.strip().strip("*`") for cell in line.strip().strip("|").split("|")]


def number(text: str) -> float:
    """A figure as it stands in a table.

    >>> number(".931"), number("−.065"), number("+.021"), number("2,994")
    (0.931, -0.065, 0.021, 2994.0)
    """
    return float(text.replace("−", "-").replace(",", ""))


def interval(text: str) -> tuple[float, float, float]:
    """(mean, low, high) of a difference with its interval.

    >>> interval("+.021 [−.071, +.106]")
    (0.021, -0.071, 0.106)
    """
    mean, _, bounds = text.partition(" [")
    low, _, high = bounds.rstrip("]").partition(", ")
    return number(mean), number(low), number(high)
