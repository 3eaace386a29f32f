"""Diversity drops texts that repeat the same words, and never texts that differ in a number, a negation, a name or a role
(docs/developers/behaviours.md, 21).
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.retrieve.parts import diversity
from graph.retrieve.parts.diversity import distinctive_words, diverse_rows

LONG = "the harbour board met in the long room above the rope store and talked about the price of salt for the winter "


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Amazon did acquire the firm.", "Amazon did not acquire the firm."),
        ("He can sail to the island.", "He can't sail to the island."),
        ("Vitamin C helps the crew.", "Vitamin D helps the crew."),
        ("Exports fell by −3.5 % in May.", "Exports fell by −3.7 % in May."),
        ("Exports changed by 3.5 % in May.", "Exports changed by −3.5 % in May."),
        ("Ada bought the yard from Ben.", "Ben bought the yard from Ada."),
        ("The yard costs $5 in all.", "The yard costs €5 in all."),
        ("It is –5 °C in Tarn.", "It is 5 °C in Tarn."),
        ("The dose is .5 mg a day.", "The dose is 5 mg a day."),
        ("The rows are 5 / 3.", "The rows are 5 3."),
        ("The bell rings at 10:30.", "The bell rings at 10:35."),
        ("Port Ellery is old.", "Port Ellory is old."),
        ("The valve opens at ≥ 5 bar.", "The valve opens at ≤ 5 bar."),
        ("The valve opens if x = 5.", "The valve opens if x != 5."),
        ("The log is written in C.", "The log is written in C++."),
        ("यह कमल का घर है।", "यह कमला का घर है।"),
        ("เขาขายเสือ", "เขาขายเสื้อ"),
    ],
)
def test_similar_names_numbers_negations_and_roles_stay_distinct(one: str, other: str) -> None:
    for prefix in ("", LONG * 8):
        assert diverse_rows([prefix + one, prefix + other]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("one", "other", "rows"),
    [
        ("The Lantern was built in 1911.", "The Lantern was built in 1911.", [0, 2]),
        ("The Lantern was built in 1911.", "The Lantern was built in 1911!", [0, 2]),
        ("It sailed in 1914–1918.", "It sailed in 1914 – 1918.", [0, 2]),
        ("It fell by 5%–7%.", "It fell by 5% – 7%.", [0, 2]),
        ("The ferry sails at noon", "the  ferry sails at noon.", [0, 1, 2]),  # A capitalised word may be a name.
    ],
)
def test_only_the_first_of_texts_with_the_same_words_stays(one: str, other: str, rows: list[int]) -> None:
    assert diverse_rows([one, other, "Tarn is a village."]).tolist() == rows


def test_names_numbers_and_negations_are_distinctive_words() -> None:
    assert distinctive_words("The Lantern didn't reach Tarn at 10:30, nor by 4 May.") == (
        ("The", "Lantern", "didn't", "Tarn", "10:30", "nor", "4", "May")
    )


def test_a_single_text_stays_and_of_equal_texts_without_words_only_the_first() -> None:
    assert diverse_rows([]).tolist() == [] and diverse_rows(["a"]).tolist() == [0]
    assert diverse_rows(["…", "…", "?"]).tolist() == [0, 2]


def test_only_texts_with_the_same_distinctive_words_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No dense matrix has more rows than there are texts that share their distinctive words, or than BLOCK_ROWS."""
    sizes: list[int] = []
    to_array = sp.csr_matrix.toarray

    def recorded(block: sp.csr_matrix) -> np.ndarray:
        sizes.append(block.shape[0])
        return to_array(block)

    monkeypatch.setattr(sp.csr_matrix, "toarray", recorded)
    texts = [f"The Lantern carries crate {number}." for number in range(40)]
    assert diverse_rows([*texts, *(text + "!" for text in texts[:2])]).tolist() == list(range(40))
    assert sizes == [2, 2]
    monkeypatch.setattr(diversity, "BLOCK_ROWS", 2)
    lower = ["the ferry sails", "the bell rings", "the ferry sails.", "kelp is dried", "the bell rings!"]
    assert diverse_rows(lower).tolist() == [0, 1, 3] and sizes[2:] == [2, 2, 1]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["A sails.", "B sails.", "A rests.", "A sails not."]), max_size=8))
def test_exactly_the_first_copy_of_each_text_stays(texts: list[str]) -> None:
    assert diverse_rows(texts).tolist() == [texts.index(text) for text in dict.fromkeys(texts)]
