"""Test questions on the page: proposing, correcting, approving and writing them; and the downloaded file, which modegraph must accept."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from data_synth.dataset.validate import validate_file
from graph.build.build import build_index
from graph.documents.questions import Question, read_questions
from graph.index.index import open_index
from graph.store.index_settings import IndexSettings
from modegraph.tuning.questions import split_questions
from modegraph.tuning.settings import TuneSettings
from serve.page.middleware import page_files
from tests.corpora import ISLES, guild_documents
from tests.fakes import HashEncoder
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import Running, serving
from tests.serve.page.conftest import HOSTILE, HeldRequests, PageSession, Visits, axe_violations, contrast
from tests.serve.page.test_keyboard import Keys

DOCUMENTS = {each.source: each for each in [*ISLES, HOSTILE, *guild_documents()]}
MAX_BYTES = 450 * 1024
TEXTAREAS = ".questions li:first-child textarea"
PROPOSALS_PER_CLICK = 10


@pytest.fixture(scope="module")
def guilds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server without a model, with enough documents for several pages of proposals."""
    folder = tmp_path_factory.mktemp("questions") / "index"
    build_index(folder, list(DOCUMENTS.values()), SETTINGS, lambda spec: HashEncoder())
    with serving(folder, None) as running:
        yield running


@pytest.fixture
def view(guilds: Running, visit: Visits) -> PageSession:
    session = visit(guilds, viewport={"width": 1280, "height": 800})
    session.open("/#questions")
    session.page.wait_for_selector("text=Nothing to review")
    return session


def propose(page: Any, expected: int) -> None:
    page.click("text=Propose 10")
    page.wait_for_selector(f"text=To review ({expected})")


def texts(page: Any, part: int = 0) -> list[str]:
    """The questions (part 0) or answers (1) of the displayed list, read from their fields."""
    found: list[str] = page.eval_on_selector_all(
        ".questions article", f"all => all.map((each) => each.querySelectorAll('textarea')[{part}].value)"
    )
    return found


def download(page: Any, folder: Path) -> Path:
    with page.expect_download() as waiting:
        page.click("text=Download (")
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file


def upload(page: Any, folder: Path, lines: Sequence[object], name: str = "mine.jsonl") -> None:
    file = folder / name
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    page.set_input_files("#questions-file", file)


def read(file: Path) -> list[Question]:
    """The questions of a downloaded file, which `validate_file` and `read_questions` must accept."""
    validation = validate_file(file)
    assert (validation.form, validation.bad) == ("questions", ())
    questions = read_questions(file)
    for each in questions:
        assert all(quote.text in DOCUMENTS[quote.source].text for quote in each.evidence)
        assert each.answers == () or {quote.source for quote in each.evidence} == set(each.gold_sources) != set()
    return questions


def test_proposals_are_corrected_and_approved_by_keyboard_and_the_file_can_be_used_for_tuning(
    guilds: Running, visit: Visits, tmp_path: Path
) -> None:
    page = visit(guilds, viewport={"width": 1280, "height": 800}).page
    page.wait_for_selector("#start h2")
    keys = Keys(page)
    keys.press("Questions")
    page.wait_for_selector("text=Nothing to review")
    keys.press("Propose 10")
    page.wait_for_selector("text=To review (10)")
    proposals = guilds.get("/v1/questions").json()["questions"]
    assert texts(page) == [row["question"] for row in proposals]
    assert texts(page, 1) == ["\n".join(row["answers"]) for row in proposals]
    quotes = page.locator(".questions blockquote p").all_inner_texts()
    assert quotes == [row["evidence"][0]["quote"] for row in proposals]
    assert page.locator(".questions blockquote mark").all_inner_texts() == [row["answers"][0] for row in proposals]

    keys.go("question-")
    page.keyboard.press("Control+a")
    page.keyboard.type("Who was the founder of the Marlow Yard?")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+End")
    page.keyboard.press("Enter")
    page.keyboard.type("Marlow")
    keys.go("Approve: Who was the founder")
    for left in range(9, -1, -1):
        page.keyboard.press("Enter")
        page.wait_for_selector(f"text=Approved. {left} question")
        assert keys.focused().startswith("Approve: " if left else "To review (0)")
    assert keys.invisible_focus == []

    rows = read(download(page, tmp_path))
    assert [row.id for row in rows] == [row["id"] for row in proposals]
    assert rows[0].text == "Who was the founder of the Marlow Yard?" and rows[0].answers == ("Ada Marlow", "Marlow")
    assert [row.text for row in rows[1:]] == [row["question"] for row in proposals[1:]]
    index = open_index(guilds.services.collections.live["index"].folder, lambda spec: HashEncoder())
    parts = split_questions(index, TuneSettings(questions=str(tmp_path / "questions.jsonl"), min_test_questions=1))
    assert not parts.left_out and {row["id"] for row in parts.rows} == {row.id for row in rows}


