"""The page as a reader uses it: asking, following citations, comparing, browsing; text from documents and models is never treated as HTML."""

import re
from pathlib import Path
from typing import Any

import pytest

from graph.answer.prompt import NOT_FOUND
from graph.build.build import build_index
from graph.index.index import open_index
from graph.store.index_settings import IndexSettings
from graph.types import Document
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.http.running import Running, serving
from tests.serve.page.conftest import (
    HOSTILE,
    HOSTILE_TITLE,
    KEY,
    PAGED,
    REPLY,
    HeldRequests,
    ScriptedServer,
    Visits,
    contrast,
    reader_text,
)

GRAPH_IS_DRAWN = """() => [...document.querySelectorAll(".graph canvas")].some((canvas) => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d");
  context.drawImage(canvas, 0, 0);
  return context.getImageData(0, 0, copy.width, copy.height).data.some((value) => value > 0);
})"""


def test_enter_sends_the_question_and_the_answer_streams_with_checked_citations(
    slow_server: Running, visit: Visits
) -> None:
    page = visit(slow_server).page
    page.wait_for_selector("#columns select")
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.type("Who built the Lantern?")
    input_method = "new KeyboardEvent('keydown', { key: 'Enter', keyCode: 229 })"
    page.evaluate(f"document.activeElement.dispatchEvent({input_method})")
    assert page.query_selector(".turn") is None
    for _ in range(2):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    page.keyboard.press("Enter")
    page.wait_for_selector(".reason")
    assert page.inner_text("#ask-button") == "Stop" and page.query_selector(".cost") is None
    page.wait_for_selector(".cost")
    assert page.inner_text("#ask-button") == "Ask"
    assert page.inner_text(".answer-text") == "<b>the Marlow Yard</b> 2"
    assert page.text_content(".reason .prose") == "The yard did 1, says."
    assert "A citation was removed" in page.inner_text(".answer") and "9" not in page.inner_text(".answer")
    assert [each.text_content() for each in page.query_selector_all(".cite")] == ["2", "1"]
    assert page.query_selector(".answer b") is None
    assert not page.is_visible(".reason .prose")
    page.click(".reason summary")
    assert page.is_visible(".reason .cite")
    page.fill("#question", "And when?")
    page.press("#question", "Enter")
    answer = page.locator(".answer").nth(1)
    answer.locator(".reason").wait_for()
    assert (page.input_value("#question"), answer.get_attribute("aria-busy")) == ("", "true")
    page.click("#ask-button")
    answer.locator(".hint >> text=Stopped.").wait_for()
    page.wait_for_selector("#ask-button >> text=Ask")
    assert answer.get_attribute("aria-busy") == "false" and page.locator(".cost").count() == 1


def test_a_citation_opens_its_passage_at_its_offsets(server: Running, visit: Visits) -> None:
    session = visit(server)
    page = session.page
    session.ask()
    passage = server.post("/v1/retrieve", json={"query": "Who built the Lantern?"}).json()["passages"][1]
    page.focus(".cite >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#reader mark")
    shown = page.eval_on_selector_all("#reader mark, #reader .read", "all => all.map((each) => each.textContent)")
    assert "".join(shown) == passage["text"]
    assert "“<b>the Marlow Yard</b>”" in page.inner_text("#reader-marked")
    assert page.inner_text("#reader-title") == passage["title"]
    assert f"characters {passage['start']}–{passage['end']}" in page.inner_text("#reader-place")
    page.keyboard.press("Escape")
    page.wait_for_selector("#reader", state="hidden")
    assert page.evaluate("document.activeElement.className") == "cite"


def test_the_address_of_a_citation_opens_its_passage(server: Running, visit: Visits) -> None:
    question = {"role": "user", "content": "Who built the Lantern?"}
    completion = server.post("/v1/chat/completions", json={"model": "tiny", "messages": [question]}).json()
    message = completion["choices"][0]["message"]
    citation = next(each for each in message["citations"] if each["number"] == 2)
    session = visit(server)
    session.open(message["annotations"][0]["url_citation"]["url"].removeprefix(server.url))
    session.page.reload()
    session.page.wait_for_selector("#reader mark")
    shown = session.page.eval_on_selector_all("#reader mark", "all => all.map((each) => each.textContent)")
    assert "".join(shown) == citation["text"]
    assert f"characters {citation['start']}–{citation['end']}" in session.page.inner_text("#reader-place")


