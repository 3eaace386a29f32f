"""Standalone and dependent questions: the questions and follow-ups of the examples, and pairs of a dependent question and a similar standalone one."""

import json
import time

import pytest

from graph.documents.questions import read_questions
from serve.conversation.turn_rules import LONG_CHARACTERS, dependence
from tests.places import EXAMPLES

FOLLOW_UPS = [json.loads(line) for line in (EXAMPLES / "follow_ups.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_question_of_the_examples_is_standalone() -> None:
    questions = read_questions(EXAMPLES / "questions.jsonl")
    assert [question.text for question in questions if dependence(question.text) != "alone"] == []


def test_no_follow_up_is_standalone_but_its_rewritten_form_is() -> None:
    assert [row["question"] for row in FOLLOW_UPS if dependence(row["question"]) == "alone"] == []
    assert [row["standalone"] for row in FOLLOW_UPS if dependence(row["standalone"]) != "alone"] == []


@pytest.mark.parametrize(
    ("dependent", "standalone"),
    [
        ("Who wrote it?", "Who wrote Middlemarch?"),
        ("Does she still live there?", "Does Toni Kroos still live in Madrid?"),
        ("What is its boiling point?", "What is the boiling point of ethanol?"),
        ("And its side effects?", "What are the side effects of ibuprofen?"),
        ("Which of them is cheaper?", "Which of the two plans is cheaper, Basic or Pro?"),
        ("Is that still true?", "Is it true that Pluto was reclassified in 2006?"),
        ("Who else?", "Who else signed the Treaty of Rome?"),
        ("Why not?", "Why does Venus have no moon?"),
        ("How do I reset the password then?", "How do I reset my password in Thunderbird?"),
        ("What about Sundays?", "Is the library of Ghent open on Sundays?"),
        ("How much does the second one cost?", "How much does the second edition of Dune cost?"),
        ("Did they win?", "Did the Mets win after they moved to Citi Field?"),
        ("When did this happen?", "When did the eruption of Krakatoa happen?"),
        ("Who was the author?", "Who was the author of Dracula?"),
        ("Was Anna born before her?", "Was Anna born before Emily?"),
        ("And then?", "And when did Emily die?"),
        ("Where was that?", "Which firm sold the patent that Bell had filed?"),
        ("What did he call it?", "What did Newton call his theory of light?"),
        ("Was it sold to Denmark?", "Is it possible to visit Tarn by ferry?"),
        ("Is it used for fishing?", "Is it legal for children to drive a car?"),
        ("Will it sail to Tarn?", "Will it rain on Sunday?"),
        ("Is it safe to eat?", "Is it safe to eat raw eggs?"),
        ("Is it a ship that carries coal?", "Was it Newton that discovered gravity?"),
        ("And what is it?", "And what is an atom?"),
        ("What are they?", "What are quarks?"),
        ("What is that?", "What is WHO?"),
        ("Was that before 1911?", "Are those who vote paid?"),
        ("Is this near Tarn?", "Is the population of Tarn larger than that of Port Ellery?"),
        ("Hi, who built it?", "Hi, who wrote Middlemarch?"),
        ("Interesting. Who built it?", "Interesting. Who wrote Middlemarch?"),
        ("Great answer! Who built it?", "Great answer! Who was the author of Dracula?"),
        ("Actually, who founded it?", "Actually, who founded Tarn?"),
        ("That’s great, sorry! Who owns them?", "The Lantern: who owns it?"),
        ("The other one?", "Was the other ship of Columbus, the Pinta, faster?"),
    ],
)
def test_a_dependent_question_is_distinguished_from_a_similar_standalone_one(dependent: str, standalone: str) -> None:
    assert (dependence(dependent), dependence(standalone)) == ("dependent", "alone")


@pytest.mark.parametrize(
    "question", ["What is photosynthesis?", "What do the documents disagree about?", "How is amber made in Riga?"]
)
def test_some_short_questions_are_standalone(question: str) -> None:
    assert dependence(question) == "alone"


@pytest.mark.parametrize(
    "question", ["Wann war das?", "Quand a-t-il été fondé ?", "何时建成？", "متى بنيت؟", "¿Y la segunda?", "네?", "!!"]
)
def test_it_is_unknown_whether_a_text_without_english_words_is_dependent(question: str) -> None:
    assert dependence(question) == "unknown"


def test_a_long_question_is_standalone_and_no_question_takes_long_to_check() -> None:
    began = time.process_time()
    for text in ("it " * LONG_CHARACTERS, "their " * 66, "the " * 100, "w" * 399, "and " * 100, "what is " + "a" * 390):
        assert dependence(text) in ("alone", "dependent", "unknown")
    assert dependence("Who built it? " * 40) == "alone"
    assert time.process_time() - began < 0.5
