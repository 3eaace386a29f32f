from dataclasses import replace

from graph.answer.attribution import Citation, Quote
from graph.answer.support import NotChecked, Unsupported
from graph.types import Evidence, Finding, Passage, Proposition, Scored, Span, Summary, Trace
from serve.pipeline import Answer
from serve.show import printable, show_answer, show_evidence, show_paths
from serve.types import Cost

PASSAGE = Passage("p1", "a.md", "Tides", 0, 12, 40, "High \x1b[2J\x07at noon.\nLow at dusk.")
ANSWER = Answer(
    question="When?",
    reason="It says so [1].",
    answer="noon",
    well_formed=True,
    finish_reason="stop",
    citations={1: Citation("p1", "Tides", PASSAGE.text, "a.md", 12, 40)},
    removed=(),
    unsupported=(),
    not_checked=(),
    left_out=0,
    evidence=Evidence("When?"),
    model="m",
    retrieval=Cost(2, 1200, 30, 0.5),
    writing=Cost(1, 9, 5, 0.125),
)


def test_evidence_shows_rank_score_title_source_offsets_and_text() -> None:
    summary = Summary("s", 1, "All of it.", ("p1", "p2"))
    shown = show_evidence(Evidence("q", passages=(Scored(PASSAGE, 0.5),), summaries=(Scored(summary, 0.25),)))
    assert "1. 0.500 · Tides · a.md 12–40 · p1" in shown
    assert "High [2Jat noon. Low at dusk." in shown
    assert "1. 0.250 · layer 1 · from 2 passages" in shown and "All of it." in shown
    assert show_evidence(Evidence("q")) == "Nothing found."


def test_propositions_are_listed_with_the_place_of_their_first_occurrence() -> None:
    spans = (Span("p1", "a.md", 12, 25, 3), Span("p2", "b.md", 0, 13))
    proposition = Proposition("n", "High tide is at noon.", ("noon",), spans)
    shown = show_evidence(Evidence("q", (Scored(PASSAGE, 0.5),), (Scored(proposition, 0.75),)))
    assert "\n\nPropositions\n\n1. 0.750 · a.md p. 3, 12–25\n    High tide is at noon." in shown
    assert "Propositions" not in show_evidence(Evidence("q", (Scored(PASSAGE, 0.5),)))


def test_a_passage_without_a_title_is_named_by_its_source() -> None:
    passage = replace(PASSAGE, title="")
    evidence = Evidence("q", passages=(Scored(passage, 0.5),), trace=Trace("dense"))
    assert show_evidence(evidence).startswith("1. 0.500 · a.md 12–40 · p1\n")
    assert "\n1. a.md 12–40 · p1\n" in show_paths(evidence)
    cited = replace(ANSWER, citations={1: replace(ANSWER.citations[1], title="")})
    assert "\n[1] a.md 12–40\n" in show_answer(cited)


def test_one_passage_is_counted_in_the_singular() -> None:
    finding = Finding("Who?", "Ida.", ("p1",), 0.5)
    summary = Summary("s", 1, "All of it.", ("p1",))
    shown = show_evidence(Evidence("q", summaries=(Scored(summary, 0.25),), findings=(finding,)))
    assert "1. 0.250 · layer 1 · from 1 passage\n" in shown and "0.50 · Who? · from 1 passage\n" in shown


def test_control_characters_of_documents_do_not_reach_the_terminal() -> None:
    shown = show_answer(ANSWER) + show_evidence(Evidence("q", passages=(Scored(PASSAGE, 0.5),)))
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_the_joiners_of_persian_indic_and_emoji_spelling_are_preserved() -> None:
    text = "می\u200cخواهم क्\u200dष 👩\u200d🚀"
    assert printable(f"{text}\u202e\u200b") == text


def test_an_answer_shows_its_reason_and_the_passage_of_each_citation() -> None:
    lines = show_answer(ANSWER).split("\n")
    assert lines[0] == "noon"
    assert "Reason: It says so [1]." in lines
    assert "[1] Tides · a.md 12–40" in lines
    assert lines[-3:-1] == ["    High [2Jat noon. Low at dusk.", ""]
    assert (
        lines[-1] == "Retrieval: 2 model calls, 1,200 + 30 tokens, 0.50 s · Answer: 1 model call, 9 + 5 tokens, 0.12 s"
    )


