"""Questions by a model (HLG §5.2): one writes question, answer and needed passages, a second one judges them.

Kept is what can be answered: the words of the answer must stand in the snippets that retrieval finds for the question.
Every reply is structured and asked for at most twice; what is lost is counted by its reason.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from data_synth.questions.duplicate_filter import DuplicateFilter, id_of
from data_synth.questions.types import QuestionRow, Step, named_in
from data_synth.types import Dropped
from graph.documents.questions import split_by_hash
from graph.extract.support import best_span, share_supported
from graph.retrieve.parts.caller import Caller
from graph.shared.types import LanguageModel, Passage
from graph.text.prompting import quote, quote_passage, read_prompt
from graph.text.structured import ReplyModel, Sentence, at_most, one_of, plain

UNUSABLE = "the writer's reply was unusable twice, or refused"
UNJUDGED = "the critic's reply was unusable twice, or refused"
EMPTY = "no question or no answer"
NOT_ASKED = "no question mark at the end"
MOST_ANSWER_WORDS = 30
LONG_ANSWER = f"an answer of more than {MOST_ANSWER_WORDS} words"
NO_SUCH_PASSAGE = "needs a passage that was not shown"
OTHER_HOPS = "needs another number of articles than asked for"
GIVEN_AWAY = "the question gives its answer away"
UNCLEAR = "the critic: not clear by itself"
UNANSWERED = "the critic: the passages do not answer it"
NOT_ALL_NEEDED = "the critic: not every passage is needed"
NOT_REBUILT = "the answer cannot be rebuilt from what retrieval finds"
NEAR_DUPLICATE = "a near duplicate"
USED_UP = "an article with enough questions"

GROUPS_AT_ONCE = 16
QUESTION_MARKS = ("?", "？", "؟", ";")
"""Of Latin, East Asian, Arabic and Greek scripts."""
MAX_QUESTION_TOKENS, MAX_CRITIQUE_TOKENS = 400, 60
MIN_REBUILT = 0.8
"""Share of the answer's words that must stand in the snippets."""

FindSnippets = Callable[[Sequence[str]], Sequence[str]]
"""Questions to the text of the snippets that retrieval finds for each."""


class WrittenQuestion(ReplyModel):
    """What the writer says; `passages` are numbers, from 1."""

    question: Sentence
    answer: Sentence
    passages: Annotated[list[Annotated[int, one_of(99)]], at_most("maxItems", 5)]


class Critique(ReplyModel):
    """What the critic says."""

    clear: bool
    answered: bool
    needs_all: bool


@dataclass(frozen=True)
class Writers:
    """Who writes and who judges (nobody, if there is no critic), and how answers are looked for."""

    writer: LanguageModel
    critic: LanguageModel | None
    find_snippets: FindSnippets


def model_questions(
    groups: Iterable[tuple[Passage, ...]], writers: Writers, count: int, hops: Sequence[int]
) -> Iterator[QuestionRow | Dropped]:
    """Up to `count` questions over `groups` of passages, and what was lost on the way, in the order of the groups.

    UserError when a model cannot be asked any more.
    """
    left, made, kept = iter(groups), 0, DuplicateFilter()
    while made < count and (together := list(islice(left, min(GROUPS_AT_ONCE, count - made)))):
        drafts = write_questions(together, writers.writer, hops)
        if writers.critic is not None:
            drafts = judge_questions(drafts, together, writers.critic)
        for row in rebuild_answers(drafts, writers.find_snippets):
            outcome = _new(row, kept) if isinstance(row, QuestionRow) else row
            made += isinstance(outcome, QuestionRow)
            yield outcome


def write_questions(
    groups: Sequence[tuple[Passage, ...]], writer: LanguageModel, hops: Sequence[int]
) -> list[QuestionRow | Dropped]:
    """One question for each group of passages; Dropped where none came that can be used."""
    shown = [_numbered(group) for group in groups]
    replies = Caller(writer).ask(WrittenQuestion, read_prompt("data_synth/ask.txt"), shown, MAX_QUESTION_TOKENS)
    return [
        Dropped(UNUSABLE) if reply is None else _row(reply, group, hops, writer.name)
        for reply, group in zip(replies, groups, strict=True)
    ]


