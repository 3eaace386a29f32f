"""The examples in docstrings, run: an example that is wrong misleads more than none."""

import doctest
from importlib import import_module

import pytest

from tests.places import ROOT

MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for folder in ("graph", "data_synth", "train", "serve", "eval", "modegraph")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_hold(module: str) -> None:
    failed, tried = doctest.testmod(import_module(module))
    assert tried > 0 and failed == 0
