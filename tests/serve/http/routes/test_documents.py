"""Adding and deleting documents over HTTP: a change takes effect immediately, and the name of an upload is never used as a path."""

import json
import re
import shutil
import socket
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from graph.build import build
from graph.build.build import build_index
from graph.config import parse_settings
from graph.errors import DiskFull
from graph.store.arrays import save_arrays
from graph.store.index_settings import IndexSettings
from graph.types import Document
from modegraph.cli import open_model
from tests.corpora import ISLES
from tests.disks import AMPLE_BYTES, mounted_disk
from tests.fakes import HashEncoder, chat_server
from tests.graph.damage import flip
from tests.processes import until
from tests.serve.conftest import SETTINGS, Stack
from tests.serve.http.running import serving

NEW = {
    "source": "notes/gull.md",
    "title": "Gull Rock",
    "text": "Gull Rock is a lighthouse.",
    "metadata": {"year": 1990},
}
BAD_NAMES = [
    "../outside.md",
    "/etc/passwd.md",
    "a/../../b.md",
    "%2e%2e%2foutside.md",
    "%252e%252e/outside.md",
    "..\\outside.md",
    "C:\\x.md",
    "D:/x.md",
    "~root/x.md",
    "nul\0.md",
    "nul%00.md",
    "bell\x07.md",
    "evil\u202etxt.md",
]
UNUSUAL_NAMES = ["گزارش\u200cها.md", "👨\u200d👩\u200d👧.md", "so\u00adft.md", "1: intro.md", "Q: how.md"]


def test_added_documents_are_found_and_deleted_ones_are_not(isles: Path) -> None:
    with serving(isles, None, writable=True) as running:
        response = running.post("/v1/documents", json={"documents": [NEW]})
        assert response.status_code == 200, response.text
        assert response.json()["generation"] == 2 and response.json()["report"]["written"] == 1
        found = running.post("/v1/retrieve", json={"query": "Gull Rock lighthouse", "where": ["year=1990"]}).json()
        assert [each["source"] for each in found["passages"]] == ["notes/gull.md"]
        files = {"files": ("more/terns.txt", b"Terns nest on Gull Rock.", "text/plain")}
        assert running.post("/v1/documents/files", files=files).json()["generation"] == 3
        assert running.get("/v1/documents/more/terns.txt").json()["passages"][0]["text"] == "Terns nest on Gull Rock."
        deletion = running.delete("/v1/documents/notes/gull.md").json()
        assert deletion["report"]["documents"] == 6
        assert running.get("/v1/documents/notes/gull.md").status_code == 404
        assert running.metric('modegraph_index_generation{collection="index"}') == 4
        for source in ("more/terns.txt", "ada", "bread", "lantern", "marlow", "tarn"):
            assert running.delete(f"/v1/documents/{source}").status_code == 200
        assert running.post("/v1/retrieve", json={"query": "anything"}).json()["passages"] == []


def test_the_list_describes_each_document_in_the_requested_order(tmp_path: Path) -> None:
    """One document has no propositions; another has several passages and a `date` that is not a date."""
    long = Document("long", "Almanac", "The tide turns at noon. " * 200, {"date": "soon", "year": 1754})
    unusual = [
        Document("aha", "", "Aha."),
        long,
        Document("crew", "crew list", "The crew follows.", {"date": "2024-03-01T10:00"}),
    ]
    build_index(tmp_path / "index", [*ISLES, *unusual], SETTINGS, lambda spec: HashEncoder())
    with serving(tmp_path / "index", None) as running:
        listing = running.get("/v1/documents").json()
        assert listing["total"] == 8 and listing["total_passages"] == sum(
            each["passages"] for each in listing["documents"]
        )
        for each in listing["documents"]:
            passages = running.get(f"/v1/documents/{each['source']}").json()["passages"]
            assert (each["passages"], each["characters"]) == (len(passages), passages[-1]["end"])
            assert passages[0]["text"].startswith(each["preview"]) and each["preview"]
        by_source = {each["source"]: each for each in listing["documents"]}
        assert list(by_source) == sorted(by_source) and by_source["long"]["passages"] > 1
        assert {name for name, each in by_source.items() if each["unread"]} == {"aha"}
        assert [by_source[name]["date"] for name in ("long", "crew", "ada")] == ["1754", "2024-03-01", None]

        def order(query: str) -> list[str]:
            return [each["source"] for each in running.get(f"/v1/documents?{query}").json()["documents"]]

        assert order("descending=true") == sorted(by_source, reverse=True)
        assert order("sort=date&descending=true")[:3] == ["crew", "long", "ada"]
        assert order("sort=date")[:3] == ["long", "crew", "ada"] and len(order("sort=date")) == 8
        assert order("sort=size&descending=true")[0] == "long" and order("sort=size")[0] == "aha"
        titled = sorted(by_source, key=lambda name: (by_source[name]["title"] or name).casefold())
        assert order("sort=title") == titled and order("sort=title&limit=3&offset=2") == titled[2:5]
        assert order("sort=title&offset=99") == []
        assert running.get("/v1/documents?sort=colour").status_code == 422


