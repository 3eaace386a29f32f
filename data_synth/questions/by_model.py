"""Questions written by a model (HLG §5.2): one model writes the question and its answer and names the passages it needs; a second one may judge them.

The writer is shown one passage of each of 3 to 5 related articles, or a single passage. A question is used only if at least 80 % of its answer's words
occur in the snippets that retrieval finds for it. Every reply is structured and requested at most twice; dropped questions are counted
by reason.

Legend: K topics, N propositions, P passages.
"""

import json
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
from graph.extract.grounding import best_span, share_supported
from graph.index.index import Index
from graph.retrieve.parts.query import Caller
from graph.text.prompting import fill, quote, quote_passage, read_prompt
from graph.text.replies import ReplyModel, Sentence, at_most, numbers_up_to, one_of, plain
from graph.text.sentences import Unit, spell_out_rows, split_units
from graph.types import Excerpt, LanguageModel, Passage

UNUSABLE = "the writer's reply was unusable twice, or refused"
UNJUDGED = "the critic's reply was unusable twice, or refused"
EMPTY = "no question or no answer"
NO_QUESTION_MARK = "no question mark at the end"
MOST_ANSWER_WORDS = 30
LONG_ANSWER = f"an answer of more than {MOST_ANSWER_WORDS} words"
NO_SUCH_PASSAGE = "needs a passage that was not shown"
OTHER_HOPS = "needs a different number of articles than requested"
GIVEN_AWAY = "the question gives its answer away"
UNCLEAR = "the critic: not clear on its own"
UNANSWERED = "the critic: the passages do not answer it"
NOT_ALL_NEEDED = "the critic: not every passage is needed"
NOT_REBUILT = "retrieval does not find the words of the answer"
NEAR_DUPLICATE = "a near duplicate"
USED_UP = "an article with enough questions"

QUESTION_OF_SENTENCE = "data_synth/ask_one.txt"
GROUPS_AT_ONCE = 16
MAX_FAILURES_IN_A_ROW = 64
"""Writing stops after this many replies in a row without a usable question."""
LEAST_WORDS = 5
MIN_ARTICLES, MAX_ARTICLES = 3, 5
MAX_SHARING = 20
"""An entity in more documents than this does not form a group."""
QUESTION_MARKS = ("?", "？", "؟", ";")
"""Question marks of Latin, East Asian, Arabic and Greek scripts."""
MAX_QUESTION_TOKENS, MAX_CRITIQUE_TOKENS = 400, 60
MIN_REBUILT = 0.8
"""Share of the answer's words that must occur in the snippets."""

FindSnippets = Callable[[Sequence[str]], Sequence[str]]
"""Maps questions to the text of the snippets that retrieval finds for each."""


class WrittenQuestion(ReplyModel):
    """The reply of the writer; `passages` are numbers, from 1. The fields are in the order in which a small model should determine them."""

    passages: Annotated[list[Annotated[int, one_of(99)]], at_most("maxItems", MAX_ARTICLES)]
    answer: Annotated[str, at_most("maxLength", 150)]
    question: Sentence


class QuestionOfPassage(ReplyModel):
    """The reply of the writer about a single passage, whose number is known."""

    passages: SkipJsonSchema[list[int]] = Field(default_factory=lambda: [1])
    answer: Annotated[str, at_most("maxLength", 150)]
    question: Sentence


class Critique(ReplyModel):
    """The reply of the critic."""

    clear: bool
    answered: bool
    needs_all: bool


@dataclass(frozen=True)
class Writers:
    """The model that writes, the one that judges (if any), and the retrieval that must find the answers."""

    writer: LanguageModel
    critic: LanguageModel | None
    find_snippets: FindSnippets


def model_questions(
    groups: Iterable[tuple[Passage, ...]], writers: Writers, count: int, hops: Sequence[int], splits: Mapping[str, str]
) -> Iterator[QuestionRow | Dropped]:
    """Up to `count` questions over `groups` of passages, and the dropped ones, in the order of the groups.

    All documents of a group are in one split (`splits`, by document), which becomes that of its question. UserError when a model stops answering.
    """
    remaining, usable, failures, earlier = iter(groups), 0, 0, DuplicateFilter()
    while usable < count and (batch := list(islice(remaining, min(GROUPS_AT_ONCE, count - usable)))):
        drafts = write_questions(batch, writers.writer, hops, splits)
        if writers.critic is not None:
            drafts = judge_questions(drafts, batch, writers.critic)
        for row in rebuild_answers(drafts, writers.find_snippets):
            outcome = _drop_duplicate(row, earlier) if isinstance(row, QuestionRow) else row
            usable += isinstance(outcome, QuestionRow)
            failures = 0 if isinstance(outcome, QuestionRow) else failures + 1
            yield outcome
        if failures >= MAX_FAILURES_IN_A_ROW:
            return


