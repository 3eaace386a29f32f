"""Reading rows, after RAFT (Zhang et al. 2024, arXiv:2403.10131): several questions about one shuffled set of passages, some without their gold passage.

A context is made for one question. It contains the question's gold passages (in a share of the contexts, only those without the answer), and
distractors: passages that the set names for the question, BM25's top hits, and another question's gold passages. Further questions that these passages
answer become rows with the same context, so that training reads the passages once. Where the passages lack the answer, the answer is "not in the
documents"; no distractor of a row contains its answer. A question that the set repeats with other gold passages is never refused, as further passages
may answer it. A set is either published or made from a user's own index."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from data_synth.reading.changed_questions import changed_question
from data_synth.reading.made_tables import made_tables
from data_synth.reading.reading_form import reading_problems
from data_synth.reading.sets import YES_NO, ReadingQuestion, ReadingSet, normalise_question, read_set
from data_synth.rows import Dropped, ReadingRow
from data_synth.texts import CACHED_PASSAGES, occurs_in, one_line, plain, words_of
from graph.answer.context import of_passage
from graph.answer.overlap import Wording, overlaps
from graph.answer.prompt import NOT_FOUND, CitedSentence, answer_messages, with_title, write_answer
from graph.config import Settings
from graph.documents.questions import Question, check_gold
from graph.errors import UserError
from graph.index.index import TermScores
from graph.shared.ids import content_id
from graph.text.bm25 import count_terms, term_weights, terms_of
from graph.text.prompting import quote
from graph.text.sentences import spell_out_row, spell_out_rows, split_units
from graph.text.word_forms import FUNCTION_WORDS, count_words
from graph.types import AnswerForm, Excerpt

if TYPE_CHECKING:
    from graph.index.index import Index


NO_SPAN = "the answer does not occur in its gold passages"
LONG_ANSWER = "the answer has too many words"
SURPLUS = "surplus of yes or of no answers"
REPEATED = "the question is also in an earlier set"
LONG_CONTEXT = "the gold passages have too many words"
NO_GOLD = "the question names no gold passage"
NO_CONTEXT = "the question has no answer and names no passage"
FAULTY = "the written answer fails the checks of `modegraph data validate`, for example because of a bracket in it"
MAX_LEXICAL = 5
"""Largest number of BM25's top passages that may be distractors of a row."""
MAX_PARTNERS = 20
"""Largest number of remaining questions that are tried in search of one that can share the context."""
SHARED_CONTEXTS = 0.5
"""Share of the contexts for which another question's gold passages are tried as the first distractors."""
MIN_STEMS = 0.8
"""A passage states an answer in other words if it has at least this share of the answer's stems (`overlaps`)."""


class Share(Settings):
    """The part of one set that is used: every answerable question `passes` times, with different contexts; at most `max_questions` of them per split."""

    passes: int = Field(
        default=1, ge=1, description="times that every answerable question is used, each time with a different context"
    )
    max_questions: int | None = Field(
        default=None, ge=1, description="largest number of answerable questions per split; null for all"
    )


class ReadingSettings(Settings):
    """How contexts are made."""

    distractors: int = Field(
        default=4, ge=0, description="largest number of distractors: passages besides the gold ones"
    )
    without_gold: float = Field(default=0.2, ge=0, lt=1, description="share of rows that answer “not in the documents”")
    paired: float = Field(
        default=0,
        ge=0,
        le=1,
        description=(
            "share of the questions that get a second row, which refuses over passages without the answer, so that the question "
            "alone does not reveal whether to refuse"
        ),
    )
    changed: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description=(
            "share of the refused questions, not counting those whose gold passages were left out, "
            "that are answerable ones with a name, number or word changed"
        ),
    )
    context_words: int = Field(default=600, ge=50, description="largest number of words in the passages of a context")
    questions: int = Field(
        default=8, ge=1, description="largest number of questions per context that its passages answer"
    )
    answer_words: int = Field(default=12, ge=1, description="longest answer, in words")
    own_words: bool = Field(
        default=False, description="whether to learn answers that no gold passage contains word for word"
    )
    form: AnswerForm = Field("cited", description="form of the answers")
    seed: int = Field(0, description="seed of every random choice")


class ImportSettings(ReadingSettings):
    """How contexts are made, and from which sets: folders below the imported one, or that folder itself if none is given."""

    sets: dict[str, Share] = Field(default={}, description="folders of sets, and how much of each is used")
    tables: int = Field(
        default=0,
        ge=0,
        description="number of made-up documents with a table; their questions are a further set, all in the train split",
    )


