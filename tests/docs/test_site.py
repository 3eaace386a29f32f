"""The site builds in strict mode, has no dead links, fetches nothing from another host, and also works from file://."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from tests.docs.site import Page, build, run
from tests.places import ROOT
from tests.serve.page.conftest import browser

__all__ = ["browser"]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    pytest.importorskip("zensical", reason="the site is built by zensical (extra docs), which is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """The pages of the site, by file."""
    return {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}


def dead_links(pages: dict[Path, Page], page: Path) -> Iterator[str]:
    """The links and loaded resources of a page whose targets do not exist on the site."""
    for target in (*pages[page].links, *pages[page].loaded):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or target == "":
            continue
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not file.is_file() or (parts.fragment and file in pages and parts.fragment not in pages[file].anchors):
            yield target


def external_urls(text: str) -> list[str]:
    """The addresses on other hosts from which a style sheet loads something."""
    return [
        each for each in re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text) if "//" in "".join(each)
    ]


def test_no_link_of_a_page_is_dead(site: Path, pages: dict[Path, Page]) -> None:
    index = site / "index.html"
    assert len(pages) > 25 and sum(len(page.links) for page in pages.values()) > 500
    broken = Page('<a href="guide.html#nowhere"></a><a href="gone.html"></a><a href="guide.html#questions"></a>')
    assert list(dead_links(pages | {index: broken}, index)) == ["guide.html#nowhere", "gone.html"]
    # The links of 404.html are relative to the root of a host.
    assert {
        file.name: found for file in pages if file.name != "404.html" and (found := list(dead_links(pages, file)))
    } == {}


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {file.name: [each for each in page.loaded if "//" in each] for file, page in pages.items()}
    assert {name: found for name, found in loaded.items() if found} == {}
    assert all(page.loaded for page in pages.values())
    styles = {file.name: external_urls(file.read_text(encoding="utf-8")) for file in site.rglob("*.css")}
    assert len(styles) >= 3 and {name: found for name, found in styles.items() if found} == {}
    assert external_urls("@import 'https://a/b.css'; i { src: url(//c/d) }") == [("", "https://a/b.css"), ("//c/d", "")]


@pytest.mark.process
def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: a\ndocs_dir: docs\n", encoding="utf-8")
    (tmp_path / "docs/index.md").write_text("# A\n\n[b](b.md)\n", encoding="utf-8")
    failed = run(tmp_path)
    assert failed.returncode != 0 and "page does not exist" in failed.stderr and "index.md:3:5" in failed.stderr
    (tmp_path / "docs/b.md").write_text("# B\n", encoding="utf-8")
    assert run(tmp_path).returncode == 0


def test_pages_and_search_work_from_file_urls(site: Path, browser: Callable[[], Any]) -> None:
    page = browser().new_page()
    requested, problems = [], []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    page.goto((site / "start" / "offline.html").as_uri())
    assert page.text_content("h1").strip("¶ ") == "Offline in five minutes"
    page.keyboard.press("Control+k")
    # The search is in a shadow DOM, which locators can reach.
    page.locator("input[placeholder]:visible").fill("hostile passages")
    page.get_by_text("130 hostile passages per mode").first.wait_for()
    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == [] and problems == []
    page.close()


def nav_files(entry: Any) -> Iterator[str]:
    """The files listed in the navigation, in order."""
    if isinstance(entry, str):
        yield entry
    for inner in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from nav_files(inner)


def test_every_page_is_in_the_navigation_once() -> None:
    # `yaml.safe_load` is enough: the configuration has no MkDocs-specific tag.
    listed = list(nav_files(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(listed) == sorted(file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md"))


@pytest.mark.parametrize("folder", sorted({file.parent for file in DOCS.rglob("*")}), ids=lambda each: each.name)
def test_no_folder_of_docs_has_more_than_16_files(folder: Path) -> None:
    """Files whose names differ only in the extension count as one."""
    assert len({file.stem for file in folder.iterdir() if file.is_file()}) <= 16
