"""All generated pages."""

from pathlib import Path

from tools.reference import api, commands, messages, notebooks, routes, settings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def all_pages() -> dict[str, str]:
    """The text of each page by its path in docs/."""
    pages: dict[str, str] = {}
    for module in (commands, settings, routes, api, messages, notebooks):
        pages |= module.pages()
    return pages
