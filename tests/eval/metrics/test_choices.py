"""How answers to multiple-choice questions are read: MIRAGE's patterns one by one, our additional patterns, and replies that name no option."""

import re
from dataclasses import replace

import pytest

from eval.metrics.answers import find_letter, gold_letters, mirage_letter, read_option
from eval.metrics.registry import METRICS, Output, score_output
from graph.documents.questions import Question
from graph.errors import UserError

OPTIONS = {"A": "Glycogen synthesis", "B": "Glycogen breakdown", "C": "Gluconeogenesis", "D": "Ketogenesis"}
TEXTS = [
    "A",
    " B",
    "C or D, I think",
    "D and A",
    "B/C",
    "C, because",
    "It must be option D.",
    "The answer is: B",
    "C. Gluconeogenesis",
    'D" }',
    "B: so",
    "Neither",
    "",
    "(C) Gluconeogenesis",
    "A long story",
    "Because A is so",
    "Answer:D",
    "b",
    "The answer is: Doxycycline",
    "The answer is: C-reactive protein",
    "B)",
    "(b)",
    "**B.**",
    "The answer is B.",
    "I choose: (C)",
]


def mirage_reference(text):
    """`locate_answer` of MIRAGE's src/utils.py, reimplemented."""
    for before, after in (
        ("^\\s*", "$"),
        ("^\\s*", " or"),
        ("^\\s*", " and"),
        ("^\\s*", "/"),
        ("^\\s*", ","),
        ("[Oo]ption ", ""),
        (":\\s*", ""),
        ("^\\s*", "\\."),
        ("^\\s*", '"'),
        ("^\\s*", ":"),
    ):
        found = re.findall(before + "(A|B|C|D)" + after, text)
        if found:
            return found[0].upper()
    return "A"


@pytest.mark.parametrize("text", TEXTS)
def test_mirage_letter_matches_a_reimplementation_of_the_published_code(text):
    assert mirage_letter(text) == mirage_reference(text)


def test_the_letter_of_an_answer_is_found():
    found = [find_letter(text, "ABCD") for text in TEXTS]
    assert found == [
        "A",
        "B",
        "C",
        "D",
        "B",
        "C",
        "D",
        "B",
        "C",
        "D",
        "B",
        "",
        "",
        "C",
        "",
        "",
        "D",
        "B",
        "",
        "",
        "B",
        "B",
        "B",
        "B",
        "C",
    ]
    assert find_letter("E", "ABCDE") == "E" and find_letter("E", "ABCD") == ""


def test_an_option_is_named_by_its_text_or_its_letter():
    assert read_option("ketogenesis.", OPTIONS) == "D"
    assert read_option("C. gluconeogenesis", OPTIONS) == "C"
    assert read_option("(B) whatever", OPTIONS) == "B"
    assert read_option("none of these", OPTIONS) == "" and read_option("", OPTIONS) == ""


@pytest.mark.parametrize(
    "answer", ["The answer is: Doxycycline", "The answer is Doxycycline.", "Answer: (B) doxycycline"]
)
def test_the_text_of_an_option_is_found_after_a_colon_or_answer_is(answer):
    assert read_option(answer, {"A": "Ampicillin", "B": "Doxycycline", "C": "None", "D": "Dapsone"}) == "B"


@pytest.mark.parametrize(
    "texts",
    [("<50 degree", ">50 degree"), ("80", "-80"), ("8.0", "80"), ("the", "a"), ("1:2", "2")],
)
def test_options_that_differ_in_punctuation_or_are_articles_are_distinguished(texts):
    options = dict(zip("AB", texts, strict=True))
    for letter, text in options.items():
        assert {read_option(text, options), read_option(f"The answer is: {text.upper()}.", options)} == {letter}
    assert read_option("< 50 degree", {"A": "<50 degree", "B": ">50 degree"}) == ""


def test_the_gold_letter_is_that_of_the_option_with_the_gold_answer():
    question = Question("q", "Which?", ("Ketogenesis",), options=OPTIONS)
    assert gold_letters(question) == ["D"]
    with pytest.raises(UserError, match=r"question 'q': the answers \['Lipolysis'\] are none of the options"):
        gold_letters(replace(question, answers=("Lipolysis",)))


def test_the_gold_answer_may_be_a_letter_unless_an_option_has_this_text():
    question = Question("q", "Which?", ("C",), options=OPTIONS)
    assert gold_letters(question) == ["C"]
    assert gold_letters(replace(question, options={"A": "B", "B": "C", "C": "A"})) == ["B"]


def test_every_option_with_the_text_of_the_gold_answer_is_right():
    question = Question("q", "Which?", ("hole",), options={"A": "mouse", "B": "hole", "C": "hole", "D": "cat"})
    for metric in ("choice", "mirage_choice"):
        scores = [score_output(METRICS[metric], question, Output(answer=letter, text=letter)) for letter in "ABCD"]
        assert scores == [0.0, 1.0, 1.0, 0.0]
