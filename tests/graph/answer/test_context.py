"""Contexts under a token budget (docs/developers/behaviours.md, 25): the best excerpts that fit; one that does not fit is skipped."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graph.answer.context import TokenBudget, build_context, of_passage, token_budget
from graph.answer.prompt import answer_messages, numbered_excerpt
from graph.errors import UserError
from graph.types import Evidence, Finding, Passage, Scored


def words(text: str) -> int:
    return len(text.split())


def evidence(lengths: list[int]) -> Evidence:
    """Passages with these numbers of words, best first."""
    texts = [" ".join(["word"] * length) for length in lengths]
    return Evidence("q", tuple(Scored(Passage(f"p{n}", "s", "", n, 0, 1, t), 1.0 - n) for n, t in enumerate(texts)))


def chosen_ids(lengths: list[int], limit: int, max_tokens: int) -> list[str]:
    return [excerpt.id for excerpt in build_context(evidence(lengths), limit, TokenBudget(max_tokens, words))]


def test_an_excerpt_that_does_not_fit_is_skipped() -> None:
    # In the prompt each excerpt is one word longer, because of its number.
    assert chosen_ids([4, 50, 3, 9, 1], 5, 11) == ["p0", "p2", "p4"]
    assert chosen_ids([4, 50, 3, 9, 1], 2, 11) == ["p0", "p2"]
    assert chosen_ids([4, 50, 3, 9, 1], 5, 100) == ["p0", "p1", "p2", "p3", "p4"]
    assert chosen_ids([], 5, 4) == []


def test_a_finding_that_does_not_fit_does_not_change_the_limit_for_other_excerpts() -> None:
    long = Finding("Who " * 50, "Ada", (), 1.0)
    short = Finding("Who?", "Ada", (), 0.5)
    found = replace(evidence([1, 1, 1]), findings=(long, short))
    chosen = build_context(found, 2, TokenBudget(30, words))
    assert [excerpt.title for excerpt in chosen] == ["Found on the way", "", ""]
    assert chosen[0].text == "Who? Ada"


def test_when_nothing_fits_the_error_states_the_length_needed() -> None:
    with pytest.raises(
        UserError, match=r"max_context_tokens = 4: none of the 2 excerpts fits\. Expected at least 5 tok"
    ):
        chosen_ids([7, 4], 5, 4)


def test_without_a_budget_all_excerpts_are_chosen() -> None:
    assert token_budget(None, words) is None
    assert len(build_context(evidence([500, 500]), 5)) == 2


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 8), st.integers(1, 40))
def test_excerpts_are_added_greedily_by_rank_and_their_prompt_fits_the_budget(
    lengths: list[int], limit: int, max_tokens: int
) -> None:
    expected, left = [], max_tokens
    for rank, length in enumerate(lengths):
        if len(expected) < limit and length + 1 <= left:
            expected.append(f"p{rank}")
            left -= length + 1
    assume(expected or not lengths)
    assert chosen_ids(lengths, limit, max_tokens) == expected
    excerpts = build_context(evidence(lengths), limit, TokenBudget(max_tokens, words))
    prompt = answer_messages("q", excerpts)[1].content
    assert words(prompt) - words("Passages: Question: q" if excerpts else "Question: q") == max_tokens - left


def test_an_excerpt_is_counted_as_its_line_in_the_prompt() -> None:
    counted: list[str] = []
    matches = evidence([2])
    build_context(matches, 1, TokenBudget(9, lambda text: counted.append(text) or 1))  # type: ignore[func-returns-value]
    assert counted == [numbered_excerpt(1, of_passage(matches.passages[0].item))] == ["[1] word word"]
