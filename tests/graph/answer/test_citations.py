"""However citations are written, and however the text is split into pieces, the output cites only existing passages."""

import html
import re
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_synth.responses.rewards import citation_reward
from data_synth.texts import plain
from graph.answer.citations import CLOSERS, MAX_PENDING_CHARS, OPENERS, CitationGate, check_citations
from serve.engines.openai_backend import escape_known_tokens
from tests.growth import assert_linear

PASSAGES = 3
CITATIONS = [
    *(
        "[1]",
        "[2]",
        "[9]",
        "[1, 9]",
        "【4】",
        "［1］",
        "〔9〕",
        "【9†source】",
        "【2:0†L1】",
        "[1-9]",
        "[p. 9]",
        "[^9]",
        "[^2]",
    ),
    *(
        "\\[99\\]",
        "[\u200b99]",
        "[&#57;]",
        "&#91;9&#93;",
        "[**9**]",
        "[<b>9</b>]",
        "[x]",
        "[1][x]",
        "[x]: http://x",
        "[9][x]",
        "[3+2]",
        "[1/2/2023]",
        "\\[ 9 \\]",
    ),
]
FRAGMENTS = [
    "[",
    "]",
    " ",
    "\n",
    "1",
    "7",
    ",",
    "a",
    "word.",
    "(",
    ":",
    "-",
    "９",
    "٩",
    "!",
    "\\",
    "&",
    "†",
    "p.",
    "^",
    "\u200b",
]
PIECES = st.lists(st.sampled_from([*CITATIONS, *FRAGMENTS]), max_size=30)
CODE = st.lists(
    st.sampled_from(["`", "``", "```", "\n", "~~~", " ", "[9]", "[1]", "a", "=", "a[0]=", "[2019]", " AC ", "5"]),
    max_size=30,
)
PLAIN = st.lists(st.sampled_from(["[1]", "[3]", "[9]", " ", "a", "word.", "[12]", "\n"]), max_size=30)
CITATION_BODY = re.compile(r"\s*\^?(?:p\.\s*)?\d+(?:\s*(?:,|-|\s)\s*\d+)*\s*(?:†.*)?", re.DOTALL)
ANY_CITATION = re.compile(r"[\[［【]\s*\d+(?:[\s,;、，]+\d+)*\s*[\]］】]")


def gate_after(pieces: list[str]) -> CitationGate:
    gate = CitationGate(PASSAGES)
    output = "".join(gate.feed(piece) for piece in pieces) + gate.finish()
    assert output == gate.shown
    return gate


def render_brackets(text: str) -> str:
    """The text as a Markdown client renders it, with every bracket as [ or ] and without display mathematics. It shares only the lists of brackets with
    the tested code."""
    rendered = re.sub(r"\\\[\s[^\[\]]*\s\\\]", "", text)
    rendered = re.sub(r"<[^<>\n]*>", "", html.unescape(rendered))
    rendered = "".join(
        each for each in unicodedata.normalize("NFKC", rendered) if unicodedata.category(each) not in ("Cf", "Mn")
    )
    rendered = re.sub(r"\\(?=[\[\]])", "", rendered).replace("**", "")
    return "".join("[" if each in OPENERS else "]" if each in CLOSERS else each for each in rendered)


@settings(max_examples=200)
@given(PIECES)
def test_the_split_into_pieces_does_not_matter_and_every_citation_shown_has_a_passage(pieces: list[str]) -> None:
    whole = gate_after(["".join(pieces)])
    cut = gate_after(pieces)
    letters = gate_after(list("".join(pieces)))
    assert whole.shown == cut.shown == letters.shown
    assert (whole.cited, whole.removed) == (cut.cited, cut.removed) == (letters.cited, letters.removed)
    assert whole.marks == cut.marks == letters.marks
    assert all(whole.shown[mark.start : mark.end] == f"[{mark.number}]" for mark in whole.marks)
    assert {mark.number for mark in whole.marks} == set(whole.cited)
    rendered = render_brackets(whole.shown)
    for body in re.findall(r"\[((?:[^\[\]\n]|\n(?!\s*\n))*)\]", rendered):
        if CITATION_BODY.fullmatch(body):
            assert body in ("1", "2", "3"), whole.shown
    visible = "".join(each for each in whole.shown if unicodedata.category(each) != "Cf")
    assert not re.search(r"\[\d+\](?:[(:]|\[(?!\d))", visible)
    assert set(whole.cited) <= {1, 2, 3} and not set(whole.removed) & {1, 2, 3}


@given(CODE)
def test_the_split_into_pieces_does_not_matter_in_code(pieces: list[str]) -> None:
    whole, letters = gate_after(["".join(pieces)]), gate_after(list("".join(pieces)))
    assert (whole.shown, whole.cited, whole.removed) == (letters.shown, letters.cited, letters.removed)


@given(PIECES)
def test_a_second_check_finds_the_same_citations_and_removes_none(pieces: list[str]) -> None:
    once = check_citations("".join(pieces), PASSAGES)
    again = check_citations(once.text, PASSAGES)
    assert (again.cited, again.removed) == (once.cited, ())