ALL = Share()


def rows_of_sets(root: Path, settings: ImportSettings) -> Iterator[ReadingRow | Dropped]:
    """The rows of all sets, one set after another, then those of made-up tables; a question that is in several sets is taken from the first only.

    UserError for two sets whose folders have the same name.
    """
    names = [Path(name).name for name in settings.sets]
    if repeated := [name for name in settings.sets if names.count(Path(name).name) > 1]:
        found = f"sets {', '.join(repeated)}: folders with the same name"
        raise UserError(found, "different names, since the ids of rows begin with them", "rename a folder")
    known: dict[str, str] = {}
    for name, share in (settings.sets or {"": ALL}).items():
        source = read_set(root / name)
        questions = [q for q in source.questions if known.setdefault(normalise_question(q.text), name) == name]
        yield from [Dropped(REPEATED)] * (len(source.questions) - len(questions))
        yield from reading_rows(replace(source, questions=tuple(questions)), settings, share)
    if settings.tables:
        yield from reading_rows(made_tables(settings.tables, settings.seed), settings)


def reading_rows(source: ReadingSet, settings: ReadingSettings, share: Share = ALL) -> Iterator[ReadingRow | Dropped]:
    """The rows of a set, grouped by context; Dropped for a question that cannot be used."""
    finder = Distractors(source)
    for split in dict.fromkeys(question.split for question in source.questions):
        questions = [question for question in source.questions if question.split == split]
        for row in _rows_of_split(source, questions, finder, settings, share):
            yield Dropped(FAULTY) if isinstance(row, ReadingRow) and reading_problems(row) else row


def answer_of(
    question: ReadingQuestion, passages: Mapping[str, Excerpt], most_words: int, own_words: bool = False
) -> str | Dropped:
    """The answer to learn: yes or no; else the first accepted answer that the gold passages contain word for word; else, with `own_words`, the first one.

    Dropped for a question that cannot be used.
    """
    if not question.gold_ids:
        return Dropped(NO_GOLD)
    if question.is_yes_no:
        return question.answers[0].casefold()
    gold_words = " ".join(words_of(with_title(passages[passage_id])) for passage_id in question.gold_ids)
    answer = next((answer for answer in question.answers if occurs_in(answer, gold_words)), None)
    if answer is None and not own_words:
        return Dropped(NO_SPAN)
    answer = answer or question.answers[0]
    return quote(answer) if count_words(answer) <= most_words else Dropped(LONG_ANSWER)


@lru_cache(maxsize=CACHED_PASSAGES)
def wording_of(passage: Excerpt) -> Wording:
    """The stems of a passage and its title."""
    return Wording.of(passage.title, passage.text)


def states(answer: str, wording: Wording) -> bool:
    """Whether a passage contains most stems of an answer, in any order.

    >>> states("They have had boats, four of them.", Wording.of("", "Four of the boats are theirs."))
    True
    """
    return not FUNCTION_WORDS.issuperset(terms_of(answer)) and overlaps(answer, [wording])[0] >= MIN_STEMS


