"""Feedback on answers, from the page to a row of training data; copying and sharing an answer; adding files."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from data_synth.dataset.validate import validate_file
from data_synth.feedback import import_feedback
from graph.feedback import Correction, Preference, RightPassage, Vote, read_feedback
from graph.index.index import open_index
from tests.fakes import HashEncoder
from tests.serve.http.running import Running
from tests.serve.page.conftest import PageSession, Visits
from train.run.data import read_preferences

QUESTION = "Who built the Lantern?"
FILL_STORAGE = """() => {
  let filler = "";
  for (let size = 1 << 22; size; size >>= 1) {
    try {
      localStorage.setItem("filler", filler + "x".repeat(size));
      filler += "x".repeat(size);
    } catch {}
  }
}"""


def answer_consent(page: Any, words: str) -> None:
    page.wait_for_selector("#consent[open]")
    page.click(f"#consent >> text={words}")


def folder_of(running: Running) -> Path:
    """The folder of the index that a server uses."""
    return running.services.collections.live["index"].folder


def contents_of(running: Running) -> list[Any]:
    return [each.content for each in read_feedback(folder_of(running))]


@pytest.fixture(autouse=True)
def delete_feedback(feedback_server: Running) -> None:
    """Each test starts without feedback."""
    (folder_of(feedback_server) / "feedback.sqlite").unlink(missing_ok=True)


def test_a_choice_between_two_models_becomes_a_row_that_training_reads(
    feedback_server: Running, visit: Visits, tmp_path: Path
) -> None:
    session = visit(feedback_server, viewport={"width": 1280, "height": 800})
    page = session.page
    page.click("#compare")
    page.select_option("[id^=model-] >> nth=1", "sft")
    session.ask(QUESTION)
    page.wait_for_selector(".duel")
    page.click("text=First is better")
    answer_consent(page, "Yes")
    page.wait_for_selector(".duel [role=status]:has-text('Saved')")
    assert page.get_attribute(".duel button >> nth=0", "aria-pressed") == "true"
    page.click(".remove >> nth=1")
    assert page.query_selector(".duel") is None
    (entry,) = read_feedback(folder_of(feedback_server))
    assert (
        isinstance(entry.content, Preference)
        and entry.consent
        and (entry.question, entry.content.better) == (QUESTION, "first")
    )
    index = open_index(folder_of(feedback_server), lambda spec: HashEncoder())
    assert import_feedback(index, tmp_path / "out")["preferences"].rows == 1
    file = tmp_path / "out/preferences/train.jsonl"
    (row,) = read_preferences(file)
    assert row.chosen == "###Reason: The yard did [1]. ###Answer: the Marlow Yard [1]"
    assert row.rejected == "###Reason: Quill [2]. ###Answer: Quill"
    assert row.prompt[-1].content.endswith(f"Question: {QUESTION}") and row.prompt[-1].content.startswith(
        "Passages:\n[1] "
    )
    assert validate_file(file).bad == ()


def test_a_choice_between_answers_from_different_passages_gives_no_row_and_the_page_says_so(
    feedback_server: Running, visit: Visits, tmp_path: Path
) -> None:
    session = visit(feedback_server, viewport={"width": 1280, "height": 800})
    page = session.page
    page.click("#compare")
    page.select_option("[id^=mode-] >> nth=0", "dense")
    page.select_option("[id^=mode-] >> nth=1", "lexical")
    page.select_option("[id^=model-] >> nth=1", "sft")
    session.ask(QUESTION)
    page.wait_for_selector(".duel [role=status]:has-text('this choice is not used for training')")
    page.click("text=First is better")
    answer_consent(page, "Yes")
    page.wait_for_selector(".duel [role=status]:has-text('Saved')")
    folder = folder_of(feedback_server)
    (entry,) = read_feedback(folder)
    assert isinstance(entry.content, Preference) and entry.consent
    index = open_index(folder, lambda spec: HashEncoder())
    assert import_feedback(index, tmp_path / "out")["preferences"].rows == 0


def test_votes_corrections_and_right_passages_are_stored_and_deleted(feedback_server: Running, visit: Visits) -> None:
    session = visit(feedback_server)
    page = session.page
    session.ask(QUESTION)
    page.click(".actions >> text=Not good")
    page.wait_for_selector("#consent[open]")
    page.keyboard.press("Escape")
    assert (
        contents_of(feedback_server) == []
        and page.get_attribute(".actions >> text=Not good", "aria-pressed") == "false"
    )
    page.evaluate(FILL_STORAGE)
    page.click(".actions >> text=Not good")
    answer_consent(page, "Yes")
    page.wait_for_selector(".turn [role=status] >> text=This browser’s storage is full: delete conversations")
    page.evaluate("localStorage.removeItem('filler')")
    page.click(".actions >> text=Not good")
    answer_consent(page, "Save, but do not use for training")
    page.wait_for_selector(".actions [aria-pressed=true]")
    page.click("text=Correct…")
    page.click("#correct >> text=Save")
    page.wait_for_selector("#correct [role=alert]:has-text('Write another answer')")
    sent: list[Any] = []
    page.route("**/v1/feedback", lambda route: sent.append(route) or [route.continue_, route.abort][len(sent) - 1]())
    page.check("#correct input >> nth=1")
    page.check("#correct input >> nth=2")
    page.dblclick("#correct >> text=Save")
    page.wait_for_selector("#correct [role=alert]:has-text('The server cannot be reached.')")
    page.unroute("**/v1/feedback")
    session.problems.clear()  # Chromium logs the expected failure.
    page.click("#correct >> text=Save")
    page.wait_for_selector("#correct", state="detached")
    page.click("text=Correct…")
    page.fill("#right-answer", "the yard of Quill")
    page.check("#correct input >> nth=0")
    page.click("#correct >> text=Save")
    page.wait_for_selector("#correct", state="detached")
    passages = feedback_server.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"]
    ids = tuple(each["id"] for each in passages)
    vote, right, other, correction = contents_of(feedback_server)
    assert isinstance(vote, Vote) and vote.rating == "down" and vote.answer.context_ids == ids
    assert (right, other) == (RightPassage(ids[1], ids), RightPassage(ids[2], ids)), "each should be stored once"
    assert isinstance(correction, Correction) and (correction.corrected, correction.passage_ids) == (
        "the yard of Quill",
        (ids[0],),
    )
    assert {each.consent for each in read_feedback(folder_of(feedback_server))} == {False}
    page.click("#history-button")
    page.wait_for_selector("#history >> text=4 feedback entries are stored on the server, and will not")
    page.click("text=Delete my feedback")
    page.wait_for_selector("#history >> text=4 entries deleted from the server.")
    assert contents_of(feedback_server) == []


def test_a_vote_on_a_long_answer_is_accepted(feedback_server: Running, visit: Visits) -> None:
    page = visit(feedback_server).page
    page.wait_for_selector("#columns select")
    answer = page.evaluate(
        """async () => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { Turn } = await import(`/page/${version}/ask/turn.js`);
          const turn = new Turn("Who?");
          const long = "x" + "😀".repeat(30_000);
          Object.assign(turn.answer.reply, { answer: long, reason: long, retrieval: { question: "Who?", intent: "question", context_ids: [], mode: "dense" } });
          return { ...turn.feedbackAnswer, model: "tiny" };
        }"""
    )
    entry = {
        "user": "long-answer",
        "consent": False,
        "kind": "vote",
        "question": "Who?",
        "answer": answer,
        "rating": "up",
    }
    assert feedback_server.post("/v1/feedback", json=entry).status_code == 200
    assert feedback_server.delete("/v1/feedback/long-answer").json() == {"deleted": 1}


def test_feedback_is_deleted_in_all_collections(two_collections: Running, visit: Visits) -> None:
    session = visit(two_collections, "/?collection=isles")
    page = session.page
    folders = [live.folder for live in two_collections.services.collections.live.values()]
    session.ask(QUESTION)
    page.click(".actions >> text=Not good")
    answer_consent(page, "Yes")
    page.wait_for_selector(".actions [aria-pressed=true]")
    session.open("/?collection=moors")
    session.ask(QUESTION)
    page.click(".actions >> text=Not good")
    page.wait_for_selector(".actions [aria-pressed=true]")
    assert [len(list(read_feedback(folder))) for folder in folders] == [1, 1]
    page.click("#history-button")
    page.wait_for_selector("#history >> text=2 feedback entries are stored on the server")
    page.click("text=Delete my feedback")
    page.wait_for_selector("#history >> text=2 entries deleted from the server.")
    assert [list(read_feedback(folder)) for folder in folders] == [[], []]


def test_if_the_server_accepts_no_feedback_the_page_does_not_ask_for_it(server: Running, visit: Visits) -> None:
    session = visit(server, viewport={"width": 1280, "height": 800})
    session.page.click("#compare")
    session.page.select_option("[id^=model-] >> nth=1", "sft")
    session.ask(QUESTION)
    session.page.wait_for_function("() => document.querySelectorAll('.cost').length === 2")
    assert session.page.locator(".actions").all_inner_texts() == ["Copy\nShare"] * 2
    assert session.page.query_selector(".duel, .upload") is None


def test_an_answer_is_copied_and_shared_with_its_sources(feedback_server: Running, visit: Visits) -> None:
    session = visit(feedback_server, permissions=["clipboard-read", "clipboard-write"])
    page = session.page
    session.ask(QUESTION)
    page.click("text=Copy")
    page.wait_for_selector(".answer ~ div [role=status]:has-text('Copied')")
    passage = feedback_server.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"][0]
    address = f"{feedback_server.url}/#read/{passage['source']}/{passage['start']}-{passage['end']}"
    expected = f"{QUESTION}\n\nthe Marlow Yard [1]\n\n[1] {passage['title']}, {passage['source']}, {address}"
    assert page.evaluate("navigator.clipboard.readText()") == expected
    page.evaluate("delete Navigator.prototype.share")
    with page.expect_download() as started:
        page.click("text=Share")
    assert started.value.suggested_filename == "answer.txt"
    assert Path(started.value.path()).read_text(encoding="utf-8") == expected


def test_files_are_indexed_with_progress_and_refusals_are_listed(
    feedback_server: Running, visit: Visits, tmp_path: Path
) -> None:
    files = {f"gull-{n}.md": f"# Gull {n}\n\nGull number {n} nests on the rock." for n in range(3)}
    for name, text in {**files, "empty.md": " ", "tool.exe": "MZ"}.items():
        (tmp_path / name).write_text(text)
    session = visit(feedback_server)
    page = session.page
    page.wait_for_selector("#columns select")
    session.open("/#documents")
    page.wait_for_selector(".documents > li")
    field = "#view-documents input[type=file]"
    before = feedback_server.get("/v1/documents").json()["total"]
    page.set_input_files(field, [tmp_path / name for name in (*files, "empty.md", "tool.exe")])
    page.wait_for_selector(".upload [role=status]:has-text('3 files indexed, 2 refused:')")
    refusals = sorted(page.locator(".upload li").all_inner_texts())
    assert refusals[0] == "empty.md: it has no text" and refusals[1].startswith(
        "tool.exe: this kind of file cannot be read"
    )
    assert feedback_server.get("/v1/documents").json()["total"] == before + 3
    session.problems.clear()  # Chromium logs the two refusals.
    (tmp_path / "tern.md").write_text("Terns nest beside the gulls.")
    page.set_input_files(field, tmp_path / "tern.md")
    page.wait_for_selector(".documents .title >> text=tern")
    for source in (*files, "tern.md"):
        httpx2.delete(f"{feedback_server.url}/v1/documents/{source}", timeout=60)


def test_a_document_with_pages_opens_at_the_cited_page(feedback_server: Running, visit: Visits) -> None:
    session = visit(feedback_server)
    page = session.page
    page.wait_for_selector("#columns select")
    session.open("/#read/tides.pdf/65-96")
    page.wait_for_selector("#reader mark")
    assert page.locator(".page-number").all_inner_texts() == ["p. 1", "p. 2", "p. 3"]
    assert page.inner_text("#reader mark") == "The ebb begins an hour later. K"[: 96 - 65]
    assert page.evaluate("document.querySelector('#reader mark').previousElementSibling.textContent") == "p. 3"


def test_stored_conversations_cannot_become_markup(feedback_server: Running, visit: Visits) -> None:
    """Stored conversations with markup, from a model or from another program, are shown as text."""
    session: PageSession = visit(feedback_server)
    page = session.page
    page.wait_for_selector("#columns select")
    evil = "<img src=x onerror=alert(1)>"
    reply = {
        "answer": f"{evil} [1]",
        "reason": evil,
        "citations": [],
        "removed": [],
        "retrieval": None,
        "length": False,
    }
    turn = {"question": evil, "model": evil, "cost": evil, "reply": reply, "evidence": None}
    talk = {"id": "0" * 32, "at": "no date", "title": evil, "columns": [{"mode": evil, "model": evil, "turns": [turn]}]}
    broken = [{"id": "1" * 32, "columns": "none"}, None, 7, "x"]
    page.evaluate("saved => localStorage.setItem('modegraph-talks', saved)", json.dumps([talk, *broken]))
    session.open(f"/#ask/{'0' * 32}")
    page.reload()
    page.wait_for_selector(".cost")
    assert page.inner_text(".turn-question") == evil and page.query_selector("main img, dialog img") is None
    page.click("#history-button")
    assert page.locator(".conversations .line").all_inner_texts() == [evil]
    page.keyboard.press("Escape")
    page.evaluate("localStorage.setItem('modegraph-talks', '{')")
    page.reload()
    page.wait_for_selector("#columns select")
    page.click("#history-button")
    page.wait_for_selector("#history >> text=No conversations yet")
