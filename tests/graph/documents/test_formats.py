"""More than thirty files, ordinary and hostile: text and pages are correct, or the file is refused in one line."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from graph.documents.parse.formats import MAX_PAGES, MAX_PARTS, Limits
from graph.documents.read import read_bytes, read_documents
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from graph.shared.pages import page_at
from graph.types import Document
from tests.graph.documents import made
from tests.graph.documents.remote import REMOTE, TEXT


@pytest.fixture(scope="module")
def worker() -> Iterator[ParseWorker]:
    with ParseWorker(Limits(seconds=2)) as one:
        yield one


@dataclass(frozen=True)
class ValidFile:
    """A valid file, and the title, text and metadata that must be read from it."""

    name: str
    data: bytes
    title: str
    text: str
    metadata: dict[str, object]


REPORT = "# Tide mills\n\n# Wheels\n\nThe wheel turns twice a day.\n\n- oak\n- iron\n\n| Stop | Fare Since | Fare Since |\n| Quill | 3 tallens | 1911 |"
SLIDES = (
    "# Fares of the ferry\n\nThree tallens\n\nBells are free\n\n"
    "# Stops\n\n| Stop | Fare |\n| Quill | 3 |\n\nIn a group.\n\nNotes: Say it twice."
)
SHEETS = "# Fares\n\n| Stop | Fare | Since | Open |\n| Quill \\| quay | 0.3 | 1911-05-04 | TRUE |\n\n\n|  | 3 |\n\n# Old\n\n| Tarn | 7 |"
FARES = "| Stop | Fare | Note |\n| Quill | 3 | two lines, one cell |\n| Tarn | 7 |"
HEAD = "From: Ada Marlow <ada@example.org>\nTo: Zoë <zoe@example.org>\nDate: Mon, 02 Mar 2026 10:00:00 +0100\nSubject: Прилив at noon"
MAIL = {"from": "Ada Marlow <ada@example.org>", "to": "Zoë <zoe@example.org>", "date": "2026-03-02T10:00:00+01:00"}
STARTS = {"page_starts": [0, SLIDES.index("# Stops"), SLIDES.index("# Stops")]}
DOCX, PPTX, XLSX = made.docx_of(made.fill_report), made.presentation(), made.workbook(made.fill_prices)
FORWARDED = EmailMessage()
FORWARDED["Subject"] = "Inner"
FORWARDED.set_content("Forwarded words.")
VALID = [
    ValidFile("report.docx", DOCX, "Tide mills", REPORT, {}),
    ValidFile("macros.docm", made.with_macros(DOCX, made.DOCX_TYPE, made.DOCM_TYPE, "word"), "Tide mills", REPORT, {}),
    ValidFile(
        "walked.docx",
        made.docx_of(made.fill_uncommon_parts),
        "walked",
        "In a control.\n\nPut in\n\nBeside\nIn a box.\n\nE=mc\n\n| outer | in side |\n\nAt the foot.",
        {},
    ),
    ValidFile(
        "figures.docx",
        made.docx_of(made.fill_figures),
        "figures",
        "10^12 kg, the 5th, in 1911^2 3, 10^-3.\n\nt=2 1/2(a+b)/2+10^6\n\n| Day | Opens | Closes |\n| Monday | Closed | Closed |\n| Tuesday | 9 | 17 |\n\n\n"
        "| Year | Ship |\n| 1911 | Lantern |\n| 1911 | Tern |",
        {},
    ),
    ValidFile(
        "merged.docx",
        made.docx_of(made.fill_merged_cells),
        "merged",
        "| Stop | Fare | Fare |\n| Quay | 3 | 3 |\n| Mill | 3 | 3 |\n|  | Tarn | Tarn |",
        {},
    ),
    ValidFile("slides.pptx", PPTX, "Fares of the ferry", SLIDES, STARTS),
    ValidFile("untitled.pptx", made.untitled_presentation(), "untitled", "# of passengers: 3", {"page_starts": [0]}),
    ValidFile(
        "choices.pptx",
        made.alternative_presentation(),
        "choices",
        "One.\n\nTwo.\n\nThree.\n\nFour.",
        {"page_starts": [0]},
    ),
    ValidFile(
        "macros.pptm",
        made.with_macros(PPTX, made.PPTX_TYPE, made.PPTM_TYPE, "ppt"),
        "Fares of the ferry",
        SLIDES,
        STARTS,
    ),
    ValidFile("prices.xlsx", XLSX, "Fares 2026", SHEETS, {}),
    ValidFile("macros.xlsm", made.with_macros(XLSX, made.XLSX_TYPE, made.XLSM_TYPE, "xl"), "Fares 2026", SHEETS, {}),
    ValidFile(
        "book.epub", made.epub(["<h1>Two</h1><p>b &amp; c", "<p>One</p>"]), "Salt and tide", "One\n\nTwo\n\nb & c", {}
    ),
    ValidFile(
        "plain.eml",
        made.message("High at noon.\n", "<b>no</b>", attached=["chart.pdf"]),
        "Прилив at noon",
        f"{HEAD}\n\nHigh at noon.\n\nAttached: chart.pdf",
        MAIL,
    ),
    ValidFile(
        "koi8.eml", made.message("Соль и вода\n", charset="koi8-r"), "Прилив at noon", f"{HEAD}\n\nСоль и вода", MAIL
    ),
    *(
        ValidFile(
            f"{charset}.eml",
            f"Subject: x\nContent-Type: text/plain; charset={charset}\n\n".encode() + text.encode(encoding),
            "x",
            f"Subject: x\n\n{text}",
            {},
        )
        for charset, encoding, text in (
            ("gb2312", "gb18030", "朱镕基，塔高三百米"),
            ("iso-8859-1", "cp1252", "“Salt” – 3 €"),
            ("us-ascii", "cp1252", "Zoë’s"),
            ("ascii", "utf-8", "Zoë’s"),
        )
    ),
    ValidFile(
        "forwarded.eml",
        made.message("See below.", attached=[FORWARDED]),
        "Прилив at noon",
        f"{HEAD}\n\nSee below.\n\nSubject: Inner\n\nForwarded words.",
        MAIL,
    ),
    *(
        ValidFile(
            f"pictured {kind}.eml",
            made.pictured_message(kind),
            "Wheels",
            f"Subject: Wheels\n\nBefore the picture.\n\nAfter it.\n\nAt the end.\n\nAttached: a.png, b.txt, text/{kind}",
            {},
        )
        for kind in ("plain", "html")
    ),
    ValidFile(
        "html.eml",
        b"Subject: x\nContent-Type: text/html; charset=no-such\n\n<p>Only <b>HTML</b></p>",
        "x",
        "Subject: x\n\nOnly HTML",
        {},
    ),
    ValidFile(
        "notes.ipynb",
        made.notebook(),
        "Tides",
        "# Tides\n\nHow many?\n\n````python\nprint('```')\n2 + 2\n````\n\n```\n4 tides\n```\n\n```\n<Figure>\n```",
        {"language": "python"},
    ),
    ValidFile(
        "null.ipynb",
        b'{"cells": [{"cell_type": "markdown", "source": "# Salt"}], "metadata": {"title": ["a"], "kernelspec": "python3"}}',
        "Salt",
        "# Salt",
        {},
    ),
    ValidFile("old.ipynb", made.old_notebook(), "Salt", "# Salt\n\n```\n1 + 1\n```", {}),
    ValidFile(
        "front.md",
        b"---\r\ntitle: 'Tides: a list'\ndate: 2026-03-02\ntags: [a, b]\ndraft: false\nsource: https://example.org\n"
        b"author: {name: Ada}\nempty:\n---\r\n# Other\n\nHigh.\n",
        "Tides: a list",
        "# Other\n\nHigh.\n",
        {
            "date": "2026-03-02",
            "tags": ["a", "b"],
            "draft": False,
            "origin": "https://example.org",
            "author": '{"name": "Ada"}',
        },
    ),
    ValidFile(
        "keys.md",
        b"---\ntitle: [Tides, Salt]\nheights: {2026-03-02: 4, low: {1: 2}}\n---\n# Other\n\nHigh.\n",
        "Other",
        "# Other\n\nHigh.\n",
        {"title": ["Tides", "Salt"], "heights": '{"2026-03-02": 4, "low": {"1": 2}}'},
    ),
    ValidFile(
        "values.md",
        b"---\ntitle: Yes\nzip: 01234\ntime: 12:30:15\nversion: 1.10\npython_versions: [3.10]\n"
        b"country: NO\nyear: 1990\nfare: -2.50\nprice: 1234567.5\ndraft: true\ntags: [on, 1.0, 0x1F]\n"
        b"day: 2026-02-30\nnone: ~\n---\nHigh.\n",
        "Yes",
        "High.\n",
        {
            "zip": "01234",
            "time": "12:30:15",
            "version": "1.10",
            "python_versions": ["3.10"],
            "country": "NO",
            "year": 1990,
            "fare": -2.5,
            "price": 1234567.5,
            "draft": True,
            "tags": ["on", 1.0, "0x1F"],
            "day": "2026-02-30",
        },
    ),
    ValidFile("loop.md", b"---\ntags: &x [*x]\n---\nHigh.\n", "loop", "---\ntags: &x [*x]\n---\nHigh.\n", {}),
    ValidFile(
        "origins.md",
        b"---\norigin: Lisbon\nsource: [https://example.org, print]\n---\nHigh.\n",
        "origins",
        "High.\n",
        {"origin": ["Lisbon", "https://example.org", "print"]},
    ),
    ValidFile("toml.md", b"+++\nweight = 3\n+++\n# Salt\n", "Salt", "# Salt\n", {"weight": 3}),
    ValidFile("rule.md", b"---\nNo keys here.\n---\nText.\n", "rule", "---\nNo keys here.\n---\nText.\n", {}),
    ValidFile("odd.md", b"---\na: b: c\n---\nText.\n", "odd", "---\na: b: c\n---\nText.\n", {}),
    ValidFile(
        "walk.py",
        b"#!/usr/bin/env python\n\nprint(1)\n",
        "walk.py",
        "#!/usr/bin/env python\n\nprint(1)\n",
        {"language": "python"},
    ),
    ValidFile("fares.sql", b"SELECT 1;\n", "fares.sql", "SELECT 1;\n", {"language": "sql"}),
    ValidFile(
        "fares.csv", b'Stop,Fare,Note\r\nQuill,3,"two\r\nlines, one cell"\r\n\r\nTarn,7,\r\n', "fares", FARES, {}
    ),
    ValidFile(
        "fares.tsv", b"Stop\tFare\tNote\nQuill\t3\ttwo lines, one cell\nTarn\t7\n,\n", "fares", f"{FARES}\n| , |", {}
    ),
    ValidFile(
        "excel.csv",
        "\ufeffsep=;\nStop;Fare\nTarn, old;7,5\n".encode(),
        "excel",
        "| Stop | Fare |\n| Tarn, old | 7,5 |",
        {},
    ),
    ValidFile("odd.csv", b'sep="\r\nStop,Fare\r\nTarn,7\r\n', "odd", 'sep="\n\n| Stop | Fare |\n| Tarn | 7 |', {}),
    ValidFile(
        "messy.CSV",
        b'Fares of 2026\n\nStop ; Fare; Since;;\nQuill;"3,5 ""new""";1911;;\n;;;;\nTarn;7\n5" pipe;1,0;2,0;3,0\n',
        "messy",
        'Fares of 2026\n\n| Stop | Fare | Since |\n| Quill | 3,5 "new" | 1911 |\n| Tarn | 7 |\n| 5" pipe | 1,0 | 2,0 | 3,0 |',
        {},
    ),
    ValidFile(
        "two.csv",
        b"Stop,Fare\nQuay,3\n\nMill,4\nTarn,5\n,\nBoats\nName,Launched,Crew\nTern,1911,3\n",
        "two",
        "| Stop | Fare |\n| Quay | 3 |\n| Mill | 4 |\n| Tarn | 5 |\n\n\n| Boats |\n| Name | Launched | Crew |\n| Tern | 1911 | 3 |",
        {},
    ),
    ValidFile(
        "gaps.csv",
        b'Name,City,Score\nAda,"Paris\nNord" ,5\n,,\nBen,London,\nCem,Rome,7\n\nDan,unknown,none\nEve,Oslo,8\n',
        "gaps",
        "| Name | City | Score |\n| Ada | Paris Nord | 5 |\n| Ben | London |\n| Cem | Rome | 7 |\n| Dan | unknown | none |\n| Eve | Oslo | 8 |",
        {},
    ),
    ValidFile(
        "inches.tsv",
        b'Part\tFare\nMast\t"3 inch"\n"9 inch\t7\nBoom\t8\nYard\t"4 inch\n"two\nlines"\t5\n"Big" sail\t6\n',
        "inches",
        '| Part | Fare |\n| Mast | 3 inch |\n| "9 inch | 7 |\n| Boom | 8 |\n| Yard | "4 inch |\n| two lines | 5 |\n| Big sail | 6 |',
        {},
    ),
    ValidFile("one.csv", b"Stop\nQuill\n", "one", "| Stop |\n| --- |\n| Quill |", {}),
    ValidFile(
        "notes.csv",
        b"Halt;Preis;Bemerkung\nQuay;3,5;\nMill;4,5;zu\nTarn;2,5;\nOrrin;1,5;offen\nEll;2,0;\n",
        "notes",
        "| Halt | Preis | Bemerkung |\n| Quay | 3,5 |\n| Mill | 4,5 | zu |\n| Tarn | 2,5 |\n| Orrin | 1,5 | offen |\n| Ell | 2,0 |",
        {},
    ),
    ValidFile("lists.tsv", b"Stop\ta,b,c,d\nQuill\tx,y,z,w\n", "lists", "| Stop | a,b,c,d |\n| Quill | x,y,z,w |", {}),
    ValidFile("notes.rst", b"Tides\n\nHigh.\n", "Tides", "Tides\n\nHigh.\n", {}),
    ValidFile(
        "pages.pdf", made.pdf_pages(["One.", "", "Three."]), "One.", "One.\n\nThree.", {"page_starts": [0, 6, 6]}
    ),
    ValidFile(
        "outline.pdf",
        made.outlined_pdf(
            ["TIDE MILLS", "", "They turn.) Tj 14 TL T* (2.1 Wheels) Tj T* (Oak."],
            [(1, "1 Tide  mills", 0), (1, "Parts", 2), (2, "Wheels", 2), (1, "Nowhere", None)],
        ),
        "1 Tide mills",
        "# 1 Tide mills\n\n# Parts\n\nThey turn.\n\n## Wheels\n\nOak.",
        {"page_starts": [0, 16, 16]},
    ),
    ValidFile(
        "chapters.pdf",
        made.outlined_pdf(
            ["Chapter 3) Tj 14 TL T* (It ends.) Tj T* (Chapter 4) Tj T* (It begins."],
            [(1, "Chapter 4", 0), (1, "Chapter 5", 0)],
        ),
        "Chapter 5",
        "# Chapter 5\n\nChapter 3\nIt ends.\n\n# Chapter 4\n\nIt begins.",
        {"page_starts": [0]},
    ),
    ValidFile("circle.pdf", made.circular_outline(), "circle", "One.", {"page_starts": [0]}),
]
FILE, LAUGHS = "file", "laughs"
SHEET = "xl/worksheets/sheet1.xml"
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "bomb.docx": (
        lambda: made.zip_bomb(DOCX, "word/document.xml", 257),
        r"MiB, 25[78] MiB when unpacked\. Expected at most 256 MiB",
    ),
    "overlapping.xlsx": (lambda: made.with_overlapping_parts(XLSX, 30), r"310 MiB when unpacked"),
    "lying.pptx": (lambda: made.understated_size(PPTX, "a.xml"), r"not a readable PPTX \(Bad CRC"),
    "parts.epub": (lambda: made.many_parts(MAX_PARTS + 1), r"20,001 parts\. Expected at most 20,000"),
    "xxe.docx": (
        lambda: made.with_entity(DOCX, "word/document.xml", FILE, b"Wheels"),
        "document.xml declares a document type",
    ),
    "laughs.docx": (lambda: made.with_entity(DOCX, "word/document.xml", LAUGHS, b"Wheels"), "declares a document type"),
    "xxe.pptx": (
        lambda: made.with_entity(PPTX, "ppt/slides/slide1.xml", FILE, b"Three"),
        "slide1.xml declares a document type",
    ),
    "laughs.xlsx": (lambda: made.with_entity(XLSX, SHEET, LAUGHS, b"Quill"), "sheet1.xml declares a document type"),
    "xxe.epub": (
        lambda: made.epub(["x"], made.entity_declarations(FILE).decode()),
        r"not a readable EPUB \(EntitiesForbidden",
    ),
    "laughs.epub": (
        lambda: made.epub(["x"], made.entity_declarations(LAUGHS).decode()),
        r"not a readable EPUB \(EntitiesForbidden",
    ),
    "laughs.md": (lambda: made.yaml_billion_laughs(), r"not read in|MiB of memory|characters of metadata"),
    "deep.docx": (lambda: made.deep_docx(100_000), r"not a readable DOCX \(.*depth"),
    "deep.ipynb": (lambda: made.deep_json(100_000), "nested too deeply"),
    "deep.eml": (lambda: made.deep_message(1_200), "nested too deeply"),
    "deep.md": (lambda: b"---\na: " + b"[" * 20_000 + b"\n---\n", "nested too deeply"),
    "long.pdf": (lambda: made.pdf_pages([""] * (MAX_PAGES + 1)), "10,001 pages. Expected at most 10,000"),
    "long.epub": (lambda: made.epub(["x"] * (MAX_PAGES + 1)), "10,001 chapters. Expected at most 10,000"),
    "long.ipynb": (
        lambda: b'{"cells": [' + b",".join([b'{"cell_type": "raw", "source": ""}'] * (MAX_PAGES + 1)) + b"]}",
        "10,001 cells. Expected at most 10,000",
    ),
    "long.eml": (
        lambda: made.message_of_parts(MAX_PAGES + 1),
        r"10,00\d parts\. Expected at most 10,000|not read in 2 s",
    ),
    "scan.pdf": (lambda: made.pdf_pages(["", ""]), r"no page has text \(a scan\?\)\. .*OCR"),
    "locked.pdf": (lambda: made.locked_pdf(), "not a readable PDF"),
    "locked.docx": (lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "encrypted, or from before Office 2007"),
    "locked.epub": (lambda: made.locked_epub(), r"OPS/text/c 0\.xhtml is encrypted \(DRM\)"),
    "gap.epub": (lambda: made.epub(["x"]).replace(b"text/c 0", b"text/c 9"), "no part 'OPS/text/c 0.xhtml'"),
    "cut.pptx": (lambda: PPTX[:-900], "not a readable pptx file"),
    "renamed.docx": (lambda: b"Only text.", "not a readable docx file"),
    "sheet.docx": (lambda: XLSX, "not a readable DOCX"),
    "list.ipynb": (lambda: b"[1, 2]", "not a notebook"),
    "cells.ipynb": (lambda: b'{"cells": [1]}', "not a readable IPYNB"),
}


