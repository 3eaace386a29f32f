"""Keys: created, listed and revoked on the command line; a running server applies each change immediately, and rights differ by key."""

import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from graph.build.build import build_index
from graph.config import parse_settings
from graph.errors import UserError
from modegraph.cli import build_app
from serve.http.keys import KeyRing, change_keys, hash_of, make_key, read_keys
from serve.http.settings import ServerSettings
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import MCP_HEADERS, Running, serving

QUESTION = "Who built the Lantern?"
CHAT_REQUEST = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}]}
NEW_DOCUMENT = {"source": "notes/gull", "text": "Gull Rock is a lighthouse."}


def run_keys(*words: object) -> str:
    """The output of `modegraph keys`."""
    result = CliRunner().invoke(build_app(), ["keys", *map(str, words)], catch_exceptions=False)
    return result.stdout


def new_key(file: Path, *words: object) -> str:
    """The text of a new key."""
    return run_keys("add", file, "--name", "sales", *words).strip()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class GuardedServer:
    """A server with a key file, and requests to it with a key."""

    def __init__(self, running: Running, file: Path) -> None:
        self.running, self.file = running, file

    def status(self, key: str, path: str, **body: Any) -> int:
        response = self.running.post(path, json=body, headers=bearer(key)) if body else self.get(key, path)
        return response.status_code

    def get(self, key: str, path: str) -> httpx2.Response:
        return self.running.get(path, headers=bearer(key))


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[GuardedServer]:
    build_index(tmp_path / "isles", ISLES, SETTINGS, lambda spec: HashEncoder())
    file = tmp_path / "keys.json"
    new_key(file, "--scope", "metrics")
    with (
        chat_server(lambda body, number: "1911 [1]") as upstream,
        serving(
            tmp_path / "isles",
            f"openai:tiny@{upstream.url}",
            keys=str(file),
            api_key="operator",
            writable=True,
            audit_log=str(tmp_path / "audit.jsonl"),
        ) as running,
    ):
        yield GuardedServer(running, file)


def test_a_key_file_contains_only_hashes_and_is_private_to_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    text = new_key(file, "--scope", "read", "--scope", "write", "--where", "source=sales/*", "--rate", 60)
    assert text.startswith("mg_") and len(text) > 40 and text not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (key,) = read_keys(file)
    assert (key.sha256, key.id) == (hash_of(text), hash_of(text)[:8])
    assert (key.name, key.scopes, key.rate, key.where) == ("sales", ("read", "write"), 60, ("source=sales/*",))
    listing = run_keys("list", file)
    since = f"since {key.created:%Y-%m-%d}"
    assert (
        listing
        == f"{key.id}  sales  read+write; all collections; where source=sales/*; 60 requests a minute; {since}\n"
    )
    (row,) = json.loads(run_keys("list", file, "--json"))
    assert row["id"] == key.id and "sha256" not in row
    run_keys("revoke", file, key.id)
    assert read_keys(file) == []
    with pytest.raises(UserError, match="not in"):
        run_keys("revoke", file, key.id)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scope", "everything"], "scopes"),
        (["--rate", "60", "--where", "team"], "where"),
        (["--expires", "tomorrow"], "--expires 'tomorrow'. Expected a date in the future, such as 2"),
        (
            ["--expires", "2099-01-31 18:00"],
            "'2099-01-31 18:00'. .* or a time and its zone, such as 2027-01-31T18:00:00Z",
        ),
        (["--expires", "2099-01-31T18:00:00"], "'2099-01-31T18:00:00'. .* its zone"),
        (["--expires", "2020-01-31"], "'2020-01-31'. Expected a date in the future"),
        (["--scope", "write", "--where", "team=sales"], "limited only by source"),
        (["--scope", "write", "--where", "source!=hr/*"], "limited only by source"),
    ],
)
def test_an_invalid_key_is_refused_and_nothing_is_written(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        new_key(tmp_path / "keys.json", *words)
    assert not (tmp_path / "keys.json").exists()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"keys": 3}', '{"keys": [3]}', '{"keys": {"a": 1}}', '{"keys": [{"name": "x"}]}', "\0"]
)
def test_a_file_that_is_not_a_key_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    with pytest.raises(UserError):
        read_keys(file)
    before = file.read_text()
    with pytest.raises(UserError):
        change_keys(file, lambda keys: keys)
    assert file.read_text() == before


def test_a_key_file_allows_serving_other_machines(tmp_path: Path) -> None:
    values = {"host": "0.0.0.0", "keys": str(tmp_path / "keys.json")}
    assert parse_settings(ServerSettings, values, "serve").api_key is None


