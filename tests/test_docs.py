"""The documentation: the files and link targets that it names exist, the README is short, and the tour names one or two files per question."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples/README.md"])
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
FILE = re.compile(r"`([\w./{},-]+\.(?:py|txt|yaml|jsonl|md|svg|toml))(?::[^`]*)?`")
MADE_BY_USERS = {
    "A.jsonl",
    "B.jsonl",
    "log.jsonl",
    "log.txt",
    "progress.jsonl",
    "report.md",
    "rounds.jsonl",
    "samples.jsonl",
    "settings.yaml",
    "train.jsonl",
}
"""Files that a user or a run creates."""
TRACKED = {line for line in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split("\n") if line}


def alternatives(name: str) -> list[str]:
    """`a/{b,c}.py` expanded to a/b.py and a/c.py."""
    inner = re.search(r"\{([^}]*)\}", name)
    return [name.replace(inner[0], each) for each in inner[1].split(",")] if inner else [name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_targets_of_links_exist(page: Path) -> None:
    inside = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in inside if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = {each for found in FILE.findall(page.read_text(encoding="utf-8")) for each in alternatives(found)}
    names = {Path(file).name for file in TRACKED}
    gone = {each for each in named if "/" in each and each not in TRACKED and not (page.parent / each).exists()}
    gone |= {each for each in named if "/" not in each and each not in names | MADE_BY_USERS}
    assert {each for each in gone if not each.startswith(("my-", "-", "demo-run/", "runs/", "../shared/"))} == set()


def test_the_readme_has_fewer_than_150_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_the_tour_names_one_or_two_files_for_each_question() -> None:
    tour = (ROOT / "docs/tour.md").read_text(encoding="utf-8").split("\n## ")[0]
    rows = [row for row in tour.splitlines() if row.startswith("| ") and "?" in row]
    assert len(rows) == 8
    for row in rows:
        assert 1 <= len(FILE.findall(row) + LINK.findall(row)) <= 2, row
