"""Dropping unsupported sentences: the rest is unchanged, however the text is split into pieces."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.answer.citations import CitationGate
from graph.answer.support import SupportChecker, SupportGate, lacks_sentences, without_unsupported
from graph.answer.verifier import word_verifier
from tests.graph.answer.test_verifier import EXCERPTS

SUPPORTED = (
    "She never carried cattle [1].",
    "The tram runs every twenty minutes in summer [2].",
    "So it is.",
    "“Ada [2]”",
)
UNSUPPORTED = (
    "Casimir Thole was elected to the council of Tarn in 1742 [2].",
    "Pirates of Zanzibar sank the schooner Ondine in the winter of 1822.",
    "Florian Achterberg sold pianos.",
)
WRAPPED = (
    "Captain Ysolde Renn commanded her until 1924, and the pirates of Zanzibar\n"
    "  sank the schooner Ondine in the winter of 1822 with Vellacom."
)
"""A sentence that is supported as far as the end of its line."""
SEPARATORS = (
    " ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\n- ",
    "\n\n1. ",
    "\n  ",
    "\n# Ferries and trams of Corrow\n",
    "\n  \n",
    "\n| a | b |\n|---|---|\n| ",
)
CHECKER = SupportChecker(EXCERPTS, word_verifier(""))


def run_gates(text: str, at: tuple[int, ...] = ()) -> tuple[str, SupportGate]:
    """Split a text at these offsets and feed it to a citation gate and then to a support gate; return the output and the support gate."""
    citations, support, passed = CitationGate(len(EXCERPTS)), SupportGate("content", CHECKER), 0
    output = ""
    pieces = [text[first:last] for first, last in pairwise((0, *sorted(at), len(text)))]
    for shown in (*map(citations.feed, pieces), citations.finish()):
        output += support.feed(shown, citations.marks[passed:])
        passed = len(citations.marks)
    return output + support.finish(), support


@pytest.mark.parametrize(
    ("text", "expected"),
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
        ("- It is so. {}\n  A fine ferry.\n- {}", "- It is so.\n  A fine ferry."),
    ],
)
def test_the_whitespace_around_a_dropped_sentence_is_dropped_too(text: str, expected: str) -> None:
    for wrong in UNSUPPORTED:
        answer = text.replace("{}", wrong)
        unsupported = CHECKER.unsupported("content", answer)
        assert {each.text for each in unsupported} == {wrong} and without_unsupported(answer, unsupported)[
            0
        ] == expected
        assert run_gates(answer)[0] == expected


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_output_is_the_same_however_the_text_is_split(data: st.DataObject) -> None:
    sentences = data.draw(st.lists(st.sampled_from((*SUPPORTED, *UNSUPPORTED, WRAPPED)), min_size=1, max_size=7))
    text = "".join(data.draw(st.sampled_from(SEPARATORS)) + each for each in sentences)
    output, moved = without_unsupported(text, CHECKER.unsupported("content", text))
    offsets = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    for at in ((), tuple(offsets), tuple(range(1, len(text)))):
        streamed, support = run_gates(text, at)
        assert streamed == output
        assert support.dropped == list(moved)
        assert [output[mark.start : mark.end] for mark in support.marks] == [
            f"[{mark.number}]" for mark in support.marks
        ]
        assert len(support.marks) == output.count("[")
    assert not CHECKER.unsupported("content", output)


@pytest.mark.parametrize("number", range(len(UNSUPPORTED)))
@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("**{}** [1]", ""),
        ("- **{}**\n- _{}_ ([1])", ""),
        ("```\n{}\n```", ""),
        ("{}\n\n---", "---"),
        ("# Trams\n\n{}", "# Trams"),
        ("| Stop | Fare |\n|---|---|\n| {} | 5 |", "| Stop | Fare |\n|---|---|"),
    ],
)
def test_what_is_left_when_every_sentence_is_dropped_lacks_sentences(text: str, rest: str, number: int) -> None:
    output, dropped = without_unsupported(
        text := text.replace("{}", UNSUPPORTED[number]), CHECKER.unsupported("", text)
    )
    assert (output, lacks_sentences(output), lacks_sentences(text)) == (rest, True, False) and dropped
    assert run_gates(text, tuple(range(1, len(text))))[0] == rest


def test_a_wrapped_list_item_is_judged_as_a_whole_however_the_text_is_split() -> None:
    text = f"- {WRAPPED}\n- So it is."
    expected = without_unsupported(text, CHECKER.unsupported("content", text))[0]
    assert expected == "- So it is."
    assert {run_gates(text, tuple(range(size, len(text), size)))[0] for size in (1, 2, 7, 80, 200)} == {expected}


def test_a_sentence_waits_for_the_end_of_its_paragraph_and_no_longer() -> None:
    support = SupportGate("content", CHECKER)
    assert support.feed("She never carried cattle. Florian Achterberg ") == ""
    assert support.feed("sold pianos.\n\nSo ") == "She never carried cattle."
    assert support.feed("it is. ") == "" and support.finish() == "\n\nSo it is."
    [wrong] = support.dropped
    assert (wrong.text, wrong.start, wrong.end) == ("Florian Achterberg sold pianos.", 25, 25)
