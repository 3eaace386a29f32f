"""Reads JSON lines, with errors that name the file and line; writes whole files atomically."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graph.errors import UserError, unreadable

JSON_TYPES = {list: "array", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
"""JSON's names for the types that `json` returns for values other than objects."""
ESCAPED = "backslashreplace"
"""How a lone surrogate, which UTF-8 cannot encode, is written: as \\udXXX, which JSON reads."""


def read_jsonl(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) for every non-empty line; UserError for a file that cannot be read or a line that is not a JSON object."""
    try:
        lines = file.read_bytes().removeprefix(BOM_UTF8).split(b"\n")
    except OSError as problem:
        raise unreadable(file, problem, "a .jsonl file") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, _parse_object(line, f"{file} line {number}")


def _parse_object(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as problem:
        found = f"{where}: byte {line[problem.start]:#04x} at column {problem.start + 1} is not UTF-8"
        raise UserError(found, "UTF-8 text", "convert the file to UTF-8") from None
    except json.JSONDecodeError as problem:
        found = f"{where}: not valid JSON ({problem.msg} at column {problem.colno})"
        raise UserError(found, "one JSON object per line", "fix or remove the line") from None
    if not isinstance(row, dict):
        found = f"{where}: a JSON {JSON_TYPES[type(row)]}"
        raise UserError(found, "one JSON object per line", "fix or remove the line")
    return row


def write_jsonl(file: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write `rows` to a temporary file next to `file`, rename it into place, and return the number of rows."""
    count = 0
    with replacing(file) as partial, partial.open("w", encoding="utf-8", errors=ESCAPED) as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def append_jsonl(file: Path, row: dict[str, Any]) -> None:
    """Append a row to a log."""
    with file.open("a", encoding="utf-8", errors=ESCAPED) as out:
        out.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_json(file: Path, value: Any) -> None:
    """Write one JSON value atomically."""
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """Write `text` to a temporary file next to `file`, then rename it into place."""
    with replacing(file) as partial:
        partial.write_text(text, encoding="utf-8", errors=ESCAPED)


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path next to `file` for a temporary file, which is renamed into place at the end of the block, or removed after an error."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        yield partial
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