class Distractors:
    """The possible distractors of each question of a set: its `context_ids`, and BM25's top hits."""

    def __init__(self, source: ReadingSet) -> None:
        self._ids = list(source.passages)
        self._passages = source.passages
        self._words = {passage_id: words_of(with_title(passage)) for passage_id, passage in source.passages.items()}
        self._sizes = {passage_id: count_words(words) for passage_id, words in self._words.items()}
        self._wordings: dict[str, Wording] = {}
        counted = count_terms(with_title(passage) for passage in source.passages.values())
        self._row_of = {term: row for row, term in enumerate(counted.terms)}
        texts_W = np.diff(counted.count_WP.indptr)
        length_P = np.asarray(counted.count_WP.sum(axis=0)).ravel()
        self._term_scores = TermScores(counted.count_WP, texts_W, *term_weights(texts_W, length_P))
        self._gold_splits: defaultdict[str, set[str]] = defaultdict(set)
        self._gold_of_text: defaultdict[str, set[str]] = defaultdict(set)
        for question in source.questions:
            for passage_id in question.gold_ids:
                self._gold_splits[passage_id].add(question.split)
            self._gold_of_text[normalise_question(question.text)].update(question.gold_ids)

    def recurs(self, question: ReadingQuestion) -> bool:
        """Whether the set also contains the question with further gold passages, as happens if the same question is about every document."""
        return self._gold_of_text[normalise_question(question.text)] > set(question.gold_ids)

    def has_answer(self, passage: str, question: ReadingQuestion) -> bool:
        """Whether a passage is gold for a question with the same wording, or contains one of the answers."""
        return passage in self._gold_of_text[normalise_question(question.text)] or self.contains(passage, question)

    def contains(self, passage: str, question: ReadingQuestion) -> bool:
        """Whether a passage contains an answer other than yes and no; a paraphrase counts if no gold passage has the answer word for word."""
        return not question.is_yes_no and any(
            occurs_in(answer, self._words[passage])
            or (self._is_paraphrase(answer, question) and states(answer, self._wording(passage)))
            for answer in question.answers
        )

    def may_answer(self, passages: Iterable[str], text: str) -> bool:
        """Whether one of the passages contains most stems of a question, or is gold for it. The question need not be in the set."""
        gold = self._gold_of_text.get(normalise_question(text), ())
        return any(passage in gold or states(text, self._wording(passage)) for passage in passages)

    def _is_paraphrase(self, answer: str, question: ReadingQuestion) -> bool:
        return not any(occurs_in(answer, self._words[gold]) for gold in question.gold_ids)

    def _wording(self, passage: str) -> Wording:
        if passage not in self._wordings:
            self._wordings[passage] = wording_of(self._passages[passage])
        return self._wordings[passage]

    def candidates(self, question: ReadingQuestion, most_lexical: int = MAX_LEXICAL) -> tuple[list[str], list[str]]:
        """(distractors among `context_ids`, at most `most_lexical` distractors among BM25's top hits).

        None of them is gold for the question or for a question of another split, and none contains the answer.
        """
        near = [passage_id for passage_id in question.context_ids if self._fits(passage_id, question)]
        ranked = self.ranked(question.text, 4 * most_lexical)
        lexical = [passage_id for passage_id in ranked if self._fits(passage_id, question)]
        return near, lexical[:most_lexical]

    def ranked(self, text: str, count: int) -> list[str]:
        """The `count` passages of the set that BM25 ranks highest for a question, best first."""
        terms = dict.fromkeys(terms_of(text))
        scores_P = self._term_scores.sum([self._row_of[term] for term in terms if term in self._row_of])
        return [self._ids[row] for row in np.argsort(-scores_P, kind="stable")[:count]]

    def are_distractors(self, passages: Collection[str], question: ReadingQuestion) -> bool:
        """Whether all of these passages may be distractors for the question."""
        return all(self._fits(passage, question) for passage in passages)

    def word_count(self, passage: str) -> int:
        """The number of words of a passage with its title."""
        return self._sizes[passage]

    def _fits(self, passage: str, question: ReadingQuestion) -> bool:
        other_splits = self._gold_splits[passage] - {question.split}
        return passage not in question.gold_ids and not other_splits and not self.has_answer(passage, question)


@dataclass(frozen=True)
class _AnswerableQuestion:
    """A question with the answer to learn, and its possible distractors."""

    question: ReadingQuestion
    answer: str
    near: list[str]
    lexical: list[str]


