"""Uploaded files are read in separate processes, and simultaneous writes wait for each other: chat keeps working, and no file or process remains."""

import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import httpx2
import pytest

from benchmarks.hostile_files import forms
from graph.documents.parse.formats import Limits
from graph.documents.parse.ocr import Ocr
from graph.errors import UserError
from graph.store.lock import writer_lock
from serve.http.routes.documents import Uploads
from tests.fakes import chat_server
from tests.graph.documents.scans import needs_tesseract, scanned_pdf
from tests.processes import parsers_below, until
from tests.serve.http.running import Running, serving

ENDLESS_PDF = forms(14, 10)(Random(0), 0)
QUESTION = {"model": "t", "messages": [{"role": "user", "content": "Who built the Lantern?"}]}


@contextmanager
def running_upload(port: int, data: bytes) -> Iterator[None]:
    """An upload whose client disconnects when the `with` block ends."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="endless.pdf"\r\n\r\n'
    body = head + data + b"\r\n--b--\r\n"
    request = (
        b"POST /v1/documents/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(request + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        yield


def test_reading_does_not_block_chat_and_ends_when_the_client_disconnects(
    isles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with (
        chat_server(lambda body, number: "1911 [1]") as upstream,
        serving(isles, f"openai:t@{upstream.url}", writable=True, file_seconds=600) as running,
    ):
        before = parsers_below(os.getpid())
        with running_upload(running.port, ENDLESS_PDF):
            until(lambda: parsers_below(os.getpid()) - before)
            assert running.post("/v1/chat/completions", json=QUESTION).status_code == 200
            assert list((tmp_path / "temporary").iterdir()) == []
        until(lambda: not parsers_below(os.getpid()) - before)
        assert list((tmp_path / "temporary").iterdir()) == []


def test_a_file_that_takes_too_long_is_refused_and_named(isles: Path) -> None:
    with serving(isles, None, writable=True, file_seconds=0.2) as running:
        response = running.post("/v1/documents/files", files={"files": ("endless.pdf", ENDLESS_PDF)})
        assert response.status_code == 400 and response.json()["error"]["code"] == "unreadable"
        assert "endless.pdf: not read in 0.2 s of processor time" in response.json()["error"]["message"]


@needs_tesseract
def test_an_uploaded_scan_is_read_if_ocr_is_on(isles: Path) -> None:
    upload = {"files": ("deeds.pdf", scanned_pdf(["The Lantern", "Tarn is a village of 312 people."]))}
    with serving(isles, None, writable=True, ocr="tesseract", ocr_pages=2) as running:
        assert running.post("/v1/documents/files", files=upload).status_code == 200
        document = running.get("/v1/documents/deeds.pdf").json()
        assert document["metadata"]["ocr"] == "tesseract" and "312 people" in document["passages"][-1]["text"]
        longer = {"files": ("long.pdf", scanned_pdf(["One", "Two", "Three"]))}
        refusal = running.post("/v1/documents/files", files=longer)
        assert refusal.status_code == 400 and "at most 2 for OCR" in refusal.json()["error"]["message"]


def test_ocr_without_its_programs_is_refused(isles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="the program pdftoppm is not installed"):
        Uploads(Limits(ocr=Ocr("nor")))


def note(number: int) -> dict[str, tuple[str, bytes]]:
    return {"files": (f"note-{number:02}.md", f"# Note {number}\n\nGull {number} sits on the rock.".encode())}


def upload_simultaneously(servers: Sequence[Running], count: int) -> list[httpx2.Response]:
    """The answers to `count` uploads that are sent simultaneously, spread evenly over the servers."""

    def upload(number: int) -> httpx2.Response:
        return httpx2.post(f"{servers[number % len(servers)].url}/v1/documents/files", files=note(number), timeout=300)

    with ThreadPoolExecutor(count) as clients:
        return list(clients.map(upload, range(count)))


@pytest.mark.parametrize("number_of_servers", [1, 2])
def test_simultaneous_uploads_all_succeed_and_do_not_block_questions(isles: Path, number_of_servers: int) -> None:
    with ExitStack() as exits:
        upstream = exits.enter_context(chat_server(lambda body, number: "1911 [1]"))
        spec = f"openai:t@{upstream.url}"
        servers = [exits.enter_context(serving(isles, spec, writable=True)) for _ in range(number_of_servers)]
        with ThreadPoolExecutor(1) as thread, writer_lock(isles):
            uploads = thread.submit(upload_simultaneously, servers, 36)
            until(lambda: sum(server.metric("modegraph_requests_running") for server in servers) == 36, 60)
            answers = [server.post("/v1/chat/completions", json=QUESTION) for server in servers]
            assert [each.status_code for each in answers] == [200] * number_of_servers
        assert [each.status_code for each in uploads.result()] == [200] * 36
        assert [each.json()["report"]["written"] for each in uploads.result()] == [1] * 36
        # A server reads another server's documents the next time it checks the folder.
        until(lambda: all(len(notes(server)) == 36 for server in servers), 60)
        assert servers[0].get("/v1/documents").json()["generation"] < 12


def notes(running: Running) -> list[str]:
    documents = running.get("/v1/documents").json()["documents"]
    return [each["source"] for each in documents if each["source"].startswith("note-")]


def test_an_upload_that_waits_too_long_gets_a_retry_time_and_is_not_written_later(isles: Path) -> None:
    with serving(isles, None, writable=True, write_wait_s=0.3) as running:
        with writer_lock(isles):
            for response in (
                running.post("/v1/documents/files", files=note(1)),
                running.delete("/v1/documents/tarn"),
            ):
                assert response.status_code == 409 and response.json()["error"]["code"] == "being_written"
                assert int(response.headers["Retry-After"]) > 0
        # On a busy machine, the first write may take longer than this server waits; so the client retries, as the error message advises.
        until(lambda: running.post("/v1/documents/files", files=note(2)).status_code == 200, 60)
        sources = [each["source"] for each in running.get("/v1/documents").json()["documents"]]
        assert "note-01.md" not in sources and {"note-02.md", "tarn"} < set(sources)


def test_a_read_only_server_reserves_no_capacity_for_writers(isles: Path) -> None:
    with serving(isles, None, capacity=1, queue=0) as running:
        head = b"POST /v1/documents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        with socket.create_connection(("127.0.0.1", running.port)) as silent:
            silent.sendall(head)
            until(lambda: running.metric("modegraph_requests_waiting") == 1)
            assert running.post("/v1/documents", json={}).status_code == 429
