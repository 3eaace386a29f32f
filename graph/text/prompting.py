"""Prompts of the whole suite: text files with $placeholders, and foreign text quoted in them as data."""

import json
from functools import cache
from importlib.resources import files
from string import Template

_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")
"""All characters of Unicode's category Cc."""


def fill(name: str, **values: str) -> str:
    """A prompt with its placeholders filled; values are not searched for placeholders themselves."""
    return Template(read_prompt(name)).substitute(values)


@cache
def read_prompt(name: str) -> str:
    """The prompt "folder/file.txt", which is file.txt in that folder's prompts/, as it stands, outer white space apart."""
    folder, _, file = name.partition("/")
    return files(folder).joinpath("prompts", file).read_text(encoding="utf-8").strip()


def quote(text: str) -> str:
    """Foreign text as one line of data: special tokens such as <|im_start|> are broken, control characters and line ends folded.

    >>> quote("a <|endoftext|>\\nb")
    'a < |endoftext| > b'
    """
    return " ".join(text.translate(_CONTROLS).replace("<|", "< |").replace("|>", "| >").split())


def quote_passage(title: str, text: str) -> str:
    """A title and a passage as two JSON strings: lines stay lines, special tokens are broken, no quotation ends early."""
    lines = "\n".join(quote(line) for line in text.split("\n"))
    return f"Title: {json.dumps(quote(title), ensure_ascii=False)}\nPassage: {json.dumps(lines, ensure_ascii=False)}"
