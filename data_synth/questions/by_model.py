"""Questions written by a model (HLG §5.2): one model writes the question and its answer; a second one may answer the question again.

The writer is shown either a single passage and one of its sentences, or one passage from each of 3 to 5 related articles; in the second case it also
states which of the passages the answer needs. A question about a sentence is used only if its answer is in the sentence, if the question contains a name that
few documents contain, and if retrieval finds the sentence's document first; a question about several articles, only if at least 80 % of its answer's
words occur in the excerpts that retrieval finds. A judge, if there is one, must give the same answer from the needed passages together but, if there
are several, from no single one (round-trip consistency, Alberti et al. 2019). Every reply is structured and requested at most twice;
dropped questions are counted by reason.

Legend: K topics, N propositions, P passages.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from data_synth.questions.check import DuplicateFilter, id_of
from data_synth.questions.index_statements import Mentions, columns_of
from data_synth.questions.question_form import QuestionRow, Step, named_in
from data_synth.rows import Dropped
from graph.answer.citations import short_answer
from graph.answer.context import of_passage
from graph.answer.match import contains_answer, token_f1
from graph.answer.prompt import ANSWER_TOKENS, answer_messages, is_no_answer
from graph.extract.grounding import best_span, share_supported
from graph.index.index import Index
from graph.retrieve.parts.query import Caller
from graph.retrieve.parts.words import row_of_term
from graph.store.columns.moved import take_rows
from graph.text.bm25 import terms_of
from graph.text.prompting import fill, quote, quote_passage, read_prompt
from graph.text.replies import ReplyModel, Sentence, as_one_line, at_most, number_up_to, numbers_up_to
from graph.text.sentences import Unit, spell_out_rows, split_units
from graph.text.word_forms import FUNCTION_WORDS, count_words, is_caseless, is_name
from graph.types import CompletionRequest, Excerpt, LanguageModel, Passage

UNUSABLE = "the writer's reply was unusable twice, or refused"
EMPTY = "no question or no answer"
NO_QUESTION_MARK = "no question mark at the end"
MAX_ANSWER_WORDS = 30
LONG_ANSWER = f"an answer of more than {MAX_ANSWER_WORDS} words"
NO_SUCH_PASSAGE = "needs a passage that was not shown"
OTHER_HOPS = "needs a different number of articles than requested"
GIVEN_AWAY = "the question gives its answer away"
UNNAMED_REFERENCE = "the question refers to something that it does not name"
NOT_IN_SENTENCE = "the answer is not in the sentence"
NAMES_NOTHING = "the question contains no name that few documents contain"
ANOTHER_FIRST = "retrieval finds another document first"
ANSWER_NOT_RETRIEVED = "retrieval does not find the words of the answer"
UNANSWERED = "the judge finds no answer"
ANOTHER_ANSWER = "the judge gives another answer"
NOT_ALL_NEEDED = "the judge needs only one of the passages"
NEAR_DUPLICATE = "a near duplicate"
USED_UP = "one of its articles has enough questions already"

QUESTION_OF_SENTENCE = "data_synth/ask_one.txt"
BATCH_SIZE = 16
MAX_FAILURES_IN_A_ROW = 64
"""Writing stops at the end of a batch if at least this many replies in a row gave no usable question."""
MIN_WORDS = 5
MIN_ARTICLES, MAX_ARTICLES = 3, 5
MAX_SHARING = 20
"""An entity in more documents than this does not form a group."""
MAX_QUESTION_TOKENS = 400
MAX_WITH_NAME = 0.1
"""Largest share of the documents that may contain the name by which a question identifies one of them."""
MIN_RETRIEVED = 0.8
"""Lowest share of the answer's words that must occur in the excerpts."""
SAME_ANSWER = 0.6
"""Lowest F1 at which the judge's answer counts as the same as the writer's."""
_REFERENCE = re.compile(
    r"\b(?:(?:the|this) (?:passage|sentence|paragraph|excerpt)|mentioned|it|its|he|him|his|she|hers?|they|them|their|this|these|we|us|our|my)\b",
    re.IGNORECASE,
)
_ACRONYM = re.compile(r"\b[A-Z]{2,}\b")
_QUESTION_MARK = re.compile(r"[?？؟\u037e]$|[\u0370-\u03ff\u1f00-\u1fff].*;$")
"""The question marks of Latin, East Asian, Arabic and Greek scripts; in Greek text, also the semicolon."""
Find = Callable[[Sequence[str]], Sequence[Sequence[Excerpt]]]
"""Maps questions to the excerpts that retrieval finds for each, the best first."""


@dataclass(frozen=True)
class Material:
    """The subject of a question: a passage of each of several related articles, or a `sentence` (or table row) of one passage."""

    passages: tuple[Passage, ...]
    sentence: Unit | None = None


