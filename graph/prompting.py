"""Prompts of graph/: text files with $placeholders, and document text quoted in them as data."""

import json
from functools import cache
from importlib.resources import files
from string import Template

from graph.answer import quote


def fill(name: str, **values: str) -> str:
    """A file of graph/prompts with its placeholders filled; values are not searched for placeholders themselves."""
    return Template(read_prompt(name)).substitute(values)


@cache
def read_prompt(name: str) -> str:
    """A file of graph/prompts as it stands, outer white space apart."""
    return files("graph").joinpath(f"prompts/{name}").read_text(encoding="utf-8").strip()


def quote_passage(title: str, text: str) -> str:
    """A title and a passage as two JSON strings: lines stay lines, control tokens are broken, no quotation ends early."""
    lines = "\n".join(quote(line) for line in text.split("\n"))
    return f"Title: {json.dumps(quote(title), ensure_ascii=False)}\nPassage: {json.dumps(lines, ensure_ascii=False)}"