class _QuestionsByPassage:
    """The questions of a split by passage: those for which the passage is gold, and those for which it is gold or a possible distractor."""

    def __init__(
        self,
        usable: Sequence[_AnswerableQuestion],
        unanswerable: Mapping[str, Sequence[ReadingQuestion]],
        finder: Distractors,
    ) -> None:
        self.by_gold: defaultdict[str, list[_AnswerableQuestion]] = defaultdict(list)
        self._by_near: defaultdict[str, list[ReadingQuestion]] = defaultdict(list)
        self._unanswerable, self.finder = unanswerable, finder
        for item in usable:
            for passage in item.question.gold_ids:
                self.by_gold[passage].append(item)
            for passage in dict.fromkeys((*item.question.gold_ids, *item.near, *item.lexical)):
                self._by_near[passage].append(item.question)

    def unanswered(
        self, ids: Sequence[str], count: int, other_than: ReadingQuestion, rng: random.Random
    ) -> list[ReadingQuestion]:
        """Up to `count` questions, besides `other_than`, that the passages do not answer.

        First those marked as unanswerable in the set, then those for which one of the passages is gold or a possible distractor.
        """
        if count <= 0:
            return []
        marked = {q.id: q for passage in ids for q in self._unanswerable.get(passage, ())}
        near = {
            q.id: q
            for passage in ids
            for q in self._by_near[passage]
            if q.id != other_than.id and not self.finder.recurs(q)
        }
        pools = [list(marked.values()), list(near.values())]
        for pool in pools:
            rng.shuffle(pool)
        fitting = (question for question in chain.from_iterable(pools) if not self._is_answered(question, ids))
        return list(islice(fitting, count))

    def _is_answered(self, question: ReadingQuestion, ids: Sequence[str]) -> bool:
        has_all_gold = bool(question.gold_ids) and set(question.gold_ids) <= set(ids)
        return question.is_answerable and (has_all_gold or any(self.finder.has_answer(i, question) for i in ids))


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
            for passage_id in question.context_ids:
                unanswerable[passage_id].append(question)
            if not question.context_ids:
                yield Dropped(NO_CONTEXT)
            continue
        answer = answer_of(question, source.passages, settings.answer_words, settings.own_words)
        if isinstance(answer, Dropped):
            yield answer
        elif sum(map(finder.word_count, question.gold_ids)) > settings.context_words:
            yield Dropped(LONG_CONTEXT)
        else:
            usable.append(_AnswerableQuestion(question, answer, *finder.candidates(question)))
    rng = random.Random(content_id("reading", source.name, str(settings.seed)))
    rng.shuffle(usable)
    usable, surplus = balance_yes_and_no(usable)
    yield from surplus
    usable = usable[: share.max_questions]
    by_passage = _QuestionsByPassage(usable, unanswerable, finder)
    context = 0
    for waiting in ({item.question.id: item for item in usable} for _ in range(share.passes)):
        while waiting:
            without_gold = rng.random() < settings.without_gold
            yield from _rows_of_context(source, context, waiting, by_passage, rng, settings, without_gold)
            context += 1
    for item in usable if settings.paired else ():
        if rng.random() < settings.paired:
            alone = {item.question.id: item}
            rows = _rows_of_context(source, context, alone, by_passage, rng, settings, without_gold=True)
            yield from (row for row in rows if row.question_id == item.question.id and not row.gold_ids)
            context += 1


def balance_yes_and_no(usable: Sequence[_AnswerableQuestion]) -> tuple[list[_AnswerableQuestion], list[Dropped]]:
    """As many questions with the answer yes as with no (the first of each), and all other questions; Dropped for each surplus one."""
    total = {word: sum(item.answer == word for item in usable) for word in YES_NO}
    selected: list[_AnswerableQuestion] = []
    used = dict.fromkeys(YES_NO, 0)
    for item in usable:
        if item.answer in YES_NO:
            used[item.answer] += 1
        if used.get(item.answer, 0) <= min(total.values()):
            selected.append(item)
    return selected, [Dropped(SURPLUS)] * (len(usable) - len(selected))


def _rows_of_context(
    source: ReadingSet,
    context: int,
    waiting: dict[str, _AnswerableQuestion],
    by_passage: _QuestionsByPassage,
    rng: random.Random,
    settings: ReadingSettings,
    without_gold: bool,
) -> list[ReadingRow]:
    """The rows of one context, made for the first question in `waiting`. This question and the other answered ones are removed from `waiting`.

    `without_gold` is ignored for a question that recurs. It is also ignored if no distractor fits, except for a yes-or-no question with several gold passages.
    """
    first = waiting.pop(next(iter(waiting)))
    finder = by_passage.finder
    sizes = map(finder.word_count, (*first.near, *first.lexical))
    fits = settings.distractors > 0 and any(size <= settings.context_words for size in sizes)
    keeps_some_gold = first.question.is_yes_no and len(first.question.gold_ids) > 1
    without_gold = without_gold and (fits or keeps_some_gold) and not finder.recurs(first.question)
    ids = _passages(first, without_gold, waiting, finder, rng, settings)
    answered = [] if without_gold else [first]
    for key in dict.fromkeys(item.question.id for passage in ids for item in by_passage.by_gold[passage]):
        if key in waiting and len(answered) < settings.questions:
            gold = set(waiting[key].question.gold_ids)
            if gold <= set(ids) and finder.are_distractors(set(ids) - gold, waiting[key].question):
                answered.append(waiting.pop(key))
    expected = len(answered) * settings.without_gold / (1 - settings.without_gold) - without_gold
    excerpts = [source.passages[passage] for passage in ids]
    count = max(0, int(expected + rng.random()))
    unanswered = [first.question] if without_gold else []
    unchanged = sum(rng.random() >= settings.changed for _ in range(count))
    unanswered += by_passage.unanswered(ids, unchanged, first.question, rng)
    changed = _changed_questions([q.question for q in answered], excerpts, finder, rng)
    unanswered += changed[: max(0, count + without_gold - len(unanswered))]
    pairs = [(item.question, item.answer) for item in answered] + [(each, NOT_FOUND) for each in unanswered]
    rows = [_row(source.name, context, question, answer, excerpts, settings.form) for question, answer in pairs]
    rng.shuffle(rows)
    return rows


