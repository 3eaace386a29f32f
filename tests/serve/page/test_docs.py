"""The page at /docs in Chromium: it shows every route of openapi.json, can be used by keyboard, and sends requests."""

import json
from typing import Any

import pytest

from tests.serve.http.running import Running
from tests.serve.page.conftest import KEY, PageSession, Visits, contrast


def open_docs(visit: Visits, running: Running, address: str = "/docs", **options: Any) -> PageSession:
    """Open the page of routes in a new tab, and wait until it shows them."""
    session = visit(running, **options)
    session.page.wait_for_selector("#columns select")
    session.open(address)
    session.page.wait_for_selector("details.route")
    return session


def test_every_route_is_shown_with_its_parameters_and_response_codes(server: Running, visit: Visits) -> None:
    page = open_docs(visit, server).page
    schema = server.get("/openapi.json").json()
    routes = [(path, method) for path, methods in schema["paths"].items() for method in methods]
    shown = page.eval_on_selector_all(".route", "all => all.map((each) => [each.dataset.path, each.dataset.method])")
    assert len(routes) > 15 and sorted(map(tuple, shown)) == sorted(routes)
    tags = ["server", "chat", "retrieval", "documents", "feedback", "runs"]
    assert page.eval_on_selector_all("section", "all => all.map((each) => each.ariaLabel)") == tags
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for path, method in routes:
        operation = schema["paths"][path][method]
        text = page.inner_text(f".route[data-path='{path}'][data-method={method}]")
        first = operation["description"].split("\n\n")[0].replace("`", "")
        for words in (path, method.upper(), operation["summary"], " ".join(first.split())):
            assert words in " ".join(text.split()), (path, words)
        assert all(each["name"] in text for each in operation.get("parameters", ()))
        assert all(status in text for status in operation["responses"])


def test_references_in_the_schema_are_resolved_and_limits_are_shown(server: Running, visit: Visits) -> None:
    page = open_docs(visit, server, "/docs#post-v1-chat-completions").page
    route = page.locator("#post-v1-chat-completions")
    assert route.get_attribute("open") == ""
    messages = route.locator(".field", has=page.locator("> code", has_text="messages")).first
    assert "list (ChatMessage)" in messages.inner_text() and "1 to 1,000 items" in messages.inner_text()
    assert messages.locator("> .required").count() == 1
    assert {"role", "content"} <= set(messages.locator("> .fields > .field > .name").all_inner_texts())
    retrieval = route.locator(".field", has=page.locator("> code", has_text="retrieval")).first.inner_text()
    assert '"hops"' in retrieval and "whole number or null" in retrieval and "≥ 1, ≤ 100" in retrieval
    page.click("#get-v1-graph-neighbourhood summary")
    limits = page.inner_text("#get-v1-graph-neighbourhood .fields >> nth=0")
    assert (
        '"document" | "passage"' in limits and "≥ 1, ≤ 500, default 60" in limits and "1 to 1,000 characters" in limits
    )
    assert page.inner_text("#get-v1-graph-neighbourhood h3 >> nth=0") == "In the query"
    assert page.url.endswith("#get-v1-graph-neighbourhood")


def test_routes_can_be_tried_by_keyboard(server: Running, visit: Visits) -> None:
    session = open_docs(visit, server)
    page = session.page
    page.focus("#get-v1-models-model summary")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("sft")
    page.keyboard.press("Enter")
    page.wait_for_selector("#get-v1-models-model .answered:visible")
    assert json.loads(page.inner_text("#get-v1-models-model .answered"))["id"] == "sft"
    page.fill("#get-v1-models-model input", "a/b?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#get-v1-models-model [role=status]:has-text('404')")
    assert page.locator("#get-v1-models-model .answered").is_hidden()
    session.problems.clear()  # Chromium logs the expected 404.


def test_a_json_body_is_checked_and_sent(server: Running, visit: Visits) -> None:
    page = open_docs(visit, server, "/docs#post-v1-retrieve").page
    box = page.locator("#post-v1-retrieve textarea")
    assert json.loads(box.input_value()) == {"query": ""}
    box.fill("{")
    page.click("#post-v1-retrieve button")
    page.wait_for_selector("#post-v1-retrieve [role=status]:has-text('The body is not valid JSON')")
    box.fill('{"query": "Who built the Lantern?", "k": 1}')
    page.click("#post-v1-retrieve button")
    page.wait_for_selector("#post-v1-retrieve .answered:visible")
    assert len(json.loads(page.inner_text("#post-v1-retrieve .answered"))["passages"]) == 1
    assert page.inner_text("#post-v1-retrieve [role=status]").startswith("200, ")
    for selector in ("#delete-v1-documents-source", "#post-v1-documents-files"):
        assert (page.locator(selector).count(), page.locator(f"{selector} form").count()) == (1, 0)


def test_the_page_asks_for_the_key_that_the_server_requires(server_with_key: Running, visit: Visits) -> None:
    session = visit(server_with_key)
    session.open("/docs")
    page = session.page
    page.wait_for_selector("#key-dialog[open]")
    page.fill("#key-field", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("details.route")
    page.click("#get-v1-models summary")
    page.click("#get-v1-models button")
    page.wait_for_selector("#get-v1-models .answered:visible")
    assert '"tiny"' in page.inner_text("#get-v1-models .answered")
    page.wait_for_selector("#key-button:visible")
    assert all(
        "401" in each for each in session.problems
    )  # Chromium itself logs each 401; there should be no other problem.
    session.problems.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_narrow_screen_in_light_and_dark(server: Running, visit: Visits, scheme: str) -> None:
    page = open_docs(visit, server, color_scheme=scheme, viewport={"width": 400, "height": 800}).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert (contrast(page) > 0) == (scheme == "light")