def test_a_table_is_shown_row_by_row_with_its_header() -> None:
    rows = "| Quay | 3 |\n| Mill | 4 |\n\nEnd\nof it."
    quote = Quote("4", "| Mill | 4 |", 13, 25)
    cited = Citation("p1", "Fares", rows, "a.md", 12, 40, header=("Stop", "Fare"), attributed=False, quotes=(quote,))
    lines = show_answer(replace(ANSWER, citations={1: cited})).split("\n")
    at = lines.index("[1] Fares · a.md 12–40")
    assert lines[at + 1 : at + 4] == ["    Stop: Quay; Fare: 3.", "    Stop: Mill; Fare: 4.", "    End of it."]
    assert lines[at + 4] == "    Closest: “Stop: Mill; Fare: 4”"


def test_an_unsupported_sentence_is_shown_with_its_missing_words() -> None:
    cited = Unsupported("reason", "It closed in 1962 [1] [2].", 0, 26, 0.9, (1, 2), ("1962",))
    uncited = Unsupported("answer", "It is a good yard.", 0, 18, 0.8, (), ())
    gone = replace(uncited, text="It sank.", start=5, end=5)
    shown = " ".join(show_answer(replace(ANSWER, unsupported=(cited, uncited, gone))).split())
    assert "Left out: not supported by the passages (probability 0.80): “It sank.”" in shown
    assert "Not supported by [1] [2] (probability 0.90; missing: 1962): “It closed in 1962 [1] [2].”" in shown
    assert "Not supported by the passages (probability 0.80): “It is a good yard.”" in shown


def test_sentences_that_cannot_be_checked_are_not_marked_as_unsupported() -> None:
    unchecked = (
        NotChecked("answer", "Yes", 0, 3, "says too little"),
        NotChecked("reason", "Да.", 0, 3, "is in another language"),
    )
    shown = " ".join(show_answer(replace(ANSWER, not_checked=unchecked)).split())
    assert "Not checked: “Yes” says too little; “Да.” is in another language." in shown
    assert "Not supported" not in shown and "Not checked" not in show_answer(ANSWER)


def test_attributed_citations_are_distinguished_from_those_of_the_model() -> None:
    quote = Quote("noon", "High at noon.", 0, 13)
    attributed = replace(ANSWER.citations[1], attributed=True, quotes=(quote, replace(quote, statement="At noon.")))
    lines = show_answer(replace(ANSWER, citations={1: attributed})).split("\n")
    assert "[1] Tides · a.md 12–40 · attributed, not cited by the model" in lines
    assert lines.count("    Closest: “High at noon.”") == 1


def test_the_problems_of_a_reply_are_shown() -> None:
    wrong = replace(ANSWER, answer="", reason="", well_formed=False, finish_reason="length", removed=(4, 6), left_out=2)
    shown = show_answer(wrong)
    assert "(the model wrote nothing)" in shown
    assert "Removed: [4], [6]" in shown and "Left out: 2 " in shown and "Cut off: " in shown
    assert "did not follow the answer format" not in shown, "an empty reply should not be reported as malformed"
    assert "did not follow the answer format" in show_answer(replace(ANSWER, well_formed=False))


def test_the_evidence_replaces_an_empty_answer() -> None:
    empty = replace(ANSWER, answer="", reason="", citations={})
    assert f"What was found:\n\n{show_evidence(ANSWER.evidence)}" in show_answer(empty)
    reasoned = show_answer(replace(ANSWER, answer=""))
    assert reasoned.startswith("(the model wrote no answer)\n") and "[1] Tides" in reasoned
    assert "What was found" not in reasoned and "What was found" not in show_answer(ANSWER)


def test_calls_from_a_ledger_are_shown_separately() -> None:
    cost = replace(ANSWER.retrieval, seconds=9.0, replayed=2)
    assert "9.00 s (2 from the ledger, with their original time)" in show_answer(replace(ANSWER, retrieval=cost))


def test_an_explanation_shows_the_steps_and_a_path_to_each_passage() -> None:
    trace = Trace("hops", ("1 document named by the question",))
    found = (Scored(PASSAGE, 0.5), Scored(replace(PASSAGE, title="Moon", order=1), 0.25))
    shown = show_paths(
        Evidence("q", found, paths=(("“a \x1b[2J”", "mentions “b”"), ("a similar passage",)), trace=trace)
    )
    assert shown.split("\n") == [
        "How it was found (hops)",
        "- 1 document named by the question",
        "1. Tides · a.md 12–40 · p1",
        "    question → “a [2J” → mentions “b”",
        "2. Moon · a.md 12–40 · p1",
        "    question → a similar passage",
    ]
    assert "question → score 0.500" in show_paths(Evidence("q", found, trace=Trace("dense")))