def write_questions(
    groups: Sequence[tuple[Passage, ...]], writer: LanguageModel, hops: Sequence[int], splits: Mapping[str, str]
) -> list[QuestionRow | Dropped]:
    """One question for each group of passages, about one fact where the groups are single passages; Dropped for an unusable reply."""
    prompts = [_numbered(group) for group in groups]
    caller = Caller(writer)
    replies: Sequence[WrittenQuestion | QuestionOfPassage | None]
    if all(len(group) == 1 for group in groups):
        replies = caller.ask(QuestionOfPassage, read_prompt("data_synth/ask_one.txt"), prompts, MAX_QUESTION_TOKENS)
    else:
        numbers = numbers_up_to(max(map(len, groups)), min(hops), max(hops))
        system = fill("data_synth/ask.txt", number=_either(hops))
        replies = caller.ask(WrittenQuestion, system, prompts, MAX_QUESTION_TOKENS, passages=numbers)
    return [
        Dropped(UNUSABLE, caller.first_unusable or "")
        if reply is None
        else _row(reply, group, hops, writer.name, splits[group[0].source])
        for reply, group in zip(replies, groups, strict=True)
    ]


def judge_questions(
    drafts: Sequence[QuestionRow | Dropped], groups: Sequence[tuple[Passage, ...]], critic: LanguageModel
) -> list[QuestionRow | Dropped]:
    """The questions that the critic finds clear, answered, and in need of all their passages; Dropped for the others."""
    rows = [(row, group) for row, group in zip(drafts, groups, strict=True) if isinstance(row, QuestionRow)]
    replies = iter(
        Caller(critic).ask(
            Critique,
            read_prompt("data_synth/critique.txt"),
            [_critique_message(row, group) for row, group in rows],
            MAX_CRITIQUE_TOKENS,
        )
    )
    return [_verdict(row, next(replies)) if isinstance(row, QuestionRow) else row for row in drafts]


def rebuild_answers(
    drafts: Sequence[QuestionRow | Dropped], find_snippets: FindSnippets
) -> list[QuestionRow | Dropped]:
    """The questions whose answers occur in the snippets that retrieval finds for them; Dropped for the others."""
    rows = [row for row in drafts if isinstance(row, QuestionRow)]
    snippets = iter(find_snippets([row.text for row in rows]) if rows else ())
    return [
        row
        if isinstance(row, Dropped) or share_supported(row.answers[0], next(snippets)) >= MIN_REBUILT
        else Dropped(NOT_REBUILT, _one_line(row.text, row.answers[0]))
        for row in drafts
    ]


def _either(numbers: Sequence[int]) -> str:
    """Numbers as a choice.

    >>> _either((2, 3, 4)), _either((2,))
    ('2, 3 or 4', '2')
    """
    return " or ".join(filter(None, (", ".join(map(str, numbers[:-1])), str(numbers[-1]))))


def _row(
    reply: WrittenQuestion | QuestionOfPassage, group: tuple[Passage, ...], hops: Sequence[int], writer: str, split: str
) -> QuestionRow | Dropped:
    text, answer = quote(plain(reply.question)), quote(plain(reply.answer))
    numbers = sorted(set(reply.passages))
    faults = {
        EMPTY: not text or not answer,
        NO_QUESTION_MARK: not text.endswith(QUESTION_MARKS),
        LONG_ANSWER: len(answer.split()) > MOST_ANSWER_WORDS,
        NO_SUCH_PASSAGE: not all(1 <= number <= len(group) for number in numbers),
        OTHER_HOPS: len(numbers) not in hops,
        GIVEN_AWAY: named_in(answer, text),
    }
    fault = next((why for why, applies in faults.items() if applies), None)
    if fault is not None:
        return Dropped(fault, _one_line(text, answer))
    steps = tuple(_step(group[number - 1], f"{text} {answer}") for number in numbers)
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


def _step(passage: Passage, query: str) -> Step:
    """A needed passage, with the part of it that shares most words with question and answer."""
    start, end = best_span(query, passage.text, passage.header)
    return Step("", "", passage.source, passage.id, passage.text[start:end])


