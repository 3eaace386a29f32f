"""Prompts of all packages: text files with $placeholders, quoting of untrusted text as data, and escaping of special tokens in texts.

A tokenizer's special tokens are escaped before a text is tokenised, so that a document cannot end or start a turn. Serving and training
both use `escape_special_tokens`, so a served model reads texts in the form that it was trained on."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from importlib.resources import files
from string import Template
from typing import Any

_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")
"""Maps every character of Unicode's category Cc to a space."""


def fill(name: str, **values: str) -> str:
    """A prompt with its placeholders filled; placeholders within values are not filled."""
    return Template(read_prompt(name)).substitute(values)


@cache
def read_prompt(name: str) -> str:
    """The prompt "folder/file.txt", that is, file.txt in the folder's prompts/, without surrounding white space."""
    folder, _, file = name.partition("/")
    return files(folder).joinpath("prompts", file).read_text(encoding="utf-8").strip()


def quote(text: str) -> str:
    """Untrusted text as one line of data: special tokens such as <|im_start|> are broken up, and control characters and line ends become spaces.

    >>> quote("a <|endoftext|>\\nb")
    'a < |endoftext| > b'
    """
    return " ".join(break_special_tokens(text.translate(_CONTROLS)).split())


def break_special_tokens(text: str) -> str:
    """Untrusted text with every <| and |> broken up."""
    return text.replace("<|", "< |").replace("|>", "| >")


def quote_passage(title: str, text: str) -> str:
    """A title and a passage as two JSON strings: line breaks stay, special tokens are broken up, and quotation marks are escaped."""
    lines = "\n".join(quote(line) for line in text.split("\n"))
    return f"Title: {json.dumps(quote(title), ensure_ascii=False)}\nPassage: {json.dumps(lines, ensure_ascii=False)}"


def escape_special_tokens(text: str, tokenizer: Any) -> str:
    """`text` with a space after the first character of every special token of a transformers tokenizer."""
    pattern = special_token_pattern(tokenizer)
    while pattern is not None and pattern.search(text):
        text = pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


@lru_cache(maxsize=4)
def special_token_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    """Matches every added token of two or more characters that is special or bracketed (<think>, [INST]), longest first; None if there is none."""
    added = tokenizer.added_tokens_decoder.values()
    spellings = {str(token) for token in added if token.special or re.fullmatch(r"[<\[]\S+[>\]]", str(token))}
    words = sorted((word for word in spellings if len(word) > 1 and word == word.strip()), key=len, reverse=True)
    return re.compile("|".join(re.escape(word) for word in words)) if words else None