def test_the_document_of_an_added_question_is_set_by_a_click_on_a_sentence(view: PageSession, tmp_path: Path) -> None:
    page = view.page
    page.click("text=Add a question")
    page.keyboard.type("Where does the wreck lie?")
    page.click(".approve")
    assert page.inner_text(".questions [role=status]") == "Write the answer."
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.labels[0].textContent").startswith("Answer")
    page.keyboard.type("deep")
    page.click(".approve")
    assert page.inner_text(".questions [role=status]") == "Choose the sentence that answers it."
    searches = HeldRequests(page, "**/v1/retrieve")
    page.click("text=Choose the sentence that answers it…")
    page.fill("#passage-query", "wreck Zanzu")
    page.keyboard.press("Enter")
    searches.answer(1)
    searches.answer(0, json={"passages": []})
    sentence = "The wreck Zanzu lies deep."
    page.click(f"#passage .sentence:has-text('{sentence}')")
    page.wait_for_selector("#passage", state="detached")
    assert page.evaluate("document.activeElement.textContent") == "Choose another sentence…"
    assert page.inner_text(".questions blockquote mark") == "deep"
    page.click(".questions blockquote .link")
    page.wait_for_selector("#reader mark")
    assert sentence in page.inner_text("#reader mark") and page.inner_text("#reader-title") == HOSTILE.title
    page.keyboard.press("Escape")
    page.click(".approve")

    page.click("text=Add a question")
    page.keyboard.type("Who painted the Lantern?")
    page.check("text=The documents do not answer it")
    assert not page.is_visible(".choose") and not page.is_visible(f"{TEXTAREAS} >> nth=1")
    page.click(".approve")
    page.wait_for_selector("text=Approved (2)")
    absent, own = read(download(page, tmp_path))
    assert (absent.text, absent.kind, absent.answers, absent.gold_sources) == (
        "Who painted the Lantern?",
        "unanswerable",
        (),
        (),
    )
    assert (own.text, own.answers, own.gold_sources) == ("Where does the wreck lie?", ("deep",), (HOSTILE.source,))
    assert sentence in own.evidence[0].text and len({absent.id, own.id}) == 2


def test_nothing_is_lost_on_reload_and_nothing_is_sent(view: PageSession, guilds: Running) -> None:
    page = view.page
    sent: list[str] = []
    page.on("request", lambda request: request.method != "GET" and sent.append(request.url))
    propose(page, 10)
    page.fill(f"{TEXTAREAS} >> nth=0", "Who founded the yard?")
    page.fill(f"{TEXTAREAS} >> nth=1", "Quill Marlow")
    assert page.is_visible("text=The sentence does not contain the answer word for word.")
    page.click(".approve >> nth=1")
    page.wait_for_selector("text=Approved (1)")
    before = texts(page)
    page.reload()
    page.wait_for_selector("text=To review (9)")
    assert texts(page) == before and before[0] == "Who founded the yard?" and texts(page, 1)[0] == "Quill Marlow"
    assert page.is_visible("text=Approved (1)") and sent == []
    other = page.context.new_page()
    other.goto(f"{guilds.url}/#questions")
    other.wait_for_selector("text=To review (9)")
    page.click(".actions >> text=Discard >> nth=8")
    other.wait_for_selector("text=To review (8)")
    other.click("text=Discard >> nth=0")
    page.wait_for_selector("text=To review (7)")
    assert not page.is_visible("text=Undo"), "Undo would revert a change made in the other tab"


