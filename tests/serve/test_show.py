from dataclasses import replace

from graph.types import Evidence, Excerpt, Passage, Scored, Summary
from serve.answering import Answer
from serve.show import show_answer, show_evidence

PASSAGE = Passage("p1", "a.md", "Tides", 0, 12, 40, "High \x1b[2J\x07at noon.\nLow at dusk.")
ANSWER = Answer(
    question="When?",
    reason="It says so [1].",
    answer="noon",
    well_formed=True,
    finish_reason="stop",
    citations={1: Excerpt("p1", "Tides", PASSAGE.text, "a.md", 12, 40)},
    removed=(),
    evidence=Evidence("When?"),
    model="m",
    prompt_tokens=9,
    completion_tokens=5,
    seconds=0.1,
)


def test_evidence_shows_rank_score_title_source_offsets_and_text() -> None:
    summary = Summary("s", 1, "All of it.", ("p1", "p2"))
    shown = show_evidence(Evidence("q", passages=(Scored(PASSAGE, 0.5),), summaries=(Scored(summary, 0.25),)))
    assert "1. 0.500 · Tides · a.md 12–40" in shown
    assert "High [2Jat noon. Low at dusk." in shown
    assert "1. 0.250 · layer 1 · of 2 passages" in shown and "All of it." in shown
    assert show_evidence(Evidence("q")) == "Nothing found."


def test_no_document_can_steer_the_terminal() -> None:
    shown = show_answer(ANSWER) + show_evidence(Evidence("q", passages=(Scored(PASSAGE, 0.5),)))
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_an_answer_shows_its_reason_and_what_each_citation_quotes() -> None:
    lines = show_answer(ANSWER).split("\n")
    assert lines[0] == "noon"
    assert "Reason: It says so [1]." in lines
    assert "[1] Tides · a.md 12–40" in lines
    assert lines[-1] == "    High [2Jat noon. Low at dusk."


def test_what_was_wrong_is_said() -> None:
    wrong = replace(ANSWER, answer="", well_formed=False, finish_reason="length", removed=(4, 6))
    shown = show_answer(wrong)
    assert "(the model wrote nothing)" in shown
    assert "Removed: [4], [6]" in shown and "Cut: " in shown and "Form: " in shown
