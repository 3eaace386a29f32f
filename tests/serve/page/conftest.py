"""The page in headless Chromium, with the real server and a small index that contains a hostile document."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from graph.build.build import build_index
from graph.types import Document
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import Running, serving

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"]
KEY = "sk-page-test"
HOSTILE_TITLE = "<img src=x onerror=alert(1)>"
HOSTILE = Document(
    "hostile/<b>.txt",
    HOSTILE_TITLE,
    "😀 <script>alert(2)</script> The wreck Zanzu lies deep. <a href=javascript:alert(3)>See</a> </mark><svg onload=alert(4)>.",
)
REPLY = "###Reason: The yard did [1], says [9]. ###Answer: <b>the Marlow Yard</b> [2]"


@dataclass
class PageSession:
    """A page, its requests to other origins, and other problems: dialogs and errors."""

    page: Any
    url: str
    external_requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def open(self, address: str = "/") -> None:
        self.page.goto(self.url + address)

    def ask(self, question: str = "Who built the Lantern?") -> None:
        """Type a question, press Enter, and wait until the answer is complete."""
        self.page.wait_for_selector("#columns select")
        self.page.fill("#question", question)
        self.page.press("#question", "Enter")
        self.page.wait_for_selector(".cost")


class HeldRequests:
    """The requests of a page that match a pattern, held back until the test answers them, in the order that it chooses."""

    def __init__(self, page: Any, pattern: str) -> None:
        self._page, self._pattern = page, pattern
        self._routes: list[Any] = []
        page.route(pattern, lambda route: self._routes.append(route))

    def answer(self, place: int, **response: Any) -> None:
        """Answer a request, by its place in the order of sending, as the server does or with `response`; wait until the page has read the answer."""
        self.wait_for(place + 1)
        route = self._routes[place]
        with self._page.expect_event("requestfinished", lambda request: request == route.request):
            route.fulfill(**response) if response else route.continue_()
        self._page.wait_for_timeout(100)

    def wait_for(self, count: int) -> None:
        """Wait until the page has sent `count` requests."""
        for _ in range(1000):
            if len(self._routes) >= count:
                return
            self._page.wait_for_timeout(10)
        raise AssertionError(f"the page should send {count} requests for {self._pattern}, not {len(self._routes)}")

    def end(self) -> None:
        """Hold back no further requests; the server answers the pending ones."""
        self._page.unroute(self._pattern)


def reader_text(page: Any) -> str:
    """The text in the reader's panel, once the document is loaded."""
    page.wait_for_selector("#reader[open] #reader-text:not(:has(.hint))")
    return str(page.inner_text("#reader-text"))


def contrast(page: Any, selector: str = "body") -> int:
    """How much brighter the background of an element is than its text, by their red channels: -255 to 255."""
    paper, ink = (
        page.eval_on_selector(selector, f"each => getComputedStyle(each).{name}")
        for name in ("backgroundColor", "color")
    )
    return int(paper[4:].split(",")[0]) - int(ink[4:].split(",")[0])


def axe_violations(page: Any) -> list[dict[str, Any]]:
    """The violations of serious or critical impact that axe finds on a page; skips the test if axe is not installed."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    return [each for each in axe.run(page).response["violations"] if each["impact"] in ("serious", "critical")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Callable[[], Any]]:
    """Chromium, started again if it has crashed, so that only the test in which it crashed fails.

    Playwright keeps an event loop running in this thread, so Playwright is stopped before other tests start an event loop.
    """
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="the page is tested with playwright, which is not installed"
    )
    if not Path(CHROMIUM).exists():
        pytest.skip(f"the page is tested in Chromium, and there is none at {CHROMIUM}")
    with sync_api.sync_playwright() as playwright:
        browsers: list[Any] = []

        def connected_browser() -> Any:
            if not browsers or not browsers[-1].is_connected():
                browsers.append(playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS))
            return browsers[-1]

        yield connected_browser
        for each in browsers:
            each.close()


@pytest.fixture(scope="module")
def isles_and_hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of ISLES and HOSTILE."""
    folder = tmp_path_factory.mktemp("page") / "index"
    build_index(folder, [*ISLES, HOSTILE], SETTINGS, lambda spec: HashEncoder())
    return folder


@pytest.fixture(scope="module")
def server(isles_and_hostile: Path) -> Iterator[Running]:
    """A server without a key, whose model writes REPLY."""
    with serve_replies(isles_and_hostile, seconds_per_word=0.002) as running:
        yield running


@pytest.fixture
def slow_server(isles_and_hostile: Path) -> Iterator[Running]:
    """A server whose model writes REPLY slowly enough for a test to observe the stream; later answers take ten seconds."""
    with serve_replies(isles_and_hostile, seconds_per_word=0.05, later=REPLY + " and more" * 100) as running:
        yield running