def test_offsets_count_characters_as_the_index_does(server: Running, visit: Visits) -> None:
    page = visit(server).page
    page.wait_for_selector("#columns select")
    pieces = page.evaluate(
        """async () => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { markedText } = await import(`/page/${version}/views/reader.js`);
          const passages = [{ start: 6, end: 9, text: "fgh" }, { start: 0, end: 5, text: "😀b𝒞de" }];
          const shown = (start, end) => markedText(passages, start, end).map((node) => node.nodeName ? [node.textContent] : node);
          return [shown(1, 3), shown(4, 7), shown(0, 9), shown(0, 0)];
        }"""
    )
    assert pieces == [
        ["😀", ["b𝒞"], "de", " ", "fgh"],
        ["😀b𝒞d", ["e"], " ", ["f"], "gh"],
        [["😀b𝒞de"], " ", ["fgh"]],
        ["😀b𝒞de", " ", "fgh"],
    ]


def test_a_citation_marks_the_sentence_closest_to_its_statement(visit: Visits, scripted_server: ScriptedServer) -> None:
    """The reader's panel says which sentence is marked. If no sentence is close, the whole passage is marked, and the panel says so."""
    question = "Who was born in Tarn and died on 4 May 1931?"
    found = scripted_server.running.post("/v1/retrieve", json={"query": question}).json()["passages"]
    n = next(place for place, each in enumerate(found, 1) if each["title"] == "Ada Marlow")
    answer = f"She died on 4 May 1931 [{n}]. Her lamp is lit at dusk. [{n}] Xyzzy plugh qwfp [{n}]."
    scripted_server.reply = lambda prompt: f"###Reason: so. ###Answer: {answer}"
    session = visit(scripted_server.running)
    page = session.page
    session.ask(question)

    def open_citation(place: int) -> tuple[str, str]:
        page.click(f".cite >> nth={place}")
        page.wait_for_selector("#reader mark")
        found = page.inner_text("#reader mark"), page.inner_text("#reader-marked")
        page.keyboard.press("Escape")
        return found

    sentence, note = open_citation(0)
    assert sentence == "She was born in Tarn and died on 4 May 1931."
    assert note == "Marked: the passage’s sentence closest in wording to “She died on 4 May 1931.”"
    assert "“Her lamp is lit at dusk.”" in open_citation(1)[1]
    whole, note = open_citation(2)
    assert "shipwright" in whole and note.startswith(
        "The whole passage is marked: none of its sentences shares enough words with “Xyzzy"
    )
    page.click(".passage >> nth=0")
    page.wait_for_selector("#reader mark")
    assert page.inner_text("#reader-marked") == ""


def test_a_citation_of_a_proposition_marks_the_text_that_states_it(server: Running, visit: Visits) -> None:
    page = visit(server).page
    page.wait_for_selector("#columns select")
    passage = server.post("/v1/retrieve", json={"query": "Who built the Lantern?"}).json()["passages"][0]
    page.evaluate(
        """async (citation) => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { openCitation } = await import(`/page/${version}/ask/evidence.js`);
          openCitation(citation, "The yard built it.");
        }""",
        {**passage, "text": "The yard built it."},
    )
    page.wait_for_selector("#reader mark")
    shown = page.eval_on_selector_all("#reader mark", "all => all.map((each) => each.textContent)")
    assert "".join(shown) == passage["text"] and page.inner_text("#reader-marked") == ""


def test_a_sentence_that_its_passage_does_not_support_is_listed_below_the_answer(
    visit: Visits, scripted_server: ScriptedServer
) -> None:
    scripted_server.reply = lambda prompt: (
        "###Reason: so. ###Answer: Pirates of Zanzibar sank her in the winter of 1822 [1]."
    )
    session = visit(scripted_server.running)
    session.ask()
    note = session.page.inner_text(".answer .hint >> nth=0")
    assert re.fullmatch(
        r"Not supported by \[1\] \(probability 0\.\d\d; missing: .*\b1822\b.*\): “Pirates .* \[1\]\.”", note
    )