@given(PLAIN)
def test_plain_citations_match_a_slow_reference(pieces: list[str]) -> None:
    text = "".join(pieces)
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", text)]
    gate = gate_after(pieces)
    assert gate.shown == re.sub(r"[^\S\n]?\[(\d+)\]", lambda match: match[0] if int(match[1]) <= PASSAGES else "", text)
    assert gate.cited == tuple(dict.fromkeys(n for n in numbers if n <= PASSAGES))
    assert gate.removed == tuple(dict.fromkeys(n for n in numbers if n > PASSAGES))


@given(st.characters(categories=["Nd"]), st.integers(0, len(OPENERS) - 1), st.integers(0, len(CLOSERS) - 1))
def test_citations_are_recognised_with_every_unicode_bracket_and_digit(digit: str, opener: int, closer: int) -> None:
    value = unicodedata.decimal(digit)
    checked = check_citations(f"so {OPENERS[opener]}{digit}{CLOSERS[closer]}.", PASSAGES)
    exists = 1 <= value <= PASSAGES
    assert checked.text == (f"so [{value}]." if exists else "so.")
    assert (checked.cited, checked.removed) == (((value,), ()) if exists else ((), (value,)))


def test_the_lists_of_brackets_are_complete() -> None:
    kinds = ("SQUARE BRACKET", "TORTOISE SHELL", "LENTICULAR", "HALF BRACKET")
    every = [each for each in map(chr, range(0x10000)) if any(kind in unicodedata.name(each, "") for kind in kinds)]
    assert {each for each in every if unicodedata.category(each) == "Ps"} == set(OPENERS)
    assert {each for each in every if unicodedata.category(each) == "Pe"} == set(CLOSERS)


@pytest.mark.parametrize(
    ("text", "shown", "removed"),
    [
        ("so [1, 9].", "so [1].", (9,)),
        ("so [1;2] and [1 and 3].", "so [1][2] and [1][3].", ()),
        ("so ［7］ and 【2】.", "so and [2].", (7,)),
        ("so 〔9〕【9†source】【9:0†source】.", "so.", (9,)),
        ("so [1-9].", "so [1][2][3].", (4, 5, 6, 7, 8, 9)),
        ("so [2–9999999].", "so [2].", (9999999,)),
        ("so [p. 9] [Passage 2] [source: 8].", "so [2].", (9, 8)),
        ("so \\[99\\] [^9] [\u200b99] [9\n].", "so.", (99, 9)),
        ("so [&#57;] &#91;9&#93; &lbrack;9] [**9**] [<b>9</b>] [⁹] [⑨].", "so.", (9,)),
        ("so [12345].", "so.", (12345,)),
        ("see [1](http://x/?q=secret)", "see [1] (http://x/?q=secret)", ()),
        ("[2]: http://x", "[2] : http://x", ()),
        ("[1]\u200b(http://x)", "[1]\u200b (http://x)", ()),
        ("[1][9](http://x)", "[1] (http://x)", (9,)),
        ("[1][x]\n\n[x]: http://x", "[1] [x]\n\n[x]: http://x", ()),
        ("[[1]](http://x) ![1](http://x)", "[[1]] (http://x) ![1] (http://x)", ()),
        ("[a [b [1] c] d](http://x) [e](http://y)", "[a [b [1] c] d] (http://x) [e](http://y)", ()),
        ("[[9]7] [[7]7]", "[…7] […7]", (9, 7)),
        ("[ 0012345 ]", "", (12345,)),
        ("[00002]", "[2]", ()),
        ("so [99999999999] [~~9~~].", "so.", (999999999, 9)),
        ("[" + "9" * 5000 + "]", "[…" + "9" * 5000 + "]", ()),
        ("[a\n\nso [9] b", "[a\n\nso b", (9,)),
        ("[a [1]\n\nb](http://x)", "[a [1]\n\nb](http://x)", ()),
        ("a line\n[9] another", "a line\n another", (9,)),
        ("open [1", "open [1", ()),
        ("`[9]` ``[99]``", "`[9]` ``[99]``", ()),
        ("`[9]\n``` [99] ```", "`…\n``` [99] ```", (9,)),
        ("\\`[99]`", "\\`…`", (99,)),
        ("```\n[99]\n```\n[9]", "```\n[99]\n```\n", (9,)),
        ("````\n```\n[99]\n````\n[9]", "````\n```\n[99]\n````\n", (9,)),
        ("harbour[9]", "harbour", (9,)),
        ("in 1911 [1]and sank [9]so", "in 1911 [1]and sankso", (9,)),
        ("a[９]=1", "a=1", (9,)),
        ("x=a[9](http://x)", "x=a(http://x)", (9,)),
        ("the range [1, 9](http://x)", "the range [1] (http://x)", (9,)),
        ("a wide range [1, 9], in [7, 8]", "a wide range [1], in", (9, 7, 8)),
    ],
)
def test_other_ways_to_write_a_citation_are_recognised(text: str, shown: str, removed: tuple[int, ...]) -> None:
    gate = gate_after([text])
    assert (gate.shown, gate.removed) == (shown, removed)