def read(name: str, data: bytes, worker: ParseWorker) -> Document:
    return read_bytes(data, name, name, worker)


def test_there_are_more_than_thirty_files() -> None:
    assert len(VALID) + len(HOSTILE) > 30


@pytest.mark.parametrize("file", VALID, ids=lambda file: file.name)
def test_title_text_and_metadata_are_read_correctly(file: ValidFile, worker: ParseWorker) -> None:
    document = read(file.name, file.data, worker)
    assert document.text == file.text
    assert (document.source, document.title, document.metadata) == (file.name, file.title, file.metadata)
    assert worker.last.peak_mb <= 512


@pytest.mark.parametrize("name", HOSTILE)
def test_an_unreadable_file_is_refused_in_one_line(name: str, worker: ParseWorker) -> None:
    make, message = HOSTILE[name]
    with pytest.raises(UserError, match=message) as problem:
        read(name, make(), worker)
    assert str(problem.value).startswith(name) and len(str(problem.value).splitlines()) == 1
    assert worker.last.peak_mb <= 512
    assert read("next.docx", DOCX, worker).text == REPORT, "the next file should be read as usual"


@pytest.mark.slow
def test_ten_thousand_pages_are_read_with_their_numbers() -> None:
    data = made.pdf_pages([f"Page {number}." for number in range(1, MAX_PAGES + 1)])
    with ParseWorker(Limits(seconds=120)) as worker:
        document = read("long.pdf", data, worker)
        assert worker.last.peak_mb <= 512
    for page in (1, 2, 5_000, MAX_PAGES):
        assert page_at(document.metadata, document.text.index(f"Page {page}.")) == page


