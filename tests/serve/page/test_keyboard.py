"""The whole page without a mouse: every view is reached, used and left by keyboard, and the focus is always visible."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.serve.http.running import Running
from tests.serve.page.conftest import Visits

MAX_TABS = 150
FOCUSED_ELEMENT = """(() => {
  const at = document.activeElement;
  if (at === document.body) return ["", true];
  const style = getComputedStyle(at);
  const visible = style.outlineStyle !== "none" || style.boxShadow !== "none";
  return [at.ariaLabel || at.id || at.textContent.trim().slice(0, 60), visible];
})()"""


@dataclass
class Keys:
    """The keyboard of a page; `invisible_focus` records each element whose focus was not visible."""

    page: Any
    invisible_focus: list[str] = field(default_factory=list)

    def focused(self) -> str:
        """The name of the element that has the focus."""
        name, is_visible = self.page.evaluate(FOCUSED_ELEMENT)
        if not is_visible:
            self.invisible_focus.append(name)
        return str(name)

    def go(self, to: str) -> None:
        """Press Tab until the name of the focused element begins with `to`."""
        for _ in range(MAX_TABS):
            if self.focused().startswith(to):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(
            f"the focus should reach {to!r} within {MAX_TABS} presses of Tab; it is on {self.focused()!r}"
        )

    def press(self, to: str) -> None:
        """Go to an element, as `go` does, and press Enter."""
        self.go(to)
        self.page.keyboard.press("Enter")

    def ask(self) -> None:
        """Type a question into the question field, and send it."""
        self.go("question")
        self.page.keyboard.type("Who built the Lantern?")
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector(".cost")


@pytest.fixture
def keys(feedback_server: Running, visit: Visits) -> Iterator[Keys]:
    """The keyboard of a loaded page, wide enough for two columns; the test fails at its end if the focus was invisible at any time."""
    page = visit(feedback_server, viewport={"width": 1280, "height": 800}).page
    page.wait_for_selector("#columns select")
    keyboard = Keys(page)
    yield keyboard
    assert keyboard.invisible_focus == []


def test_asking_reading_voting_and_returning_work_by_keyboard(keys: Keys) -> None:
    page = keys.page
    keys.press("Skip to the question")
    assert keys.focused() == "question"
    keys.ask()

    keys.press("Citation 1")
    page.wait_for_selector("#reader[open] mark")
    for _ in range(6):
        assert page.evaluate(
            "document.querySelector('#reader').contains(document.activeElement) || document.activeElement === document.body"
        )
        keys.focused()
        page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    page.wait_for_selector("#reader", state="hidden")
    assert keys.focused().startswith("Citation 1")

    keys.press("Good")
    page.wait_for_selector("#consent[open]")
    page.keyboard.press("Escape")
    keys.press("Correct…")
    page.wait_for_selector("#correct[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#correct", state="hidden")
    assert keys.focused().startswith("Correct")

    keys.press("fresh")
    page.wait_for_selector(".turn", state="detached")
    keys.press("history-button")
    page.wait_for_selector("#history[open]")
    keys.press("Who built the Lantern?")
    page.wait_for_selector("#history", state="hidden")
    page.wait_for_selector(".turn-question")


def test_two_models_can_be_compared_by_keyboard(keys: Keys) -> None:
    page = keys.page
    keys.press("compare")
    page.wait_for_function("() => document.querySelectorAll('.column').length === 2")
    selects = page.locator("[id^=model-]")
    selects.nth(1).focus()
    page.keyboard.type("sft")
    assert selects.nth(1).input_value() == "sft"
    keys.ask()
    page.wait_for_function("() => document.querySelectorAll('.cost').length === 2")
    keys.press("First is better")
    page.wait_for_selector("#consent[open]")


def test_browsing_and_the_page_of_routes_work_by_keyboard(keys: Keys) -> None:
    page = keys.page
    keys.press("Documents")
    page.wait_for_selector(".documents > li")
    keys.go("Add documents")
    keys.go("Delete Ada Marlow")
    keys.press("Skip to the question")
    page.wait_for_selector("#view-ask:not([hidden])")
    assert keys.focused() == "question"
    keys.press("Browse")
    page.wait_for_selector("#view-browse:not([hidden])")
    keys.go("Entities")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#shelf a")
    keys.press("Ada Marlow")
    page.wait_for_selector("#node h3")
    keys.press("Entities")
    page.wait_for_selector("#entities-field")
    keys.go("entities-field")
    page.keyboard.type("marlow yard")
    page.wait_for_function("() => document.querySelectorAll('#shelf a').length === 1")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#node .kind')?.textContent.toLowerCase() === 'entity'")
    assert page.locator("#shelf a").inner_text().casefold().startswith("marlow yard")
    keys.press("API")
    page.wait_for_selector("details.route")
