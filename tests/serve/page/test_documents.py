"""The list of documents: their details, the requested order, opening and deleting; by mouse, by keyboard and on a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graph.build.build import build_index
from graph.store.index_settings import IndexSettings
from graph.types import Document
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.http.running import Running, serving
from tests.serve.page.conftest import HOSTILE, REPLY, HeldRequests, Visits, reader_text

LIBRARY = [
    *ISLES,
    Document(
        "b.md",
        "Bell law",
        "The Bell Law was made in 1754. It lays down when the bell rings.",
        {"year": 1754, "team": ["law", "sea"]},
    ),
    Document("c.eml", "Crew list", "The crew list follows on Monday.", {"date": "2024-03-01T10:00:00"}),
    Document("long.txt", "Almanac", "The tide turns at noon. " * 400),
    HOSTILE,
]


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Running]:
    folder = tmp_path / "library"
    build_index(folder, LIBRARY, IndexSettings(), lambda spec: HashEncoder())
    with (
        chat_server(lambda body, number: REPLY) as upstream,
        serving(folder, f"openai:tiny@{upstream.url}", writable=True) as running,
    ):
        yield running


def titles(page: Any) -> list[str]:
    found: list[str] = page.locator(".documents .title").all_inner_texts()
    return found


def open_documents(running: Running, visit: Visits, **options: Any) -> Any:
    page = visit(running, **options).page
    page.click("nav >> text=Documents")
    page.wait_for_selector(".documents > li")
    return page


def test_each_document_is_listed_with_its_details(library: Running, visit: Visits) -> None:
    page = open_documents(library, visit)
    assert "9 documents" in page.inner_text(".library-head") and sorted(titles(page)) == sorted(
        each.title for each in LIBRARY
    )
    law = page.locator(".documents > li", has_text="Bell law").inner_text()
    assert "b.md" in law and "The Bell Law was made in 1754." in law and "team: law, sea" in law
    facts = page.locator(".documents > li", has_text="Bell law").locator("dd").all_inner_texts()
    assert facts == ["1754", f"1 passage, {len(LIBRARY[5].text)} characters", "ready"]
    assert page.locator(".documents > li", has_text="Almanac").locator("dt").all_inner_texts() == ["Size", "State"]
    page.click(".documents >> text=Bell law")
    assert reader_text(page) == LIBRARY[5].text
    page.keyboard.press("Escape")
    page.click("[aria-label='Connections of Bell law']")
    page.wait_for_selector("#node h2 >> text=Bell law")


def test_the_list_is_sorted_as_requested(library: Running, visit: Visits) -> None:
    session = visit(library)
    page = session.page
    page.click("nav >> text=Documents")
    page.wait_for_selector(".documents > li")
    by_title = sorted((each.title for each in LIBRARY), key=str.casefold)
    assert titles(page) == by_title

    def sort(name: str, label: str) -> list[str]:
        page.click(f"#sort-{name}")
        page.wait_for_selector(f"#sort-{name}[aria-pressed=true]:text-is('{label}')")
        page.wait_for_function("name => document.activeElement.id === `sort-${name}`", arg=name)
        return titles(page)

    assert sort("title", "Name, Z to A") == by_title[::-1]
    assert sort("date", "Date, newest first")[:2] == ["Crew list", "Bell law"]
    oldest_first = sort("date", "Date, oldest first")
    by_source = [each.title for each in sorted(LIBRARY, key=lambda each: each.source)]
    undated = [title for title in by_source if title not in ("Bell law", "Crew list")]
    assert oldest_first == ["Bell law", "Crew list", *undated]
    by_size = sorted(LIBRARY, key=lambda each: (-len(each.text.strip()), each.source))
    assert sort("size", "Size, longest first") == [each.title for each in by_size]

    sorts = HeldRequests(page, "**/v1/documents?*")
    page.click("#sort-size")
    page.click("#sort-title")
    sorts.answer(1)
    sorts.answer(0)
    assert titles(page) == by_title and page.get_attribute("#sort-title", "aria-pressed") == "true"
    sorts.end()
    page.route("**/v1/documents?*", lambda route: route.abort())
    page.click("#sort-date")
    page.wait_for_selector("#view-documents .problem >> text=The server cannot be reached.")
    assert [each for each in session.problems if "ERR_FAILED" not in each] == []
    session.problems.clear()  # Chromium logs the expected failure.


def test_a_document_is_deleted_after_confirmation(library: Running, visit: Visits) -> None:
    session = visit(library)
    page = session.page
    page.click("nav >> text=Browse")
    page.click("[data-shelf=entities]")
    page.fill("#entities-field", "bell")
    page.evaluate("location.hash = '#browse/document/b.md'")
    page.wait_for_selector("#node h2 >> text=Bell law")
    page.click("nav >> text=Documents")
    page.wait_for_selector(".documents > li")
    page.click("[aria-label='Delete Bell law']")
    assert "removed from the index for everyone, with its 1 passage." in page.inner_text("#delete")
    page.click("#delete >> text=Cancel")
    page.wait_for_selector("#delete", state="detached")
    assert library.get("/v1/documents/b.md").status_code == 200
    next_title = titles(page)[titles(page).index("Bell law") + 1]
    page.click("[aria-label='Delete Bell law']")
    page.click("#delete .primary")
    page.wait_for_selector("text=Bell law was deleted.")
    assert library.get("/v1/documents/b.md").status_code == 404 and "Bell law" not in titles(page)
    assert page.evaluate("document.activeElement.ariaLabel") == f"Delete {next_title}"
    page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('8 documents')")
    page.click("nav >> text=Browse")
    page.wait_for_selector("#node >> text=Choose an item")
    assert page.input_value("#entities-field") == "bell"
    session.problems.clear()  # Chromium logs the two expected 404s.


def test_a_failed_deletion_shows_the_reason_and_may_be_repeated(library: Running, visit: Visits) -> None:
    session = visit(library)
    page = session.page
    page.click("nav >> text=Documents")
    page.wait_for_selector(".documents > li")
    error = {"code": "disk_full", "message": "the disk is full; the change is stored, but not in use yet"}
    page.click("[aria-label='Delete Tarn']")
    deletions = HeldRequests(page, "**/v1/documents/tarn")
    page.click("#delete .primary")
    page.click("#delete >> text=Cancel")
    page.wait_for_selector("#delete", state="detached")
    deletions.answer(0, status=503, json={"error": error})
    page.wait_for_selector("#delete [role=alert] >> text=The disk is full; the change is stored, but not in use yet")
    deletions.end()
    assert library.delete("/v1/documents/tarn").status_code == 200
    page.click("#delete .primary")
    page.wait_for_selector("text=Tarn was deleted.")
    assert "Tarn" not in titles(page) and "Almanac" in titles(page)
    assert library.delete("/v1/documents/long.txt").status_code == 200
    page.set_input_files("#view-documents input[type=file]", {"name": "tool.exe", "mimeType": "x/x", "buffer": b"MZ"})
    page.wait_for_selector(".documents .title >> text=Almanac", state="detached")
    session.problems.clear()  # Chromium logs the failures.


def test_a_long_list_of_documents_is_shown_page_by_page(tmp_path: Path, visit: Visits) -> None:
    many = [Document(f"gull-{n:02}.md", "", f"Gull number {n} nests on the rock.") for n in range(60)]
    build_index(tmp_path / "index", many, IndexSettings(), lambda spec: HashEncoder())
    with serving(tmp_path / "index", None) as running:
        session = visit(running)
        page = session.page
        page.click("nav >> text=Documents")
        page.wait_for_selector(".documents > li")
        assert len(titles(page)) == 50 and page.query_selector(".document-actions button, .library-head button") is None
        check_second_page(page, "#view-documents", ".documents > li")
        assert titles(page)[-1] == "gull-59.md"

        page.route("**/v1/graph/summaries*", lambda route: route.abort())
        page.click("nav >> text=Browse")
        page.wait_for_selector("#shelf details .problem")
        page.unroute("**/v1/graph/summaries*")
        summaries = HeldRequests(page, "**/v1/graph/summaries*")
        for _ in range(4):
            page.click("#shelf summary")
        summaries.answer(0)
        summaries.end()
        page.wait_for_selector("#shelf details li")
        page.wait_for_timeout(200)
        listed = running.get("/v1/graph/layers").json()[0]["summaries"]
        assert page.locator("#shelf details li").count() == listed > 1
        page.click("[data-shelf=documents]")
        page.wait_for_selector("#shelf li")
        check_second_page(page, "#shelf", "#shelf li")
        assert all("ERR_FAILED" in each for each in session.problems), session.problems
        session.problems.clear()  # Chromium logs the expected failures.


def check_second_page(page: Any, holder: str, rows: str) -> None:
    """Check that the button below a list of 50 of 60 rows shows why it fails, and then appends the other 10 once and focuses the first of them."""
    page.route("**/v1/documents?*", lambda route: route.abort())
    page.click(f"{holder} >> text=More (10)")
    page.wait_for_selector(f"{holder} .problem >> text=The server cannot be reached.")
    page.unroute("**/v1/documents?*")
    page.dblclick(f"{holder} >> text=More (10)")
    page.wait_for_selector(f"{holder} .more", state="detached")
    page.wait_for_timeout(200)
    assert page.locator(rows).count() == 60 and not page.is_visible(f"{holder} .problem")
    place = f"[...document.querySelectorAll('{rows}')].findIndex((each) => each.contains(document.activeElement))"
    assert page.evaluate(place) == 50


def test_the_list_can_be_used_by_keyboard(library: Running, visit: Visits) -> None:
    page = visit(library).page
    page.on(
        "filechooser", lambda chooser: None
    )  # Set early, because Chromium needs a moment before it reports file choosers.
    page.wait_for_selector(".suggestion")
    question = page.inner_text(".suggestion >> nth=0")

    def go(name: str) -> None:
        for _ in range(80):
            here = page.evaluate(
                "(() => { const at = document.activeElement; return at.ariaLabel || at.id || at.textContent.trim(); })()"
            )
            if here == name:
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"80 presses of Tab do not reach {name!r}; the focus is on {here!r}")

    go(question)
    page.keyboard.press("Enter")
    page.wait_for_selector(".cost")
    page.focus(".skip")
    go("Documents")
    page.keyboard.press("Enter")
    page.wait_for_selector(".documents > li")
    go("sort-date")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Date, newest first")
    go("Delete Crew list")
    page.keyboard.press("Enter")
    page.wait_for_selector("#delete[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#delete", state="detached")
    assert page.evaluate("document.activeElement.ariaLabel") == "Delete Crew list"
    page.focus(".skip")
    go("Add documents")
    with page.expect_file_chooser():
        page.keyboard.press("Enter")


def test_the_controls_fit_the_width_of_a_phone(library: Running, visit: Visits) -> None:
    session = visit(library, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = session.page
    page.wait_for_selector(".suggestion")

    def assert_reachable(selector: str) -> None:
        page.locator(selector).first.scroll_into_view_if_needed()
        box = page.locator(selector).first.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390, (selector, box)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, selector

    for each in (
        ".suggestion",
        ".newest button",
        "nav >> text=Documents",
        "nav >> text=API",
        "#history-button",
        "#compare",
    ):
        assert_reachable(each)
    page.tap(".suggestion >> nth=0")
    page.wait_for_selector(".cost")
    for each in ("#k", "#where", "#fresh", "#compare", ".column-head select"):
        assert_reachable(each)
    page.tap("nav >> text=Documents")
    page.wait_for_selector(".documents > li")
    for each in (
        "#sort-size",
        ".library-head .primary",
        "[aria-label='Delete Bell law']",
        "[aria-label='Connections of Almanac']",
    ):
        assert_reachable(each)
