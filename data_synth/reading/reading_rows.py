"""Reading rows, after RAFT (Zhang et al. 2024, arXiv:2403.10131): several questions over one shuffled set of passages, some without their gold passage.

A context is made for one question: its gold passages (or, for a share, all but one) among passages of the same document and those that BM25
finds. All questions that its passages answer become rows over it, so that training reads the passages once. Where the passages do not hold
the answer, it is "not in the documents"; no other passage of a row holds its answer. Sets are published ones or a user's own index."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from data_synth.contexts import check_gold
from data_synth.reading.changed_questions import changed_question
from data_synth.reading.sets import YES_NO, ReadingQuestion, ReadingSet, normalise_question, read_set
from data_synth.rows import Dropped, ReadingRow
from graph.answer.context import of_passage
from graph.answer.prompt import NOT_FOUND, CitedSentence, answer_messages, with_title, write_answer
from graph.config import Settings
from graph.documents.questions import Question
from graph.shared.ids import content_id
from graph.text.bm25 import bm25, count_terms, term_weights, terms_of
from graph.text.prompting import quote
from graph.types import AnswerForm, Excerpt

if TYPE_CHECKING:
    from graph.index.index import Index


NO_SPAN = "the answer does not stand in its gold passages"
LONG_ANSWER = "the answer has too many words"
SURPLUS = "more answers are no than yes, or the other way round"
ELSEWHERE = "the question stands in another set, too"
LONG_CONTEXT = "the gold passages have too many words"
NO_GOLD = "the question names no gold passage"
LEXICAL = 5
"""How many of the passages that BM25 ranks first may stand beside the gold ones."""
PARTNERS = 20
"""How many waiting questions are looked at for one that may share a context."""
SHARED = 0.5
"""How often another question's gold passages are the first to stand beside a question's own."""


class Share(Settings):
    """How much is taken of one set: every question `passes` times, over other contexts; of each split at most `most_questions`."""

    passes: int = Field(
        default=1, ge=1, description="times that every question is taken, each time over another context"
    )
    most_questions: int | None = Field(default=None, ge=1, description="most questions of a split; null takes all")


class ReadingSettings(Settings):
    """How contexts are made, and of which sets: folders below the one that is imported, or that folder itself where none is named."""

    distractors: int = Field(default=4, ge=0, description="most passages beside the gold ones")
    without_gold: float = Field(default=0.2, ge=0, lt=1, description="share of rows without a gold passage")
    changed: float = Field(
        default=0.5, ge=0, le=1, description="share of those that ask with one name, number or word changed"
    )
    context_words: int = Field(default=600, ge=50, description="most words of the passages of a context")
    questions: int = Field(default=8, ge=1, description="most questions over one context that its passages answer")
    answer_words: int = Field(default=12, ge=1, description="longest answer, in words")
    form: AnswerForm = Field("cited", description="form of the answers")
    sets: dict[str, Share] = Field(default={}, description="folders of sets, and how much is taken of each")
    seed: int = Field(0, description="seed of every random choice")


ALL = Share()


def rows_of_sets(root: Path, settings: ReadingSettings) -> Iterator[ReadingRow | Dropped]:
    """The rows of all sets, set after set; a question that stands in several is taken from the first alone."""
    known: dict[str, str] = {}
    for name, share in (settings.sets or {"": Share()}).items():
        source = read_set(root / name)
        questions = [one for one in source.questions if known.setdefault(normalise_question(one.text), name) == name]
        yield from [Dropped(ELSEWHERE)] * (len(source.questions) - len(questions))
        yield from reading_rows(replace(source, questions=tuple(questions)), settings, share)


def reading_rows(source: ReadingSet, settings: ReadingSettings, share: Share = ALL) -> Iterator[ReadingRow | Dropped]:
    """The rows of a set, those of one context together; what becomes no row comes as Dropped."""
    finder = Distractors(source)
    for split in dict.fromkeys(question.split for question in source.questions):
        own = [question for question in source.questions if question.split == split]
        yield from _rows_of_split(source, own, finder, settings, share)


def answer_of(question: ReadingQuestion, passages: Mapping[str, Excerpt], most_words: int) -> str | Dropped:
    """The answer to learn: yes or no, or the first accepted one that stands in the gold passages word for word."""
    if not question.gold_ids:
        return Dropped(NO_GOLD)
    if question.is_yes_no:
        return question.answers[0].casefold()
    held = " ".join(words_of(with_title(passages[one])) for one in question.gold_ids)
    found = next((answer for answer in question.answers if contains_answer(answer, held)), None)
    if found is None:
        return Dropped(NO_SPAN)
    return quote(found) if len(found.split()) <= most_words else Dropped(LONG_ANSWER)


def words_of(text: str) -> str:
    """A text as its terms, with a space at both ends, so that whole words are found in it."""
    return f" {' '.join(terms_of(text))} "


def contains_answer(answer: str, words: str) -> bool:
    """Whether an answer stands in `words_of` a text.

    >>> contains_answer("1911", words_of("Built in 1911.")), contains_answer("19", words_of("Built in 1911."))
    (True, False)
    """
    own = words_of(answer)
    return own.strip() != "" and own in words


class Distractors:
    """For each question of a set, the passages that may stand beside its gold ones: of its document, and those that BM25 ranks first."""

    def __init__(self, source: ReadingSet) -> None:
        self._ids = list(source.passages)
        self._words = {one: words_of(with_title(passage)) for one, passage in source.passages.items()}
        counted = count_terms(with_title(passage) for passage in source.passages.values())
        self._row_of = {term: row for row, term in enumerate(counted.terms)}
        texts_W = np.diff(counted.count_WP.indptr)
        length_P = np.asarray(counted.count_WP.sum(axis=0)).ravel()
        self._idf_W, self._norm_P = term_weights(texts_W, length_P)
        self._count_WP = counted.count_WP
        gold_in: defaultdict[str, set[str]] = defaultdict(set)
        for question in source.questions:
            for one in question.gold_ids:
                gold_in[one].add(question.split)
        self._gold_in = gold_in

    def holds(self, passage: str, question: ReadingQuestion) -> bool:
        """Whether a passage has one of the question's answers in it; of yes and no, whether it is a gold one."""
        if question.is_yes_no or not question.answers:
            return passage in question.gold_ids
        return any(contains_answer(answer, self._words[passage]) for answer in question.answers)

    def of(self, question: ReadingQuestion) -> tuple[list[str], list[str]]:
        """(of the same document, of BM25's first), none of them gold, none with the answer, none gold in another split alone."""
        near = [one for one in question.context_ids if self._fits(one, question)]
        scores_P = np.zeros(len(self._ids), np.float32)
        for term in set(terms_of(question.text)):
            row = self._row_of.get(term)
            if row is not None:
                start, end = self._count_WP.indptr[row : row + 2]
                places = self._count_WP.indices[start:end]
                counts = self._count_WP.data[start:end]
                idf_X = np.full(len(places), self._idf_W[row], np.float32)
                scores_P[places] += bm25(counts, idf_X, self._norm_P[places])
        ranked = (self._ids[place] for place in np.argsort(-scores_P, kind="stable")[: 4 * LEXICAL])
        lexical = [one for one in ranked if self._fits(one, question)]
        return near, lexical[:LEXICAL]

    def may_stand(self, passages: Collection[str], question: ReadingQuestion) -> bool:
        """Whether all of these may stand beside the question's gold ones."""
        return all(self._fits(one, question) for one in passages)

    def words(self, passage: str) -> int:
        """How many words a passage has, with its title."""
        return self._words[passage].count(" ") - 1

    def _fits(self, passage: str, question: ReadingQuestion) -> bool:
        elsewhere = self._gold_in[passage] - {question.split}
        return passage not in question.gold_ids and not elsewhere and not self.holds(passage, question)