def test_a_server_that_is_not_writable_changes_nothing(stack: Stack) -> None:
    running, _ = stack()
    assert running.post("/v1/documents", json={"documents": [NEW]}).status_code == 403
    assert running.post("/v1/documents/files", files={"files": ("a.txt", b"a")}).status_code == 403
    assert running.delete("/v1/documents/tarn").status_code == 403


def files_except_arrays(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if not re.search(r"/(arrays-|vectors/)", str(file))}


def test_uploads_cannot_leave_their_folder(isles: Path, tmp_path: Path) -> None:
    """Paths and control characters are refused or reduced to a plain name; an upload named like a symbolic link leaves the link's target unchanged."""
    (isles / "link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "secret.md").write_text("The secret is 41.")
    before = files_except_arrays(tmp_path)
    with serving(isles, None, writable=True) as running:
        for name in BAD_NAMES:
            one = running.post("/v1/documents", json={"documents": [{**NEW, "source": name}]})
            assert one.status_code == 422 and "source" in one.json()["error"]["message"], name
            body = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\nx\r\n--b--\r\n'
            raw = running.post(
                "/v1/documents/files",
                content=body.encode(),
                headers={"Content-Type": "multipart/form-data; boundary=b"},
            )
            # The form parser strips the folders of a Windows path and leaves a plain name.
            assert raw.status_code == (200 if name.startswith("C:") else 400), (name, raw.text)
        response = running.post("/v1/documents/files", files={"files": ("link.md", b"A harmless note.")})
        assert response.status_code == 200
        assert running.get("/v1/documents/link.md").json()["passages"][0]["text"] == "A harmless note."
        sources = [each["source"] for each in running.get("/v1/documents").json()["documents"]]
        assert sources == ["ada", "bread", "lantern", "link.md", "marlow", "tarn", "x.md"]
    assert (tmp_path / "secret.md").read_text() == "The secret is 41."
    assert files_except_arrays(tmp_path) - before <= {isles / "index.sqlite.seal", isles / "writer.lock"}


def test_names_with_joiners_soft_hyphens_and_colons_are_accepted(isles: Path) -> None:
    with serving(isles, None, writable=True) as running:
        documents = [{"source": name, "text": f"Gull Rock, part {name}."} for name in UNUSUAL_NAMES]
        assert running.post("/v1/documents", json={"documents": documents}).status_code == 200
        sources = [each["source"] for each in running.get("/v1/documents").json()["documents"]]
        assert set(UNUSUAL_NAMES) < set(sources)


def test_an_unknown_field_is_refused_and_named(isles: Path) -> None:
    """Otherwise a misspelt `metadata` would drop the access label that hides the document from some keys."""
    with serving(isles, None, writable=True) as running:
        for body, param in (
            ({"documents": [{**NEW, "metdata": {"team": "hr"}}]}, "documents.0.metdata"),
            ({"documents": [{**NEW, "team": "hr"}]}, "documents.0.team"),
            ({"documents": [NEW], "replace": True}, "replace"),
        ):
            refusal = running.post("/v1/documents", json=body)
            assert (refusal.status_code, refusal.json()["error"]["param"]) == (422, param), refusal.text
        assert running.get("/v1/documents/notes/gull.md").status_code == 404


def test_two_documents_with_the_same_name_are_refused(isles: Path) -> None:
    files = [("files", ("a/README.md", b"One.")), ("files", ("b.md", b"Two.")), ("files", ("a/README.md", b"Three."))]
    with serving(isles, None, writable=True) as running:
        for refusal, name in (
            (running.post("/v1/documents", json={"documents": [NEW, {**NEW, "text": "Other."}]}), "notes/gull.md"),
            (running.post("/v1/documents/files", files=files), "a/README.md"),
        ):
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "repeated_source")
            assert f"2 documents have the name {name!r}" in refusal.json()["error"]["message"]
        assert running.get("/v1/documents").json()["total"] == len(ISLES)


def test_a_document_whose_name_has_a_line_feed_can_be_read_and_deleted(tmp_path: Path) -> None:
    odd = Document("notes\ngull", "", "Gull Rock is a lighthouse.")
    build_index(tmp_path / "index", [odd, *ISLES], SETTINGS, lambda spec: HashEncoder())
    with serving(tmp_path / "index", None, writable=True) as running:
        assert running.get("/v1/documents/notes%0Agull").json()["source"] == "notes\ngull"
        assert running.delete("/v1/documents/notes%0Agull").status_code == 200
        assert running.get("/v1/documents").json()["total"] == len(ISLES)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.exe", b"x", "extension"),
        ("a.txt", b"\xff\xfe", "UTF-8"),
        ("a.md", b"  ", "no text"),
        ("a.pdf", b"%PDF-1.4 x", "not a readable PDF"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(isles: Path, name: str, data: bytes, message: str) -> None:
    with serving(isles, None, writable=True) as running:
        response = running.post("/v1/documents/files", files={"files": (name, data)})
        assert response.status_code == 400 and message in response.json()["error"]["message"]


def test_an_extraction_model_that_does_not_answer_is_reported_without_its_address(
    tmp_path: Path, no_waiting: None
) -> None:
    """The status says that the server failed, not that the request was wrong; search still works."""
    with chat_server(lambda body, number: "x") as upstream:
        url = upstream.url
    settings = parse_settings(IndexSettings, {"extractor": "llm", "extractor_model": f"openai:m@{url}"}, "test")
    build_index(tmp_path / "index", [], settings, lambda spec: HashEncoder(), open_model)
    with serving(tmp_path / "index", None, writable=True) as running:
        refusal = running.post("/v1/documents", json={"documents": [NEW]})
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "model_unavailable")
        assert url.split("/")[2] not in refusal.text and refusal.headers["retry-after"]
        assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200


