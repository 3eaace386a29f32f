"""A fake model hub on this machine that gives every request the same answer, and a cache to fill."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub.constants
import pytest
from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache

from tests.servers import QuietHandler, http_server

ANSWER = b'{"id": "owner/there", "siblings": []}'


@contextmanager
def hub(status: int) -> Iterator[tuple[str, list[str]]]:
    """A hub that answers every request with `status`; yields its address and the requested paths."""
    paths: list[str] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            if status in (401, 404):
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", str(len(ANSWER)))
            self.end_headers()
            self.wfile.write(ANSWER if self.command == "GET" else b"")

        do_HEAD = do_GET

    with http_server(Handler) as address:
        yield address, paths


def go_online(monkeypatch: pytest.MonkeyPatch, address: str, cache: Path) -> None:
    """Make huggingface_hub use the hub at `address` and the cache in `cache`."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    files = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    # Once a day, huggingface_hub also requests a list of agent harnesses, and would put the fake hub's answer into the user's cache.
    harnesses = cache / "harnesses.json"
    harnesses.write_text('{"harnesses": {}}')
    monkeypatch.setattr(huggingface_hub.constants, "AGENT_HARNESSES_PATH", str(harnesses))


def put_into_cache(cache: Path, name: str, model: Path, missing: Sequence[str] = ()) -> None:
    """Put a model into the cache, in the layout of huggingface_hub; its list of the hub's files, if any, contains those that are `missing`."""
    folder = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(model, folder / "snapshots" / "abc")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    if missing:
        write_tree_cache(str(folder), "abc", {file: TreeCacheEntry(size=1, blob_id="0" * 40) for file in missing})