def _changed_questions(
    answered: Sequence[ReadingQuestion], excerpts: Sequence[Excerpt], finder: Distractors, rng: random.Random
) -> list[ReadingQuestion]:
    """The answered questions with a name, number or word changed, if the passages do not seem to answer the changed question."""
    changed: list[ReadingQuestion] = []
    texts = [excerpt.text for excerpt in excerpts]
    for question in rng.sample(answered, len(answered)):
        gold = [excerpt for excerpt in excerpts if excerpt.id in question.gold_ids]
        stated = " ".join(chain((excerpt.title for excerpt in gold), question.evidence or (one.text for one in gold)))
        text = changed_question(question.text, stated, texts, rng)
        others = [excerpt.id for excerpt in excerpts if excerpt.id not in question.gold_ids]
        if text is None or question.is_yes_no or finder.may_answer(others, text):
            continue
        if not any(states(text, wording) for wording in _other_sentences(gold, question)):
            changed.append(replace(question, id=f"{question.id}-changed", text=text))
    return changed


def _other_sentences(gold: Iterable[Excerpt], question: ReadingQuestion) -> Iterator[Wording]:
    """The sentences of the gold passages that are not the question's evidence, each with the title of its passage; none if the question has no evidence."""
    evidence = [one_line(sentence) for sentence in question.evidence]
    for excerpt in gold if evidence else ():
        for unit in split_units(excerpt.text, excerpt.header):
            text = one_line(unit.text)
            if not any(text in sentence or sentence in text for sentence in evidence):
                yield Wording.of(excerpt.title, unit.text)


def _passages(
    first: _AnswerableQuestion,
    without_gold: bool,
    waiting: Mapping[str, _AnswerableQuestion],
    finder: Distractors,
    rng: random.Random,
    settings: ReadingSettings,
) -> list[str]:
    """The passages of a context, in random order."""
    gold = list(first.question.gold_ids)
    if without_gold:
        with_answer = [passage for passage in gold if finder.contains(passage, first.question)]
        removed = [rng.choice(gold)] if first.question.is_yes_no else with_answer or gold
        gold = [passage for passage in gold if passage not in removed]
    count = rng.randint(0 if gold else 1, settings.distractors)
    words_left = settings.context_words - sum(map(finder.word_count, gold))
    others: list[str] = []
    if rng.random() < SHARED_CONTEXTS:
        partners = (partner.question.gold_ids for partner in islice(waiting.values(), MAX_PARTNERS))
        others += next((p for p in partners if len(p) <= count and finder.are_distractors(p, first.question)), ())
        others = [] if sum(map(finder.word_count, others)) > words_left else others
        words_left -= sum(map(finder.word_count, others))
    near, lexical = first.near[:], first.lexical[:]
    rng.shuffle(near)
    rng.shuffle(lexical)
    while len(others) < count and (near or lexical):
        pool = near if near and (not lexical or rng.random() < 0.5) else lexical
        passage = pool.pop()
        if passage not in others and finder.word_count(passage) <= words_left:
            others.append(passage)
            words_left -= finder.word_count(passage)
    ids = list(dict.fromkeys([*gold, *others]))
    rng.shuffle(ids)
    return ids