SUPPORTED_SENTENCE = "She was built in 1911 by the Marlow Yard"
VERDICTS = {
    f"{SUPPORTED_SENTENCE} [1].": "Checked The check found nothing unsupported in 1 sentence. It is a cheap check, not proof.",
    f"{SUPPORTED_SENTENCE} [1]. Да, это так.": "Partly checked 1 sentence could not be judged; "
    "the check found nothing unsupported in 1 sentence. It is a cheap check, not proof.",
    f"{SUPPORTED_SENTENCE} [1]. Pirates of Zanzibar sank her in 1822 [1].": "Not supported The passages do not seem to support 1 of 2 sentences.",
    "Да, это так.": "Not checked No sentence could be judged.",
    "not in the documents": "",
}


@pytest.mark.parametrize("answer", VERDICTS)
def test_the_badge_shows_the_verdict_on_an_answer_and_a_refusal_has_none(
    visit: Visits, scripted_server: ScriptedServer, answer: str
) -> None:
    scripted_server.reply = lambda prompt: answer
    session = visit(scripted_server.running)
    session.ask()
    page = session.page
    shown = page.inner_text(".verdict") if page.is_visible(".verdict") else ""
    assert shown == VERDICTS[answer]
    page.reload()
    page.wait_for_selector(".cost")
    assert (page.inner_text(".verdict") if page.is_visible(".verdict") else "") == shown


def test_the_badge_says_so_if_the_check_is_off(isles_and_hostile: Path, visit: Visits) -> None:
    with (
        chat_server(lambda body, number: f"{SUPPORTED_SENTENCE} [1].") as upstream,
        serving(isles_and_hostile, f"openai:tiny@{upstream.url}", unsupported="ignore") as running,
    ):
        session = visit(running)
        session.ask()
        assert session.page.inner_text(".verdict") == "Not checked The check is off."


def test_on_focus_a_citation_shows_its_page_and_the_sentence_that_it_marks(tmp_path: Path, visit: Visits) -> None:
    build_index(tmp_path, [*ISLES, PAGED], IndexSettings(), lambda spec: HashEncoder())

    def reply(body: dict[str, Any], number: int) -> str:
        [place] = re.findall(r"\[(\d+)\] Tide tables", str(body["messages"]))
        return f"###Reason: so. ###Answer: **High water** is at *dawn* [{place}]."

    with chat_server(reply) as upstream, serving(tmp_path, f"openai:tiny@{upstream.url}") as running:
        session = visit(running)
        session.ask("When is high water by the tide tables of Tarn?")
        page = session.page
        place = "Tide tables, p. 1: “High water is at dawn.”"
        assert page.get_attribute(".cite", "aria-label") == f"Citation {page.inner_text('.cite')}: {place}"
        tip = "getComputedStyle(document.querySelector('.cite'), '::after').content"
        assert page.evaluate(tip) == "none"
        page.focus(".cite")
        page.keyboard.press("Tab")
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(tip) == f'"{place}"'
        page.keyboard.press("Enter")
        page.wait_for_selector("#reader mark")
        assert page.inner_text("#reader mark") == "High water is at dawn."
        assert "Kelp dries at noon." in page.inner_text("#reader .read >> nth=-1")


def test_omissions_from_prompt_reasoning_and_answer_are_shown(isles_and_hostile: Path, visit: Visits) -> None:
    storm = "###Reason: A storm of 1733 began it [1]. ###Answer: Pirates sank her in 1822 [1]."
    answers = [f"{storm} She was built in 1911 by the Marlow Yard [1].", storm]
    with (
        chat_server(lambda body, number: answers[number - 1], window=140) as upstream,
        serving(isles_and_hostile, f"openai:tiny@{upstream.url}", unsupported="drop") as running,
    ):
        session = visit(running)
        session.ask()
        window, reasoning, answer = (each.inner_text() for each in session.page.query_selector_all(".answer .hint"))
        assert window == "Left out: 3 passages that did not fit the model’s context window."
        assert re.match(r"Left out of the reasoning: not supported by \[1\] .*1733.*: “A storm", reasoning)
        assert re.match(r"Left out: not supported by \[1\] .*1822.*: “Pirates", answer)
        session = visit(running)
        session.ask()
        left_out = session.page.inner_text(".answer .hint >> nth=2")
        assert session.page.inner_text(".answer-text").strip() == NOT_FOUND and "“Pirates sank her" in left_out
        assert not session.page.is_visible(".verdict")