def test_any_number_of_empty_rows_separate_two_tables(worker: ParseWorker) -> None:
    def fill(book: Any) -> None:
        book.active["A1"], book.active["B1048576"] = "near", "far"

    assert read("far.xlsx", made.workbook(fill), worker).text == "# Sheet\n\n| near |\n\n\n|  | far |"


def test_a_long_cell_is_not_repeated_without_limit(worker: ParseWorker) -> None:
    text = read("long.docx", made.long_merged_cell(100_000, 1_000), worker).text
    assert 10 * 100_000 < len(text) < 12 * 100_000


def test_an_empty_paragraph_separates_two_tables(worker: ParseWorker) -> None:
    def fill(document: Any) -> None:
        for stop in ("Quay", "Mill"):
            document.add_table(1, 1).cell(0, 0).text = stop
            document.add_paragraph("")

    assert read("tables.docx", made.docx_of(fill), worker).text == "| Quay |\n\n\n| Mill |"


@pytest.mark.parametrize("name", REMOTE)
def test_nothing_is_fetched_and_nothing_is_run(name: str, worker: ParseWorker, tmp_path: Path) -> None:
    """No request reaches the server that the file's pictures, templates, links and scripts name, and no program creates `ran`."""
    ran = tmp_path / "ran"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.02)
        data = REMOTE[name](f"http://127.0.0.1:{server.getsockname()[1]}", str(ran))
        document = read(name, data, worker)
        assert TEXT in document.text
        with pytest.raises(TimeoutError):
            server.accept()
    assert not ran.exists() and worker.last.peak_mb <= 512