def test_a_discarded_proposal_returns_only_by_undo(view: PageSession, guilds: Running) -> None:
    page = view.page
    everything = [row["question"] for row in guilds.get("/v1/questions?count=200").json()["questions"]]
    propose(page, 10)
    page.click(".actions >> text=Discard >> nth=2")
    page.wait_for_selector("text=Discarded. 9 questions to review.")
    assert texts(page) == [*everything[:2], *everything[3:10]]
    page.fill(f"{TEXTAREAS} >> nth=0", "Who?")
    page.click("text=Undo")
    page.wait_for_selector("text=To review (10)")
    assert texts(page) == ["Who?", *everything[1:10]]
    page.fill(f"{TEXTAREAS} >> nth=0", everything[0])
    page.click(".actions >> text=Discard >> nth=2")
    propose(page, 19)
    assert texts(page) == [*everything[:2], *everything[3:20]]
    page.click("text=Discard all 19")
    page.wait_for_selector("text=19 questions discarded.")
    page.reload()
    for first in range(20, len(everything), PROPOSALS_PER_CLICK):
        propose(page, min(first + PROPOSALS_PER_CLICK, len(everything)) - 20)
    assert texts(page) == everything[20:]
    page.click("text=Propose 10")
    page.wait_for_selector("text=No more questions can be made from these documents.")


def test_after_a_change_of_the_index_only_new_questions_are_proposed(tmp_path: Path, visit: Visits) -> None:
    build_index(tmp_path / "index", ISLES, IndexSettings(), lambda spec: HashEncoder())
    with serving(tmp_path / "index", None, writable=True) as running:
        page = visit(running).page
        page.goto(f"{running.url}/#questions")
        page.wait_for_selector("text=Nothing to review")
        propose(page, 7)
        page.click(".actions >> text=Discard >> nth=0")
        new = {"source": "gull", "title": "Gull Rock", "text": "Gull Rock is a lighthouse. Gull Rock was lit in 1902."}
        assert running.post("/v1/documents", json={"documents": [new]}).status_code == 200
        before = texts(page)
        page.click("text=Propose 10")
        page.wait_for_function("count => document.querySelectorAll('.questions article').length > count", arg=6)
        assert texts(page)[:6] == before and all("Gull Rock" in each for each in texts(page)[6:])


def test_a_file_is_opened_and_saved_again_with_all_its_fields(
    view: PageSession, guilds: Running, tmp_path: Path
) -> None:
    page = view.page
    whole: dict[str, Any] = {
        "id": "q 1",
        "question": "Who built the Lantern?",
        "answers": ["the Marlow Yard"],
        "gold_ids": ["lantern"],
        "evidence": [{"id": "lantern", "quote": "She was built in 1911 by the Marlow Yard."}],
        "split": "dev",
        "hops": 1,
        "options": {"a": "1"},
    }
    absent = {"id": "q2", "question": "Who sank her?", "answers": [], "type": "unanswerable"}
    bare = {"id": "q3", "question": "Where is Tarn?", "answer": "nowhere"}
    upload(page, tmp_path, [whole, "", absent, bare])
    page.wait_for_selector(
        "text=3 questions from mine.jsonl: 2 approved, 1 to review because the answer or the document is missing."
    )
    assert texts(page) == ["Where is Tarn?"] and texts(page, 1) == ["nowhere"]
    saved = download(page, tmp_path).read_text().splitlines()
    assert [json.loads(line) for line in saved] == [whole, absent]

    page.click("text=Approved (2)")
    page.fill(f"{TEXTAREAS} >> nth=1", "")
    assert page.is_visible("text=Write the answer.") and page.is_visible("text=Download (1)")
    page.fill(f"{TEXTAREAS} >> nth=1", "Marlow Yard")
    (corrected, _) = [json.loads(line) for line in download(page, tmp_path).read_text().splitlines()]
    assert corrected == {key: value for key, value in whole.items() if key != "hops"} | {"answers": ["Marlow Yard"]}

    upload(page, tmp_path, [whole])
    page.wait_for_selector("text=1 question from mine.jsonl, approved.")
    assert page.is_visible("text=Approved (2)"), "a question with the same id should be replaced"

    proposals = HeldRequests(page, "**/v1/questions?*")
    page.click("text=Propose 10")
    upload(page, tmp_path, guilds.get("/v1/questions").json()["questions"][:1])
    page.wait_for_selector("text=Approved (3)")
    proposals.answer(0)
    page.wait_for_selector("text=9 questions proposed.")