@dataclass(frozen=True)
class _AnswerableQuestion:
    """A question with the answer that is learned, and its distractors."""

    question: ReadingQuestion
    answer: str
    near: list[str]
    lexical: list[str]


class _QuestionsByPassage:
    """The questions of a split by the passages that they are near to."""

    def __init__(
        self,
        usable: Sequence[_AnswerableQuestion],
        unanswerable: Mapping[str, Sequence[ReadingQuestion]],
        finder: Distractors,
    ) -> None:
        self.by_gold: defaultdict[str, list[_AnswerableQuestion]] = defaultdict(list)
        self._beside: defaultdict[str, list[ReadingQuestion]] = defaultdict(list)
        self._unanswerable, self.finder = unanswerable, finder
        for one in usable:
            for passage in one.question.gold_ids:
                self.by_gold[passage].append(one)
            for passage in dict.fromkeys((*one.question.gold_ids, *one.near, *one.lexical)):
                self._beside[passage].append(one.question)

    def unanswered(
        self, ids: Sequence[str], count: int, other_than: ReadingQuestion, rng: random.Random
    ) -> list[ReadingQuestion]:
        """Up to `count` questions that the passages do not answer: those that the set says are unanswerable, then those near to a passage."""
        if count <= 0:
            return []
        own = {one.id: one for passage in ids for one in self._unanswerable.get(passage, ())}
        near = {one.id: one for passage in ids for one in self._beside[passage] if one.id != other_than.id}
        pools = [list(own.values()), list(near.values())]
        for pool in pools:
            rng.shuffle(pool)
        fitting = (question for question in chain.from_iterable(pools) if not self._is_answered(question, ids))
        return list(islice(fitting, count))

    def _is_answered(self, question: ReadingQuestion, ids: Sequence[str]) -> bool:
        whole = bool(question.gold_ids) and set(question.gold_ids) <= set(ids)
        return question.is_answerable and (whole or any(self.finder.holds(one, question) for one in ids))


