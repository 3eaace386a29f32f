"""Conversations that the browser stores; the tab order; accessibility, as axe checks it."""

from typing import Any

import pytest

from tests.serve.http.running import Running
from tests.serve.page.conftest import PageSession, Visits, axe_violations

FIRST, SECOND = "Who built the Lantern?", "Where is Tarn?"


def shown_questions(page: Any) -> list[str]:
    return page.eval_on_selector_all(".turn-question", "all => all.map((each) => each.textContent)")  # type: ignore[no-any-return]


def test_a_conversation_is_restored_after_a_reload_and_continues(feedback_server: Running, visit: Visits) -> None:
    session = visit(feedback_server)
    page = session.page
    session.ask(FIRST)
    page.wait_for_function("() => location.hash.startsWith('#ask/')")
    shown = page.inner_text(".column-body")
    page.reload()
    page.wait_for_selector(".cost")
    assert page.inner_text(".column-body") == shown and "the Marlow Yard" in shown
    page.click(".cite >> nth=0")
    page.wait_for_selector("#reader mark")
    page.keyboard.press("Escape")
    sent: list[Any] = []
    chats = "v1/chat/completions"
    page.on("request", lambda request: request.url.endswith(chats) and sent.append(request.post_data_json["messages"]))
    page.fill("#question", SECOND)
    page.press("#question", "Enter")
    page.wait_for_function("() => document.querySelectorAll('.cost').length === 2")
    assert [turn["content"] for turn in sent[0]] == [FIRST, "the Marlow Yard [1]", SECOND]
    page.wait_for_function("() => JSON.parse(localStorage['modegraph-talks'])[0].columns[0].turns.length === 2")
    assert page.evaluate("JSON.parse(localStorage['modegraph-talks']).length") == 1


def test_settings_are_sent_and_stored_with_their_conversation(feedback_server: Running, visit: Visits) -> None:
    session = visit(feedback_server)
    page = session.page
    sent: list[dict[str, Any]] = []
    page.on("request", lambda request: request.method == "POST" and sent.append(request.post_data_json))
    session.ask(FIRST)
    search, chat = sent
    assert set(search) == {"query"} and set(chat) == {"model", "stream", "stream_options", "retrieval", "messages"}
    assert chat["retrieval"] == {}
    page.wait_for_function("() => location.hash.startsWith('#ask/')")
    page.focus(".settings summary")
    for key in ("Enter", "Tab", "0", ".", "7", "Tab", "9", "0"):
        page.keyboard.press(key)
    page.select_option("[id^=abstain-]", "1")
    page.select_option("[id^=mode-]", "lexical")
    page.select_option("[id^=model-]", "sft")
    page.reload()
    page.wait_for_selector(".cost")
    line = "Settings: temperature 0.7, at most 90 tokens, always answer"
    assert page.inner_text(".settings summary") == line, "the settings should be saved before the next question"
    sent.clear()
    page.fill("#question", SECOND)
    page.press("#question", "Enter")
    page.wait_for_function("() => document.querySelectorAll('.cost').length === 2")
    chat, search = sorted(sent, key=lambda body: "query" in body)
    assert (chat["model"], chat["temperature"], chat["max_tokens"]) == ("sft", 0.7, 90)
    assert chat["retrieval"] == {"mode": "lexical", "abstain": 1} and search == {
        "query": search["query"],
        **chat["retrieval"],
    }

    first = page.evaluate("location.hash")
    page.click("#fresh")
    page.click(".settings summary")
    page.fill("[id^=max-tokens-]", "")
    page.fill("[id^=temperature-]", "9")
    page.fill("#question", SECOND)
    page.press("#question", "Enter")
    page.wait_for_selector(".turn .problem")
    assert "emperature: Input should be less than" in page.inner_text(".turn .problem"), (
        "the page should show the server's own error message"
    )
    session.problems.clear()
    page.evaluate(f"location.hash = '{first}'")
    page.wait_for_function("() => document.querySelectorAll('.cost').length === 2")
    assert page.inner_text(".settings summary") == line and not page.is_visible(".fields")


def test_conversations_are_listed_opened_and_deleted_by_keyboard(feedback_server: Running, visit: Visits) -> None:
    session = visit(feedback_server)
    page = session.page
    for question in (FIRST, SECOND):
        session.ask(question)
        page.wait_for_function("() => location.hash.startsWith('#ask/')")
        page.click("#fresh")
    page.route("**/v1/chat/completions", lambda route: None)

    def open_first_during_an_answer() -> None:
        page.fill("#question", "And when?")
        page.press("#question", "Enter")
        page.wait_for_selector("text=Reading…")
        page.focus("#history-button")
        page.keyboard.press("Enter")
        assert page.locator(".conversations .line").all_inner_texts() == [SECOND, FIRST]
        page.locator(".conversations a").nth(1).focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#history", state="hidden")
        page.wait_for_selector("#ask-button >> text=Ask")
        assert shown_questions(page) == [FIRST] and page.evaluate("document.activeElement.id") == "history-button"

    open_first_during_an_answer()
    page.click("#compare")
    open_first_during_an_answer()
    page.click("#history-button")
    page.keyboard.press("Tab")
    page.locator(f"[aria-label='Delete {FIRST}']").press("Enter")
    assert page.locator(".conversations .line").all_inner_texts() == [SECOND]
    assert page.evaluate("document.activeElement.ariaLabel") == f"Delete {SECOND}" and shown_questions(page) == []
    page.keyboard.press("Enter")
    page.wait_for_selector("#history >> text=No conversations yet")
    assert page.evaluate("localStorage.getItem('modegraph-talks')") is None
    assert page.evaluate("document.activeElement.id") == "history-close"