def _row(
    name: str, context: int, question: ReadingQuestion, answer: str, excerpts: Sequence[Excerpt], form: AnswerForm
) -> ReadingRow:
    """The row of a question with the context `excerpts`.

    In the form `reasoned`, the reason follows the order of the set's gold passages: in multi-hop sets, the order of the steps.
    """
    is_answered = answer != NOT_FOUND
    number_of = {excerpt.id: number for number, excerpt in enumerate(excerpts, start=1)}
    cited = [number_of[passage_id] for passage_id in question.gold_ids if is_answered and passage_id in number_of]
    if form != "reasoned":
        cited.sort()
    evidence = tuple(CitedSentence(number, _sentence(question, excerpts[number - 1], answer)) for number in cited)
    return ReadingRow(
        id=f"{name}:{question.id}#{context}",
        prompt=answer_messages(question.text, excerpts, form),
        completion=write_answer(answer, evidence, form),
        question_id=question.id,
        question=question.text,
        answers=question.answers if is_answered else (),
        kind=question.kind if is_answered else "unanswerable",
        split=question.split,
        context_ids=tuple(excerpt.id for excerpt in excerpts),
        gold_ids=tuple(excerpts[number - 1].id for number in cited),
    )


def _sentence(question: ReadingQuestion, excerpt: Excerpt, answer: str) -> str:
    """An evidence sentence of a gold passage as `plain` text, preferably one with the answer; without evidence, the passage's first 200 characters."""
    text = one_line(excerpt.text)
    found = (sentence for sentence in question.evidence if one_line(sentence) in text)
    plain_texts = (plain(spell_out_row(sentence, excerpt.text, excerpt.header)) for sentence in found)
    sentences = [sentence for sentence in plain_texts if sentence]
    with_answer = (sentence for sentence in sentences if occurs_in(answer, words_of(sentence)))
    return next(with_answer, sentences[0] if sentences else plain(spell_out_rows(excerpt.text, excerpt.header))[:200])


@lru_cache(maxsize=CACHED_PASSAGES)
def _words(excerpt: Excerpt) -> str:
    """`words_of` a passage with its title."""
    return words_of(with_title(excerpt))


def set_of_index(index: Index, questions: Sequence[Question]) -> ReadingSet:
    """The passages of an index and `questions` about them; UserError if a gold document is not in the index."""
    check_gold(questions, frozenset(index.sources()))
    by_source = {source: [of_passage(passage) for passage in index.passages_of(source)] for source in index.sources()}
    return set_of_passages(index.folder.absolute().name, by_source, questions)


def set_of_passages(name: str, by_source: Mapping[str, Sequence[Excerpt]], questions: Iterable[Question]) -> ReadingSet:
    """The passages of documents, by source, and `questions` about them."""
    passages = {excerpt.id: excerpt for excerpts in by_source.values() for excerpt in excerpts}
    return ReadingSet(name, passages, tuple(_reading_question(question, by_source) for question in questions))


def _reading_question(question: Question, by_source: Mapping[str, Sequence[Excerpt]]) -> ReadingQuestion:
    """A question with its gold passages, and all passages of the documents that it names.

    The gold passages are those that contain its evidence or, without evidence, its answer. There are none if no passage is found for one of the evidence
    quotes or, without evidence, in one of the gold documents.
    """
    near = [excerpt for source in question.sources for excerpt in by_source[source]]
    gold = [_passage_with_quote(by_source[quoted.source], quoted.text) for quoted in question.evidence]
    if not question.evidence:
        gold = [passage_with_answer(by_source[source], question) for source in question.sources]
    return ReadingQuestion(
        question.id,
        question.text,
        tuple(answer for answer in question.answers if answer.strip()),
        tuple(dict.fromkeys(passage.id for passage in gold if passage)) if all(gold) else (),
        tuple(excerpt.id for excerpt in near),
        tuple(quoted.text for quoted in question.evidence),
        question.kind,
        question.split,
    )


def _passage_with_quote(excerpts: Iterable[Excerpt], quoted: str) -> Excerpt | None:
    """The first excerpt that contains a quote, ignoring differences in white space."""
    line = one_line(quoted)
    return next((excerpt for excerpt in excerpts if line in one_line(excerpt.text)), None)


def passage_with_answer(excerpts: Sequence[Excerpt], question: Question) -> Excerpt | None:
    """The first excerpt that contains one of the answers word for word, else the first that states one in other words.

    For yes and no, the first with the most stems of the question.
    """
    if not YES_NO.isdisjoint(map(str.casefold, question.answers)):
        return max(excerpts, key=lambda excerpt: overlaps(question.text, [wording_of(excerpt)])[0], default=None)
    found = (each for each in excerpts if any(occurs_in(one, _words(each)) for one in question.answers))
    stated = (excerpt for excerpt in excerpts if any(states(one, wording_of(excerpt)) for one in question.answers))
    return next(chain(found, stated), None)
