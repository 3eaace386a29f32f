"""Scanned pages are read by the real tesseract, within limits, and keep their page numbers."""

import time
from pathlib import Path
from threading import Thread

import pytest

import modegraph as mg
from graph.documents.parse import ocr as tesseract
from graph.documents.parse.formats import MIB, Limits
from graph.documents.parse.ocr import Ocr, PageLimits, check_programs, ocr_settings
from graph.documents.read import read_bytes, read_documents
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from graph.shared.pages import page_at
from graph.types import Document
from tests.graph.documents.made import pdf_pages
from tests.graph.documents.scans import needs_tesseract, partly_scanned_pdf, scanned_pdf
from tests.processes import programs_below, runs

LANTERN = "The Lantern of Tarn\n\nwas built in 1911 by the Marlow Yard."
TARN = "Tarn is a village of 312 people."
PROGRAMS = ("pdftoppm", "tesseract")
LIMITS = PageLimits(seconds=5, wall_seconds=5, memory=256 * MIB)


def read(data: bytes, ocr: Ocr | None) -> Document:
    with ParseWorker(Limits(ocr=ocr)) as worker:
        return read_bytes(data, "deeds.pdf", "deeds.pdf", worker)


@needs_tesseract
def test_a_scan_becomes_text_with_page_numbers() -> None:
    found = read(scanned_pdf([LANTERN, "", TARN]), Ocr())
    assert found.text == f"{LANTERN}\n\n{TARN}" and found.title == "The Lantern of Tarn"
    assert found.metadata["ocr"] == "tesseract"
    assert [page_at(found.metadata, found.text.index(word)) for word in ("Lantern", "1911", "village")] == [1, 1, 3]


def test_scanned_pages_that_are_not_read_are_reported_and_empty_pages_are_not(tmp_path: Path) -> None:
    (tmp_path / "deeds.pdf").write_bytes(partly_scanned_pdf("One of the mills.", TARN, "Wheels"))
    (tmp_path / "empty.pdf").write_bytes(pdf_pages(["One.", "", "Three."]))
    notes: list[str] = []
    assert len(list(read_documents(tmp_path, notes.append))) == 2
    [note] = notes
    assert note.endswith(
        "deeds.pdf: pages with images but no text (scans?) were not read: 2. Run OCR on the file (--ocr tesseract)"
    )


@needs_tesseract
def test_a_page_with_text_is_unchanged_and_an_outline_heading_replaces_the_same_line_of_a_scan() -> None:
    found = read(partly_scanned_pdf("One of the mills.", "Wheels\nThey turn in the tide.", "2 Wheels"), Ocr())
    assert found.text == "One of the mills.\n\n# 2 Wheels\n\nThey turn in the tide."
    assert page_at(found.metadata, found.text.index("# 2")) == 2


@needs_tesseract
def test_empty_pages_between_text_change_nothing_and_a_scan_of_empty_pages_is_refused() -> None:
    data = pdf_pages(["One.", "", "Three."])
    assert read(data, Ocr()) == read(data, None)
    with pytest.raises(
        UserError,
        match=r"deeds\.pdf: tesseract finds no text on any page \(2 in all\)\. Expected text in the language eng\. .*--ocr-l",
    ):
        read(scanned_pdf(["", ""]), Ocr())


def test_ocr_is_off_by_default() -> None:
    assert Limits().ocr is None
    with pytest.raises(UserError, match=r"deeds\.pdf: no page has text \(a scan\?\)\. .*Run OCR on it \(--ocr tess"):
        read(scanned_pdf([LANTERN, TARN]), None)


@needs_tesseract
def test_a_scan_over_a_limit_is_refused_with_the_remedy() -> None:
    data = scanned_pdf([LANTERN, TARN])
    with pytest.raises(
        UserError, match=r"deeds\.pdf: pages without text \(a scan\?\): 2\. Expected at most 1 .*--ocr-pages"
    ):
        read(data, Ocr(pages=1))
    message = (
        r"a\.pdf: page 2: tesseract failed \(.+\)\. Expected a page that it can read within 60 MiB\. .*--file-memory-mb"
    )
    with pytest.raises(UserError, match=message):
        tesseract.page_text(data, 2, "eng", "a.pdf", PageLimits(30, 60, 60 * MIB))