def _rows_of_split(
    source: ReadingSet,
    questions: Sequence[ReadingQuestion],
    finder: Distractors,
    settings: ReadingSettings,
    share: Share,
) -> Iterator[ReadingRow | Dropped]:
    usable: list[_AnswerableQuestion] = []
    unanswerable: defaultdict[str, list[ReadingQuestion]] = defaultdict(list)
    for question in questions:
        if not question.is_answerable:
            for one in question.context_ids:
                unanswerable[one].append(question)
            continue
        answer = answer_of(question, source.passages, settings.answer_words)
        if isinstance(answer, Dropped):
            yield answer
        elif sum(map(finder.words, question.gold_ids)) > settings.context_words:
            yield Dropped(LONG_CONTEXT)
        else:
            usable.append(_AnswerableQuestion(question, answer, *finder.of(question)))
    rng = random.Random(content_id("reading", source.name, str(settings.seed)))
    rng.shuffle(usable)
    usable, surplus = balanced(usable)
    yield from surplus
    usable = usable[: share.most_questions]
    near = _QuestionsByPassage(usable, unanswerable, finder)
    context = 0
    for waiting in ({one.question.id: one for one in usable} for _ in range(share.passes)):
        while waiting:
            yield from _rows_of_context(source, context, waiting, near, rng, settings)
            context += 1


def balanced(usable: Sequence[_AnswerableQuestion]) -> tuple[list[_AnswerableQuestion], list[Dropped]]:
    """As many questions whose answer is yes as those whose answer is no, the first of each, and the others; what is left over, dropped."""
    count = {word: sum(one.answer == word for one in usable) for word in YES_NO}
    kept: list[_AnswerableQuestion] = []
    given = dict.fromkeys(YES_NO, 0)
    for one in usable:
        if one.answer in YES_NO:
            given[one.answer] += 1
        if given.get(one.answer, 0) <= min(count.values()):
            kept.append(one)
    return kept, [Dropped(SURPLUS)] * (len(usable) - len(kept))