@pytest.mark.parametrize(
    "text",
    [
        "[2019] UKSC 5",
        "R v Brown [1994] 1 AC 212, [1993] 2 All ER 75 and [2016] EWCA Civ 99",
        "a[0]=b[99]",
        "x = grid[40][41]",
        "counts[99] = 0",
        "Write `a[99]` or ``[9]``.",
        "```python\nrow = [9]\n```",
        "~~~\n[9]\n~~~~",
        "    [note] a[i] [x1] [ ] [x] [a-z]",
        "[2019-05-03] [3.14] [10:30] [-1]",
        "[the page](http://x) [x]: y",
        "[Chapter 9]",
        "It must be in the range [10, 20] °C, or an interval of [2-9].",
        "It lies in [1, 5], between [2–4]; x ∈ [1;9].",
        "[0, 1] [0-10], published [2019-05], score [3/5], on [01/02/2023] and [2023/2/1].",
        "a [3+2] cycloaddition",
        "The result is \\[ 42 \\] metres, or \\[\n4, 2\n\\].",
    ],
)
def test_text_that_is_no_citation_is_unchanged(text: str) -> None:
    for pieces in ([text], list(text)):
        gate = gate_after(pieces)
        assert (gate.shown, gate.cited, gate.removed) == (text, (), ())


@pytest.mark.parametrize("beginning", ["`", "``", "[1, ", "[passage ", "[x"])
def test_the_split_into_pieces_does_not_matter_at_the_pending_limit(beginning: str) -> None:
    for length in range(MAX_PENDING_CHARS - 6, MAX_PENDING_CHARS + 6):
        for end in ("`", "``", "]", "` [9]", "]]"):
            text = beginning + "9" * length + end + " and [9]."
            whole, letters = gate_after([text]), gate_after(list(text))
            assert (whole.shown, whole.removed) == (letters.shown, letters.removed)


@pytest.mark.parametrize("length", range(MAX_PENDING_CHARS - 10, MAX_PENDING_CHARS + 2))
def test_code_at_the_pending_limit_ends_only_with_the_same_number_of_backticks(length: int) -> None:
    assert check_citations(f"`[99]{'a' * length}``", PASSAGES).removed == (99,)


def test_text_is_held_back_only_while_it_may_be_a_citation() -> None:
    gate = CitationGate(PASSAGES)
    assert [gate.feed(piece) for piece in ("a ", "[", "9", "] b", " c", "[x", " [s", "a")] == [
        "a",
        "",
        "",
        " b",
        " c",
        "[x",
        "",
        " [sa",
    ]


def test_a_citation_is_shown_as_soon_as_its_bracket_closes() -> None:
    gate = CitationGate(PASSAGES)
    assert [gate.feed(piece) for piece in ("It is [1", "]", "(", "x")] == ["It is", " [1]", " (", "x"]


def test_the_end_of_a_line_is_shown_without_delay() -> None:
    """Otherwise an answer that starts with a line break would appear one token late."""
    gate = CitationGate(PASSAGES)
    assert [gate.feed(piece) for piece in ("\n", "a\n", "\n[9]", "\nb")] == ["\n", "a\n", "\n", "\nb"]


@pytest.mark.long
@pytest.mark.parametrize(
    "piece",
    [
        "[1]",
        "[",
        "[1",
        "]",
        "`",
        "` ",
        "```\n",
        "a[0]=",
        "[2019] ",
        "\\",
        "&#",
        "[" + "9" * 150,
        "[a](x)",
        "[9",
        " ",
        "~",
    ],
)
def test_citations_are_checked_in_linear_time(piece: str) -> None:
    """The text is checked in one piece and in pieces of one character."""

    def prepare(length: int) -> Callable[[], object]:
        text = piece * (length // len(piece)) + "x"
        return lambda: (check_citations(text, PASSAGES), gate_after(list(text[: length // 8])))

    assert_linear(prepare, 2_000)


@pytest.mark.long
def test_special_tokens_are_escaped_in_linear_time() -> None:
    def prepare(length: int) -> Callable[[], object]:
        texts = [piece * (length // len(piece)) for piece in ("<", "<|", "[INST]", "<<s>s>")]
        return lambda: [escape_known_tokens(text) for text in texts]

    assert_linear(prepare, 50_000)


def test_writing_citations_differently_does_not_raise_their_reward() -> None:
    assert (
        citation_reward("So [1, 9].", 2)
        == citation_reward("So [1]［9］.", 2)
        == citation_reward("So [1] [p. 9].", 2)
        == 0.5
    )
    assert citation_reward("So 【12345†source】.", 2) == 0.0


@given(st.lists(st.sampled_from(["[", "]", "#", "###", "9", " ", "Reason", ":", "a"]), max_size=20))
def test_plain_removes_all_citations_and_markers(pieces: list[str]) -> None:
    checked = plain("".join(pieces))
    assert "###" not in checked and not ANY_CITATION.search(checked)