def test_each_scope_gives_access_only_to_its_routes(guarded_server: GuardedServer) -> None:
    reader, writer = new_key(guarded_server.file), new_key(guarded_server.file, "--scope", "write")
    metrics, operator = new_key(guarded_server.file, "--scope", "metrics"), "operator"
    requests: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/retrieve", {"query": QUESTION}, "read"),
        ("/v1/chat/completions", CHAT_REQUEST, "read"),
        ("/v1/documents", {}, "read"),
        ("/v1/questions", {}, "read"),
        ("/v1/models", {}, "read"),
        ("/v1/documents", {"documents": [NEW_DOCUMENT]}, "write"),
        ("/metrics", {}, "metrics"),
    ]
    for path, body, scope in requests:
        for key, holder in ((reader, "read"), (writer, "write"), (metrics, "metrics"), (operator, scope)):
            expected = 200 if holder == scope else 403
            assert guarded_server.status(key, path, **body) == expected, (path, holder)
    for key in (reader, writer, metrics, operator):
        assert guarded_server.status(key, "/docs") == guarded_server.status(key, "/openapi.json") == 200
    refusal = guarded_server.get(reader, "/metrics").json()["error"]
    assert (refusal["code"], refusal["type"]) == ("not_allowed", "permission_error")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    assert guarded_server.running.post("/mcp", json=body, headers=bearer(writer) | MCP_HEADERS).status_code == 403
    call = {**body, "method": "tools/call", "params": {"name": "add_document", "arguments": NEW_DOCUMENT}}
    response = guarded_server.running.post("/mcp", json=call, headers=bearer(reader) | MCP_HEADERS).json()
    assert "no tool 'add_document'" in response["result"]["content"][0]["text"]


def test_keys_are_added_and_revoked_without_a_restart(guarded_server: GuardedServer) -> None:
    assert guarded_server.status("mg_never-made", "/v1/models") == 401
    first = new_key(guarded_server.file)
    second = new_key(guarded_server.file)
    assert guarded_server.status(first, "/v1/models") == guarded_server.status(second, "/v1/models") == 200
    run_keys("revoke", guarded_server.file, hash_of(first)[:8])
    assert guarded_server.status(first, "/v1/models") == 401 and guarded_server.status(second, "/v1/models") == 200
    response = guarded_server.get(first, "/v1/models").json()
    assert response == guarded_server.get("mg_never-made", "/v1/models").json(), (
        "the refusal should not reveal that the key existed"
    )


def test_with_a_damaged_key_file_only_the_operator_has_access(
    guarded_server: GuardedServer, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_key(guarded_server.file)
    before = guarded_server.file.read_text()
    caplog.set_level(logging.ERROR)
    for damage in (lambda: guarded_server.file.write_text(before[:-9]), guarded_server.file.unlink):
        damage()
        assert guarded_server.status(key, "/v1/models") == guarded_server.status(key, "/v1/models") == 401
        assert guarded_server.status("operator", "/v1/models") == 200
    assert [each.message.count("no keys are loaded") for each in caplog.records] == [1, 1]
    guarded_server.file.write_text(before)
    assert guarded_server.status(key, "/v1/models") == 200


def test_a_key_file_that_is_repaired_without_a_new_modification_time_is_read_again(tmp_path: Path) -> None:
    """`chmod`, or restoring a copy with `cp -p`, repairs a file in this way."""
    file = tmp_path / "keys.json"
    key = new_key(file)
    ring, whole = KeyRing(file), file.read_text()
    file.write_text("x" * len(whole) + "\n")
    assert ring.find(key) is None
    damaged = file.stat()
    time.sleep(0.02)  # the clock of file systems may advance only every 10 ms
    file.write_text(f"{whole}\n")
    os.utime(file, ns=(damaged.st_atime_ns, damaged.st_mtime_ns))
    assert ring.find(key) is not None


def test_a_key_file_that_cannot_be_opened_is_reported_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r": a folder\. Expected a file of keys"):
        read_keys(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match=r"loop: cannot be read \(.*symbolic links\)\. Expected a file of keys"):
        read_keys(tmp_path / "loop")


