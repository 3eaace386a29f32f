"""How well length and words alone distinguish chosen from rejected responses, on pairs constructed so that the result is known."""

from dataclasses import replace
from random import Random

import pytest

from data_synth.preferences.preference_form import (
    length_accuracy,
    measure_separation,
    overlap_accuracy,
    separating_measures,
)
from data_synth.rows import PreferenceRow
from graph.types import Message
from tests.data_synth.dataset.test_data import good


def pair(number: int, chosen: str, rejected: str) -> PreferenceRow:
    return replace(good(number), chosen=chosen, rejected=rejected)


def words(count: int, draw: Random) -> str:
    return " ".join(draw.choice("abcdefghijklmnopqrst") for _ in range(count))


def text(count: int, draw: Random) -> str:
    """Chinese characters without spaces."""
    return "".join(draw.choice("天地玄黄宇宙洪荒日月盈昃辰宿列张") for _ in range(count))


def figures(rows: list[PreferenceRow]) -> tuple[float, ...]:
    return tuple(measure_separation(rows).values())


def test_pairs_whose_lengths_differ_are_separated_by_length() -> None:
    draw = Random(0)
    rows = [pair(n, words(30 + n % 7, draw), words(2, draw)) for n in range(200)]
    length, tree, *_ = figures(rows)
    assert length == tree == 1.0


def test_with_equal_lengths_and_the_same_words_accuracy_is_chance() -> None:
    draw = Random(1)
    rows = [pair(n, words(20, draw), words(20, draw)) for n in range(400)]
    length, tree, bag, _ = figures(rows)
    assert length == 0.5 and abs(tree - 0.5) < 0.08 and abs(bag - 0.5) < 0.08


def test_a_word_used_on_one_side_only_is_found_and_mixed_lengths_score_half() -> None:
    draw = Random(2)
    rows = [pair(n, words(20, draw) + " yes", words(20, draw) + " no") for n in range(200)]
    assert figures(rows)[2] > 0.95
    bare = [pair(n, words(30, draw), "a") for n in range(100)]
    longer = [pair(100 + n, words(30, draw), words(31, draw)) for n in range(100)]
    assert length_accuracy(bare + longer) == 0.5
    assert figures(bare + longer)[1] > 0.95, "a rule based on both lengths still distinguishes the sides"


def test_lengths_and_words_of_scripts_without_spaces_are_measured() -> None:
    draw = Random(5)
    rows = [pair(n, text(30 + n % 7, draw), text(6, draw)) for n in range(100)]
    assert figures(rows)[:2] == (1.0, 1.0)
    rows = [pair(n, text(20, draw) + "是", text(20, draw) + "否") for n in range(200)]
    length, _, bag, _ = figures(rows)
    assert length == 0.5 and bag > 0.95


def test_words_of_the_prompt_distinguish_the_sides_and_a_warning_says_so() -> None:
    draw = Random(3)
    rows = [
        replace(pair(n, words(20, draw), words(20, draw)), prompt=(Message("user", "a b c d e f g h i j"),))
        for n in range(100)
    ]
    assert overlap_accuracy(rows) < 0.65 and separating_measures(measure_separation(rows)) == []
    lazy = [replace(row, chosen="a b c d e f " * 3, rejected="q r s t k l " * 3) for row in rows]
    assert overlap_accuracy(lazy) == 1.0
    (warning,) = [one for one in separating_measures(measure_separation(lazy)) if "prompt" in one]
    assert warning == "accuracy of the share of words that also occur in the prompt 1.00"


def test_ties_count_half_and_the_rule_may_prefer_the_shorter_side() -> None:
    rows = [pair(0, "a b", "a b"), pair(1, "a", "a b"), pair(2, "a", "a b"), pair(3, "a b c", "a")]
    assert length_accuracy(rows) == pytest.approx(1 - 1.5 / 4)


def test_a_fold_in_which_the_same_side_comes_first_in_every_row_counts_as_chance() -> None:
    """Without the fold of the frequent question, four rows are left to learn from; which side comes first follows from the ids."""
    ids = [n for n in range(100, 200) if Random(f"q{n}#1").random() < 0.5][:4]
    rows = [replace(pair(n, f"yes {n}", f"no {n}"), question_id="frequent") for n in range(40)]
    rows += [pair(n, f"yes {n}", f"no {n}") for n in ids]
    assert figures(rows)[2] == pytest.approx((4 * 1.0 + 0.5) / 5)


def test_too_few_rows_give_no_figures() -> None:
    assert measure_separation([pair(n, "a b", "a") for n in range(19)]) == {}
    assert measure_separation([pair(0, "a b", "a")] * 30) == {}