def test_attributed_citations_and_unchecked_sentences_are_marked(isles_and_hostile: Path, visit: Visits) -> None:
    with (
        chat_server(lambda body, number: "###Reason: It is known. ###Answer: the Marlow Yard\n\nДа.") as upstream,
        serving(isles_and_hostile, f"openai:tiny@{upstream.url}") as running,
    ):
        session = visit(running)
        session.ask()
        page = session.page
        assert page.inner_text(".answer .hint >> nth=0") == "Not checked: “Да.” is in another language."
        assert page.inner_text(".evidence h3 >> nth=0") == "Closest to the answer, not cited by the model"
        assert page.query_selector(".cite") is None
        page.click(".evidence .passage >> nth=0")
        page.wait_for_selector("#reader mark")
        marks = page.eval_on_selector_all("#reader mark", "all => all.map((each) => each.textContent)")
        assert marks == ["She was built in 1911 by the Marlow Yard."]


def test_a_question_outside_the_documents_is_reported_without_a_model_call(
    isles_and_hostile: Path, visit: Visits
) -> None:
    with (
        chat_server(lambda body, number: REPLY) as upstream,
        serving(isles_and_hostile, f"openai:tiny@{upstream.url}", abstain=0) as running,
    ):
        session = visit(running)
        session.ask()
        note = session.page.inner_text(".answer .hint >> nth=0")
        assert re.fullmatch(
            r"The documents probably do not cover this question \(probability \d+%\); the model was not called\.", note
        )
        assert session.page.inner_text(".answer-text") and upstream.requests == []


def test_the_closest_sentences_are_found_by_shared_words(server: Running, visit: Visits) -> None:
    page = visit(server).page
    page.wait_for_selector("#columns select")
    found = page.evaluate(
        """async () => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { closestSentences } = await import(`/page/${version}/text/closest.js`);
          const text = (statement, passage) => closestSentences(statement, passage).map(({ start, end }) => Array.from(passage).slice(start, end).join(""));
          const passage = "😀 The yard lies in Quill. It built the Lantern in 1911!  Ada Marlow paid for it.";
          return [text("The Lantern was built in 1911", passage), text("In Quill, Ada paid", passage), text("zzz", passage),
            text("", passage), text("built", ""), text("灯台は東京にある", "灯台は東京にある。船は港に着く。")];
        }"""
    )
    assert found[:2] == [["It built the Lantern in 1911!"], ["😀 The yard lies in Quill.", "Ada Marlow paid for it."]]
    assert found[2:] == [[], [], [], ["灯台は東京にある。"]]


MARKDOWN = """The **Lantern** was *built* in `1911` [1], snake_case_name and 2 * 3 * 4.
next line

# What is known
- the yard [1]
  1. one
  2. *two*
- the end

```py
a[1] = **b**
```
***
See [this](http://evil.example) <b>bold</b> ![x](http://evil.example/x.png) <javascript:alert(1)>"""


def test_markdown_is_rendered_without_links_images_or_scripts(visit: Visits, scripted_server: ScriptedServer) -> None:
    scripted_server.reply = lambda question: f"###Reason: as _stated_ [1]. ###Answer: {MARKDOWN}"
    session = visit(scripted_server.running)
    page = session.page
    session.ask()
    texts = {
        name: page.eval_on_selector_all(f".answer-text {name}", "all => all.map((each) => each.textContent)")
        for name in ("strong", "em", "h3", "ul > li > .prose-line", "ol > li", "pre", "code", "hr", ".cite")
    }
    assert texts["strong"] == ["Lantern"] and texts["em"] == ["built", "two"] and texts["h3"] == ["What is known"]
    assert texts["ul > li > .prose-line"] == ["the yard 1", "the end"] and texts["ol > li"] == ["one", "two"]
    assert texts["pre"] == ["a[1] = **b**"] and texts["code"] == ["1911", "a[1] = **b**"]
    assert texts["hr"] == [""] and texts[".cite"] == ["1", "1"]
    assert "snake_case_name and 2 * 3 * 4.\nnext line" in page.text_content(".answer-text")
    assert "See [this](http://evil.example) <b>bold</b> ![x](http" in page.text_content(".answer-text")
    assert page.query_selector(".answer :is(a, img, b, script, iframe)") is None