@needs_tesseract
def test_a_page_that_cannot_be_rendered_is_reported_with_the_programs_message() -> None:
    with pytest.raises(UserError, match=r"a\.pdf: page 9: pdftoppm failed \(.*page.*\)"):
        tesseract.page_text(scanned_pdf([TARN]), 9, "eng", "a.pdf", LIMITS)
    with pytest.raises(UserError, match=r"a\.pdf: page 1: pdftoppm failed \(.*\)"):
        tesseract.page_text(b"%PDF-1.4 no more", 1, "eng", "a.pdf", LIMITS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "while :; do :; done",
            "sh did not finish within 1 s of processor time or 2 s of elapsed time. Raise the limit (--ocr-page-seconds",
        ),
        ("sleep 60", "sh did not finish within 1 s of processor time or 2 s of elapsed time"),
        ("head -c 1 /dev/zero > written", "sh failed"),
        ("echo no such thing >&2; exit 3", "sh failed (no such thing)"),
        ("exit 3", "sh failed (status 3)"),
    ],
)
def test_a_program_that_fails_runs_too_long_or_tries_to_write_a_file_is_reported(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as problem:
        tesseract._output(["sh", "-c", script], b"", "a.pdf: page 2", PageLimits(1, 2, 256 * MIB))
    assert str(problem.value).startswith(f"a.pdf: page 2: {message}")
    assert not (tmp_path / "written").exists() or not (tmp_path / "written").read_bytes()
    assert tesseract._output(["cat"], b"so", "a.pdf: page 2", LIMITS) == b"so"


def test_a_missing_program_and_an_unknown_ocr_setting_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"the program pdftoppm is not installed\. Install tesseract and Poppler"):
        check_programs.__wrapped__(Ocr())
    with pytest.raises(UserError, match=r"ocr: 'abbyy'\. Expected tesseract\. Set ocr to tesseract"):
        mg.index(tmp_path, tmp_path / "index", ocr="abbyy")
    assert ocr_settings("tesseract", "deu", 7, 9.0) == Ocr("deu", 7, 9.0)


@needs_tesseract
@pytest.mark.parametrize("languages", ["klingon", "eng+", "--help", "eng --psm 0"])
def test_a_language_that_is_not_installed_is_refused(languages: str) -> None:
    with pytest.raises(UserError, match=r"tesseract has no language .*\. Expected one of .*eng.*\. Name another"):
        check_programs(Ocr(languages))


@needs_tesseract
def test_closing_the_worker_stops_its_programs() -> None:
    problems = list[UserError]()

    def parse(worker: ParseWorker) -> None:
        try:
            worker.parse(scanned_pdf([LANTERN] * 50), ".pdf", "long.pdf")
        except UserError as problem:
            problems.append(problem)

    with ParseWorker(Limits(ocr=Ocr())) as worker:
        thread = Thread(target=parse, args=(worker,))
        thread.start()
        while worker._process is None or not programs_below(worker._process.pid, PROGRAMS):
            time.sleep(0.01)
        programs = programs_below(worker._process.pid, PROGRAMS)
    thread.join(20)
    assert not thread.is_alive() and problems
    while any(runs(each) for each in programs):
        time.sleep(0.01)


@needs_tesseract
def test_a_passage_of_a_scan_has_the_number_of_its_page(tmp_path: Path) -> None:
    long = f"{LANTERN}\nIt stood at the old harbour,\nwhere forty shipwrights worked."
    (tmp_path / "deeds").mkdir()
    (tmp_path / "deeds" / "deeds.pdf").write_bytes(scanned_pdf([long, "", TARN]))
    index = mg.index(tmp_path / "deeds", tmp_path / "index", ocr="tesseract", max_passage_tokens=32)
    (first, *_) = index.retrieve("How many people live in the village of Tarn?", top_k=3, mode="dense").passages
    assert first.item.text.strip() == TARN and first.item.page == 3