BAD_FILES: list[tuple[Sequence[object], str]] = [
    ([{"id": "a", "question": "Who?"}, "{"], "Line 2: not JSON"),
    (["[1]"], "Line 1: id is missing, empty or not a string"),
    (["null"], "Line 1: id is missing, empty or not a string"),
    ([{"id": "a", "question": " "}], "Line 1: question is missing, empty or not a string"),
    ([{"id": "a", "question": "Who?"}] * 2, "Line 2: the id a is also on a line above"),
    ([{"id": "a", "question": "Who?", "answers": "Ada"}], "Line 1: answers is not a list"),
    ([{"id": "a", "question": "Who?", "answers": [], "gold_ids": [1]}], "Line 1: gold_ids is not a list"),
    ([{"id": "a", "question": "Who?", "evidence": [{"id": "x"}]}], "Line 1: evidence is not a list"),
    ([""], "The file contains no questions"),
]


def test_a_file_that_cannot_be_read_changes_nothing_and_its_line_is_reported(view: PageSession, tmp_path: Path) -> None:
    for number, (lines, message) in enumerate(BAD_FILES):
        upload(view.page, tmp_path, lines, f"{number}.jsonl")
        view.page.wait_for_selector(f"text={number}.jsonl: {message}")
    assert view.page.is_visible("text=To review (0)") and view.page.is_visible("text=Approved (0)")


def test_the_page_says_when_the_browser_can_store_no_more(view: PageSession, tmp_path: Path) -> None:
    page = view.page
    upload(page, tmp_path, [{"id": f"q{n}", "question": "x" * 600_000} for n in range(10)])
    page.wait_for_selector("text=mine.jsonl is too large for this browser")
    assert page.is_visible("text=To review (0)")
    page.evaluate("localStorage.setItem('filler', 'x'.repeat(5 * 1024 * 1024 - 300))")
    page.click("text=Propose 10")
    page.wait_for_selector("text=This browser’s storage is full: download")
    assert len(texts(page)) == 10


def test_the_sentences_that_can_be_chosen_are_verbatim_parts_of_the_passage(view: PageSession) -> None:
    text = "# The Lantern\n\nThe Lantern works\nthe sound. 😀 She was built\nin 1911.\n\n| year | crew |\n|---|---|\n\n- oars\n- a lamp"
    found, place = view.page.evaluate(
        """async (text) => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { placeOf, sentencesOf } = await import(`/page/${version}/questions/passage.js`);
          return [sentencesOf(text), placeOf([{ start: 5, text }], "She was  built in 1911.")];
        }""",
        text,
    )
    assert found == [
        "The Lantern works\nthe sound.",
        "😀 She was built\nin 1911.",
        "| year | crew |",
        "- oars",
        "- a lamp",
    ]
    assert text[place["start"] - 5 : place["end"] - 5] == "She was built\nin 1911."


@pytest.mark.parametrize(
    ("text", "answers", "parts"),
    [
        ("İzmir was founded in 1911.", ["1912", "1911"], ["İzmir was founded in ", "1911", "."]),
        ("The LANTERN (1911).", ["lantern (1911)"], ["The ", "LANTERN (1911)", "."]),
        ("The Lantern", ["1911"], ["The Lantern"]),
    ],
)
def test_the_first_answer_in_a_sentence_is_marked(
    view: PageSession, text: str, answers: list[str], parts: list[str]
) -> None:
    found = view.page.evaluate(
        """async ([text, answers]) => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { withAnswer } = await import(`/page/${version}/questions/passage.js`);
          return withAnswer(text, answers).map((each) => each.textContent ?? each);
        }""",
        [text, answers],
    )
    assert found == parts


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_view_fits_a_phone(guilds: Running, visit: Visits, scheme: str) -> None:
    page = visit(guilds, color_scheme=scheme, viewport={"width": 375, "height": 812}).page
    page.goto(f"{guilds.url}/#questions")
    page.wait_for_selector("text=Nothing to review")
    propose(page, 10)
    page.click("text=Choose another sentence… >> nth=0")
    page.wait_for_selector("#passage .sentence")
    assert page.evaluate(
        "[document.documentElement, document.querySelector('#passage')].every((each) => each.scrollWidth <= 375)"
    )
    page.keyboard.press("Escape")
    field_contrast = contrast(page, f"{TEXTAREAS} >> nth=0")
    assert field_contrast > 150 if scheme == "light" else field_contrast < -150
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("#view-questions :is(button, textarea, input)")]
          .filter((each) => !each.ariaLabel && !each.labels?.length && !each.textContent.trim()).length"""
    )
    assert nameless == 0
    assert [each["id"] for each in axe_violations(page)] == []


def test_all_files_of_the_page_together_have_at_most_450_kib() -> None:
    assert sum(len(data) for data in page_files().values()) <= MAX_BYTES
