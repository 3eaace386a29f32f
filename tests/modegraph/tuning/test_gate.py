"""The gate, on constructed answers: a better model passes; one that is better only by chance, refuses more or has lost knowledge fails."""

import pytest

from data_synth.reading.sets import ReadingQuestion
from eval.reading import ReadingTask, score_text
from graph.types import Excerpt
from modegraph.tuning.gate import PairedAnswers, judge
from modegraph.tuning.tune_report import figures_of

RIGHT, WRONG, REFUSAL = "Tarn [1]", "Quill [1]", "not in the documents"


def pair(
    untuned: list[str], tuned: list[str], unanswerable: int = 0, question: str = "Where?", gold: str = "Tarn"
) -> PairedAnswers:
    """Untuned and tuned answers to the same questions, each about a different isle; the last `unanswerable` questions have no answer."""
    answerable = len(untuned) - unanswerable
    tasks = [
        ReadingTask(
            ReadingQuestion(
                f"q{n}", question, (about_isle(gold, n),) if n < answerable else (), ("p",), (), (), "", "test"
            ),
            (Excerpt("p", "", "It is in Tarn."),),
        )
        for n in range(len(untuned))
    ]
    return PairedAnswers(
        *(
            [score_text(task, about_isle(text, n)) for n, (task, text) in enumerate(zip(tasks, texts, strict=True))]
            for texts in (untuned, tuned)
        )
    )


def about_isle(text: str, number: int) -> str:
    """The text with isle names that contain this number, so that no constant answer is right twice."""
    return text.replace("Tarn", f"Tarn{number}").replace("Quill", f"Quill{number}")


BETTER = pair([WRONG] * 20, [RIGHT] * 12 + [WRONG] * 8)


def test_a_model_that_is_better_by_more_than_chance_passes() -> None:
    gate = judge(BETTER, None, None, seed=0)
    assert gate.passed and gate.difference.mean == pytest.approx(0.6) and len(gate.checks) == 4
    assert "F1 on held-out questions: +0.600 [" in gate.why


def test_the_intervals_of_figures_and_verdict_use_the_same_seed() -> None:
    held_out = pair([WRONG] * 20, [f"Tarn {'bay ' * n}[1]" for n in range(20)])
    found = figures_of({"held-out": held_out}, seed=3)["held-out"]["tuned"]["all"].f1
    assert found == held_out.f1_difference(3) != held_out.f1_difference(0)


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
def test_a_model_that_is_not_clearly_better_or_refuses_more_fails(held_out: PairedAnswers, failed: str) -> None:
    gate = judge(held_out, None, None, seed=0)
    assert not gate.passed and failed in gate.why


def test_a_model_that_only_refuses_less_is_not_better_on_questions_that_both_answer() -> None:
    held_out = pair(
        [REFUSAL] * 10 + [RIGHT] * 9 + [WRONG, REFUSAL], [RIGHT] * 10 + [WRONG] + [RIGHT] * 9 + [REFUSAL], 1
    )
    both = held_out.answered_by_both()
    assert held_out.f1_difference(0).mean == pytest.approx(10 / 21) and both.f1_difference(0).mean == 0
    assert len(both.tuned) == len(both.untuned) == 10
    assert not pair([REFUSAL], [RIGHT]).answered_by_both().tuned


@pytest.mark.parametrize(("isle", "passed"), [("Tarn", True), ("Quill", False)])
def test_a_wrong_answer_that_repeats_the_question_fails_in_spite_of_its_higher_f1(isle: str, passed: bool) -> None:
    """The sentence has a higher F1 than the name alone, whichever isle it names."""
    sentence, largest = "The largest isle of the bay is {}.", "Which isle of the bay is the largest?"
    held_out = pair([RIGHT] * 20, [sentence.format(isle) + " [1]"] * 20, 0, largest, sentence.format("Tarn"))
    gate = judge(held_out, None, None, seed=0)
    assert gate.difference.low > 0.3 and gate.passed == passed
    assert passed or "F1 without the question's words: -1.000" in gate.why


@pytest.mark.parametrize(("answered_no", "passed"), [(2, True), (0, False)])
def test_a_model_that_always_says_yes_fails(answered_no: int, passed: bool) -> None:
    """“Yes” is right for 13 of 20 questions, so a model can be right without reading the passages."""
    golds = ["yes"] * 13 + ["no"] * 7
    tasks = [
        ReadingTask(
            ReadingQuestion(f"q{n}", "Is it?", (gold,), ("p",), (), (), "", "test"), (Excerpt("p", "", "It is."),)
        )
        for n, gold in enumerate(golds)
    ]
    untuned = [score_text(task, "it") for task in tasks]
    tuned = [score_text(task, "yes [1]" if n < 20 - answered_no else "no [1]") for n, task in enumerate(tasks)]
    gate = judge(PairedAnswers(untuned, tuned), None, None, seed=0)
    assert gate.difference.low > 0 and gate.passed == passed
    assert passed or gate.why.startswith("F1 above the best constant answer: +0.000")


def test_refusals_of_questions_without_an_answer_do_not_count() -> None:
    answers = pair([WRONG] * 20, [RIGHT] * 8 + [REFUSAL] * 12, unanswerable=12)
    assert judge(answers, None, None, seed=0).passed and answers.increase_in_refusals() == 0.0


def test_an_increase_in_refusals_of_2_percentage_points_is_allowed_and_of_3_is_not() -> None:
    for refusals, passed in ((2, True), (3, False)):
        held_out = pair([WRONG] * 100, [RIGHT] * (100 - refusals) + [REFUSAL] * refusals)
        assert judge(held_out, None, None, seed=0).passed == passed


def test_losing_more_than_one_of_a_hundred_general_answers_fails() -> None:
    for lost, passed in ((0, True), (1, True), (2, False)):
        general = pair([RIGHT] * 100, [RIGHT] * (100 - lost) + [WRONG] * lost)
        gate = judge(BETTER, None, general, seed=0)
        assert gate.passed == passed and len(gate.checks) == 5


def test_losing_more_refusals_of_unanswerable_questions_than_by_chance_fails() -> None:
    """A model that refuses more unanswerable questions than before passes."""
    for lost, passed in ((0, True), (2, True), (8, False)):
        unanswered = pair([REFUSAL] * 100, [REFUSAL] * (100 - lost) + [WRONG] * lost, unanswerable=100)
        gate = judge(BETTER, unanswered, None, seed=0)
        assert gate.passed == passed and len(gate.checks) == 6
        assert passed or "refused questions whose passages lack the answer: -0.080" in gate.why
    gained = pair([WRONG] * 10, [REFUSAL] * 10, unanswerable=10)
    assert judge(BETTER, gained, None, seed=0).passed and gained.refusal_difference(0).mean == 1.0


@pytest.mark.parametrize(("lost", "gained", "passed"), [(0, 8, True), (1, 8, False), (0, 0, False)])
def test_better_refusals_alone_are_a_gain_but_do_not_make_up_for_a_lost_answer(
    lost: int, gained: int, passed: bool
) -> None:
    held_out = pair([RIGHT] * 40, [RIGHT] * (40 - lost) + [WRONG] * lost)
    unanswered = pair([WRONG] * 20, [REFUSAL] * gained + [WRONG] * (20 - gained), unanswerable=20)
    gate = judge(held_out, unanswered, None, seed=0)
    assert gate.passed == passed and gate.difference.mean == -lost / 40
    assert not lost or "F1 with the answer in the passages: -0.025" in gate.why
