"""The metadata that a Markdown file may begin with: YAML between lines of ---, TOML between lines of +++."""

import json
import re
import tomllib
from datetime import date, time
from typing import Any

import yaml

from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import decode_text, title_of

_BLOCK = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n(.{0,65536}?\n)\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
OWN = {"source": "origin"}
"""A document's `source` is its name, so that what front matter calls so is kept by another."""


def read(data: bytes, file: str) -> ParsedFile:
    """Title and metadata of the block, and the text after it; where the block holds no keys, the text as it stands.

    >>> made = read(b"---\\ntitle: Tides\\nyear: 1990\\n---\\nHigh at noon.\\n", "a.md")
    >>> made.title, made.text, made.metadata
    ('Tides', 'High at noon.\\n', {'year': 1990})
    """
    text = decode_text(data, file)
    block = _BLOCK.match(text)
    found = _keys(block[1], block[2]) if block else {}
    if not found or not block:
        return ParsedFile(title_of(text), text)
    body = text[block.end() :]
    title = found.pop("title", "")
    values = {OWN.get(key, key): value for key, value in found.items()}
    return ParsedFile(str(title) or title_of(body), body, values)


def _keys(fence: str, block: str) -> dict[str, Any]:
    """The keys of a block that have a value; {} where it is not what its fence says."""
    try:
        found = tomllib.loads(block) if fence == "+++" else yaml.safe_load(block)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): _value(value) for key, value in found.items() if value is not None and value != ""}


def _value(value: Any) -> Any:
    """What filters can ask for: text, number, truth value, or a list of these; anything else as JSON."""
    if isinstance(value, list) and not any(isinstance(each, dict | list) for each in value):
        return [_value(each) for each in value if each is not None]
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, str | int):
        return value
    if isinstance(value, float) and value - value == 0:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