class WrittenQuestion(ReplyModel):
    """The reply of the writer; `passages` are numbers, from 1. The fields are in the order in which a small model should determine them."""

    passages: Annotated[list[Annotated[int, number_up_to(99)]], at_most("maxItems", MAX_ARTICLES)]
    answer: Annotated[str, at_most("maxLength", 150)]
    question: Sentence


class QuestionOfSentence(ReplyModel):
    """The reply of the writer about a sentence of a single passage, whose number is known."""

    passages: SkipJsonSchema[list[int]] = Field(default_factory=lambda: [1])
    answer: Annotated[str, at_most("maxLength", 150)]
    question: Sentence


@dataclass(frozen=True)
class Writers:
    """The model that writes questions, the model that answers them again (if any), the retrieval that must find their passages, and the test of whether a
    question names its document."""

    writer: LanguageModel
    judge: LanguageModel | None
    find: Find
    is_named: Callable[[str], bool]


def model_questions(
    materials: Iterable[Material], writers: Writers, count: int, hops: Sequence[int], splits: Mapping[str, str]
) -> Iterator[QuestionRow | Dropped]:
    """Up to `count` questions about `materials`, and the dropped ones, in the order of the materials.

    `splits` maps each document to its split; all documents of a material are in the same split, and so is its question. Writing ends after a batch if
    the last MAX_FAILURES_IN_A_ROW questions or more were unusable. UserError when a model stops answering.
    """
    remaining, usable, failures, earlier = iter(materials), 0, 0, DuplicateFilter()
    while usable < count and (batch := list(islice(remaining, BATCH_SIZE))):
        rows = write_questions(batch, writers.writer, hops, splits)
        rows = _drop(rows, lambda row: "" if row.hops > 1 or writers.is_named(row.text) else NAMES_NOTHING)
        rows = drop_unretrieved(rows, writers.find)
        if writers.judge is not None:
            rows = answer_again(rows, batch, writers.judge)
        for row in rows:
            outcome = _drop_duplicate(row, earlier) if isinstance(row, QuestionRow) else row
            if usable == count:
                return
            usable += isinstance(outcome, QuestionRow)
            failures = 0 if isinstance(outcome, QuestionRow) else failures + 1
            yield outcome
        if failures >= MAX_FAILURES_IN_A_ROW:
            return


def write_questions(
    materials: Sequence[Material], writer: LanguageModel, hops: Sequence[int], splits: Mapping[str, str]
) -> list[QuestionRow | Dropped]:
    """One question about each of the materials, which are all sentences or all groups of articles; Dropped for an unusable reply."""
    caller = Caller(writer)
    replies: Sequence[WrittenQuestion | QuestionOfSentence | None]
    if sentences := [each.sentence for each in materials if each.sentence is not None]:
        prompts = [
            sentence_prompt(each.passages[0], sentence) for each, sentence in zip(materials, sentences, strict=True)
        ]
        replies = caller.ask(QuestionOfSentence, read_prompt(QUESTION_OF_SENTENCE), prompts, MAX_QUESTION_TOKENS)
    else:
        numbers = numbers_up_to(max(len(each.passages) for each in materials), min(hops), max(hops))
        system = fill("data_synth/ask.txt", number=_either(hops))
        prompts = [_numbered(each.passages) for each in materials]
        replies = caller.ask(WrittenQuestion, system, prompts, MAX_QUESTION_TOKENS, passages=numbers)
    return [
        Dropped(UNUSABLE, caller.first_unusable or "")
        if reply is None
        else _row(reply, each, hops, writer.name, splits[each.passages[0].source])
        for reply, each in zip(replies, materials, strict=True)
    ]


def _drop(rows: Iterable[QuestionRow | Dropped], why_of: Callable[[QuestionRow], str]) -> list[QuestionRow | Dropped]:
    """The rows, with Dropped in place of each question for which `why_of` gives a reason; it is called once per question, in order."""
    return [row if isinstance(row, Dropped) or not (why := why_of(row)) else _dropped(why, row) for row in rows]


def names_document(question: str, index: Index) -> bool:
    """Whether a question contains a name that distinguishes its document: one of the name's terms occurs in at most a share MAX_WITH_NAME of the documents,
    or in only one document.

    A name is a word after the first, other than a function word, that has a capital, a digit, or a full stop inside the word. True where no name is needed
    or can be recognised: in an index of one document, and for a question whose script has no capitals.
    """
    data = index.data
    if len(data.document_sources) == 1 or is_caseless(question):
        return True
    limit = max(1, MAX_WITH_NAME * len(data.document_sources))
    names = [word for word in question.split()[1:] if is_name(word) and word.casefold() not in FUNCTION_WORDS]
    rows = [row for name in names for term in terms_of(name) if (row := row_of_term(index, term)) is not None]
    passages = (take_rows(data.term_count_WP, np.array([row])).indices for row in rows)
    return any(len(np.unique(data.passage_document_P[each])) <= limit for each in passages)