def test_a_full_disk_is_reported_as_such_and_search_still_works(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        isles = disk.folder / "index"
        build_index(isles, ISLES, SETTINGS, lambda spec: HashEncoder())
        with serving(isles, None, writable=True) as running:
            disk.leave_free(0)
            refusal = running.post("/v1/documents", json={"documents": [NEW]})
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "disk_full")
            assert str(tmp_path) not in refusal.text and refusal.headers["retry-after"]
            assert running.post("/v1/retrieve", json={"query": "Lantern"}).json()["passages"]
            disk.leave_free(AMPLE_BYTES)
            assert running.post("/v1/documents", json={"documents": [NEW]}).status_code == 200
            assert running.get("/v1/documents/notes/gull.md").status_code == 200


def outcomes(audit: Path) -> list[tuple[str, str]]:
    """The action and the outcome in each line of an audit log."""
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    return [(line["action"], line["outcome"]) for line in lines]


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [(DiskFull("no space", "", ""), 503, "disk_full"), (OSError("unplugged"), 500, "internal_error")],
)
def test_a_change_that_is_stored_but_not_in_use_is_reported_as_such_and_can_be_repeated(
    isles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, code: str
) -> None:
    """Writing the arrays fails after the rows have been written."""

    def fail(*arguments: object) -> NoReturn:
        raise fault

    with serving(isles, None, writable=True, audit_log=str(tmp_path / "audit.jsonl")) as running:

        def change() -> list[Any]:
            return [running.delete("/v1/documents/tarn"), running.post("/v1/documents", json={"documents": [NEW]})]

        with monkeypatch.context() as patch:
            patch.setattr(build, "save_arrays", fail)
            for refusal in change():
                assert (refusal.status_code, refusal.json()["error"]["code"]) == (status, code)
                assert "the change is stored, but not in use yet" in refusal.json()["error"]["message"]
            assert running.get("/v1/documents/tarn").status_code == 200
        assert [each.status_code for each in change()] == [200, 200]
        assert running.get("/v1/documents/tarn").status_code == 404
        assert running.get("/v1/documents/notes/gull.md").status_code == 200
    assert outcomes(tmp_path / "audit.jsonl") == [
        ("delete", "stored"),
        ("add", "stored"),
        ("delete", "done"),
        ("add", "done"),
    ]


def test_a_change_that_the_audit_log_cannot_record_is_reported_as_an_error(isles: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    with serving(isles, None, writable=True, audit_log=str(folder / "audit.jsonl")) as running:
        shutil.rmtree(folder)
        assert running.post("/v1/documents", json={"documents": [NEW]}).status_code == 500


def test_the_audit_log_records_the_outcome_of_a_change_whose_client_disconnects_while_it_is_applied(
    isles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving, go_on = threading.Event(), threading.Event()

    def wait_and_save(*arguments: Any) -> str:
        saving.set()
        assert go_on.wait(60)
        return save_arrays(*arguments)

    monkeypatch.setattr(build, "save_arrays", wait_and_save)
    body = json.dumps({"documents": [NEW]}).encode()
    head = b"POST /v1/documents HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    audit = tmp_path / "audit.jsonl"
    with serving(isles, None, writable=True, audit_log=str(audit)) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert saving.wait(60)
        until(lambda: running.metric("modegraph_requests_running") == 0)
        assert outcomes(audit) == []
        go_on.set()
        until(lambda: outcomes(audit))
        until(lambda: running.get("/v1/documents/notes/gull.md").status_code == 200)
    assert outcomes(audit) == [("add", "done")]


def test_a_damaged_file_of_the_index_is_not_reported_as_the_clients_error_and_only_the_log_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SETTINGS.model_copy(update={"ann_rows": 1})
    isles = tmp_path / "index"
    build_index(isles, ISLES, settings, lambda spec: HashEncoder())
    for file in (isles / "vectors").glob("*.ann"):
        flip(file)
    with serving(isles, None, writable=True, mode="lexical") as running:
        flip(isles / "index.sqlite")
        for response, code, log in (
            (running.post("/v1/retrieve", json={"query": "Lantern", "mode": "dense"}), "damaged_file", "ANN index"),
            (running.post("/v1/documents", json={"documents": [NEW]}), "damaged_file", "index.sqlite"),
        ):
            assert (response.status_code, response.json()["error"]["code"]) == (500, code)
            assert str(tmp_path) not in response.text and log in caplog.text
