"""Metrics compared with values computed by hand, slow references and, if installed, the reference libraries."""

import importlib.util
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.metrics.answers import accuracy, accuracy_per_class, majority_class, read_choice
from eval.metrics.grounding import all_gold_at, ndcg_at, recall_at, reciprocal_rank
from graph.answer.match import contains_answer, exact_match, normalise, token_f1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Brandt Yard.", "brandt yard"),
        ("an  apple a day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("", ""),
        ("The", ""),
    ],
)
def test_normalise_drops_case_punctuation_and_articles(text, expected):
    assert normalise(text) == expected


def test_exact_match_accepts_any_gold_answer():
    assert exact_match("the Lantern", ["Kittiwake", "Lantern!"]) == 1.0
    assert exact_match("Lanterns", ["Lantern"]) == 0.0
    assert exact_match("Lantern", []) == 0.0


@pytest.mark.parametrize(
    ("answer", "gold", "contained"),
    [
        ("他住在北京。", "北京", 1.0),
        ("他住在北京。", "南京", 0.0),
        ("彼は1958年に東京へ", "1958", 1.0),
        ("Он живёт в «Москве».", "Москве", 1.0),
        ("Он живёт в Подмосковье", "Москве", 0.0),
        ("हिन्दी में", "हिन", 0.0),
        ("It was “1911” – so", "1911", 1.0),
        ("I don’t know", "don't", 1.0),
        ("It is −5 °C", "5 °C", 0.0),
        ("¥500", "€500", 0.0),
        ("The sign is ♭.", "♭", 1.0),
    ],
)
def test_containment_works_in_other_scripts_and_with_their_punctuation(answer, gold, contained):
    assert contains_answer(answer, [gold]) == contained


def test_token_f1_matches_values_computed_by_hand():
    # "ferry lantern" against "lantern": precision 1/2 and recall 1, so F1 is 2·½·1 / (3/2) = 2/3.
    assert token_f1("the ferry Lantern", ["Lantern"]) == pytest.approx(2 / 3)
    # Every repetition counts: one word is shared and the lengths are 3 and 1, so F1 is 2·1 / (3 + 1).
    assert token_f1("no no no", ["no"]) == pytest.approx(0.5)
    assert token_f1("red", ["blue", "red boat"]) == pytest.approx(2 / 3)
    assert token_f1("", ["blue"]) == 0.0
    assert token_f1("the", ["a"]) == 1.0


@given(st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("abcd"), max_size=6))
def test_token_f1_is_symmetric_and_within_bounds(left, right):
    # Each word gets a prefix, because "a" is an article and would be dropped.
    one, two = " ".join(f"x{w}" for w in left), " ".join(f"x{w}" for w in right)
    assert token_f1(one, [two]) == pytest.approx(token_f1(two, [one]))
    assert 0.0 <= token_f1(one, [two]) <= 1.0
    assert (token_f1(one, [two]) == 1.0) == (sorted(left) == sorted(right))


def test_read_choice_uses_the_first_word_only():
    assert read_choice("Maybe: the notices disagree") == "maybe"
    assert read_choice("I think yes") == ""
    assert read_choice("") == ""


def test_the_majority_class_is_the_most_frequent_one():
    assert majority_class(["no", "yes", "yes", "maybe"]) == "yes"
    assert majority_class(["yes", "no"]) == "no"
    assert majority_class([]) == ""


def test_accuracy_is_also_computed_per_class():
    gold = ["yes", "yes", "no", "maybe"]
    predicted = ["yes", "no", "no", ""]
    assert accuracy(predicted, gold) == 0.5
    assert accuracy_per_class(predicted, gold) == {"maybe": 0.0, "no": 1.0, "yes": 0.5}
    assert accuracy_per_class(["yes"] * 4, gold) == {"maybe": 0.0, "no": 0.0, "yes": 1.0}
    assert math.isnan(accuracy([], []))
    with pytest.raises(ValueError):
        accuracy(["yes"], [])


RANKED, GOLD = ["b", "x", "a", "y", "c"], ["a", "c"]


def test_ranking_metrics_match_values_computed_by_hand():
    assert [recall_at(RANKED, GOLD, k) for k in (2, 3, 5)] == [0.0, 0.5, 1.0]
    assert [all_gold_at(RANKED, GOLD, k) for k in (3, 5)] == [0.0, 1.0]
    assert reciprocal_rank(RANKED, GOLD) == pytest.approx(1 / 3)
    assert reciprocal_rank(["x"], GOLD) == 0.0
    # Gains at ranks 3 and 5: 1/log2(4) + 1/log2(6); ideal at ranks 1 and 2: 1 + 1/log2(3).
    expected = (1 / 2 + 1 / math.log2(6)) / (1 + 1 / math.log2(3))
    assert ndcg_at(RANKED, GOLD, 10) == pytest.approx(expected)
    assert ndcg_at(["a", "c"], GOLD, 10) == pytest.approx(1.0)
    # If k is below the number of gold sources, the ideal ranking stops at k too.
    assert ndcg_at(["a"], GOLD, 1) == pytest.approx(1.0)


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")
@settings(deadline=None)
@given(st.permutations("abcdefgh"), st.sets(st.sampled_from("abcdefgh"), min_size=1), st.integers(1, 8))
def test_ndcg_equals_scikit_learn(ranked, gold, k):
    from sklearn.metrics import ndcg_score

    relevance = [[float(source in gold) for source in ranked]]
    scores = [[float(-rank) for rank in range(len(ranked))]]
    assert ndcg_at(ranked, sorted(gold), k) == pytest.approx(ndcg_score(relevance, scores, k=k))
