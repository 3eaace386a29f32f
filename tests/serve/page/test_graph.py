"""The graph of the whole collection: its drawing, its search field, and opening documents by mouse or by keyboard."""

from typing import Any

from tests.corpora import ISLES
from tests.serve.http.running import Running
from tests.serve.page.conftest import HeldRequests, Visits
from tests.serve.page.test_keyboard import Keys

CAMERA_PAUSE = "() => new Promise((done) => setTimeout(() => requestAnimationFrame(done), 400))"


def drawing(page: Any) -> bytes:
    """A screenshot of the graph, taken when the camera has stopped moving."""
    page.evaluate(CAMERA_PAUSE)
    return bytes(page.locator("#map").screenshot())


def test_the_graph_can_be_zoomed_and_a_click_on_a_node_opens_its_document(
    feedback_server: Running, visit: Visits
) -> None:
    session = visit(feedback_server, viewport={"width": 1280, "height": 800})
    page = session.page
    page.wait_for_selector("#columns select")
    loads = HeldRequests(page, "**/v1/graph/overview*")
    for number in (1, 2):
        page.click("nav >> text=Graph")
        loads.wait_for(number)
        page.click("nav >> text=Ask")
        page.wait_for_selector("#view-ask:not([hidden])")
    loads.answer(0)
    assert page.text_content("#view-graph") == "Loading…", "only the latest of two loads should be drawn"
    loads.answer(1)
    page.click("nav >> text=Graph")
    page.wait_for_selector("#graph-node li")
    whole = feedback_server.get("/v1/graph/overview?limit=300").json()
    counts = page.inner_text("#view-graph .library-head .hint")
    assert counts.startswith(f"{whole['documents']} documents, {whole['entities']} entities.")
    assert page.locator(".legend li").all_inner_texts() == ["document", "entity"]
    first = drawing(page)
    page.click("[aria-label='Zoom in']")
    closer = drawing(page)
    page.click("[aria-label='Show all']")
    assert closer != first and drawing(page) == first

    page.fill("#graph-field", "ada marl")
    page.click("#graph-node .kind-document >> text=Ada Marlow")
    drawing(page)
    assert page.inner_text("#graph-node h2") == "Ada Marlow" and not page.is_visible("#reader")
    page.click(
        "#map",
        position=page.evaluate(
            "(({ clientWidth: x, clientHeight: y }) => ({ x: x / 2, y: y / 2 }))(document.querySelector('#map'))"
        ),
    )
    page.wait_for_selector("#reader[open] >> text=shipwright")
    assert page.inner_text("#reader-title") == "Ada Marlow"


def test_an_entity_is_found_by_keyboard_and_lists_its_documents(feedback_server: Running, visit: Visits) -> None:
    page = visit(feedback_server, viewport={"width": 390, "height": 800}).page
    page.wait_for_selector("#columns select")
    keys = Keys(page)
    keys.press("Graph")
    page.wait_for_selector("#graph-node li")
    keys.go("graph-field")
    page.keyboard.type("marlow yard")
    page.focus("#graph-node button.kind-entity >> text=Marlow Yard")  # The document with this title is listed too.
    page.keyboard.press("Enter")
    page.wait_for_selector("#graph-node h3")
    titles = [each.title for each in ISLES if "Marlow Yard" in each.text]
    assert sorted(page.locator("#graph-node .names button").all_inner_texts()) == sorted(titles) and len(titles) > 1
    assert page.inner_text("#graph-node h3") == f"{len(titles)} documents mention it"
    assert page.evaluate("document.activeElement.id") == "graph-node"
    keys.press(titles[0])
    page.wait_for_selector("#reader[open]")
    page.keyboard.press("Escape")
    keys.press("Back")
    assert page.evaluate("document.activeElement.id") == "graph-node"
    assert page.input_value("#graph-field") == "" and page.locator("#graph-node li").count() > len(titles)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390 and keys.invisible_focus == []
