"""The metadata that a Markdown file may begin with: YAML between lines of ---, TOML between lines of +++."""

import json
import re
import tomllib
from datetime import date, time
from math import isfinite
from typing import Any

import yaml

from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import decode_text, title_of

_BLOCK = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n(.{0,65536}?\n)\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
TYPES = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "0|-?[1-9][0-9]{0,17}",
    "float": r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,18}",
    "merge": "<<",
}
"""The YAML types other than text, and their scalars. YAML 1.1 reads 12:30 as 750, 012 as 10 and no as false."""
RENAMED = {"source": "origin"}
"""Keys that are stored under another name: `source` is the name of the document itself. If both keys occur, their values form one list."""


def read(data: bytes, file: str) -> ParsedFile:
    """Title and metadata of the block, and the text after it; the unchanged text if the block is missing, invalid or without values.

    >>> parsed = read(b"---\\ntitle: Tides\\nyear: 1990\\n---\\nHigh at noon.\\n", "a.md")
    >>> parsed.title, parsed.text, parsed.metadata
    ('Tides', 'High at noon.\\n', {'year': 1990})
    """
    text = decode_text(data, file)
    block = _BLOCK.match(text)
    fields = _fields(block[1], block[2]) if block else {}
    if not fields or not block:
        return ParsedFile(title_of(text), text)
    body = text[block.end() :]
    title = fields.pop("title") if isinstance(fields.get("title"), str | int | float) else ""
    values: dict[str, Any] = {}
    for key, value in fields.items():
        name = RENAMED.get(key, key)
        values[name] = [*_as_list(values[name]), *_as_list(value)] if name in values else value
    return ParsedFile(str(title) or title_of(body), body, values)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012
        None: [(f"tag:yaml.org,2002:{name}", re.compile(rf"(?:{scalars})\Z")) for name, scalars in TYPES.items()]
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping; versions are texts, because 1.10 is not 1.1."""
        for key, value in node.value:
            if "version" in str(key.value).lower():
                for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    each.tag = each.tag.replace(":float", ":str")
        return super().construct_mapping(node, deep)


def _fields(fence: str, block: str) -> dict[str, Any]:
    """The keys of a block that have a value, with their values; {} if the block is not valid TOML (after a fence of +++) or YAML."""
    try:
        fields = tomllib.loads(block) if fence == "+++" else _Loader(block).get_single_data()
        if not isinstance(fields, dict):
            return {}
        return {str(key): _value(value) for key, value in fields.items() if value is not None and value != ""}
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError):
        return {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(value: Any) -> Any:
    """A value that filters can test: a string, number, boolean, or a list of these; a date in ISO 8601, anything else as JSON."""
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return [_value(item) for item in value if item is not None]
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return json.dumps(_with_text_keys(value), ensure_ascii=False, default=str)


def _with_text_keys(value: Any, inside: tuple[int, ...] = ()) -> Any:
    """A value whose mappings have strings as keys; ValueError if it contains itself, as a YAML anchor allows."""
    if id(value) in inside:
        raise ValueError("a value contains itself")
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item, (*inside, id(value))) for key, item in value.items()}
    return [_with_text_keys(item, (*inside, id(value))) for item in value] if isinstance(value, list) else value
