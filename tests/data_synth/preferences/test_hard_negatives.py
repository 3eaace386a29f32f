"""Length-matched hard negatives: the sentences that they borrow, their lengths, and wrong answers that are indeed wrong."""

import re
from collections import Counter

import pytest

from data_synth.preferences.hard_negatives import (
    REFUSED,
    UNSUPPORTED,
    WRONG,
    Pool,
    cite_in_turn,
    fit_length,
    make_hard_negative,
    misread_context,
    reasoned_negative,
    wrong_answer,
)
from data_synth.rows import Draft
from graph.answer.citations import check_citations
from graph.answer.prompt import parse_answer
from graph.documents.questions import Question
from graph.types import Excerpt

A = Excerpt("a", "Yard", "Ada founded the yard in 1890. The yard built nine ferries. It burned in 1911.", "yard", 0, 80)
B = Excerpt("b", "Bread", "Kelp bread keeps for nine days. The yard built nine ferries.", "bread", 0, 60)
BURNED = Question("q1", "When did the yard burn?", ("1911", "in 1911"), ("yard",), kind="single")
REASON = "The yard stood by the water and it burned in 1911 [1]."


def draft(question: Question = BURNED, *excerpts: Excerpt) -> Draft:
    return Draft(question, question.answers[0], excerpts)


def pool_of(*entries: tuple[str, str, str]) -> Pool:
    pool = Pool()
    for question_id, answer, reason in entries:
        pool.add(draft(Question(question_id, "?", (answer,), kind="single")), reason)
    return pool


POOL = pool_of(
    ("q2", "14 May", "Kelp keeps nine days [2]. Bread is dry."), ("q3", "1890", "Long ago " * 9 + "it rained.")
)


def test_an_unsupported_negative_gives_the_gold_answer_after_sentences_without_it() -> None:
    negative = reasoned_negative(UNSUPPORTED, draft(BURNED, A, B), REASON, POOL, 8, longer=True)
    assert negative is not None and negative.name == UNSUPPORTED
    parsed = parse_answer(negative.text)
    assert parsed.answer == "1911" and "1911" not in parsed.reason and "[1]" in parsed.reason
    assert set(re.findall(r"\w+", parsed.reason.lower())) & {"yard"}, "the reason should share words with the question"
    alone = draft(BURNED, Excerpt("c", "Yard", "It burned in 1911.", "yard", 0, 18))
    borrowed = reasoned_negative(UNSUPPORTED, alone, REASON, POOL, len(REASON.split()), longer=True)
    assert borrowed is not None
    assert borrowed.text == f"###Reason: {'Long ago ' * 9}it rained [1]. ###Answer: 1911"


def test_a_wrong_answer_negative_misreads_the_context() -> None:
    negative = reasoned_negative(WRONG, draft(BURNED, A, B), REASON, POOL, 8, longer=True)
    assert negative is not None and negative.name == WRONG
    parsed = parse_answer(negative.text)
    assert parsed.answer == "1890", "another year in the context"
    assert "burned" not in parsed.reason and "1911" not in parsed.reason
    for sentence in parsed.reason.split("] ")[:-1]:
        number = int(sentence[-1])
        assert sentence.partition(" [")[0] in (A, B)[number - 1].text
    assert parsed.reason.count("The yard built nine ferries") <= 1, (
        "a sentence found in two excerpts should appear once"
    )


def test_without_a_context_a_wrong_answer_borrows_its_reasoning() -> None:
    negative = reasoned_negative(WRONG, draft(), "It burned in 1911.", POOL, 4, longer=False)
    assert negative is not None and negative.name == WRONG
    assert "[" not in negative.text and parse_answer(negative.text).answer != "1911"


def test_wrong_answers_come_from_options_then_choices_then_answers_of_the_same_shape() -> None:
    options = Question("o", "Which?", ("B",), options={"x": "A", "y": "b."})
    assert wrong_answer(draft(options), ["C"]) == "A", "'b.' is the gold answer written differently"
    choice = {wrong_answer(draft(Question(str(n), "Is it?", ("Yes",))), ["1890"]) for n in range(30)}
    assert choice == {"no"}, "'maybe' is seldom right, so it would give the rejected side away"
    assert wrong_answer(draft(BURNED, A), ["1822"]) == "1890", "the context should take precedence over other questions"
    assert wrong_answer(draft(BURNED), ["Ada Marlow", "In 1911", "1890"]) == "1890"
    assert wrong_answer(draft(BURNED), ["in 1911"]) == ""


def test_misreadings_leave_out_the_true_reasoning_and_the_gold_answer() -> None:
    misread = misread_context(draft(BURNED, A, B), "The yard built nine ferries.", "1890", 99, longer=True)
    assert "1911" not in misread and "nine ferries" not in misread and "founded the yard in 1890 [1]" in misread
    yes = Question("y", "Is the yard old?", ("yes",))
    assert "burned in 1911" in misread_context(draft(yes, A), "So.", "no", 99, longer=True)
    assert misread_context(draft(BURNED), "So.", "1890", 9, longer=True) == ""


@pytest.mark.parametrize(
    ("target", "longer", "count"), [(3, True, 2), (3, False, 1), (4, False, 2), (0, False, 1), (99, True, 3)]
)
def test_length_is_matched_with_whole_sentences(target: int, longer: bool, count: int) -> None:
    sentences = ("a b", "c d", "e f")
    assert fit_length(sentences, target, longer) == sentences[:count]


def test_sentences_cite_the_excerpts_in_turn() -> None:
    assert cite_in_turn(["It rained.", "Why?"], [1]) == "It rained [1]. Why?"
    assert cite_in_turn(["Why?", "It rained.", "Tea"], [2, 1]) == "Why [2]? It rained [1]. Tea."
    assert cite_in_turn(["It rained."], [2, 1]) == "It rained [2] [1]."
    assert cite_in_turn(["It rained.", "Tea."], []) == "It rained. Tea."


def test_all_kinds_are_made_and_some_are_longer_than_the_chosen_side() -> None:
    reasons = [("word " * n).strip() + "." for n in range(3, 40)]
    pool = pool_of(*((f"p{n}", str(1800 + n), reason) for n, reason in enumerate(reasons)))
    negatives = [
        make_hard_negative(draft(Question(f"q{n}", "When did it burn?", ("1700",)), A, B), REASON, pool)
        for n in range(200)
    ]
    names = Counter(negative.name for negative in negatives if negative is not None)
    assert sum(names.values()) == 200 and all(60 < names[kind] < 115 for kind in (WRONG, UNSUPPORTED))
    assert 12 < names[REFUSED] < 45
    chosen = len(f"###Reason: {REASON} ###Answer: 1700".split())
    longer = [
        len(negative.text.split()) > chosen
        for negative in negatives
        if negative is not None and negative.name != REFUSED
    ]
    assert 0.25 < sum(longer) / len(longer) < 0.75
    assert all(not check_citations(negative.text, 2).removed for negative in negatives if negative is not None)


def test_without_anything_to_borrow_there_is_no_hard_negative() -> None:
    assert make_hard_negative(draft(), REASON, Pool()) is None