@contextmanager
def serve_replies(index: Path, seconds_per_word: float, later: str = REPLY) -> Iterator[Running]:
    """Serve an index with a model that writes REPLY, then `later`, one word every `seconds_per_word` seconds."""
    with (
        chat_server(lambda body, number: REPLY if number == 1 else later, seconds_per_word) as upstream,
        serving(index, f"openai:tiny@{upstream.url}", ("sft",)) as running,
    ):
        yield running


@dataclass
class ScriptedServer:
    """A server whose model answers the last message with `reply(message)`."""

    running: Running
    reply: Callable[[str], str]


@pytest.fixture(scope="module")
def scripted_server(isles_and_hostile: Path) -> Iterator[ScriptedServer]:
    """A server whose `reply` a test may replace; at first, it answers REPLY."""
    with ExitStack() as exits:
        upstream = exits.enter_context(
            chat_server(lambda body, number: scripted.reply(str(body["messages"][-1]["content"])))
        )
        scripted = ScriptedServer(
            exits.enter_context(serving(isles_and_hostile, f"openai:tiny@{upstream.url}")), lambda _: REPLY
        )
        yield scripted


PAGED = Document(
    "tides.pdf",
    "Tide tables",
    "The tide tables of Tarn fill three pages. High water is at dawn. The ebb begins an hour later. Kelp dries at noon.",
    {"page_starts": [0, 42, 65]},
)
REPLIES = {
    "tiny": "###Reason: The yard did [1]. ###Answer: the Marlow Yard [1]",
    "sft": "###Reason: Quill [2]. ###Answer: Quill",
}


@pytest.fixture(scope="module")
def feedback_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with two models that accepts feedback and documents; no other test file uses its index."""
    folder = tmp_path_factory.mktemp("opinions") / "index"
    build_index(folder, [*ISLES, PAGED], SETTINGS, lambda spec: HashEncoder())
    with ExitStack() as exits:
        upstream = exits.enter_context(chat_server(lambda body, number: REPLIES[body["model"]]))
        spec = f"openai:tiny@{upstream.url}"
        yield exits.enter_context(serving(folder, spec, ("sft",), feedback=True, writable=True))


@pytest.fixture(scope="module")
def two_collections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with the collections `isles` and `moors` that accepts feedback."""
    folder = tmp_path_factory.mktemp("two")
    moor = Document("lantern", "Lantern (inn)", "The Lantern is an inn on Corrow Moor. It was built by Peat & Sons.")
    for name, documents in (("isles", ISLES), ("moors", [moor])):
        build_index(folder / name, documents, SETTINGS, lambda spec: HashEncoder())
    with ExitStack() as exits:
        upstream = exits.enter_context(chat_server(lambda body, number: REPLIES["tiny"]))
        spec = f"openai:tiny@{upstream.url}"
        yield exits.enter_context(serving([folder / "isles", folder / "moors"], spec, feedback=True))


@pytest.fixture(scope="module")
def server_without_model(isles_and_hostile: Path) -> Iterator[Running]:
    """A server without a model."""
    with serving(isles_and_hostile, None) as running:
        yield running


@pytest.fixture(scope="module")
def server_with_key(isles_and_hostile: Path) -> Iterator[Running]:
    """A server that requires the key KEY."""
    with ExitStack() as exits:
        upstream = exits.enter_context(chat_server(lambda body, number: REPLY))
        yield exits.enter_context(serving(isles_and_hostile, f"openai:tiny@{upstream.url}", api_key=KEY))


class Visits:
    """Opens pages; `check()` fails if any of them sent a request to another origin, raised an error or opened a dialog."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self._sessions: list[PageSession] = []

    def __call__(self, running: Running, address: str = "/", **options: Any) -> PageSession:
        context = self._browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(20_000)
        session = PageSession(page, running.url)
        page.on("request", lambda request: _record_external_request(session, request.url))
        page.on("pageerror", lambda problem: session.problems.append(f"error: {problem}"))
        page.on(
            "console", lambda message: message.type == "error" and session.problems.append(f"console: {message.text}")
        )
        page.on("dialog", lambda dialog: (session.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self._contexts.append(context)
        self._sessions.append(session)
        session.open(address)
        return session

    def check(self) -> None:
        assert [session.external_requests for session in self._sessions if session.external_requests] == []
        assert [session.problems for session in self._sessions if session.problems] == []

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def _record_external_request(session: PageSession, url: str) -> None:
    if not url.startswith((session.url + "/", "data:", "blob:")):
        session.external_requests.append(url)


@pytest.fixture
def visit(browser: Callable[[], Any]) -> Iterator[Visits]:
    """Opens pages for a test; the test fails if one of them sent a request to another origin, raised an error or opened a dialog."""
    visits = Visits(browser())
    yield visits
    try:
        visits.check()
    finally:
        visits.close()
