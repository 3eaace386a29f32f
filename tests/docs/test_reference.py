"""The pages generated from the code: the committed files are up to date, and the page of messages contains the errors of some commands."""

import ast
import doctest
import re

import pytest

from graph.errors import UserError
from tests.commands import run
from tests.places import ROOT
from tools.reference import notebooks
from tools.reference.all_pages import DOCS, all_pages
from tools.reference.messages import GAP, messages, plain_words, possible_texts

LINES = [
    line.split(" | ")
    for line in (ROOT / "docs/troubleshooting/messages.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return all_pages()


@pytest.mark.long
def test_the_committed_pages_equal_the_generated_ones(pages: dict[str, str]) -> None:
    stale = [file for file, text in pages.items() if (DOCS / file).read_text(encoding="utf-8") != text]
    assert stale == [], "run `make reference`"


def test_exactly_the_generated_pages_are_marked_as_generated(pages: dict[str, str]) -> None:
    marked = {
        file.relative_to(DOCS).as_posix()
        for file in DOCS.rglob("*.md")
        if "Made by `make reference`" in file.read_text(encoding="utf-8")
    }
    assert marked == pages.keys() and len(pages) >= 11


@pytest.mark.parametrize(
    "words",
    [
        ["ask", "no-such-folder", "Who?"],
        ["index", "no-such-folder", "--out", "there"],
        ["train", "ms", "--set", "betta=1"],
        ["config", "check", "no-such-file.yaml"],
        ["data", "validate", "no-such-file.jsonl"],
        ["serve", "no-such-folder"],
    ],
    ids=" ".join,
)
def test_an_error_message_is_on_the_page_of_messages(words: list[str]) -> None:
    error = run(*words).exception
    assert isinstance(error, UserError)
    assert [row for row in LINES if len(row) == 3 and as_pattern(row).fullmatch(str(error))] != []


def as_pattern(row: list[str]) -> re.Pattern[str]:
    """A pattern for the message that a row of the page describes, in which a gap matches anything."""
    cells = [re.sub(r"\\(.)", r"\1", cell.strip("| ")) for cell in row]
    parts = (re.escape(cell.rstrip(".; ")).replace(GAP, ".*") for cell in cells if cell)
    return re.compile(r"[.?] (?:Expected )?".join(parts), flags=re.DOTALL | re.IGNORECASE)


def test_a_part_of_a_message_is_read_from_its_assignment() -> None:
    tree = ast.parse(
        "A = 'a file'\ndef f(x):\n    found = f'{x}: gone' if x else 'none'\n    raise UserError(found, A, x)\n"
    )
    function = tree.body[1]
    call = next(node for node in ast.walk(function) if isinstance(node, ast.Call))
    assert [possible_texts(part, [tree, function], call) for part in call.args] == [
        ["…: gone", "none"],
        ["a file"],
        ["…"],
    ]


def test_both_parts_of_an_alternative_and_a_question_about_a_misspelling_are_read() -> None:
    tree = ast.parse(
        "def f(x):\n    raise UserError('no x', did_you_mean(x, []) or f'one of {x}', did_you_mean(x, []))\n"
    )
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 3)
    assert [possible_texts(part, [tree], call) for part in call.args] == [
        ["no x"],
        ["did you mean …?", "one of …"],
        ["did you mean …?", ""],
    ]


def test_a_reassigned_name_has_only_the_values_that_can_reach_the_call() -> None:
    tree = ast.parse(
        """
def check(file):
    remedy = "save it again"
    if file.broken:
        found = "broken"
        raise UserError(found, "", remedy)
    if file.old:
        remedy = "convert it"
    found = "odd"
    raise UserError(found, "", remedy)
"""
    )
    scopes = [tree, tree.body[0]]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: call.lineno)
    read = [[sorted(possible_texts(part, scopes, call)) for part in (call.args[0], call.args[2])] for call in calls]
    assert read == [[["broken"], ["save it again"]], [["odd"], ["convert it", "save it again"]]]


def test_links_of_a_notebook_are_rewritten_for_its_page() -> None:
    failed, tried = doctest.testmod(notebooks)
    assert tried > 0 and failed == 0


@pytest.mark.long
def test_few_messages_consist_of_gaps_only() -> None:
    found = [message for package in ("graph", "train", "serve") for message in messages(package)]
    assert len(found) > 250
    assert sum(plain_words(message.found) == "" for message in found) < 0.15 * len(found)
