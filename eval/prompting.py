"""Prompts of eval/: text files with $placeholders. What they quote is data (graph.answer.quote)."""

from functools import cache
from importlib.resources import files
from string import Template


def fill(name: str, **values: str) -> str:
    """A file of eval/prompts with its placeholders filled; values are not searched for placeholders themselves."""
    return Template(_read(name)).substitute(values)


@cache
def _read(name: str) -> str:
    return files("eval").joinpath(f"prompts/{name}").read_text(encoding="utf-8").strip()
