"""The text of a Jupyter notebook: prose unchanged, code and its output between fences. No code is run."""

import json
from collections.abc import Iterator
from typing import Any

from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import check_count, decode_text, join_blocks, title_of
from graph.errors import UserError


def read(data: bytes, file: str) -> ParsedFile:
    """Title (from the notebook's metadata, else its first heading) and text of a notebook in format 4 or 3, without images."""
    notebook = json.loads(decode_text(data, file))
    cells = _cells(notebook) if isinstance(notebook, dict) else None
    if cells is None:
        raise UserError(f"{file}: not a notebook", "a JSON object with cells", "repair or remove it")
    check_count(len(cells), "cells", file)
    properties = _mapping(notebook, "metadata")
    kernel, info = _mapping(properties, "kernelspec"), _mapping(properties, "language_info")
    language = kernel.get("language") or info.get("name", "")
    blocks = [block for cell in cells for block in _blocks(cell, language)]
    heading = next((title_of(block) for block in blocks if block.startswith("#")), "")
    metadata = {"language": language} if language else {}
    title = properties.get("title")
    return ParsedFile((title if isinstance(title, str) else "") or heading, join_blocks(blocks), metadata)


def _mapping(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping under a key; {} if there is none."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _cells(notebook: dict[str, Any]) -> list[Any] | None:
    """The cells of all worksheets (format 3) or of the notebook itself (format 4); None if any of these has no list of cells."""
    worksheets = notebook.get("worksheets", [notebook])
    cell_lists = [worksheet.get("cells") for worksheet in worksheets]
    return None if None in cell_lists else [cell for cells in cell_lists for cell in cells]


def _blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _as_text(cell.get("source", cell.get("input", "")))
    if cell["cell_type"] != "code":
        level = cell.get("level", 0)
        yield f"{'#' * level} {source}" if level else source
        return
    yield code_block(source, language)
    for output in cell.get("outputs", ()):
        kind = output.get("output_type")
        if kind in ("stream", "pyout", "execute_result", "display_data"):
            yield code_block(_as_text(output.get("text", output.get("data", {}).get("text/plain", ""))), "")
        elif kind in ("error", "pyerr"):
            yield code_block(f"{output.get('ename', '')}: {output.get('evalue', '')}", "")


def code_block(code: str, language: str) -> str:
    """Code between fences that are longer than any fence in it; "" for empty code.

    >>> code_block("print(1)\\n", "python")
    '```python\\nprint(1)\\n```'
    """
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code.rstrip()}\n{fence}" if code.strip() else ""


def _as_text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
