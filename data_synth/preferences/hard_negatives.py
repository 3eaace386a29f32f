"""Length-matched hard negatives: rejected answers *with* reasoning, so that a model cannot win by writing more.

Half of them end in the gold answer but reason from what stands elsewhere (`unsupported`); the other half use the context and
end in another answer (`wrong answer`). Mostly they are a little longer than the chosen side: the paper's own pairs,
where the longer side always wins, lie beside them.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from data_synth.preferences.reasons import normalise_answer, plain, tfidf_cosines
from data_synth.preferences.support import sentences_of
from data_synth.types import Draft
from graph.extract.support import words_of
from graph.extract.units import split_units
from graph.prompt.answer import format_answer
from graph.prompt.citations import check_citations
from graph.shared.ids import content_id

UNSUPPORTED, WRONG = "unsupported reasoning", "wrong answer"
WORSE = "found worse by readers"
"""Of feedback (data_synth/feedback): a reasoned answer that was rejected by people, whatever its length."""
LONGER_SHARE = 0.9
"""Of the hard negatives that are to be longer than the chosen side: with the paper's pairs beside them, about half of all are then."""
POOL = 512
CHOICES = (frozenset({"yes", "no", "maybe"}), frozenset({"true", "false"}))


@dataclass(frozen=True)
class HardNegative:
    """A rejected side and what is wrong with it."""

    name: str
    text: str


@dataclass(frozen=True)
class Reasoning:
    """The reasoning of some question, as sentences without citations."""

    question_id: str
    sentences: tuple[str, ...]
    words: int


@dataclass(frozen=True)
class Pool:
    """Reasonings and answers of the questions seen last: what hard negatives borrow from."""

    reasons: deque[Reasoning] = field(default_factory=lambda: deque(maxlen=POOL))
    answers: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=POOL))

    def add(self, draft: Draft, reason: str) -> None:
        """Remember the reasoning and the answer of a draft, once a question."""
        told = tuple(map(plain, sentences_of(reason)))
        if not any(known.question_id == draft.question.id for known in self.reasons):
            self.reasons.append(Reasoning(draft.question.id, told, _words(told)))
            self.answers.append((draft.question.kind, draft.answer))


def make_hard_negative(draft: Draft, reason: str, pool: Pool) -> HardNegative | None:
    """The hard negative of a pair whose chosen side reasons `reason`; None when nothing in the pool or context will do.

    Which kind it is to be, and whether it is to be longer, is drawn by the question and the size of the context.
    """
    draw = random.Random(content_id(draft.question.id, str(len(draft.excerpts)), "hard negative"))
    longer, first = draw.random() < LONGER_SHARE, draw.random() < 0.5
    target = len(reason.split())
    kinds = (unsupported_negative, wrong_answer_negative) if first else (wrong_answer_negative, unsupported_negative)
    for kind in kinds:
        negative = kind(draft, reason, pool, target, longer)
        if negative is not None:
            return negative
    return None


def unsupported_negative(draft: Draft, reason: str, pool: Pool, target: int, longer: bool) -> HardNegative | None:
    """The gold answer after the reasoning of another question, with the citations that the chosen side has."""
    borrowed = borrow_reason(draft, pool, target, longer)
    if not borrowed:
        return None
    cited = check_citations(reason, len(draft.excerpts)).cited
    return HardNegative(UNSUPPORTED, format_answer(cite_in_turn(borrowed, cited), draft.answer))


def wrong_answer_negative(draft: Draft, reason: str, pool: Pool, target: int, longer: bool) -> HardNegative | None:
    """Another answer after sentences of the context that are near to it, cited as they stand; borrowed ones without a context."""
    wrong = wrong_answer(draft, [answer for _, answer in pool.answers])
    if not wrong:
        return None
    told = misread_context(draft, reason, wrong, target, longer)
    if not told:
        borrowed = borrow_reason(draft, pool, target, longer)
        told = cite_in_turn(borrowed, check_citations(reason, len(draft.excerpts)).cited) if borrowed else ""
    return HardNegative(WRONG, format_answer(told, wrong)) if told else None


