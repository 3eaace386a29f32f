"""The page before the first question, and documents dropped anywhere on it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from graph.build.build import build_index
from graph.store.index_settings import IndexSettings
from graph.types import Document
from serve.http.keys import change_keys, make_key
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.http.running import Running, serving
from tests.serve.page.conftest import REPLY, HeldRequests, Visits, reader_text

DATED_DOCUMENT = Document(
    "notes/petrel.eml", "Petrel count", "The petrel count is in.", {"date": "2024-03-01T10:00:00", "team": "birds"}
)


@pytest.fixture
def writable_server(tmp_path: Path) -> Iterator[Running]:
    """A writable server with a model and an index that a test may change."""
    folder = tmp_path / "index"
    build_index(folder, [*ISLES, DATED_DOCUMENT], IndexSettings(), lambda spec: HashEncoder())
    with ExitStack() as exits:
        upstream = exits.enter_context(chat_server(lambda body, number: REPLY))
        yield exits.enter_context(serving(folder, f"openai:tiny@{upstream.url}", writable=True))


def drag(page: Any, kind: str, paths: Sequence[Path]) -> None:
    """Send the page one drag-and-drop event with real files, as the desktop would."""
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    page.context.new_cdp_session(page).send("Input.dispatchDragEvent", {"type": kind, "x": 200, "y": 300, "data": data})


def drop(page: Any, *paths: Path) -> None:
    for kind in ("dragEnter", "dragOver", "drop"):
        drag(page, kind, paths)


def test_content_that_loads_late_does_not_take_the_focus(server: Running, visit: Visits) -> None:
    page = visit(server).page
    page.wait_for_selector("#columns select", state="attached")
    assert page.evaluate("document.activeElement.id") == "question"
    delayed: list[Any] = []
    page.route("**/openapi.json", lambda route: delayed.append(route))
    page.reload()
    page.wait_for_selector("#status:has-text('passages')")
    page.focus("nav a[href='#browse']")
    delayed[0].continue_()
    page.wait_for_selector("#columns select", state="attached")
    assert page.evaluate("document.activeElement.hash") == "#browse"


def test_a_model_that_answers_later_is_noticed(server: Running, visit: Visits) -> None:
    session = visit(server)
    page = session.page
    page.clock.install()
    checks: list[Any] = []
    state = {**server.get("/ready").json(), "writable": True, "error": {"message": "no model yet"}}
    page.route("**/ready", lambda route: checks.append(route) or route.fulfill(status=503, json=state))
    page.reload()
    page.wait_for_selector("#status:has-text('The model does not answer; search works')")
    page.wait_for_selector("#start >> text=Drop files or folders anywhere on this page")
    page.evaluate("for (let n = 0; n < 5; n += 1) dispatchEvent(new CustomEvent('collection-changed'))")
    while len(checks) < 6:
        page.wait_for_timeout(10)
    page.wait_for_timeout(200)
    page.clock.run_for(6_000)
    page.wait_for_timeout(200)
    assert len(checks) == 7, "only one request should be repeated"
    page.unroute("**/ready")
    page.clock.run_for(6_000)
    page.wait_for_selector("#status:has-text('passages')")
    assert page.inner_text("#status") == "6 documents, 6 passages"
    session.problems.clear()  # Chromium logs the expected 503.


def test_the_start_page_shows_the_collection_and_suggests_questions_that_can_be_asked(
    writable_server: Running, visit: Visits
) -> None:
    page = visit(writable_server).page
    page.wait_for_selector(".suggestion")
    suggestions = page.locator(".suggestion").all_inner_texts()
    assert (
        tuple(suggestions) == writable_server.services.collections.live["index"].current.suggestions
        and len(suggestions) == 3
    )
    text = " ".join(page.inner_text("#start").split())
    assert "6 documents, 6 passages. See all documents Drop files" in text
    assert text.endswith("Newest: Petrel count 2024-03-01")
    loads = HeldRequests(page, "**/v1/suggestions")
    page.evaluate("for (let n = 0; n < 2; n += 1) dispatchEvent(new CustomEvent('collection-changed'))")
    loads.answer(1)
    loads.answer(0, json={"questions": ["What was there before?"]})
    assert page.locator(".suggestion").all_inner_texts() == suggestions
    loads.end()
    page.click(f"text={suggestions[1]}")
    page.wait_for_selector(".cost")
    assert page.inner_text(".turn-question") == suggestions[1] and not page.is_visible("#start")
    page.click("#fresh")
    assert page.is_visible("#start") and page.locator(".suggestion").all_inner_texts() == suggestions
    page.click(".newest button >> nth=0")
    assert reader_text(page) == DATED_DOCUMENT.text


def test_with_a_restricted_key_the_start_page_shows_only_the_documents_that_the_key_allows(
    tmp_path: Path, visit: Visits
) -> None:
    folder, file = tmp_path / "index", tmp_path / "keys.json"
    build_index(folder, [*ISLES, DATED_DOCUMENT], IndexSettings(), lambda spec: HashEncoder())
    key, text = make_key("tarn", scopes=("read",), where=("source=tarn",))
    other, other_text = make_key("other", scopes=("read",), collections=("other",))
    change_keys(file, lambda keys: [*keys, key, other])
    with serving(folder, None, keys=str(file)) as running:
        session = visit(running)
        page = session.page
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key-field", text)
        page.keyboard.press("Enter")
        page.wait_for_selector(".suggestion")
        assert page.locator(".suggestion").all_inner_texts() == [
            "At what time does tarn’s church bell ring every morning, according to “Tarn”?"
        ]
        start = page.inner_text("#start")
        assert "1 document, 1 passage." in start and not any(
            each.title in start for each in (*ISLES[:3], DATED_DOCUMENT)
        )
        page.evaluate("key => sessionStorage.setItem('modegraph-key', key)", other_text)
        page.reload()
        page.click("nav >> text=Questions")
        page.wait_for_selector("#view-questions >> text=Nothing to review")
        session.problems.clear()  # Chromium logs the first 401.


def test_the_page_of_an_empty_collection_says_what_to_do_and_dropped_files_fill_it(
    writable_server: Running, visit: Visits, tmp_path: Path
) -> None:
    for source in [each.source for each in (*ISLES, DATED_DOCUMENT)]:
        assert writable_server.delete(f"/v1/documents/{source}").status_code == 200
    page = visit(writable_server).page
    page.wait_for_selector(".empty")
    assert "This collection is empty. Drop files or folders anywhere" in page.inner_text("#start")
    assert page.locator("#start button").all_inner_texts() == ["Add documents"] and not page.query_selector(
        ".suggestion"
    )
    folder = tmp_path / "isles"
    (folder / "inner").mkdir(parents=True)
    (folder / "heron.md").write_text("# Heron\n\nHeron is a ferry. Heron was built in 1911.")
    (folder / "inner" / "tern.md").write_text("Terns nest in the reeds.")
    (folder / ".hidden.md").write_text("Nobody sees this.")
    drag(page, "dragEnter", [folder])
    drag(page, "dragOver", [folder])
    page.wait_for_selector("#drop >> text=Drop files or folders")
    drag(page, "drop", [folder])
    page.wait_for_selector(".upload [role=status]:has-text('2 files indexed.')")
    assert not page.is_visible("#drop")
    listed = writable_server.get("/v1/documents").json()["documents"]
    assert [each["source"] for each in listed] == ["isles/heron.md", "isles/inner/tern.md"]
    page.wait_for_selector(".suggestion >> text=In what year was Heron built?")
    page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('2 documents')")


def test_a_drop_during_a_conversation_lists_each_refused_file_once_with_the_reason(
    writable_server: Running, visit: Visits, tmp_path: Path
) -> None:
    texts = {
        "gull.md": "Gulls nest on the rock.",
        "empty.md": " ",
        "tool.exe": "MZ",
        "broken.pdf": "not a PDF",
        "torn.docx": "x",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    session = visit(writable_server)
    page = session.page
    session.ask()
    drop(page, *(tmp_path / name for name in texts))
    page.wait_for_selector(".upload [role=status]:has-text('1 file indexed, 4 refused:')")
    refused = {
        line.partition(": ")[0]: line.partition(": ")[2] for line in page.locator(".upload li").all_inner_texts()
    }
    assert refused.keys() == texts.keys() - {"gull.md"}
    assert refused["empty.md"] == "it has no text" and refused["tool.exe"].startswith(
        "this kind of file cannot be read"
    )
    assert all(reason and name not in reason for name, reason in refused.items()), refused
    assert page.is_visible(".cost") and page.url.startswith(writable_server.url)
    page.click(".upload >> text=Close")
    assert not page.is_visible(".upload")
    session.problems.clear()  # Chromium logs the refusals.


def test_a_page_that_accepts_no_documents_ignores_a_drop(server: Running, visit: Visits, tmp_path: Path) -> None:
    (tmp_path / "gull.md").write_text("Gulls nest on the rock.")
    page = visit(server).page
    page.wait_for_selector("#start h2")
    sent: list[str] = []
    page.on("request", lambda request: request.method != "GET" and sent.append(request.url))
    drop(page, tmp_path / "gull.md")
    prevented = """() => ["dragover", "drop"].map((kind) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["x"], "x.md"));
      return !document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer }));
    })"""
    assert page.evaluate(prevented) == [True, True], (
        "the page should cancel both events: otherwise the browser would replace the page with the file"
    )
    page.wait_for_timeout(300)
    assert sent == [] and not page.is_visible("#drop") and page.query_selector(".upload") is None
    assert page.url.startswith(server.url) and page.query_selector("#start h2")
