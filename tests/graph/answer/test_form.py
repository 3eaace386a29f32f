"""The parser of an answer's form gives the same result however the text is split, delays text only briefly, loses no word and takes linear time."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graph.answer.prompt import ANSWER, REASON, FormSplitter, parse_answer, split_form
from graph.text.replies import END_OF_THINKING, THINK
from tests.growth import assert_linear

MARKERS = (REASON, ANSWER, THINK, END_OF_THINKING)
PIECES = st.one_of(
    st.sampled_from([*MARKERS, "###", "#", "<", "<think", "</", "Answer:", "so [1]", " ", "\n\n", "\u3000", "x"]),
    st.text(max_size=4),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def sections(text: str) -> list[tuple[str, str]]:
    return [(part.kind, part.text) for part in split_form(text)]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=20))
@example(text=f" {THINK}a{END_OF_THINKING}\n{REASON} b {ANSWER} c \n", cuts=list(range(60)))
def test_every_split_into_pieces_gives_the_same_sections(text: str, cuts: list[int]) -> None:
    splitter = FormSplitter()
    places = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    parts = [part for start, end in pairwise(places) for part in splitter.feed(text[start:end])]
    joined: dict[int, tuple[str, str]] = {}
    for part in [*parts, *splitter.finish()]:
        joined[part.section] = (part.kind, joined.get(part.section, ("", ""))[1] + part.text)
    assert list(joined.values()) == sections(text)


@given(
    thought=st.sampled_from(["", f" {THINK}a{END_OF_THINKING}", END_OF_THINKING]),
    pieces=st.lists(
        st.one_of(st.sampled_from([REASON, ANSWER]), st.text("ab [1]\n#", max_size=6).map(lambda t: t + "."))
    ),
)
def test_no_word_is_lost_and_no_marker_is_left(thought: str, pieces: list[str]) -> None:
    texts = "".join(text for _, text in sections(thought + "".join(pieces)))
    words = "a" * (THINK in thought) + "".join(piece for piece in pieces if piece not in (REASON, ANSWER))
    assert "".join(texts.split()) == "".join(words.split())


@given(st.text().filter(lambda text: not any(prefix in text for prefix in ("###", "<t", "</t"))))
@example("  a heading # \n")
def test_text_without_markers_is_one_unchanged_section(text: str) -> None:
    assert sections(text) == ([("text", text)] if text else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{REASON} a {ANSWER} b", [("reason", "a"), ("answer", "b")]),
        (
            f"{THINK}\nwhy {REASON}\n{END_OF_THINKING}\n\n{REASON} a {ANSWER} b\n",
            [("thinking", f"why {REASON}"), ("reason", "a"), ("answer", "b")],
        ),
        (f"{END_OF_THINKING}\n\n{REASON} a {ANSWER} b", [("reason", "a"), ("answer", "b")]),
        (f"{THINK}\n\n{END_OF_THINKING}\n\nHello. ", [("thinking", ""), ("text", "Hello. ")]),
        (f"{THINK} so it", [("thinking", "so it")]),
        (f"{REASON} so it is ###Ans", [("reason", "so it is")]),
        (f"{REASON} in C#", [("reason", "in C#")]),
        (f"Sure! {REASON} a {ANSWER} b", [("text", "Sure!"), ("reason", "a"), ("answer", "b")]),
        (
            f"{REASON} a {ANSWER} b {REASON} c {ANSWER} d",
            [("reason", "a"), ("answer", "b"), ("rest", "c"), ("rest", "d")],
        ),
        (f"{ANSWER} b\nc", [("answer", "b\nc")]),
        ("###Rea", []),
        (f"a {THINK} b", [("text", f"a {THINK} b")]),
    ],
)
def test_text_is_split_into_sections_at_its_markers(text: str, expected: list[tuple[str, str]]) -> None:
    assert sections(text) == expected


def test_text_that_cannot_become_a_marker_is_passed_on_without_delay() -> None:
    splitter = FormSplitter()
    output = ["".join(part.text for part in splitter.feed(piece)) for piece in ("T", "h", "e ", "## ", "###", " x#")]
    assert output == ["T", "h", "e", " ##", "", " ### x"]


@pytest.mark.long
@pytest.mark.parametrize("unit", [REASON, ANSWER, END_OF_THINKING, THINK, " ", "#", "###Answer", "\n#", "a "])
def test_text_is_split_into_sections_in_linear_time(unit: str) -> None:
    """Linear in the number of characters, whether they are fed as one piece or one by one."""

    def split(pieces: Iterable[str]) -> None:
        splitter = FormSplitter()
        for piece in pieces:
            splitter.feed(piece)
        splitter.finish()

    def prepare(size: int) -> Callable[[], object]:
        text = REASON * (unit != END_OF_THINKING) + unit * (size // len(unit))
        return lambda: (split([text]), split(text[: size // 8]))

    assert_linear(prepare, 25_000)


@given(TEXTS)
def test_a_parsed_answer_has_no_markers_and_is_well_formed_only_with_both_sections(text: str) -> None:
    parsed, kinds = parse_answer(text), [kind for kind, _ in sections(text) if kind != "thinking"]
    assert REASON not in parsed.reason + parsed.answer and ANSWER not in parsed.reason + parsed.answer
    assert not parsed.well_formed or kinds == ["reason", "answer"]
