"""Reading documents: text, Markdown, HTML and PDF files are read, and bad input is reported in one line that names the file and the problem."""

import os
from pathlib import Path

import pytest

from graph.documents.read import IGNORE_FILE, read_documents
from graph.errors import UserError
from tests.graph.documents.made import pdf_pages


def read(source: Path) -> tuple[dict[str, tuple[str, str]], list[str]]:
    notes: list[str] = []
    return {d.source: (d.title, d.text) for d in read_documents(source, notes.append)}, notes


def test_text_markdown_and_html_files_of_a_folder_are_read_with_their_titles(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.md").write_text("# Tide mill\n\nIt turns.\n", encoding="utf-8")
    (tmp_path / "b.txt").write_bytes("Über Salz\n\nSalz ist weiß.\r\n".encode())
    (tmp_path / "c.html").write_text(
        "<html><head><title>Fares</title><style>p{}</style></head><body><h1>Fares</h1><p>One &amp; two.</p>"
        "<table><tr><th>Stop</th><th>Fare</th></tr><tr><td>Quill</td><td>3</td></tr></table></body></html>",
        encoding="utf-8",
    )
    (tmp_path / "notes.odt").write_text("x")
    (tmp_path / ".hidden.txt").write_text("never")
    found, notes = read(tmp_path)
    assert list(found) == ["b.txt", "c.html", "sub/a.md"]
    assert found["sub/a.md"] == ("Tide mill", "# Tide mill\n\nIt turns.\n")
    assert found["b.txt"] == ("Über Salz", "Über Salz\n\nSalz ist weiß.\r\n")
    assert found["c.html"][0] == "Fares"
    assert (
        "One & two." in found["c.html"][1] and "| Quill | 3 |" in found["c.html"][1] and "p{}" not in found["c.html"][1]
    )
    message = ".txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .csv, .epub, .eml, .ipynb, source code"
    assert notes == [f"notes.odt: skipped, its extension is not one of {message}"]


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.md", "# Learning C#\n\nA course.", "Learning C#"),
        ("a.md", "## Tides \t##\nHigh.", "Tides"),
        ("a.md", "#Salt\nIt is white.", "Salt"),
        ("a.md", "# ##\n\nNothing.", "a"),
        ("a.md", "<!-- draft -->\n\nHigh.", "a"),
        ("a.md", "Tides\n=====\nHigh.", "Tides"),
        ("a.md", "---\n\n# Tides\n\nHigh.", "Tides"),
        ("a.rst", "*****\nTides\n*****\n\nHigh.", "Tides"),
        ("a.md", "A line.\n***\nHigh.", "a"),
        ("a.md", "Example:\n~~~\nprint\n~~~", "a"),
        ("a.md", "- tides\n---\nHigh.", "a"),
        ("a.md", "---\n\n---\n\nHigh.", "a"),
        ("a.md", "---\ntides: a: b\n---\nHigh.", "a"),
        ("a.adoc", "= Tides\n:toc:\n\nHigh.", "Tides"),
        ("a.rst", ".. _tides:\n\nTides\n=====\n", "a"),
        ("a.tex", "\\documentclass{article}\n\n\\begin{document}", "a"),
        ("a.txt", "#!/bin/sh\n\necho High", "a"),
    ],
)
def test_a_title_is_a_heading_and_not_a_command_or_a_comment(tmp_path: Path, name: str, text: str, title: str) -> None:
    (tmp_path / name).write_text(text)
    found, _ = read(tmp_path / name)
    assert found[name] == (title, text)


def test_the_text_layer_of_a_pdf_is_read(tmp_path: Path) -> None:
    (tmp_path / "tide.pdf").write_bytes(pdf_pages(["High tide at noon."]))
    found, _ = read(tmp_path / "tide.pdf")
    assert found["tide.pdf"][1] == "High tide at noon."