def test_unusual_markdown_is_rendered_without_losing_letters(server: Running, visit: Visits) -> None:
    page = visit(server).page
    page.wait_for_selector("#columns select")
    keeps_letters = page.evaluate(
        r"""async () => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { markdown } = await import(`/page/${version}/text/markdown.js`);
          const texts = ["", "```", "- ", "-", "  - a\n- b\n    - c\n 1. d", "1. a\n\n   more\n\n2. b", "**", "* *", "*a", "_", "#", "####### x",
            "- a\n```\nb\n```", "`".repeat(20000), "*a ".repeat(20000), "**a* ".repeat(20000), "_a ".repeat(20000), "- ".repeat(20000),
            " ".repeat(20000) + "x", "# " + " #".repeat(20000), "- a\n".repeat(2000)];
          return texts.map((text) => {
            const shown = markdown(text, (piece) => [piece]).map((node) => node.textContent).join("");
            const letters = (some) => some.replace(/[^a-z]/g, "");
            return letters(shown) === letters(text);
          });
        }"""
    )
    assert all(keeps_letters)


def test_a_follow_up_is_sent_with_the_earlier_turns_which_stay_on_the_page(
    visit: Visits, scripted_server: ScriptedServer
) -> None:
    sent: list[list[dict[str, str]]] = []
    scripted_server.reply = lambda question: "###Reason: so. ###Answer: It was the yard."
    session = visit(scripted_server.running)
    page = session.page
    chats = "v1/chat/completions"
    page.on("request", lambda request: request.url.endswith(chats) and sent.append(request.post_data_json["messages"]))
    page.wait_for_selector("#columns select")
    for number, question in enumerate(("Who built the Lantern?", "And when?"), 1):
        page.fill("#question", question)
        page.press("#question", "Enter")
        page.wait_for_function(f"() => document.querySelectorAll('.cost').length === {number}")
    assert page.eval_on_selector_all(".turn-question", "all => all.map((each) => each.textContent)") == [
        "Who built the Lantern?",
        "And when?",
    ]
    answers = [each.inner_text() for each in page.query_selector_all(".answer-text")]
    assert len(answers) == 2 and all(answers)
    first, second = sent
    assert first == [{"role": "user", "content": "Who built the Lantern?"}]
    assert second == [*first, {"role": "assistant", "content": answers[0]}, {"role": "user", "content": "And when?"}]
    assert page.input_value("#question") == "" and page.evaluate("document.activeElement.id") == "question"
    page.click(".folded > summary")
    page.wait_for_selector(".folded .passage")
    page.route("**/v1/retrieve", lambda route: route.abort())
    page.fill("#question", "Why?")
    page.press("#question", "Enter")
    page.wait_for_selector(".problem >> text=The server cannot be reached.")
    page.wait_for_function("() => JSON.parse(localStorage['modegraph-talks'])[0].columns[0].turns.length === 3")
    assert page.locator(".actions").count() == page.locator(".cost").count() == 3, (
        "an answer should stay complete if the search for its evidence fails"
    )
    page.unroute("**/v1/retrieve")
    session.problems.clear()  # Chromium logs the expected failure.
    page.click("#fresh")
    assert page.query_selector(".turn") is None and page.evaluate("document.activeElement.id") == "question"
    session.ask()
    assert len(sent) == 4 and len(sent[3]) == 1
    cut_off = 'data: {"choices": [{"delta": {"content": "It was"}}]}\n\n'
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=cut_off, content_type="text/event-stream"))
    page.fill("#question", "And when?")
    page.press("#question", "Enter")
    page.wait_for_selector(".turn .problem >> text=The connection closed before the answer was complete.")
    assert page.locator(".cost").count() == 1, "an answer that was cut off should not be saved"


def test_a_stream_is_read_without_a_token_count_and_with_empty_events(server: Running, visit: Visits) -> None:
    session = visit(server)
    page = session.page
    body = ""
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    body = 'data: {"choices": [{"delta": {"content": "It was"}}]}\n\ndata: {"choices": [], "usage": {"completion_tokens": null}}\n\n'
    body += "data: [DONE]\n\n"
    session.ask()
    assert page.inner_text(".cost").endswith(" s answer") and page.query_selector(".problem") is None
    body = '\n\ndata: {"error": {"code": "too_long", "message": "no complete answer within 300 s"}}\n\ndata: [DONE]\n\n'
    page.fill("#question", "And when?")
    page.press("#question", "Enter")
    page.wait_for_selector(".turn .problem >> text=No complete answer within 300 s")