def _verdict(row: QuestionRow, critique: Critique | None) -> QuestionRow | Dropped:
    if critique is None:
        return Dropped(UNJUDGED)
    checks = {UNCLEAR: critique.clear, UNANSWERED: critique.answered, NOT_ALL_NEEDED: critique.needs_all}
    line = _one_line(row.text, row.answers[0])
    return next((Dropped(why, line) for why, passed in checks.items() if not passed), row)


def _one_line(question: str, answer: str) -> str:
    return f"{question} (answer: {answer})"


def _drop_duplicate(row: QuestionRow, earlier: DuplicateFilter) -> QuestionRow | Dropped:
    if earlier.is_duplicate(row):
        return Dropped(NEAR_DUPLICATE, _one_line(row.text, row.answers[0]))
    if earlier.is_used_up(row):
        return Dropped(USED_UP, _one_line(row.text, row.answers[0]))
    earlier.add(row)
    return row


def _critique_message(row: QuestionRow, group: tuple[Passage, ...]) -> str:
    needed = tuple(passage for passage in group if passage.id in row.passage_ids)
    return f"Question: {quote(row.text)}\nAnswer: {quote(row.answers[0])}\n\n{_numbered(needed)}"


def _numbered(passages: Sequence[Passage | Excerpt]) -> str:
    texts = (spell_out_rows(passage.text, passage.header) for passage in passages)
    quoted = (quote_passage(passage.title, text) for passage, text in zip(passages, texts, strict=True))
    return "\n\n".join(f"[{number}] {each}" for number, each in enumerate(quoted, 1))


def sentence_prompt(passage: Passage | Excerpt, sentence: Unit) -> str:
    """The user's turn for a question about one sentence (or table row) of a passage."""
    return f"{_numbered((passage,))}\nSentence: {json.dumps(quote(sentence.line), ensure_ascii=False)}"


def sentences_of(passage: Passage | Excerpt) -> list[Unit]:
    """The sentences and table rows of a passage that a question can be about: no headings, and none of fewer than LEAST_WORDS words."""
    units = split_units(passage.text, passage.header)
    return [unit for unit in units if unit.kind != "heading" and len(unit.line.split()) >= LEAST_WORDS]


def single_passages(index: Index, seed: int) -> Iterator[tuple[Passage, ...]]:
    """Every passage as a separate group, in an order drawn by `seed`."""
    count = len(index.data.passage_document_P)
    return ((index.passage(row),) for row in Random(seed).sample(range(count), count))


def article_groups(index: Index, seed: int, splits: Mapping[str, str]) -> Iterator[tuple[Passage, ...]]:
    """Distinct groups in an order drawn by `seed`: one passage per article, all articles of one split.

    Each group starts with the articles of one topic or entity; a group that is too small grows by articles that share an entity with it.
    """
    mentions, rng = Mentions(index), Random(seed)
    split_P = [splits[index.data.document_sources[int(row)]] for row in index.data.passage_document_P]
    earlier: set[frozenset[int]] = set()
    by_entity = (sorted(mentions.passages_about(key)) for key in mentions.shared_entities(MAX_SHARING))
    seeds = [*_by_topic(index), *by_entity]
    for passages in rng.sample(seeds, len(seeds)):
        group = _grow_group(mentions, rng.sample(passages, len(passages)), split_P)
        if len(group) >= MIN_ARTICLES and frozenset(group) not in earlier:
            earlier.add(frozenset(group))
            yield tuple(index.passage(row) for row in group)


def _by_topic(index: Index) -> Iterator[list[int]]:
    for topic in range(len(index.data.topic_ids)):
        propositions = np.array(columns_of(index.data.topic_proposition_KN, topic), np.int64)
        yield sorted(set(index.proposition_passage_NP[propositions, :].indices.tolist()))


def _grow_group(mentions: Mentions, passages: list[int], split_P: Sequence[str]) -> list[int]:
    """One passage of each article in the split of the first, up to MAX_ARTICLES; if these are too few, also of articles that
    share an entity with them."""
    of_document = mentions.index.data.passage_document_P
    group: dict[int, int] = {}
    for passage in passages:
        if split_P[passage] == split_P[passages[0]]:
            group.setdefault(int(of_document[passage]), passage)
    waiting = list(group.values())
    while waiting and len(group) < MIN_ARTICLES:
        for key in sorted(mentions.linking_entities(waiting.pop(0))):
            for passage in sorted(mentions.passages_about(key)):
                if int(of_document[passage]) not in group and split_P[passage] == split_P[passages[0]]:
                    group[int(of_document[passage])] = passage
                    waiting.append(passage)
    return list(group.values())[:MAX_ARTICLES]
