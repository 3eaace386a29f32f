"""`.modegraphignore` is read as git reads `.gitignore`, and ignored files are neither read nor reported."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from graph.documents.read import IGNORE_FILE, files_in, read_documents
from graph.errors import UserError

FILES = (
    "a.md",
    "b.txt",
    "notes/a.md",
    "notes/old/b.txt",
    "notes/old/deep/a.md",
    "build/a.md",
    "build/keep.md",
    "ü b/c d.md",
)
PATTERNS = (
    *(
        "*.md",
        "/a.md",
        "notes/",
        "old/",
        "/old/",
        "**/deep",
        "notes/**/a.md",
        "build/*",
        "!build/keep.md",
        "!a.md",
        "# a.md",
    ),
    *("[ab].*", "c\\ d.md", "ü*", "notes/old", "!notes/old/b.txt", "deep/**", "*", "!*/", "!*.txt", "b.txt ", ""),
)


def write_files(folder: Path, rules: dict[str, list[str]], name: str) -> None:
    for file in FILES:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"Text of {file}.")
    for place, lines in rules.items():
        (folder / place / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("seed", range(20))
def test_modegraphignore_is_read_as_git_reads_gitignore(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    rules = {place: random.sample(PATTERNS, 4) for place in random.sample(["", "notes", "notes/old", "build"], 2)}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_files(ours, rules, IGNORE_FILE)
    write_files(theirs, rules, ".gitignore")
    subprocess.run(["git", "init", "-q", theirs], check=True)
    command = ["git", "-C", str(theirs), "ls-files", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    expected = {file for file in listing if file and not file.endswith(".gitignore")}
    found = [file.relative_to(ours).as_posix() for file in files_in(ours)]
    assert set(found) == expected, rules
    assert [Path(each) for each in found] == sorted(map(Path, found)) and len(found) == len(expected)


def test_an_invalid_line_matches_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, {"": ["!", "\\", "*.md", "b.txt\\", "[z-a]"]}, IGNORE_FILE)
    assert [file.relative_to(tmp_path).as_posix() for file in files_in(tmp_path)] == ["b.txt", "notes/old/b.txt"]


def test_ignored_files_are_neither_read_nor_reported(tmp_path: Path) -> None:
    write_files(tmp_path, {"": ["*.bin", "notes/"]}, IGNORE_FILE)
    (tmp_path / "a.bin").write_bytes(b"\0")
    (tmp_path / "notes/bad.txt").write_bytes(b"caf\xe9")
    notes: list[str] = []
    found = [document.source for document in read_documents(tmp_path, notes.append)]
    assert found == ["a.md", "b.txt", "build/a.md", "build/keep.md", "ü b/c d.md"] and notes == []


def test_an_ignore_file_is_refused_if_pathspec_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {}, IGNORE_FILE)
    monkeypatch.setitem(sys.modules, "pathspec", None)
    assert len(list(files_in(tmp_path))) == len(FILES), (
        "without an ignore file, all files should be found without pathspec"
    )
    (tmp_path / IGNORE_FILE).write_text("*.md\n")
    with pytest.raises(
        UserError,
        match=r"pathspec is not installed\. Expected the extra `documents`\. pip install 'modegraph\[documents\]'",
    ):
        list(files_in(tmp_path))