def _rows_of_context(
    source: ReadingSet,
    context: int,
    waiting: dict[str, _AnswerableQuestion],
    near: _QuestionsByPassage,
    rng: random.Random,
    settings: ReadingSettings,
) -> list[ReadingRow]:
    """The rows over one context, made for the first question that waits; those that are asked over it wait no longer."""
    first = waiting.pop(next(iter(waiting)))
    others = [*first.near, *first.lexical]
    fits = settings.distractors > 0 and any(near.finder.words(one) <= settings.context_words for one in others)
    lost = rng.random() < settings.without_gold and (
        fits or (first.question.is_yes_no and len(first.question.gold_ids) > 1)
    )
    ids = _passages(first, lost, waiting, near.finder, rng, settings)
    answered = [] if lost else [first]
    for one in dict.fromkeys(each.question.id for passage in ids for each in near.by_gold[passage]):
        if one in waiting and len(answered) < settings.questions:
            gold = set(waiting[one].question.gold_ids)
            if gold <= set(ids) and near.finder.may_stand(set(ids) - gold, waiting[one].question):
                answered.append(waiting.pop(one))
    wanted = len(answered) * settings.without_gold / (1 - settings.without_gold) - lost
    excerpts = [source.passages[one] for one in ids]
    count = max(0, int(wanted + rng.random()))
    missing = [first.question] if lost else []
    missing += near.unanswered(ids, sum(rng.random() >= settings.changed for _ in range(count)), first.question, rng)
    missing += _changed([one.question for one in answered], excerpts, count + lost - len(missing), rng)
    rows = [_row(source.name, context, one.question, one.answer, excerpts, settings) for one in answered]
    rows += [_row(source.name, context, question, NOT_FOUND, excerpts, settings) for question in missing]
    rng.shuffle(rows)
    return rows


def _changed(
    answered: Sequence[ReadingQuestion], excerpts: Sequence[Excerpt], count: int, rng: random.Random
) -> list[ReadingQuestion]:
    """Up to `count` of the answered questions with one word changed, so that the passages do not answer them any more."""
    changed: list[ReadingQuestion] = []
    for question in rng.sample(answered, len(answered)):
        gold = " ".join(with_title(one) for one in excerpts if one.id in question.gold_ids)
        text = changed_question(question.text, gold, [one.text for one in excerpts], rng)
        if len(changed) < count and text is not None and not question.is_yes_no:
            changed.append(replace(question, id=f"{question.id}-changed", text=text))
    return changed


def _passages(
    first: _AnswerableQuestion,
    lost: bool,
    waiting: Mapping[str, _AnswerableQuestion],
    finder: Distractors,
    rng: random.Random,
    settings: ReadingSettings,
) -> list[str]:
    """The passages of a context in the order in which it shows them."""
    gold = list(first.question.gold_ids)
    if lost:
        holding = [one for one in gold if finder.holds(one, first.question)]
        away = [rng.choice(gold)] if first.question.is_yes_no else holding
        gold = [one for one in gold if one not in away]
    room = rng.randint(0 if gold else 1, settings.distractors)
    left = settings.context_words - sum(map(finder.words, gold))
    others: list[str] = []
    if rng.random() < SHARED:
        partners = (one.question.gold_ids for one in islice(waiting.values(), PARTNERS))
        others += next((ids for ids in partners if len(ids) <= room and finder.may_stand(ids, first.question)), ())
        others = [] if sum(map(finder.words, others)) > left else others
        left -= sum(map(finder.words, others))
    near, lexical = first.near[:], first.lexical[:]
    rng.shuffle(near)
    rng.shuffle(lexical)
    while len(others) < room and (near or lexical):
        pool = near if near and (not lexical or rng.random() < 0.5) else lexical
        one = pool.pop()
        if one not in others and finder.words(one) <= left:
            others.append(one)
            left -= finder.words(one)
    ids = list(dict.fromkeys([*gold, *others]))
    rng.shuffle(ids)
    return ids


