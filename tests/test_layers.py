"""Which folder may import which, and what may be imported when the command line starts: the layout as a test."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("graph", "data_synth", "train", "serve", "eval")
MAY_IMPORT = {
    "graph": {"graph"},
    "data_synth": {"data_synth", "graph"},
    "train": {"train", "data_synth.types", "data_synth.relevance.types", "data_synth.route.types", "graph"},
    "serve": {"serve", "graph"},
    "eval": {"eval", "graph", "serve", "train", "data_synth.relevance", "data_synth.rewards", "data_synth.types"},
}
LIGHT = {"typer", "graph.console", "graph.errors", "graph.types"}
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
CLIS = [file for file in FILES if file.name.startswith("cli")]


def imports_of(file: Path, only_top_level: bool = False) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = tree.body if only_top_level else ast.walk(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_folder_imports_only_the_layers_below_it(file: Path) -> None:
    folder = file.relative_to(ROOT).parts[0]
    ours = {name for name in imports_of(file) if name.split(".")[0] in (*FOLDERS, "modegraph")}
    allowed = MAY_IMPORT[folder]
    above = {name for name in ours if not any(name == layer or name.startswith(layer + ".") for layer in allowed)}
    assert not above, f"{folder} may import {sorted(allowed)}"
    assert not any(name.endswith(".cli") for name in ours), "a command line is for people; call the function behind it"


@pytest.mark.parametrize("file", CLIS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_command_line_imports_nothing_heavy_at_the_top(file: Path) -> None:
    standard = sys.stdlib_module_names
    heavy = {
        name
        for name in imports_of(file, only_top_level=True)
        if name.split(".")[0] not in standard and name not in LIGHT and ".cli_" not in name
    }
    assert not heavy, "import it inside the command"


def test_every_folder_is_described_and_typed() -> None:
    for file in FILES:
        if file.name != "__init__.py" or file.stat().st_size:
            assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))), f"{file} does not say what it is for"
    for folder in FOLDERS:
        assert (ROOT / folder / "py.typed").exists()
