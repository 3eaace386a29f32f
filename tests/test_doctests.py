"""Runs the examples in docstrings and in the Python guide."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from tests.places import ROOT

MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for folder in ("graph", "data_synth", "train", "serve", "eval", "modegraph")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_give_the_output_shown(module: str) -> None:
    failed, tried = doctest.testmod(import_module(module))
    assert tried > 0 and failed == 0


@pytest.mark.long
def test_examples_in_the_python_guide_give_the_output_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples use the real encoder; only the list of known settings needs ELLIPSIS."""
    monkeypatch.chdir(tmp_path)
    guide = str(ROOT / "docs" / "python.md")
    failed, tried = doctest.testfile(guide, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 8 and failed == 0
