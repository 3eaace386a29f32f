"""Recommends the tuned model only if it answers the same questions better than the untuned one, by more than chance, and hardly worse elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from eval.reading import ReadingAnswer, constant_answers
from eval.statistics import Interval, bootstrap_difference

MAX_ADDED_REFUSALS, MAX_LOSS = 0.02, 0.01
"""The largest increase that the gate allows in the share of refusals, and the largest loss in each of three F1 scores: with the answer in the
passages, without the question's words, and on the general set."""
ROUNDING_TOLERANCE = 1e-9


@dataclass(frozen=True)
class PairedAnswers:
    """The answers of both models to the same questions."""

    untuned: Sequence[ReadingAnswer]
    tuned: Sequence[ReadingAnswer]

    def f1_difference(self, seed: int) -> Interval:
        """Mean F1 of the tuned model minus that of the untuned one, paired over questions."""
        return self._difference(lambda answer: answer.score.f1, seed)

    def difference_beyond_question(self, seed: int) -> Interval:
        """`f1_difference`, counting only words that are not in the question, so that repeating the question gains nothing."""
        return self._difference(lambda answer: answer.f1_beyond_question, seed)

    def difference_from_constant(self, seed: int) -> Interval:
        """Mean F1 of the tuned model minus that of the answer that is right most often, given to every question."""
        return PairedAnswers(constant_answers([answer.task for answer in self.tuned]), self.tuned).f1_difference(seed)

    def increase_in_refusals(self) -> float:
        """By how much tuning increases the share of refused questions, among questions that have an answer."""
        pairs = [pair for pair in zip(self.untuned, self.tuned, strict=True) if pair[0].task.question.is_answerable]
        return fmean(after.score.refuses - before.score.refuses for before, after in pairs) if pairs else 0.0

    def refusal_difference(self, seed: int) -> Interval:
        """By how much tuning increases the share of refused questions, among all questions, paired over questions."""
        return self._difference(lambda answer: answer.score.refuses, seed)

    def _difference(self, of: Callable[[ReadingAnswer], float], seed: int) -> Interval:
        tuned, untuned = (list(map(of, side)) for side in (self.tuned, self.untuned))
        return bootstrap_difference(tuned, untuned, seed=seed)

    def joined(self, other: PairedAnswers) -> PairedAnswers:
        """The answers to the questions of both pairs."""
        return PairedAnswers([*self.untuned, *other.untuned], [*self.tuned, *other.tuned])

    def answered_by_both(self) -> PairedAnswers:
        """The answers to the answerable questions that neither model refuses: a difference on these does not come from refusing more or less."""
        pairs = [
            pair
            for pair in zip(self.untuned, self.tuned, strict=True)
            if pair[0].task.question.is_answerable and not any(each.score.refuses for each in pair)
        ]
        return PairedAnswers(*zip(*pairs, strict=True)) if pairs else PairedAnswers((), ())


@dataclass(frozen=True)
class Check:
    """One condition of the gate: the name of its figure, the value found, the limit, and whether the condition is met."""

    what: str
    found: str
    limit: str
    passed: bool


@dataclass(frozen=True)
class Gate:
    """The conditions, and the difference in F1 where the passages contain the answer; the tuned model is recommended if all conditions are met."""

    difference: Interval
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def why(self) -> str:
        """The decisive conditions: those that are not met, or all if the gate is passed."""
        decisive = [check for check in self.checks if check.passed == self.passed]
        return "; ".join(f"{check.what}: {check.found} ({check.limit})" for check in decisive)


def judge(held_out: PairedAnswers, unanswered: PairedAnswers | None, general: PairedAnswers | None, seed: int) -> Gate:
    """Apply the conditions: four, two more if there are questions whose passages lack the answer (`unanswered`), one more if there is a general set.

    F1 must improve over all test questions taken together; where the passages lack the answer, a refusal scores 1.
    """
    difference, refusals = held_out.f1_difference(seed), held_out.increase_in_refusals()
    above_constant = held_out.difference_from_constant(seed)
    what, gain = "F1 on held-out questions", difference
    if unanswered is not None:
        what += ", with and without the answer in the passages"
        gain = held_out.joined(unanswered).f1_difference(seed)
    checks = [
        Check(what, f"{gain:+.3f}", "interval above 0", gain.low > 0),
        Check("F1 above the best constant answer", f"{above_constant:+.3f}", "above 0", above_constant.mean > 0),
        at_most_loss("F1 without the question's words", held_out.difference_beyond_question(seed)),
        Check(
            "refused questions that have an answer",
            f"{refusals:+.3f}",
            f"at most +{MAX_ADDED_REFUSALS:g}",
            refusals <= MAX_ADDED_REFUSALS + ROUNDING_TOLERANCE,
        ),
    ]
    if unanswered is not None:
        checks.append(at_most_loss("F1 with the answer in the passages", difference))
        change = unanswered.refusal_difference(seed)
        what = "refused questions whose passages lack the answer"
        checks.append(Check(what, f"{change:+.3f}", "interval not below 0", change.high >= 0))
    if general is not None:
        checks.append(at_most_loss("F1 on the general set", general.f1_difference(seed)))
    return Gate(difference, tuple(checks))


def at_most_loss(what: str, change: Interval) -> Check:
    """The condition that a figure falls by at most MAX_LOSS."""
    return Check(what, f"{change:+.3f}", f"at least -{MAX_LOSS:g}", change.mean >= -MAX_LOSS - ROUNDING_TOLERANCE)
