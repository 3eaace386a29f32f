"""The gate: however a text is cut into pieces, what it shows is the same, and no number without a passage is in brackets."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.answer import check_citations
from serve.http.citations import CitationGate

PASSAGES = 3
TOKENS = st.sampled_from(
    [
        "[",
        "]",
        "[1]",
        "[2]",
        "[9]",
        " ",
        "\n",
        "1",
        "7",
        ",",
        "a",
        "word.",
        "［",
        "］",
        "【4】",
        "(",
        ":",
        "[1, 9]",
        "９",
        "!",
    ]
)
PLAIN = st.sampled_from(["[1]", "[3]", "[9]", " ", "a", "word.", "[12]", "\n"])
ANY_CITATION = re.compile(r"[\[［【]\s*\d+(?:[\s,;、，]+\d+)*\s*[\]］】]")


def through(pieces: list[str]) -> CitationGate:
    gate = CitationGate(PASSAGES)
    said = "".join(gate.feed(piece) for piece in pieces) + gate.finish()
    assert said == gate.shown
    return gate


@given(st.lists(TOKENS, max_size=30))
def test_pieces_do_not_matter_and_every_citation_shown_has_a_passage(pieces: list[str]) -> None:
    whole = through(["".join(pieces)])
    cut = through(pieces)
    letters = through(list("".join(pieces)))
    assert whole.shown == cut.shown == letters.shown
    assert (whole.cited, whole.removed) == (cut.cited, cut.removed) == (letters.cited, letters.removed)
    for found in ANY_CITATION.findall(whole.shown):
        assert re.fullmatch(r"\[[123]\]", found), whole.shown
    assert not re.search(r"\[\d+\][(:]", whole.shown)


@given(st.lists(PLAIN, max_size=30))
def test_plain_citations_are_checked_as_everywhere(pieces: list[str]) -> None:
    text = "".join(pieces)
    expected = check_citations(text, PASSAGES)
    gate = through(pieces)
    assert (gate.shown, gate.cited, gate.removed) == (expected.text, expected.cited, expected.removed)


@pytest.mark.parametrize(
    ("text", "shown", "removed"),
    [
        ("so [1, 9].", "so [1].", (9,)),
        ("so ［7］ and 【2】.", "so and [2].", (7,)),
        ("see [1](http://x/?q=secret)", "see [1] (http://x/?q=secret)", ()),
        ("[2]: http://x", "[2] : http://x", ()),
        ("[1][9](http://x)", "[1] (http://x)", (9,)),
        ("[[9]7]", "[…7]", (9,)),
        ("[ 0012345 ]", "", (9999,)),
        ("[00002]", "[2]", ()),
        ("[" + "9" * 5000 + "]", "", (9999,)),
        ("a line\n[9] another", "a line\n another", (9,)),
        ("[note] a[i] [x1]", "[note] a[i] [x1]", ()),
        ("open [1", "open [1", ()),
    ],
)
def test_other_ways_to_write_a_citation(text: str, shown: str, removed: tuple[int, ...]) -> None:
    gate = through([text])
    assert (gate.shown, gate.removed) == (shown, removed)


def test_text_is_held_back_no_longer_than_it_is_undecided() -> None:
    gate = CitationGate(PASSAGES)
    assert [gate.feed(piece) for piece in ("a ", "[", "9", "] b", " c", "[x")] == ["a", "", "", " b", " c", "[x"]


def test_the_end_of_a_line_is_shown_at_once() -> None:
    """An answer that opens with one would else be a token late."""
    gate = CitationGate(PASSAGES)
    assert [gate.feed(piece) for piece in ("\n", "a\n", "\n[9]", "\nb")] == ["\n", "a\n", "\n", "\nb"]
