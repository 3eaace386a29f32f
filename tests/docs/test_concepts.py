"""The concept pages: each mode has a page with the constants of the code, the objectives' example prints the output shown, and the names on pages
for users of other tools exist."""

import doctest
import re
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from graph.config import setting_lines
from graph.retrieve.parts.query import RetrieveSettings
from graph.shared.modes import Mode
from graph.store.index_settings import IndexSettings
from tests.places import ROOT
from tests.test_command_line import COMMANDS
from train.run.settings import DpoSettings, MsSettings, RewardSettings, SftSettings

MODES = ROOT / "docs" / "concepts" / "modes"
SETTINGS_CLASSES = (RetrieveSettings, IndexSettings, SftSettings, DpoSettings, MsSettings, RewardSettings)
CONSTANT = re.compile(r"^\| `(\w+)\.([A-Z_0-9]+)` \| ([\d._]+) \|", re.MULTILINE)
MODULES = {
    file.stem: ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for folder in ("graph/retrieve", "graph/index", "graph/text")
    for file in sorted((ROOT / folder).rglob("*.py"))
}


def page_of(mode: str) -> str:
    return (MODES / f"{mode}.md").read_text(encoding="utf-8")


def test_every_mode_has_a_page_and_every_page_a_mode() -> None:
    assert sorted(file.stem for file in MODES.iterdir()) == sorted(get_args(Mode))


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_page_states_what_its_mode_returns_and_costs_and_which_settings_it_has(mode: str) -> None:
    text = page_of(mode)
    assert text.startswith(f"# `{mode}`\n")
    at_a_glance = text.partition("## At a glance")[2]
    glance = dict(re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", at_a_glance, flags=re.MULTILINE))
    assert list(glance) == ["returns", "calls a model", "cost", "settings", "code", "source"]
    known = {line.key for kind in (RetrieveSettings, IndexSettings) for line in setting_lines(kind)} | {"suggestions.*"}
    assert {name for name in re.findall(r"`([^`]+)`", glance["settings"])} <= known


@pytest.mark.parametrize("mode", get_args(Mode))
def test_the_constants_on_a_page_equal_those_of_the_code(mode: str) -> None:
    for module, name, value in CONSTANT.findall(page_of(mode)):
        in_code = getattr(import_module(MODULES[module]), name)
        assert in_code == float(value.replace("_", "")), (
            f"{mode}.md: {module}.{name} is {value}; expected {in_code}, as in the code"
        )


def test_the_pattern_finds_the_constants_on_the_pages() -> None:
    assert sum(len(CONSTANT.findall(page_of(mode))) for mode in get_args(Mode)) > 45
    assert CONSTANT.findall("| `a.B_C` | .85 | d |") == [("a", "B_C", ".85")]


def test_the_example_of_the_objectives_gives_the_output_shown() -> None:
    page = str(MODES.parent / "objectives" / "index.md")
    failed, tried = doctest.testfile(page, module_relative=False)
    assert tried == 7 and failed == 0


@pytest.mark.parametrize("page", sorted((ROOT / "docs/coming-from").glob("*.md")), ids=lambda page: page.stem)
def test_the_settings_modes_commands_and_losses_named_on_a_coming_from_page_exist(page: Path) -> None:
    ours = re.findall(r"^\|[^|]+\|(.+)\|$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {"".join(found) for cell in ours for found in re.findall(r"`([a-z_]+)(?:`|: )|--set ([a-z_.]+)=", cell)}
    settings = {line.key for kind in SETTINGS_CLASSES for line in setting_lines(kind)}
    commands = {word for command in COMMANDS for word in command.split()}
    losses = get_args(DpoSettings.model_fields["loss"].annotation)
    assert named and named <= {*settings, *get_args(Mode), *commands, *losses}
