"""The gate by hand: what is better, what is chance, what refuses more, and what was unlearned."""

import pytest

from data_synth.reading.sets import ReadingQuestion
from eval.reading import ReadingTask, score_text
from graph.types import Excerpt
from modegraph.tuning.gate import AnswerPair, judge

RIGHT, WRONG, REFUSAL = "Tarn [1]", "Quill [1]", "not in the documents"


def pair(untuned: list[str], tuned: list[str], unanswerable: int = 0) -> AnswerPair:
    """Answers to as many questions, the last of which have no answer."""
    answerable = len(untuned) - unanswerable
    tasks = [
        ReadingTask(
            ReadingQuestion(f"q{n}", "Where?", ("Tarn",) if n < answerable else (), ("p",), (), (), "", "test"),
            (Excerpt("p", "", "It is in Tarn."),),
        )
        for n in range(len(untuned))
    ]
    return AnswerPair(*([score_text(*each) for each in zip(tasks, texts, strict=True)] for texts in (untuned, tuned)))


BETTER = pair([WRONG] * 20, [RIGHT] * 12 + [WRONG] * 8)


def test_better_by_more_than_chance_passes() -> None:
    gate = judge(BETTER, None, seed=0)
    assert gate.passed and gate.difference.mean == pytest.approx(0.6) and len(gate.checks) == 2
    assert "F1 on held-out questions: +0.600 [" in gate.why


@pytest.mark.parametrize(
    ("held_out", "failed"),
    [
        (pair([RIGHT] * 20, [RIGHT] * 20), "F1 on held-out"),
        (pair([WRONG] * 20, [RIGHT, *[WRONG] * 19]), "F1 on held-out"),
        (pair([RIGHT] * 20, [RIGHT] * 10 + [WRONG] * 10), "F1 on held-out"),
        (pair([WRONG] * 20, [RIGHT] * 12 + [REFUSAL] * 8), "refused questions"),
        (pair([WRONG] * 20, [REFUSAL] * 20, unanswerable=12), "refused questions"),
    ],
    ids=["equal", "one more", "worse", "refuses", "only refuses"],
)
def test_what_is_not_shown_to_be_better_or_refuses_more_fails(held_out: AnswerPair, failed: str) -> None:
    gate = judge(held_out, None, seed=0)
    assert not gate.passed and [check.what.startswith(failed) for check in gate.checks if not check.passed] == [True]
    assert gate.why.startswith(failed)


def test_refusals_of_questions_without_an_answer_do_not_count() -> None:
    answers = pair([WRONG] * 20, [RIGHT] * 8 + [REFUSAL] * 12, unanswerable=12)
    assert judge(answers, None, seed=0).passed and answers.more_refusals() == 0.0


def test_two_in_a_hundred_more_refusals_are_allowed_and_three_are_not() -> None:
    for refusals, passed in ((2, True), (3, False)):
        held_out = pair([WRONG] * 100, [RIGHT] * (100 - refusals) + [REFUSAL] * refusals)
        assert judge(held_out, None, seed=0).passed == passed


def test_what_was_unlearned_fails_beyond_one_in_a_hundred() -> None:
    for lost, passed in ((0, True), (1, True), (2, False)):
        general = pair([RIGHT] * 100, [RIGHT] * (100 - lost) + [WRONG] * lost)
        gate = judge(BETTER, general, seed=0)
        assert gate.passed == passed and len(gate.checks) == 3