def drop_unretrieved(rows: Sequence[QuestionRow | Dropped], find: Find) -> list[QuestionRow | Dropped]:
    """The questions for which retrieval finds what they need (`_not_found`); Dropped for the others."""
    questions = [row.text for row in rows if isinstance(row, QuestionRow)]
    found = iter(find(questions) if questions else ())
    return _drop(rows, lambda row: _not_found(row, next(found)))


def answer_again(
    rows: Sequence[QuestionRow | Dropped], materials: Sequence[Material], judge: LanguageModel
) -> list[QuestionRow | Dropped]:
    """The questions that the judge answers as the writer did from all needed passages but, if there are several, from no single one; Dropped for the others."""
    pairs = zip(rows, materials, strict=True)
    questions = [(row.text, _contexts(row, each)) for row, each in pairs if isinstance(row, QuestionRow)]
    requests = [
        CompletionRequest(answer_messages(text, context, judge.form), ANSWER_TOKENS[judge.form])
        for text, contexts in questions
        for context in contexts
    ]
    texts = iter([short_answer(each.text) for each in judge.complete(requests)] if requests else ())
    answers = iter([[next(texts) for _ in contexts] for _, contexts in questions])
    return _drop(rows, lambda row: _disagreement(row, next(answers)))


def _not_found(row: QuestionRow, excerpts: Sequence[Excerpt]) -> str:
    if row.hops == 1:
        return "" if excerpts and excerpts[0].source == row.sources[0] else ANOTHER_FIRST
    words = " ".join(excerpt.text for excerpt in excerpts)
    return "" if share_supported(row.answers[0], words) >= MIN_RETRIEVED else ANSWER_NOT_RETRIEVED


def _contexts(row: QuestionRow, material: Material) -> list[list[Excerpt]]:
    """The needed passages together, then, if there are several, each alone."""
    needed = [of_passage(passage) for passage in material.passages if passage.id in row.passage_ids]
    return [needed, *([each] for each in needed if len(needed) > 1)]


def _disagreement(row: QuestionRow, answers: Sequence[str]) -> str:
    """Why the judge's answers, in the order of `_contexts`, rule out a question; "" if they do not."""
    together, *alone = (token_f1(answer, row.answers) >= SAME_ANSWER for answer in answers)
    if is_no_answer(answers[0]):
        return UNANSWERED
    return ANOTHER_ANSWER if not together else NOT_ALL_NEEDED if any(alone) else ""


def _either(numbers: Sequence[int]) -> str:
    """Numbers as a choice.

    >>> _either((2, 3, 4)), _either((2,))
    ('2, 3 or 4', '2')
    """
    return " or ".join(filter(None, (", ".join(map(str, numbers[:-1])), str(numbers[-1]))))


def _row(
    reply: WrittenQuestion | QuestionOfSentence, material: Material, hops: Sequence[int], writer: str, split: str
) -> QuestionRow | Dropped:
    text, answer = quote(as_one_line(reply.question)), quote(as_one_line(reply.answer))
    numbers, passages, sentence = sorted(set(reply.passages)), material.passages, material.sentence
    faults = {
        EMPTY: not text or not answer,
        NO_QUESTION_MARK: not _QUESTION_MARK.search(text),
        LONG_ANSWER: count_words(answer) > MAX_ANSWER_WORDS,
        NO_SUCH_PASSAGE: not all(1 <= number <= len(passages) for number in numbers),
        OTHER_HOPS: len(numbers) not in hops,
        GIVEN_AWAY: named_in(answer, text),
        UNNAMED_REFERENCE: refers_to_unnamed(text),
        NOT_IN_SENTENCE: sentence is not None and not contains_answer(sentence.line, [answer]),
    }
    fault = next((why for why, applies in faults.items() if applies), None)
    if fault is not None:
        return Dropped(fault, _with_answer(text, answer))
    steps = tuple(_step(passages[number - 1], f"{text} {answer}", sentence) for number in numbers)
    return QuestionRow(
        id=id_of(text),
        text=text,
        answers=(answer,),
        kind="written",
        hops=len(steps),
        split=split,
        chains=(steps,),
        bridges=(),
        writer=writer,
    )


def _step(passage: Passage, query: str, sentence: Unit | None) -> Step:
    """A needed passage, quoting the sentence that the question is about or else the part that shares the most words with question and answer."""
    start, end = (sentence.start, sentence.end) if sentence else best_span(query, passage.text, passage.header)
    return Step("", "", passage.source, passage.id, passage.text[start:end])


def _dropped(why: str, row: QuestionRow) -> Dropped:
    return Dropped(why, _with_answer(row.text, row.answers[0]))