def judge_questions(
    drafts: Sequence[QuestionRow | Dropped], groups: Sequence[tuple[Passage, ...]], critic: LanguageModel
) -> list[QuestionRow | Dropped]:
    """Those questions that the critic finds clear, answered, and in need of all their passages."""
    rows = [(row, group) for row, group in zip(drafts, groups, strict=True) if isinstance(row, QuestionRow)]
    replies = iter(
        Caller(critic).ask(
            Critique, read_prompt("data_synth/critique.txt"), [_judged(*each) for each in rows], MAX_CRITIQUE_TOKENS
        )
    )
    return [_verdict(row, next(replies)) if isinstance(row, QuestionRow) else row for row in drafts]


def rebuild_answers(
    drafts: Sequence[QuestionRow | Dropped], find_snippets: FindSnippets
) -> list[QuestionRow | Dropped]:
    """Those questions whose answer's words stand in what retrieval finds for them."""
    rows = [row for row in drafts if isinstance(row, QuestionRow)]
    snippets = iter(find_snippets([row.text for row in rows]) if rows else ())
    return [
        row
        if isinstance(row, Dropped) or share_supported(row.answers[0], next(snippets)) >= MIN_REBUILT
        else Dropped(NOT_REBUILT)
        for row in drafts
    ]


def _row(reply: WrittenQuestion, group: tuple[Passage, ...], hops: Sequence[int], writer: str) -> QuestionRow | Dropped:
    text, answer = quote(plain(reply.question)), quote(plain(reply.answer))
    numbers = sorted(set(reply.passages))
    if not text or not answer:
        return Dropped(EMPTY)
    if not text.endswith(QUESTION_MARKS):
        return Dropped(NOT_ASKED)
    if len(answer.split()) > MOST_ANSWER_WORDS:
        return Dropped(LONG_ANSWER)
    if not all(1 <= number <= len(group) for number in numbers):
        return Dropped(NO_SUCH_PASSAGE)
    if len(numbers) not in hops:
        return Dropped(OTHER_HOPS)
    if named_in(answer, text):
        return Dropped(GIVEN_AWAY)
    steps = tuple(_step(group[number - 1], f"{text} {answer}") for number in numbers)
    return QuestionRow(
        id=id_of(text),
        text=text,
        answers=(answer,),
        kind="written",
        hops=len(steps),
        split=split_by_hash(text),
        chains=(steps,),
        bridges=(),
        writer=writer,
    )


def _step(passage: Passage, wanted: str) -> Step:
    """A needed passage, by the sentences of it that share most with question and answer."""
    start, end = best_span(wanted, passage.text)
    return Step("", "", passage.source, passage.id, passage.text[start:end])


def _verdict(row: QuestionRow, critique: Critique | None) -> QuestionRow | Dropped:
    if critique is None:
        return Dropped(UNJUDGED)
    faults = {UNCLEAR: critique.clear, UNANSWERED: critique.answered, NOT_ALL_NEEDED: critique.needs_all}
    return next((Dropped(why) for why, fine in faults.items() if not fine), row)


def _new(row: QuestionRow, kept: DuplicateFilter) -> QuestionRow | Dropped:
    if kept.is_duplicate(row):
        return Dropped(NEAR_DUPLICATE)
    if kept.is_used_up(row):
        return Dropped(USED_UP)
    kept.add(row)
    return row


def _judged(row: QuestionRow, group: tuple[Passage, ...]) -> str:
    needed = tuple(passage for passage in group if passage.id in row.passage_ids)
    return f"Question: {quote(row.text)}\nAnswer: {quote(row.answers[0])}\n\n{_numbered(needed)}"


def _numbered(passages: Sequence[Passage]) -> str:
    shown = (f"[{number}] {quote_passage(passage.title, passage.text)}" for number, passage in enumerate(passages, 1))
    return "\n\n".join(shown)