def _row(
    name: str,
    context: int,
    question: ReadingQuestion,
    answer: str,
    excerpts: Sequence[Excerpt],
    settings: ReadingSettings,
) -> ReadingRow:
    number_of = {excerpt.id: number for number, excerpt in enumerate(excerpts, start=1)}
    cited = sorted(number_of[one] for one in question.gold_ids if one in number_of) if answer != NOT_FOUND else []
    evidence = tuple(CitedSentence(number, _sentence(question, excerpts[number - 1], answer)) for number in cited)
    return ReadingRow(
        id=f"{name}:{question.id}#{context}",
        prompt=answer_messages(question.text, excerpts, settings.form),
        completion=write_answer(answer, evidence, settings.form),
        question_id=question.id,
        question=question.text,
        answers=question.answers if answer != NOT_FOUND else (),
        kind=question.kind if answer != NOT_FOUND else "unanswerable",
        split=question.split,
        context_ids=tuple(excerpt.id for excerpt in excerpts),
        gold_ids=tuple(excerpts[number - 1].id for number in cited),
    )


def _sentence(question: ReadingQuestion, excerpt: Excerpt, answer: str) -> str:
    """The sentence of a gold passage that the set gives as evidence, one with the answer first; else the passage's first 200 characters."""
    own = [quote(one) for one in question.evidence if one and one in excerpt.text]
    return next(
        (one for one in own if contains_answer(answer, words_of(one))), own[0] if own else quote(excerpt.text)[:200]
    )


def set_of_index(index: Index, questions: Sequence[Question]) -> ReadingSet:
    """The passages of an index and `questions` over them; UserError where a gold document is not in the index."""
    check_gold(questions, frozenset(index.sources()))
    of_source = {source: [of_passage(passage) for passage in index.passages_of(source)] for source in index.sources()}
    passages = {excerpt.id: excerpt for excerpts in of_source.values() for excerpt in excerpts}
    return ReadingSet(
        index.folder.name, passages, tuple(_index_question(question, of_source) for question in questions)
    )


def _index_question(question: Question, of_source: dict[str, list[Excerpt]]) -> ReadingQuestion:
    """A question with the passages that hold its evidence, or without evidence its answer, and the others of their documents."""
    sources = dict.fromkeys((*question.gold_sources, *(quoted.source for quoted in question.evidence)))
    near = [excerpt for source in sources for excerpt in of_source[source]]
    found = [_passage_with_quote(of_source[quoted.source], quoted.text) for quoted in question.evidence]
    if not question.evidence:
        found = [_with_answer(of_source[source], question.answers) for source in sources]
    return ReadingQuestion(
        question.id,
        question.text,
        tuple(answer for answer in question.answers if answer.strip()),
        tuple(dict.fromkeys(one.id for one in found if one)) if all(found) else (),
        tuple(excerpt.id for excerpt in near),
        tuple(quoted.text for quoted in question.evidence),
        question.kind,
        question.split,
    )


def _passage_with_quote(excerpts: Iterable[Excerpt], quoted: str) -> Excerpt | None:
    """The first excerpt that a quote stands in, however its spaces are."""
    wanted = " ".join(quoted.split())
    return next((excerpt for excerpt in excerpts if wanted in " ".join(excerpt.text.split())), None)


def _with_answer(excerpts: Iterable[Excerpt], answers: Sequence[str]) -> Excerpt | None:
    """The first excerpt that one of the answers stands in."""
    held = ((excerpt, words_of(with_title(excerpt))) for excerpt in excerpts)
    return next((excerpt for excerpt, words in held if any(contains_answer(answer, words) for answer in answers)), None)