def _with_answer(question: str, answer: str) -> str:
    return f"{question} (answer: {answer})"


def _drop_duplicate(row: QuestionRow, earlier: DuplicateFilter) -> QuestionRow | Dropped:
    if row.id in earlier.ids or earlier.is_duplicate(row):
        return _dropped(NEAR_DUPLICATE, row)
    if earlier.uses_exhausted_document(row):
        return _dropped(USED_UP, row)
    earlier.add(row)
    return row


def _numbered(passages: Sequence[Passage | Excerpt]) -> str:
    texts = (spell_out_rows(passage.text, passage.header) for passage in passages)
    quoted = (quote_passage(passage.title, text) for passage, text in zip(passages, texts, strict=True))
    return "\n\n".join(f"[{number}] {each}" for number, each in enumerate(quoted, 1))


def refers_to_unnamed(question: str) -> bool:
    """Whether a question refers to something that it does not name, or to its passage.

    >>> refers_to_unnamed("When did they build it?"), refers_to_unnamed("Which US yard runs the IT of the Lantern?")
    (True, False)
    """
    return _REFERENCE.search(question if question.isupper() else _ACRONYM.sub("", question)) is not None


def sentence_prompt(passage: Passage | Excerpt, sentence: Unit) -> str:
    """The user's turn for a question about one sentence (or table row) of a passage."""
    return f"{_numbered((passage,))}\nSentence: {json.dumps(quote(sentence.line), ensure_ascii=False)}"


def sentences_of(passage: Passage | Excerpt) -> list[Unit]:
    """The sentences and table rows of a passage that a question can be about: no headings, and none of fewer than MIN_WORDS words."""
    units = split_units(passage.text, passage.header)
    return [unit for unit in units if unit.kind != "heading" and count_words(unit.line) >= MIN_WORDS]


def sentences_in_turn(index: Index, seed: int) -> Iterator[Material]:
    """One sentence or table row of every passage, then a second one of each, and so on; passages and sentences in a random order that `seed` determines."""
    count, turn = len(index.data.passage_document_P), 0
    rows = Random(seed).sample(range(count), count)
    while rows:
        longer = []
        for row in rows:
            passage = index.passage(row)
            sentences = sentences_of(passage)
            if turn < len(sentences):
                drawn = Random(f"{seed} {passage.id}").sample(sentences, len(sentences))
                yield Material((passage,), drawn[turn])
                longer.append(row)
        rows, turn = longer, turn + 1


def article_groups(
    index: Index, seed: int, splits: Mapping[str, str], at_least: int = MIN_ARTICLES
) -> Iterator[Material]:
    """Distinct groups of `at_least` to MAX_ARTICLES passages in a random order that `seed` determines: one passage per article, all articles in the same split.

    Each group starts with the articles of one topic or entity; a group that is too small grows by articles that share an entity with it.
    """
    mentions, rng = Mentions(index), Random(seed)
    split_P = [splits[index.data.document_sources[int(row)]] for row in index.data.passage_document_P]
    earlier: set[frozenset[int]] = set()
    by_entity = (sorted(mentions.passages_about(key)) for key in mentions.shared_entities(MAX_SHARING))
    seeds = [*_by_topic(index), *by_entity]
    for passages in rng.sample(seeds, len(seeds)):
        group = _grow_group(mentions, rng.sample(passages, len(passages)), split_P, at_least)
        if len(group) >= at_least and frozenset(group) not in earlier:
            earlier.add(frozenset(group))
            yield Material(tuple(index.passage(row) for row in group))


def _by_topic(index: Index) -> Iterator[list[int]]:
    for topic in range(len(index.data.topic_ids)):
        propositions = np.array(columns_of(index.data.topic_proposition_KN, topic), np.int64)
        yield sorted(set(index.proposition_passage_NP[propositions, :].indices.tolist()))


def _grow_group(mentions: Mentions, passages: list[int], split_P: Sequence[str], at_least: int) -> list[int]:
    """One passage of each article that is in the split of the first passage, up to MAX_ARTICLES; if these are fewer than `at_least`, also passages of other
    articles that share an entity with them."""
    of_document = mentions.index.data.passage_document_P
    group: dict[int, int] = {}
    for passage in passages:
        if split_P[passage] == split_P[passages[0]]:
            group.setdefault(int(of_document[passage]), passage)
    waiting = list(group.values())
    while waiting and len(group) < at_least:
        for key in sorted(mentions.linking_entities(waiting.pop(0))):
            for passage in sorted(mentions.passages_about(key)):
                if int(of_document[passage]) not in group and split_P[passage] == split_P[passages[0]]:
                    group[int(of_document[passage])] = passage
                    waiting.append(passage)
    return list(group.values())[:MAX_ARTICLES]
