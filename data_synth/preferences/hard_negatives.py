"""Length-matched hard negatives: rejected answers *with* reasoning, so that length alone does not tell the sides apart.

Some refuse although the passages contain the answer. Half of the others end in the gold answer (UNSUPPORTED), half in a wrong one (WRONG): another
option or choice of the question; else a name or number of the context with the same shape; else the answer to another question, if possible of the same
shape. The reasoning of both consists of sentences of the context that the true reasoning does not use, or else is that of another question. About half are a
little longer than the chosen side. Nothing is taken from another split.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_synth.claims.claims import shape
from data_synth.preferences.reasons import (
    choices_of,
    cite,
    holds_answer,
    normalise_answer,
    tfidf_cosines,
    units_of,
)
from data_synth.preferences.support import sentences_of
from data_synth.rows import Draft
from data_synth.texts import plain
from graph.answer.citations import check_citations
from graph.answer.prompt import NOT_FOUND, format_answer
from graph.extract.entities import find_entities
from graph.extract.grounding import words_of
from graph.shared.ids import content_id
from graph.text.word_forms import count_words

UNSUPPORTED, WRONG = "unsupported reasoning", "wrong answer"
REFUSED = "refused, though the passages say it"
INVENTED = "answer that no passage contains"
"""For rows whose passages do not contain the answer, and whose chosen side says so."""
WORSE = "found worse by readers"
"""From feedback (data_synth/feedback.py): a reasoned answer that people rejected, whatever its length."""
NONE_SAYS_SO = "None of the passages says so."
REFUSAL = format_answer(NONE_SAYS_SO, NOT_FOUND)
"""The text of every refusal, whether refusing is right or wrong."""
REFUSED_SHARE = 0.13
"""Share of hard negatives that refuse although another kind may be possible. The chosen side refuses in about the same share of rows,
so a refusal does not give the side away."""
LONGER_SHARE = 0.35
"""Share of the other hard negatives that are meant to be longer than the chosen side; others become longer because only whole sentences are used."""
POOL_QUESTIONS = 512
INVENTED_WORDS = 30
MAX_WORDS = 4
"""An answer with more words counts as having this many when answers of the same shape are searched for."""
MAYBE = "maybe"
"""Not used as the wrong answer to a question without options: it is rarely the gold answer, so it would give the rejected side away."""
_NUMBER = re.compile(r"\b\d[\d.,:]*\b")


@dataclass(frozen=True)
class HardNegative:
    """A rejected side: the name of its fault, and its text."""

    name: str
    text: str


@dataclass(frozen=True)
class Reasoning:
    """The reasoning of one question, as sentences without citations, and its length in words."""

    question_id: str
    sentences: tuple[str, ...]
    words: int


@dataclass(frozen=True)
class Pool:
    """Reasoning and answers of the most recent questions, from which hard negatives borrow."""

    reasons: deque[Reasoning] = field(default_factory=lambda: deque(maxlen=POOL_QUESTIONS))
    answers: deque[str] = field(default_factory=lambda: deque(maxlen=POOL_QUESTIONS))

    def add(self, draft: Draft, reason: str) -> None:
        """Add the reasoning and the answer of a draft, once per question."""
        sentences = tuple(map(plain, sentences_of(reason)))
        if not any(known.question_id == draft.question.id for known in self.reasons):
            words = sum(map(count_words, sentences))
            self.reasons.append(Reasoning(draft.question.id, sentences, words))
            self.answers.append(draft.answer)


def make_hard_negative(draft: Draft, reason: str, pool: Pool) -> HardNegative | None:
    """The hard negative for a pair whose chosen side has the reasoning `reason`: a refusal for a random share of the pairs with a context,
    and whenever pool and context offer nothing else; without a context, None if the pool offers nothing.

    Its kind and whether it is longer are random, seeded by the question and the size of the context.
    """
    rng = random.Random(content_id(draft.question.id, str(len(draft.excerpts)), "hard negative"))
    if draft.excerpts and rng.random() < REFUSED_SHARE:
        return HardNegative(REFUSED, REFUSAL)
    longer = rng.random() < LONGER_SHARE
    for name in (UNSUPPORTED, WRONG) if rng.random() < 0.5 else (WRONG, UNSUPPORTED):
        negative = reasoned_negative(name, draft, reason, pool, count_words(reason), longer)
        if negative is not None:
            return negative
    return HardNegative(REFUSED, REFUSAL) if draft.excerpts else None


def reasoned_negative(
    name: str, draft: Draft, reason: str, pool: Pool, target: int, longer: bool
) -> HardNegative | None:
    """The gold answer (UNSUPPORTED) or another one (WRONG) after reasoning that does not support it; None without such an answer or reasoning."""
    answer = draft.answer if name == UNSUPPORTED else wrong_answer(draft, list(pool.answers))
    if not answer:
        return None
    reasoning = misread_context(draft, reason, answer, target, longer)
    if not reasoning and (borrowed := borrow_reason(draft, pool, target, longer)):
        reasoning = cite_in_turn(borrowed, check_citations(reason, len(draft.excerpts)).cited)
    return HardNegative(name, format_answer(reasoning, answer)) if reasoning else None


def wrong_answer(draft: Draft, others: Sequence[str]) -> str:
    """Another option of the question, another choice (yes, no), an entity of the answer's shape in the context, or another question's answer; "" for none."""
    gold = {normalise_answer(answer) for answer in (*draft.question.answers, draft.answer)}
    offered = tuple((draft.question.options or {}).values()) or tuple(sorted(choices_of(draft.answer) - {MAYBE}))
    offered = offered or tuple(entity for entity in entities_of_shape(draft) if not holds_answer(entity, draft.answer))
    wrong = [answer for answer in map(plain, offered or others) if answer and normalise_answer(answer) not in gold]
    if not wrong:
        return ""
    wanted = shape(draft.answer, MAX_WORDS)
    alike = [answer for answer in wrong if shape(answer, MAX_WORDS) == wanted] or wrong
    return random.Random(content_id(draft.question.id, str(len(draft.excerpts)), "wrong")).choice(alike)


def invented_negative(draft: Draft) -> HardNegative:
    """The gold answer although the passages do not contain it, after sentences from them that do not support it, or alone if there are none."""
    misread = misread_context(draft, "", draft.answer, INVENTED_WORDS, longer=False)
    return HardNegative(INVENTED, format_answer(misread, draft.answer) if misread else draft.answer)


def entities_of_shape(draft: Draft) -> list[str]:
    """The names, dates and quantities of the context that have the shape of the answer, in order."""
    found = [
        entity
        for excerpt in draft.excerpts
        for unit in units_of(excerpt)
        for entity in (*find_entities(unit.text), *_NUMBER.findall(unit.text))
    ]
    wanted = shape(draft.answer, MAX_WORDS)
    return [entity for entity in dict.fromkeys(found) if shape(entity, MAX_WORDS) == wanted]


def misread_context(draft: Draft, reason: str, answer: str, target: int, longer: bool) -> str:
    """Sentences of the context that the true reasoning does not use, those most similar to the question and to this side's `answer` first.

    Sentences that contain the gold answer are left out, unless it is a choice such as "yes". `fit_length` cuts the others to length; "" if there are none.
    """
    used = words_of(check_citations(reason, 0).text)
    gold = set() if choices_of(draft.answer) else words_of(draft.answer)
    quoted: dict[str, int] = {}
    for number, excerpt in enumerate(draft.excerpts, start=1):
        for text in (plain(unit.line) for unit in units_of(excerpt)):
            if text and not words_of(text) <= used and not (gold and gold <= words_of(text)):
                quoted.setdefault(text, number)
    sentences = list(quoted)
    scores = tfidf_cosines(f"{draft.question.text} {answer}", sentences)
    order = sorted(range(len(sentences)), key=lambda row: -scores[row])
    cited = [cite(sentences[row], [quoted[sentences[row]]]) for row in order]
    return " ".join(fit_length(cited, target, longer))


def borrow_reason(draft: Draft, pool: Pool, target: int, longer: bool) -> tuple[str, ...]:
    """The sentences of another question's reasoning: the closest in length to `target` words, if possible with more words (with `longer`)
    or with at most as many (without); () if there are none."""
    others = [other for other in pool.reasons if other.question_id != draft.question.id and other.words]
    if not others:
        return ()
    fitting = [other for other in others if (other.words > target) == longer] or others
    best = min(fitting, key=lambda other: (abs(other.words - target), content_id(draft.question.id, other.question_id)))
    return best.sentences


def fit_length(sentences: Sequence[str], target: int, longer: bool) -> tuple[str, ...]:
    """With `longer`, the fewest leading sentences that exceed `target` words, or all if none do; else as many as fit into `target`, but at least one.

    >>> fit_length(["a b", "c d", "e f"], 3, longer=True), fit_length(["a b", "c d", "e f"], 3, longer=False)
    (('a b', 'c d'), ('a b',))
    """
    words = 0
    for count, sentence in enumerate(sentences, start=1):
        words += count_words(sentence)
        if words > target:
            return tuple(sentences[: count if longer else max(count - 1, 1)])
    return tuple(sentences)


def cite_in_turn(sentences: Sequence[str], cited: Sequence[int]) -> str:
    """The sentences as one text, the first citing the first number, and so on; remaining numbers follow the last sentence.

    >>> cite_in_turn(["It rained.", "Tea."], [2, 1, 3])
    'It rained [2]. Tea [1] [3].'
    """
    *inner, last = sentences
    parts = [cite(sentence, cited[place : place + 1]) for place, sentence in enumerate(inner)]
    return " ".join([*parts, cite(last, cited[len(inner) :])])
