"""The page on reliability: every row names a test, every named test exists, and every kind of fault has a section."""

import ast
import re

from tests.places import ROOT

PAGE = (ROOT / "docs/developers/reliability.md").read_text(encoding="utf-8")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ROWS = [
    line
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| while |", "| fault |", "|---"))
]


def names_in(file: str) -> set[str]:
    """The names of the functions at the top level of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_named_test_exists() -> None:
    named = NAMED_TEST.findall(PAGE)
    assert len(named) > 45
    assert [
        f"{file}::{name}" for file, name in named if not (ROOT / file).is_file() or name not in names_in(file)
    ] == []


def test_every_row_names_a_test() -> None:
    assert [row for row in ROWS if not NAMED_TEST.search(row.split(" | ")[-1])] == []
    assert PAGE.count("`tests/") == len(NAMED_TEST.findall(PAGE))


def test_every_kind_of_fault_has_a_section() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    for fault in ("SIGKILL", "disk", "Bytes", "writers", "Servers", "Hostile"):
        assert any(fault in heading for heading in headings), fault
