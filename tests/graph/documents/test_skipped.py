"""Skipped files are listed by the command and by the API, and make both fail in strict mode; missing files are deleted on request."""

import json
import logging
from pathlib import Path

import pytest

import modegraph as mg
from tests.commands import run
from tests.graph.documents import made
from tests.graph.hashed import encoder


@pytest.fixture(autouse=True)
def hash_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph.models.encoder.open_encoder", encoder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Tides\n\nThe tide turns in Quill.")
    (tmp_path / "docs" / "b.pdf").write_bytes(made.pdf_pages([""]))
    return tmp_path / "docs"


@pytest.mark.long
def test_the_command_lists_skipped_files_and_fails_only_with_strict(folder: Path, tmp_path: Path) -> None:
    message = "b.pdf: skipped, no page has text (a scan?). Expected a PDF with a text layer. Run OCR on it (--ocr tesseract) or remove it"
    plain, strict = (run("index", folder, "--out", tmp_path / "i", "--json", *more) for more in ([], ["--strict"]))
    assert (plain.exit_code, strict.exit_code) == (0, 1)
    for each in (plain, strict):
        assert json.loads(each.stdout)["skipped"] == [message] and json.loads(each.stdout)["documents"] == 1
        assert each.stderr.count(message) == 1 and "1 skipped, for the reasons above" in each.stderr
    assert run("plan", folder, "--out", tmp_path / "i", "--strict").exit_code == 1
    (folder / ".modegraphignore").write_text("*.pdf\n")
    ignored = run("index", folder, "--out", tmp_path / "i", "--json", "--strict")
    assert ignored.exit_code == 0 and json.loads(ignored.stdout)["skipped"] == [] and "skipped," not in ignored.stderr


@pytest.mark.long
def test_delete_missing_deletes_documents_whose_files_are_gone_but_not_those_whose_files_cannot_be_read(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("c.md", "d.md"):
        (folder / name).write_text(f"# {name}\n\nSalt comes from Quill, says {name}.")
    assert json.loads(run("index", folder, "--out", tmp_path / "i", "--json").stdout)["documents"] == 3
    (folder / "c.md").unlink()
    (folder / "d.md").write_bytes(b"\xff\xfe\x00")
    without_deletion = json.loads(run("index", folder, "--out", tmp_path / "i", "--json").stdout)
    assert (without_deletion["documents"], without_deletion["deleted"]) == (3, 0)
    with_deletion = json.loads(run("index", folder, "--out", tmp_path / "i", "--json", "--delete-missing").stdout)
    assert (with_deletion["documents"], with_deletion["deleted"]) == (2, 1) and mg.open(tmp_path / "i").sources == (
        "a.md",
        "d.md",
    )
    (folder / "sub").mkdir()
    (folder / "sub/e.md").write_text("# E\n\nThe sub is a ferry of Quill.")
    assert mg.index(folder, tmp_path / "i", delete_missing=True).sources == ("a.md", "d.md", "sub/e.md")
    (folder / "sub").rename(tmp_path / "elsewhere")
    # The files of a folder that was replaced with a link out of the indexed folder count as skipped, not as deleted.
    (folder / "sub").symlink_to(tmp_path / "elsewhere")
    assert mg.index(folder, tmp_path / "i", delete_missing=True).sources == ("a.md", "d.md", "sub/e.md")
    assert (
        "1 unchanged, 2 deleted)" in run("index", folder / "a.md", "--out", tmp_path / "i", "--delete-missing").stdout
    )
    for absent in ("none", "none.jsonl"):
        failed = run("index", tmp_path / absent, "--out", tmp_path / "i", "--delete-missing")
        assert failed.exit_code and "no such file" in str(failed.exception)
    assert mg.open(tmp_path / "i").sources == ("a.md",)
    rows = [{"id": "a.md", "text": "The tide turns in Quill."}, {"id": "e", "text": "Tarn is a village."}]
    assert mg.index(rows, tmp_path / "i", delete_missing=True).sources == ("a.md", "e")
    assert mg.index(rows[1:], tmp_path / "i", delete_missing=True).sources == ("e",)


@pytest.mark.long
def test_the_api_warns_and_with_strict_raises_an_error_after_indexing_the_other_files(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "modegraph"):
        assert mg.index(folder, tmp_path / "i").sources == ("a.md",)
    assert [record.message.partition(",")[0] for record in caplog.records] == ["b.pdf: skipped"]
    with pytest.raises(mg.UserError, match=r"1 skipped: b\.pdf: skipped, no page has text"):
        mg.index(folder, tmp_path / "j", strict=True)
    assert mg.open(tmp_path / "j").sources == ("a.md",)