def test_text_from_right_to_left_is_aligned_to_the_right(server_without_model: Running, visit: Visits) -> None:
    session = visit(server_without_model)
    right_gap = """each => {
      const text = document.createRange();
      text.selectNodeContents(each);
      return each.getBoundingClientRect().right - text.getBoundingClientRect().right;
    }"""
    session.ask("מי בנה את הפנס?")
    assert session.page.eval_on_selector(".turn-question", right_gap) < 1
    assert session.page.eval_on_selector("#question", "each => getComputedStyle(each).unicodeBidi") == "plaintext"
    session.ask("Who built the Lantern?")
    assert session.page.eval_on_selector(".turn-question", right_gap) > 100


def test_summaries_are_listed_as_evidence(server_without_model: Running, visit: Visits) -> None:
    question = {"query": "Who built the Lantern?", "mode": "hierarchy"}
    found = server_without_model.post("/v1/retrieve", json=question).json()
    session = visit(server_without_model)
    page = session.page
    page.wait_for_selector("#columns select")
    page.select_option("[id^=mode-]", "hierarchy")
    session.ask()
    assert page.locator(".passage").count() == len(found["passages"]) + len(found["summaries"])
    assert found["summaries"] and not page.is_visible("text=No passage was found.")


@pytest.mark.parametrize("source", ["./tides.md", "sea/../tides.md"])
def test_a_source_with_dots_is_opened_and_deleted_and_no_other(tmp_path: Path, visit: Visits, source: str) -> None:
    texts = {"tides.md": "The ebb begins at noon.", source: "The ebb begins at dawn."}
    documents = [Document(name, name, text) for name, text in texts.items()]
    build_index(tmp_path, documents, IndexSettings(), lambda spec: HashEncoder())
    with serving(tmp_path, None, writable=True) as running:
        page = visit(running, "/#documents").page
        page.click(f".documents .title:text-is('{source}')")
        assert reader_text(page) == texts[source]
        page.keyboard.press("Escape")
        page.click(f"[aria-label='Delete {source}']")
        page.click("#delete .primary")
        page.wait_for_selector(f"text={source} was deleted.")
        assert page.locator(".documents .title").all_inner_texts() == ["tides.md"]


def test_without_a_model_the_page_searches_and_says_so(server_without_model: Running, visit: Visits) -> None:
    session = visit(server_without_model)
    page = session.page
    page.wait_for_selector(".welcome")
    assert "This server has no model: it shows the passages it finds" in page.inner_text(".welcome")
    assert (
        page.inner_text("#ask-form > label") == "Search your documents" and page.inner_text("#ask-button") == "Search"
    )
    page.wait_for_function("() => document.querySelector('#status').textContent.endsWith(', no model')")
    assert len(page.query_selector_all("#columns select")) == 1
    session.ask()
    assert page.query_selector_all(".passage") and "search" in page.inner_text(".cost")
    session.ask("Where is Quill?")
    assert page.inner_text(".turn-question") == "Where is Quill?" and len(page.query_selector_all(".turn")) == 1
    page.click(".passage >> nth=0")
    page.wait_for_selector("#reader mark")
    page.keyboard.press("Escape")
    page.evaluate(
        """() => {
          const reply = { answer: "Tarn", reason: "", citations: [], removed: [], unsupported: [], not_checked: [] };
          const turns = [{ question: "Where?", model: "tiny", cost: "1 s", reply, evidence: null }];
          localStorage["modegraph-talks"] = JSON.stringify([{ id: "old", at: "", title: "", collection: null, columns: [{ mode: "", model: "", turns }] }]);
          location.hash = "#ask/old";
        }"""
    )
    page.wait_for_selector(".turn-question >> text=Where?")
    saved = page.evaluate("localStorage['modegraph-talks']")
    session.ask("Where is Quill?")
    page.wait_for_selector(".turn .passage")
    page.select_option("[id^=mode-]", "dense")
    assert page.evaluate("localStorage['modegraph-talks']") == saved and page.evaluate("location.hash") == "#ask"
    assert page.locator(".turn").count() == 1


