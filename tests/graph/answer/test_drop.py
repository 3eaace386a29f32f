"""Dropping what the passages do not support: what is left reads as it did, and comes the same however the text is cut into pieces."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.answer.citations import CitationGate
from graph.answer.support import SupportChecker, SupportGate, without_unsupported
from graph.answer.verifier import open_verifier
from tests.graph.answer.test_verifier import EXCERPTS

RIGHT = ("She never carried cattle [1].", "The tram runs every twenty minutes in summer [2].", "So it is.", "“Ada [2]”")
WRONG = (
    "Casimir Thole was elected to the council of Tarn in 1742 [2].",
    "Pirates of Zanzibar sank the schooner Ondine in the winter of 1822.",
    "Florian Achterberg sold pianos.",
)
BETWEEN = (
    " ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\n- ",
    "\n\n1. ",
    "\n# Ferries and trams of Corrow\n",
    "\n  \n",
    "\n| a | b |\n|---|---|\n| ",
)
READING = SupportChecker(EXCERPTS, open_verifier(""))


def dropped_of(text: str, at: tuple[int, ...] = ()) -> tuple[str, SupportGate]:
    """What the two gates give back of a text that comes in pieces cut there, and the second of them."""
    citations, support, told = CitationGate(len(EXCERPTS)), SupportGate("content", READING), 0
    kept = ""
    pieces = [text[first:last] for first, last in pairwise((0, *sorted(at), len(text)))]
    for shown in (*map(citations.feed, pieces), citations.finish()):
        kept += support.feed(shown, citations.marks[told:])
        told = len(citations.marks)
    return kept + support.finish(), support


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("It is so. {} A fine ferry.", "It is so. A fine ferry."),
        ("It is so. {}", "It is so."),
        ("{} It is so.", "It is so."),
        ("{}", ""),
        ("It is so. {}\nA fine ferry.", "It is so.\nA fine ferry."),
        ("It is so.\n\n{}\n\nA fine ferry.", "It is so.\n\nA fine ferry."),
        ("It is so.\n\n{}", "It is so."),
        ("{}\n\nA fine ferry.", "A fine ferry."),
        ("It is so:\n- {}\n- a ferry", "It is so:\n- a ferry"),
        ("It is so:\n\n1. a ferry\n2. {}\n\nIt is.", "It is so:\n\n1. a ferry\n\nIt is."),
        ("- {}\n- {}\n\nIt is so.", "It is so."),
        ("- {} It is so.\n- a ferry", "- It is so.\n- a ferry"),
    ],
)
def test_what_is_cut_takes_its_blanks_along(text: str, kept: str) -> None:
    for wrong in WRONG:
        said = text.replace("{}", wrong)
        found = READING.unsupported("content", said)
        assert {each.text for each in found} == {wrong} and without_unsupported(said, found)[0] == kept
        assert dropped_of(said)[0] == kept


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_it_comes_the_same_however_the_text_is_cut(data: st.DataObject) -> None:
    sentences = data.draw(st.lists(st.sampled_from(RIGHT + WRONG), min_size=1, max_size=7))
    text = "".join(data.draw(st.sampled_from(BETWEEN)) + each for each in sentences)
    found = READING.unsupported("content", text)
    kept, moved = without_unsupported(text, found)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    for at in ((), tuple(places), tuple(range(1, len(text)))):
        given_back, support = dropped_of(text, at)
        assert given_back == kept
        assert support.dropped == list(moved)
        assert [kept[mark.start : mark.end] for mark in support.marks] == [f"[{mark.number}]" for mark in support.marks]
        assert len(support.marks) == kept.count("[")
    assert not READING.unsupported("content", kept)


def test_a_sentence_waits_for_the_end_of_its_paragraph_and_no_longer() -> None:
    support = SupportGate("content", READING)
    assert support.feed("She never carried cattle. Florian Achterberg ") == ""
    assert support.feed("sold pianos.\n\nSo ") == "She never carried cattle."
    assert support.feed("it is. ") == "" and support.finish() == "\n\nSo it is."
    [wrong] = support.dropped
    assert (wrong.text, wrong.start, wrong.end) == ("Florian Achterberg sold pianos.", 25, 25)