def test_a_key_is_invalid_after_its_expiry_time(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    stored, texts = [], []
    for hours in (-1, 1):
        key, text = make_key("x", scopes=("read",), expires=now + timedelta(hours=hours))
        stored.append(key)
        texts.append(text)
    file = tmp_path / "keys.json"
    change_keys(file, lambda keys: [*keys, *stored])
    ring = KeyRing(file)
    assert ring.find(texts[0]) is None and ring.find(texts[1]) == stored[1]
    assert stored[1].is_expired(now + timedelta(hours=1)) and not stored[1].is_expired(now + timedelta(minutes=59))
    for date, shown in (("2099-01-31", "2099-01-31 00:00 UTC"), ("2099-01-31T18:30:00Z", "2099-01-31 18:30 UTC")):
        other = tmp_path / f"{date}.json"
        assert new_key(other, "--expires", date) and shown in run_keys("list", other)


def test_a_key_is_limited_to_its_rate(guarded_server: GuardedServer) -> None:
    slow, other = new_key(guarded_server.file, "--rate", 3), new_key(guarded_server.file)
    found = [guarded_server.get(slow, "/v1/models") for _ in range(5)]
    assert [each.status_code for each in found] == [200, 200, 200, 429, 429]
    assert 1 <= int(found[-1].headers["retry-after"]) <= 20 and found[-1].json()["error"]["code"] == "too_often"
    assert guarded_server.status(other, "/v1/models") == 200, "the limit of one key should not affect other keys"
    assert guarded_server.get(slow, "/ready").status_code == 200


def test_metrics_and_log_contain_the_name_of_the_key_but_not_the_key(
    guarded_server: GuardedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = new_key(guarded_server.file)
    assert guarded_server.status(key, "/v1/chat/completions", **CHAT_REQUEST) == 200
    stream = guarded_server.running.post(
        "/v1/chat/completions", json={**CHAT_REQUEST, "stream": True}, headers=bearer(key)
    )
    assert stream.status_code == 200 and guarded_server.status(key, "/metrics") == 403
    metrics = guarded_server.get("operator", "/metrics").text
    assert 'modegraph_key_requests_total{key="sales",status="200"} 2.0' in metrics
    assert 'modegraph_key_requests_total{key="sales",status="403"} 1.0' in metrics
    assert 'modegraph_key_tokens_total{key="sales",kind="prompt"} 14.0' in metrics
    assert "key sales" in caplog.text and key not in caplog.text and key not in metrics


def test_the_audit_log_records_every_attempt_to_write(guarded_server: GuardedServer, tmp_path: Path) -> None:
    writer = new_key(guarded_server.file, "--scope", "read", "--scope", "write", "--where", "source=notes/*")
    assert guarded_server.status(writer, "/v1/documents", documents=[NEW_DOCUMENT]) == 200
    assert guarded_server.status(writer, "/v1/documents", documents=[{**NEW_DOCUMENT, "source": "tarn"}]) == 403
    deletions = [
        guarded_server.running.delete(f"/v1/documents/{source}", headers=bearer(writer))
        for source in ("notes/gull", "tarn")
    ]
    assert [each.status_code for each in deletions] == [200, 404]
    assert guarded_server.status("operator", "/v1/documents", documents=[NEW_DOCUMENT]) == 200
    uploads = [("notes/tern.md", b"# Tern\n\nTerns dive.", 200), ("tarn.md", b"x", 403), ("notes/x.exe", b"x", 400)]
    for name, data, status in uploads:
        upload = guarded_server.running.post(
            "/v1/documents/files", headers=bearer(writer), files={"files": (name, data)}
        )
        assert upload.status_code == status, upload.text
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(each["key"], each["action"], each["sources"], each["outcome"]) for each in lines] == [
        ("sales", "add", ["notes/gull"], "done"),
        ("sales", "add", ["tarn"], "not_yours"),
        ("sales", "delete", ["notes/gull"], "done"),
        ("sales", "delete", ["tarn"], "no_such_document"),
        ("", "add", ["notes/gull"], "done"),
        ("sales", "add", ["notes/tern.md"], "done"),
        ("sales", "add", ["tarn.md"], "not_yours"),
        ("sales", "add", ["notes/x.exe"], "bad_extension"),
    ]
    assert {each["collection"] for each in lines} == {"isles"} and lines[0]["key_id"] == hash_of(writer)[:8]


def test_the_ready_route_reveals_nothing_about_the_collections_to_a_client_without_a_key(
    guarded_server: GuardedServer,
) -> None:
    state = guarded_server.running.get("/ready").json()
    assert state == {
        "status": "ready",
        "index": None,
        "generation": None,
        "documents": 0,
        "passages": 0,
        "collections": [],
        "models": [],
        "writable": False,
        "feedback": False,
        "runs": False,
    }
    assert guarded_server.get(new_key(guarded_server.file), "/ready").json()["documents"] == len(ISLES)