def test_markup_in_a_document_is_shown_as_text(server: Running, visit: Visits) -> None:
    session = visit(server)
    page = session.page
    session.ask("Where does the wreck Zanzu lie? <img src=x onerror=alert(5)>")
    page.click(f".passage:has-text('{HOSTILE_TITLE}') >> nth=0")
    page.wait_for_selector("#reader mark")
    assert page.inner_text("#reader-text") == HOSTILE.text and page.inner_text("#reader-title") == HOSTILE_TITLE
    page.keyboard.press("Escape")
    session.open(f"/#browse/document/{'hostile%2F%3Cb%3E.txt'}")
    page.wait_for_selector("#node h2")
    assert page.inner_text("#node h2") == HOSTILE_TITLE
    assert page.query_selector("main img, main script, main svg, dialog img, dialog script, dialog svg") is None


def test_the_path_is_drawn_and_described_in_words(server: Running, visit: Visits) -> None:
    session = visit(server)
    page = session.page
    session.ask()
    page.wait_for_function(GRAPH_IS_DRAWN)
    page.click(".paths summary")
    found = server.post("/v1/retrieve", json={"query": "Who built the Lantern?"}).json()["passages"]
    lines = page.eval_on_selector_all(".paths ol li", "items => items.map((item) => item.textContent)")
    assert len(lines) == len(found) and all(
        " → ".join(each["path"]) in line for each, line in zip(found, lines, strict=True)
    )


def test_an_answer_that_arrives_in_another_view_is_complete_when_the_reader_returns(
    server: Running, visit: Visits
) -> None:
    page = visit(server).page
    delayed: list[Any] = []
    page.route("**/v1/retrieve", lambda route: delayed.append(route))
    page.wait_for_selector("#columns select")
    page.fill("#question", "Who built the Lantern?")
    page.press("#question", "Enter")
    page.click("nav >> text=Documents")
    page.wait_for_selector(".documents > li")
    delayed[0].continue_()
    page.wait_for_function("() => 'modegraph-talks' in localStorage")
    assert page.evaluate("location.hash") == "#documents"
    page.click("nav >> text=Ask")
    page.wait_for_function(GRAPH_IS_DRAWN)


def test_modes_and_models_are_compared_side_by_side(server: Running, visit: Visits) -> None:
    session = visit(server, viewport={"width": 1280, "height": 800})
    page = session.page
    page.click("#compare")
    page.select_option("[id^=mode-] >> nth=0", "dense")
    page.select_option("[id^=mode-] >> nth=1", "lexical")
    page.select_option("[id^=model-] >> nth=1", "sft")
    page.fill("#k", "2")
    session.ask()
    page.wait_for_function("() => document.querySelectorAll('.cost').length === 2")
    costs = [each.inner_text() for each in page.query_selector_all(".cost")]
    assert [cost.split(" · ")[0] for cost in costs] == ["dense", "lexical"]
    boxes = [each.bounding_box() for each in page.query_selector_all(".column")]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    assert server.metric('modegraph_tokens_total{kind="completion",model="sft"}') == 3
    page.click("#compare")
    assert len(page.query_selector_all(".column")) == 3 and page.query_selector(".turn") is None
    delayed: list[Any] = []
    page.route("**/v1/chat/completions", lambda route: delayed.append(route))
    page.fill("#question", "Where is Quill?")
    page.press("#question", "Enter")
    while len(delayed) < 3:
        page.wait_for_timeout(20)
    for _ in range(2):
        page.click(".remove >> nth=0")
    assert page.eval_on_selector_all(".column", "all => all.map((each) => each.ariaLabel)") == ["Answer 1"]
    next(each for each in delayed if "mode" not in each.request.post_data_json["retrieval"]).continue_()
    page.wait_for_function("() => JSON.parse(localStorage['modegraph-talks']).length === 2")
    columns = page.evaluate("JSON.parse(localStorage['modegraph-talks'])[0].columns")
    assert [len(column["turns"]) for column in columns] == [1], "the answer of the column that remains should be saved"


