"""Five tasks of a person who uses the page, starting with an empty server: the steps and the seconds of each task.

    python -P benchmarks/page_tasks.py --model reader --json
    python -P benchmarks/page_tasks.py --screenshots FOLDER      # also saves six screenshots of the page, as PNG

`modegraph serve NEW --writable --model …` runs in a separate process; headless Chromium shows its page, and files in examples/handbook are dropped on
it. A step is one action of the person: a drop, a click, a line of typing, a key. Seconds include the server's work, but not the time that a person takes.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, sync_playwright

from benchmarks.page import CHROMIUM
from benchmarks.report import Check, new_parser, print_report
from benchmarks.serve import serving

HANDBOOK = ROOT / "examples" / "handbook"
QUESTION, ANSWER = "How many days of leave does a full-time employee have?", "27"
DELETED, PROPOSED = "Pay and pension", 10
TASK_MS = 180_000
MAX_STEPS = {"upload": 1, "ask": 2, "check a source": 2, "delete a document": 3, "approve ten questions": 13}


@dataclass
class Person:
    """Someone using the page: each click, line of typing, key or drop is one step, and is counted."""

    page: Page
    screenshots: Path | None = None
    steps: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    task: str = ""

    @contextmanager
    def doing(self, task: str) -> Iterator[None]:
        """Count and time the steps of a task."""
        self.task, self.steps[task] = task, 0
        started = time.perf_counter()
        yield
        self.seconds[task] = time.perf_counter() - started

    def show(self, name: str) -> None:
        """Save a screenshot of the page."""
        if self.screenshots is not None:
            self.page.screenshot(path=self.screenshots / f"{name}.png")

    def click(self, what: str) -> None:
        self._step()
        self.page.click(what)

    def type(self, where: str, text: str) -> None:
        self._step()
        self.page.fill(where, text)

    def press(self, key: str) -> None:
        self._step()
        self.page.keyboard.press(key)

    def drop(self, *paths: Path) -> None:
        """Drag real files over the page and drop them, as from the desktop."""
        self._step()
        session = self.page.context.new_cdp_session(self.page)
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, "x": 200, "y": 300, "data": data})

    def see(self, what: str) -> str:
        """Wait until an element is visible, and return its text. Looking does not count as a step."""
        return self.page.wait_for_selector(what).inner_text()

    def _step(self) -> None:
        self.steps[self.task] += 1


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--model", default="reader", help="SPEC of the model that answers")
    parser.add_argument("--screenshots", type=Path, help="folder for screenshots")
    options = parser.parse_args()
    if options.screenshots is not None:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="modegraph-tasks-") as scratch,
        serve_new_index(Path(scratch) / "new", options.model) as (url, start_s),
        open_page(url) as page,
    ):
        person = Person(page, options.screenshots)
        run_tasks(person, Path(scratch))
    figures: dict[str, float | str] = {"model": options.model, "server ready, s": start_s}
    for task, count in person.steps.items():
        figures |= {f"{task}: steps": count, f"{task}: s": person.seconds[task]}
    checks = [Check(f"{task}: steps", count, MAX_STEPS[task], at_least=False) for task, count in person.steps.items()]
    return print_report("page_tasks", figures, checks, options.json)


def run_tasks(person: Person, folder: Path) -> None:
    """The tasks in order; each ends when the page shows its result."""
    page = person.page
    person.show("empty")
    with person.doing("upload"):
        person.drop(*sorted(HANDBOOK.glob("*.md")))
        person.see(".upload [role=status]:has-text('9 files indexed.')")
    person.show("start")
    with person.doing("ask"):
        person.type("#question", QUESTION)
        person.press("Enter")
        person.see(".cost")
    assert ANSWER in person.see(".turn"), (
        f"the page shows {page.inner_text('.turn')!r}; expected an answer with {ANSWER!r}"
    )
    person.show("answer")
    with person.doing("check a source"):
        person.click(".cite >> nth=0")
        assert ANSWER in person.see("#reader mark"), (
            f"the source marks {page.inner_text('#reader mark')!r}; expected a passage with {ANSWER!r}"
        )
        person.show("source")
        person.press("Escape")
        page.wait_for_selector("#reader", state="hidden")
    with person.doing("delete a document"):
        person.click("nav >> text=Documents")
        person.click(f"[aria-label='Delete {DELETED}']")
        person.click("#delete .primary")
        person.see(f"text={DELETED} is deleted.")
    person.show("documents")
    with person.doing("approve ten questions"):
        person.click("nav >> text=Questions")
        person.click("text=Propose 10")
        person.see(f"text=To review ({PROPOSED})")
        person.show("questions")
        for left in range(PROPOSED - 1, -1, -1):
            person.click(".questions button:has-text('Approve') >> nth=0")
            person.see(f"text=Approved. {left} question")
        with page.expect_download() as download:
            person.click("text=Download (")
        download.value.save_as(folder / "questions.jsonl")
    rows = len((folder / "questions.jsonl").read_text(encoding="utf-8").splitlines())
    assert rows == PROPOSED, f"{rows} approved questions in the download; expected {PROPOSED}"


@contextmanager
def serve_new_index(index: Path, model: str) -> Iterator[tuple[str, float]]:
    """Run `modegraph serve` on a new index; yield the server's address and the seconds until it was ready."""
    started = time.perf_counter()
    with serving(index, "--writable", "--model", model) as (url, _):
        yield url, time.perf_counter() - started


@contextmanager
def open_page(url: str) -> Iterator[Page]:
    """The page at `url` in headless Chromium, when it has loaded."""
    with sync_playwright() as started:
        browser: Any = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 720})
        page.set_default_timeout(TASK_MS)
        page.goto(url)
        page.wait_for_selector("#start h2, .empty")
        yield page
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
