"""Every console block of the docs is run, or the line before it states why not: `<!-- not run: the reason -->`.

The blocks of a page run in order, in one folder with the files that a reader would have: the examples, and documents and
questions of the reader's own. Texts are encoded by the stand-in encoder; a command's output must contain the output that the block shows.
"""

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import graph.models.encoder
from graph.documents.questions import read_questions
from tests.commands import run
from tests.fakes import HashEncoder
from tests.places import EXAMPLES, ROOT

PAGES = [ROOT / "README.md", EXAMPLES / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:[ ]*<!-- not run: (?P<why>[^\n]+) -->\n)?(?P<indent>[ ]*)```console\n(?P<lines>.*?)^[ ]*```$",
    re.MULTILINE | re.DOTALL,
)
SOME_DOCUMENTS = (
    "skerran-light.md",
    "lighthouse-keepers-roll.md",
    "blue-quince.md",
    "saltmere.md",
    "petra-olavson.md",
    "ida-marrack.md",
)


@dataclass(frozen=True)
class Block:
    """A console block: its commands, each with the output shown, and why the block is not run ("" if it is)."""

    why: str
    commands: tuple[tuple[str, str], ...]


def blocks_of(text: str) -> list[Block]:
    """The console blocks of a page in order."""
    found = []
    for match in BLOCK.finditer(text):
        parts = re.split(r"^\s*\$ ", match["lines"], flags=re.MULTILINE)[1:]
        found.append(
            Block(
                match["why"] or "", tuple((first, rest) for first, _, rest in (part.partition("\n") for part in parts))
            )
        )
    return found


BLOCKS = {page: blocks_of(page.read_text(encoding="utf-8")) for page in PAGES}
RUN_PAGES = [page for page, blocks in BLOCKS.items() if any(not block.why for block in blocks)]


def test_blocks_are_read_with_their_reasons_and_output() -> None:
    text = '<!-- not run: needs a GPU -->\n```console\n$ a b\n```\n\n1. x\n\n    ```console\n    $ c \\"d\\"  # e\n    f\n    $ g\n    ```\n'
    assert blocks_of(text) == [
        Block("needs a GPU", (("a b", ""),)),
        Block("", (('c \\"d\\"  # e', "    f\n"), ("g", ""))),
    ]
    assert sum(len(blocks) for blocks in BLOCKS.values()) == sum(
        page.read_text(encoding="utf-8").count("```console") for page in PAGES
    )


@pytest.mark.parametrize(
    "page", [page for page in PAGES if BLOCKS[page]], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_a_block_that_is_not_run_states_why(page: Path) -> None:
    for block in BLOCKS[page]:
        assert block.why == "" or len(block.why.split()) > 1, block
        assert block.why or all(line.startswith("modegraph ") for line, _ in block.commands), (
            "mark the block as not run, or use only `modegraph`"
        )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_hashed: None) -> Path:
    """A reader's working folder: the examples of a checkout, and the reader's own documents and questions (a few of the examples, to be quick)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(graph.models.encoder, "open_encoder", lambda spec: HashEncoder())
    for folder in ("examples/documents", "my-documents"):
        (tmp_path / folder).mkdir(parents=True)
        for name in SOME_DOCUMENTS:
            shutil.copy(EXAMPLES / "documents" / name, tmp_path / folder)
    lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    answered_here = [
        line
        for line, question in zip(lines, read_questions(EXAMPLES / "questions.jsonl"), strict=True)
        if set(question.gold_sources) <= set(SOME_DOCUMENTS)
    ]
    assert len(answered_here) >= 5
    (tmp_path / "my-questions.jsonl").write_text("\n".join(answered_here) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_blocks_of_a_page_succeed(page: Path, home: Path) -> None:
    for line, shown in (each for block in BLOCKS[page] if not block.why for each in block.commands):
        done = run(*shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, (line, done.output, done.exception)
        assert shown.strip() in done.output, line


def test_the_guide_and_the_start_pages_offline_and_documents_have_blocks_that_are_run() -> None:
    assert {ROOT / "docs/start/offline.md", ROOT / "docs/start/documents.md", ROOT / "docs/guide.md"} <= set(RUN_PAGES)