def test_layers_entities_and_documents_can_be_browsed(server: Running, visit: Visits, isles_and_hostile: Path) -> None:
    session = visit(server)
    page = session.page
    data = open_index(isles_and_hostile, lambda spec: HashEncoder()).data
    page.click("nav >> text=Browse")
    layers = sorted(set(data.summary_layer_S.tolist()))
    page.wait_for_selector("#shelf details" if layers else "#shelf >> text=no summaries")
    assert len(page.query_selector_all("#shelf details")) == len(layers)
    page.click("[data-shelf=documents]")
    page.wait_for_selector("#shelf a >> text=Ada Marlow")
    assert len(page.query_selector_all("#shelf a")) == len(data.document_sources)
    nodes = HeldRequests(page, "**/v1/graph/neighbourhood*")
    page.click("#shelf a >> text=Ada Marlow")
    nodes.wait_for(1)
    page.click("#shelf a >> text=Tarn")
    nodes.wait_for(2)
    page.focus("#shelf a >> nth=0")
    nodes.answer(1)
    assert page.inner_text("#node h2") == "Tarn" and page.evaluate("document.activeElement.closest('#shelf') !== null")
    nodes.answer(0)
    assert page.inner_text("#node h2") == "Tarn", "the URL names Tarn"
    nodes.end()
    page.evaluate("location.hash = '#browse/entity'")
    page.wait_for_selector("#node .problem")
    assert "undefined" not in page.inner_text("#node .problem")
    session.problems.clear()  # Chromium logs the expected refusal.
    page.click("[data-shelf=entities]")
    page.fill("#entities-field", "marlow yard")
    page.wait_for_function("() => document.querySelectorAll('#shelf a').length === 1")
    page.focus("#shelf a")
    page.keyboard.press("Enter")
    page.wait_for_selector("#node h3")
    assert page.inner_text("#node .kind").lower() == "entity" and "The Marlow Yard stands in Quill." in page.inner_text(
        "#node"
    )
    page.wait_for_function(GRAPH_IS_DRAWN)
    lists = HeldRequests(page, "**/v1/documents?*")
    for shelf in ("documents", "entities", "documents"):
        page.click(f"[data-shelf={shelf}]")
    lists.wait_for(2)
    for place in (0, 2):
        lists.answer(place)
    assert page.inner_text("#shelf") == "Loading…", "the list of the first click should not be shown"
    lists.end()
    page.wait_for_selector("#shelf li")
    loads = HeldRequests(page, "**/v1/graph/neighbourhood*")
    page.click("#node ul a >> nth=0")
    loads.wait_for(1)
    page.click("nav >> text=Ask")
    page.wait_for_selector("#view-ask:not([hidden])")
    loads.answer(0)
    page.click("nav >> text=Browse")
    page.wait_for_function(GRAPH_IS_DRAWN)


@pytest.mark.parametrize(
    ("path", "view"), [("read/nowhere/0-9", "#reader"), ("browse/passage/nothing", "#node"), ("browse", "#shelf")]
)
def test_a_failed_request_of_a_view_is_announced(server: Running, visit: Visits, path: str, view: str) -> None:
    session = visit(server)
    session.page.route("**/v1/graph/layers*", lambda route: route.abort())
    session.open(f"/#{path}")
    message = session.page.wait_for_selector(f"{view} .problem")
    assert message.get_attribute("role") == "alert" and message.inner_text().strip()
    session.problems.clear()  # Chromium logs the expected failures.


def test_the_page_asks_for_a_key_and_stores_it_only_for_the_session(server_with_key: Running, visit: Visits) -> None:
    session = visit(server_with_key)
    page = session.page
    page.wait_for_selector("#key-dialog[open]")
    page.fill("#key-field", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#key-message.problem[role=alert]")
    assert page.get_attribute("#key-field", "aria-describedby") == "key-message"
    page.fill("#key-field", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#columns select")
    session.ask()
    assert page.evaluate("sessionStorage.getItem('modegraph-key')") == KEY
    stored = page.evaluate("JSON.stringify({ ...localStorage })")
    assert "modegraph-talks" in stored and KEY not in stored and page.context.cookies() == []
    refused = [each for each in session.problems if "401" in each]
    assert len(refused) == len(session.problems)  # Chromium itself logs each 401; there should be no other problem.
    session.problems.clear()


def test_the_page_is_readable_in_light_and_dark_and_fits_a_narrow_screen(server: Running, visit: Visits) -> None:
    def contrast_in(scheme: str) -> int:
        page = visit(server, color_scheme=scheme, viewport={"width": 400, "height": 800}).page
        page.wait_for_selector("#columns select")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        return contrast(page)

    assert contrast_in("light") > 150 and contrast_in("dark") < -150
