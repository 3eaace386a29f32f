"""tutorials/: the notebooks in examples/ as pages; `make notebooks` runs them."""

import json
from pathlib import Path

from tools.reference.markdown import page

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"


def pages() -> dict[str, str]:
    """The pages, by file name."""
    return {f"tutorials/{file.stem}.md": as_page(file) for file in sorted(NOTEBOOKS.glob("*.ipynb"))}


def as_page(file: Path) -> str:
    """A notebook's cells in order, its first heading as the title."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    parts = [
        "".join(cell["source"]) if cell["cell_type"] == "markdown" else as_block("".join(cell["source"]))
        for cell in cells
    ]
    title, _, first = parts[0].partition("\n")
    about = (
        f"The notebook `examples/notebooks/{file.name}`, cell by cell; CI runs it on every change (`make notebooks`)."
    )
    return page(title.removeprefix("# "), about, *(rewrite_links(part) for part in (first.strip(), *parts[1:])))


def as_block(code: str) -> str:
    """A code cell, without the trailing semicolon that suppresses output in a notebook.

    >>> as_block("draw();")
    '```python\\ndraw()\\n```'
    """
    return f"```python\n{code.removesuffix(';')}\n```"


def rewrite_links(text: str) -> str:
    """A cell's links, rewritten for the page: to the pages of other notebooks, and to other pages of docs/.

    >>> rewrite_links("[a](pairs.ipynb), [b](../../docs/results.md)")
    '[a](pairs.md), [b](../results.md)'
    """
    return text.replace(".ipynb)", ".md)").replace("](../../docs/", "](../")