def test_the_reading_process_cannot_open_files_or_connections_or_start_programs() -> None:
    program = """
import socket, subprocess
from graph.documents.parse.child import _limit
_limit(5, 1 << 30)
def works(make):
    try:
        make()
        return True
    except OSError:
        return False
print(works(lambda: open('/etc/hostname')), works(socket.socket), works(lambda: subprocess.run(['true'])))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False False False\n"


@pytest.mark.parametrize(
    ("package", "name"), [("docx", "a.docx"), ("pptx", "a.pptx"), ("openpyxl", "a.xlsx"), ("defusedxml", "a.epub")]
)
def test_without_the_extra_an_error_names_it(
    package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(f"raise ModuleNotFoundError('gone', name={package!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with ParseWorker(Limits()) as incomplete, pytest.raises(UserError) as problem:
        read(name, b"x", incomplete)
    message = f"{name}: the package {package} is not installed. Expected the extra `documents`. pip install 'modegraph[documents]'"
    assert str(problem.value) == message


def test_a_folder_gives_its_readable_files_and_names_the_others(tmp_path: Path) -> None:
    for name in ("a.docx", "b.docx", "c.pdf", "d.txt"):
        (tmp_path / name).write_bytes({"a": DOCX, "b": b"PK", "c": made.pdf_pages([""]), "d": b"caf\xe9"}[name[0]])
    (tmp_path / "e.odt").write_bytes(b"x")
    (tmp_path / "sub").symlink_to(tmp_path)
    notes: list[str] = []
    assert [document.source for document in read_documents(tmp_path, notes.append)] == ["a.docx"]
    assert [re.sub(r"[;,(].*", "", note) for note in notes] == [
        "b.docx: skipped",
        "c.pdf: skipped",
        "d.txt: skipped",
        "e.odt: skipped",
        "sub: skipped",
    ]
    assert "no page has text" in notes[1] and "is not UTF-8" in notes[2] and "a link to a folder" in notes[4]


def test_a_pipe_is_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_text("b")
    notes: list[str] = []
    found: list[str] = []
    reading = Thread(
        target=lambda: found.extend(each.source for each in read_documents(tmp_path, notes.append)), daemon=True
    )
    reading.start()
    reading.join(20)
    assert (found, notes) == (["b.txt"], ["a.txt: skipped, not a file"])