def test_a_link_to_a_file_outside_the_folder_is_skipped_and_reported(tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("secret")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "in.txt").write_text("inside")
    (folder / "link.txt").symlink_to(outside)
    found, notes = read(folder)
    assert list(found) == ["in.txt"] and "link" in notes[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every folder")
def test_files_without_permission_are_skipped_or_refused(tmp_path: Path) -> None:
    docs, locked = tmp_path / "docs", tmp_path / "locked"
    (docs / "sub").mkdir(parents=True)
    locked.mkdir()
    for file in (docs / "a.txt", docs / "sub/b.txt", locked / "c.txt", docs / IGNORE_FILE):
        file.write_text("Salt.")
    (docs / "link.txt").symlink_to(locked / "c.txt")
    locked.chmod(0)
    (docs / "sub").chmod(0o400)
    try:
        found, notes = read(docs)
        assert list(found) == ["a.txt"]
        assert notes == [
            "link.txt: skipped, cannot be read (Permission denied)",
            "sub: skipped, a folder that cannot be read",
        ]
        (docs / IGNORE_FILE).chmod(0)
        for source in (docs, locked / "c.txt", locked / "rows.jsonl"):
            with pytest.raises(UserError, match=r"cannot be read \(Permission denied\)"):
                read(source)
    finally:
        locked.chmod(0o700)
        (docs / "sub").chmod(0o700)


def test_empty_documents_are_skipped_and_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "full.txt").write_text("full")
    found, notes = read(tmp_path)
    assert list(found) == ["full.txt"] and notes == ["empty.txt: empty, skipped"]


def test_half_a_character_in_a_row_is_replaced(tmp_path: Path) -> None:
    row = r'{"id": "a", "title": "\ud83d", "text": "Salt \udca7", "metadata": {"by": ["Ida \ud83d"]}}'
    (tmp_path / "a.jsonl").write_text(row)
    (found,) = read_documents(tmp_path / "a.jsonl", print)
    assert (found.title, found.text, found.metadata) == ("\ufffd", "Salt \ufffd", {"by": ["Ida \ufffd"]})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("A.JSONL", b'{"id": "1", "text": "x"}\n{"id": "2"}\n', "A.JSONL line 2: 'text' is None"),
        ("a.jsonl", b'{"id": "1", "text": "x"}\n{"id": "2"}\n', "a.jsonl line 2: 'text' is None"),
        ("a.jsonl", b'{"id": "1", "text": "x"}\n\n{"id": \n', "a.jsonl line 3: not valid JSON"),
        ("a.jsonl", b'{"id": "1", "text": "x"}\n[1]\n', "a.jsonl line 2: a JSON array"),
        ("a.jsonl", b'{"id": "1", "text": "x"}\n{"id": "1", "text": "y"}\n', "line 2: id '1' is also the id of"),
        ("a.jsonl", b'{"id": "1\\ud83d", "text": "x"}\n', "line 1: id '1\\ud83d' contains NUL or half a character"),
        ("a.jsonl", b'{"id": "1\\u0000", "text": "x"}\n', "line 1: id '1\\x00' contains NUL or half a character"),
        ("a.jsonl", b'{"id": "1", "text": "\xff"}\n', "a.jsonl line 1: byte 0xff"),
        ("a.jsonl", b'{"id": "1", "text": "x", "title": 0}\n', "a.jsonl line 1: 'title' is 0"),
        ("a.jsonl", b'{"id": "1", "text": "x", "metadata": []}\n', "a.jsonl line 1: 'metadata' is []"),
        ("a.jsonl", b"", "no documents"),
        ("a.txt", b"caf\xe9", "byte 0xe9 at offset 3 is not UTF-8"),
        ("a.md", b"PK\x03\x04\x00\x00", "byte 0x00 at offset 4 (a binary file)"),
        ("a.pdf", b"not a pdf at all", "not a readable PDF"),
        ("a.odt", b"x", "extension '.odt'"),
    ],
)
def test_bad_input_is_reported_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as problem:
        read(tmp_path / name)
    assert message in str(problem.value) and name in str(problem.value) and "\n" not in str(problem.value)


def test_a_file_whose_name_is_not_utf8_is_refused_in_a_message_that_can_be_printed(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"caf\xe9.txt")
    file.write_text("Salt.")
    with pytest.raises(UserError, match=r"caf\?\.txt: its name is not UTF-8\. Rename it"):
        read(file)


def test_a_missing_path_and_an_empty_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no documents.*\.pdf"):
        read(tmp_path)