def test_opening_a_conversation_switches_to_its_collection(two_collections: Running, visit: Visits) -> None:
    session = visit(two_collections, "/?collection=isles")
    page = session.page
    session.ask(FIRST)
    page.wait_for_function("() => location.hash.startsWith('#ask/')")
    address = page.evaluate("location.search + location.hash")
    session.open("/?collection=moors")
    page.wait_for_selector("#columns select")
    page.evaluate("hash => { location.hash = hash; }", address.partition("#")[2])
    page.wait_for_url(f"**/{address}")
    page.wait_for_selector(".cost")
    assert shown_questions(page) == [FIRST] and page.input_value("#collection") == "isles"
    session.open("/?collection=moors")
    page.wait_for_selector("#columns select")
    page.click("nav >> text=API")
    page.wait_for_selector("details.route")
    page.click("nav >> text=Ask")
    page.wait_for_selector("#columns select")
    assert page.input_value("#collection") == "moors"
    page.click("#history-button")
    assert page.inner_text(".conversations .place").startswith("isles · ")
    page.click(".conversations a")
    page.wait_for_url(f"**/{address}")
    page.wait_for_selector(".cost")
    assert shown_questions(page) == [FIRST]


def test_the_oldest_conversations_are_deleted_when_storage_is_full(feedback_server: Running, visit: Visits) -> None:
    page = visit(feedback_server).page
    page.wait_for_selector("#columns select")
    left, after = page.evaluate(
        """async () => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { saveConversation, savedConversations } = await import(`/page/${version}/conversations/store.js`);
          for (let n = 0; n < 12; n += 1) saveConversation({ id: String(n), at: "", title: "", columns: ["x".repeat(1_000_000)] });
          const kept = savedConversations().map((each) => each.id);
          saveConversation({ id: "too large", at: "", title: "", columns: ["x".repeat(6_000_000)] });
          return [kept, savedConversations().map((each) => each.id)];
        }"""
    )
    assert after == left, "a conversation that is too large should not replace the others"
    assert left[0] == "11" and 2 <= len(left) < 12 and left == sorted(left, key=int, reverse=True)


def test_the_main_controls_are_reached_by_tab_in_reading_order(feedback_server: Running, visit: Visits) -> None:
    session = visit(feedback_server)
    page = session.page
    session.ask(FIRST)
    page.focus(".skip")
    focused: list[str] = []
    for _ in range(60):
        focused.append(
            page.evaluate(
                "(() => { const at = document.activeElement; return at.ariaLabel || at.id || at.textContent.trim().slice(0, 20); })()"
            )
        )
        if focused[-1] == "compare":
            break
        page.keyboard.press("Tab")
    expected = [
        "Skip to the question",
        "Ask",
        "Documents",
        "Browse",
        "Graph",
        "API",
        "history-button",
        "Citation 1",
        "Copy",
        "Good",
        "Correct…",
    ]
    expected += ["question", "ask-button", "fresh", "compare"]
    places = [next((n for n, each in enumerate(focused) if each.startswith(name)), -1) for name in expected]
    assert -1 not in places and places == sorted(places), focused


def views(session: PageSession) -> Any:
    """Bring the page into each state that axe checks, and yield the name of the state."""
    page = session.page
    page.wait_for_selector(".suggestion")
    yield "start"
    page.click("#compare")
    page.select_option("[id^=model-] >> nth=1", "sft")
    session.ask(FIRST)
    page.wait_for_selector(".duel")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    yield "answers"
    page.click("text=First is better")
    page.wait_for_selector("#consent[open]")
    yield "consent"
    page.keyboard.press("Escape")
    page.click("text=Correct… >> nth=0")
    page.wait_for_selector("#correct[open]")
    yield "correct"
    page.keyboard.press("Escape")
    page.click("#history-button")
    yield "history"
    page.keyboard.press("Escape")
    page.click(".cite >> nth=0")
    page.wait_for_selector("#reader mark")
    yield "reader"
    page.keyboard.press("Escape")
    session.open("/#documents")
    page.wait_for_selector(".documents > li")
    page.set_input_files("#view-documents input[type=file]", {"name": "tool.exe", "mimeType": "x/x", "buffer": b"MZ"})
    page.wait_for_selector(".upload >> text=1 refused")
    session.problems.clear()  # Chromium logs the refusal.
    yield "documents and a refused upload"
    page.click("[aria-label^=Delete] >> nth=0")
    yield "delete"
    page.keyboard.press("Escape")
    page.click(".upload >> text=Close")
    session.open("/#browse/entity/tarn")
    page.click("[data-shelf=documents]")
    page.wait_for_selector("#shelf a")
    page.wait_for_selector("#node h3")
    yield "browse"
    session.open("/#graph")
    page.click("#graph-node .kind-entity >> nth=0")
    page.wait_for_selector("#graph-node h3")
    yield "graph"
    session.open("/docs")
    page.wait_for_selector("details.route")
    page.evaluate("document.querySelectorAll('details.route').forEach((each, n) => { each.open = n % 6 === 0; })")
    yield "docs"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_no_serious_problem_and_no_view_is_wider_than_the_window(
    feedback_server: Running, visit: Visits, scheme: str, width: int
) -> None:
    session = visit(feedback_server, color_scheme=scheme, viewport={"width": width, "height": 800})
    found = {}
    for name in views(session):
        for each in axe_violations(session.page):
            found[name, each["id"]] = [node["html"][:200] for node in each["nodes"]][:3]
        assert session.page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert found == {}
