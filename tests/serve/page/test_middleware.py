"""How the page is served: its headers and versions; no path gives access to any other file."""

import re

import httpx2
import pytest

from serve.page import middleware
from serve.page.middleware import PAGES, page_files, version
from tests.serve.http.running import Running
from tests.serve.page.conftest import KEY


def test_the_page_and_its_files_are_sent_with_their_headers(server: Running) -> None:
    front = server.get("/")
    assert front.status_code == 200 and front.headers["cache-control"] == "no-cache"
    policy = front.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';") and "unsafe" not in policy and "http" not in policy
    assert front.headers["x-content-type-options"] == "nosniff"
    addresses = re.findall(r'(?:href|src)="(page/[^"]+)"', front.text)
    assert len(addresses) == 6 and re.search(r'(src|href)="(?!page/|#|docs")', front.text) is None
    for address in addresses:
        response = server.get(f"/{address}")
        assert response.status_code == 200 and "immutable" in response.headers["cache-control"], address
        assert response.headers["content-security-policy"] == policy
    assert re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", front.text) is None


def test_the_page_of_routes_loads_only_from_this_server(server: Running) -> None:
    page = server.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == server.get("/").headers["content-security-policy"]
    addresses = re.findall(r'(?:href|src)="(page/[^"]+)"', page.text)
    assert {address.rpartition("/")[2] for address in addresses} == {"icon.svg", "page.css", "docs.css", "docs.js"}
    assert all(server.get(f"/{address}").status_code == 200 for address in addresses)
    assert "http" not in page.text and re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", page.text) is None
    assert [server.get(path).status_code for path in ("/redoc", "/docs/", "/docs/oauth2-redirect")] == [404] * 3


def test_a_page_that_the_browser_has_cached_is_not_sent_again(server: Running) -> None:
    tag = server.get("/").headers["etag"]
    again = server.get("/", headers={"If-None-Match": tag})
    assert again.status_code == 304 and again.content == b"" and tag == f'"{version()}"'
    assert httpx2.head(server.url + "/").status_code == 200


def test_the_version_changes_if_a_file_of_the_page_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = version()
    changed = {**middleware._read_files(), "page.css": b"body {}"}
    monkeypatch.setattr(middleware, "_read_files", lambda: changed)
    assert version.__wrapped__() != before


@pytest.mark.parametrize(
    "path",
    [
        "../middleware.py",
        "%2e%2e/middleware.py",
        "..%2fmiddleware.py",
        "middleware.py",
        "vendor/../page.css%00",
        "vendor/",
        "",
        "index.html",
        "docs.html",
        "....//middleware.py",
        "/etc/passwd",
        "vendor/LICENSES",
    ],
)
def test_no_path_gives_access_to_any_other_file(server: Running, path: str) -> None:
    response = server.get(f"/page/{version()}/{path}")
    assert response.status_code == 404 and response.json()["error"]["code"] == "no_such_address"


def test_if_a_key_is_required_the_page_is_sent_with_status_401(server_with_key: Running) -> None:
    for path, name in PAGES.items():
        response = server_with_key.get(path)
        assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
        assert response.content == page_files()[name] and response.headers["cache-control"] == "no-store"
        assert server_with_key.get(path, headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
    assert server_with_key.get(f"/page/{version()}/page.js").status_code == 200
    assert server_with_key.get("/page/other/page.js").status_code == 401