def wrong_answer(draft: Draft, others: Sequence[str]) -> str:
    """Another option of the question, another choice of its kind, or another question's answer of the same shape; "" for none."""
    gold = {normalise_answer(answer) for answer in (*draft.question.answers, draft.answer)}
    offered = tuple((draft.question.options or {}).values()) or tuple(sorted(_choices_of(draft.answer)))
    wrong = [answer for answer in map(plain, offered or others) if answer and normalise_answer(answer) not in gold]
    if not wrong:
        return ""
    shape = answer_shape(draft.answer)
    alike = [answer for answer in wrong if answer_shape(answer) == shape] or wrong
    return random.Random(content_id(draft.question.id, str(len(draft.excerpts)), "wrong")).choice(alike)


def answer_shape(answer: str) -> tuple[bool, bool, int]:
    """What answers have in common that could stand for each other: digits, a capital letter, and about as many words.

    >>> answer_shape("14 May 1911") == answer_shape("3 June 1890"), answer_shape("yes") == answer_shape("Ada Marlow")
    (True, False)
    """
    return bool(re.search(r"\d", answer)), answer[:1].isupper(), min(len(answer.split()), 4)


def misread_context(draft: Draft, reason: str, wrong: str, target: int, longer: bool) -> str:
    """Sentences of the context, nearest to the question and the wrong answer first, that the true reasoning does not use.

    A sentence with the gold answer in it is left out, unless the answer is a choice such as "yes". "" when there are none.
    """
    used = words_of(check_citations(reason, 0).text)
    gold = set() if _choices_of(draft.answer) else words_of(draft.answer)
    quoted: dict[str, int] = {}
    for number, excerpt in enumerate(draft.excerpts, start=1):
        for text in (plain(unit.text) for unit in split_units(excerpt.text) if unit.kind != "heading"):
            if text and not words_of(text) <= used and not (gold and gold <= words_of(text)):
                quoted.setdefault(text, number)
    sentences = list(quoted)
    scores = tfidf_cosines(f"{draft.question.text} {wrong}", sentences)
    order = sorted(range(len(sentences)), key=lambda place: -scores[place])
    cited = [_cited(sentences[place], quoted[sentences[place]]) for place in order]
    return " ".join(fit_length(cited, target, longer))


def borrow_reason(draft: Draft, pool: Pool, target: int, longer: bool) -> tuple[str, ...]:
    """The sentences of the reasoning of another question that is nearest to `target` words, on the wanted side if there is one."""
    others = [told for told in pool.reasons if told.question_id != draft.question.id and told.words]
    if not others:
        return ()
    wanted = [told for told in others if (told.words > target) == longer] or others
    best = min(wanted, key=lambda told: (abs(told.words - target), content_id(draft.question.id, told.question_id)))
    return best.sentences


def fit_length(sentences: Sequence[str], target: int, longer: bool) -> tuple[str, ...]:
    """The first sentences that are together longer than `target` words (all, if none are), or the most that are not.

    >>> fit_length(["a b", "c d", "e f"], 3, longer=True), fit_length(["a b", "c d", "e f"], 3, longer=False)
    (('a b', 'c d'), ('a b',))
    """
    words = 0
    for count, sentence in enumerate(sentences, start=1):
        words += len(sentence.split())
        if words > target:
            return tuple(sentences[: count if longer else max(count - 1, 1)])
    return tuple(sentences)


def cite_in_turn(sentences: Sequence[str], cited: Sequence[int]) -> str:
    """The sentences as one text, the first citing the first number, and so on; numbers left over follow the last sentence.

    >>> cite_in_turn(["It rained.", "Tea."], [2, 1, 3])
    'It rained [2]. Tea [1] [3].'
    """
    inner = [*cited[: len(sentences) - 1]]
    last = cited[len(inner) :]
    parts = [_cited(sentence, number) for sentence, number in zip_longest(sentences[:-1], inner)]
    return " ".join([*parts, _cited(sentences[-1], *last)])


def _cited(sentence: str, *numbers: int | None) -> str:
    marks = "".join(f" [{number}]" for number in numbers if number is not None)
    ending = sentence[-1] if sentence.endswith((".", "!", "?")) else "."
    return f"{sentence.rstrip('.!?')}{marks}{ending}"


def _choices_of(answer: str) -> frozenset[str]:
    return next((choices for choices in CHOICES if normalise_answer(answer) in choices), frozenset())


def _words(sentences: Sequence[str]) -> int:
    return sum(len(sentence.split()) for sentence in sentences)
