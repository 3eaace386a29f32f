"""The questions of a tuning run, made by rules, written by a teacher or given by the user.

They are divided into two parts, for training and for testing, with no documents or facts in common."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from data_synth.questions.by_rules import UNANSWERABLE, template_questions
from data_synth.questions.make import QuestionSpec, candidate_rows
from data_synth.questions.question_form import question_to_json
from data_synth.reading.reading_rows import passage_with_answer, set_of_index
from data_synth.reading.sets import ReadingQuestion, ReadingSet, normalise_question
from data_synth.rows import Dropped
from graph.answer.context import build_context
from graph.config import parse_settings
from graph.documents.questions import Question, check_gold, parse_question, read_question_rows, read_questions
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.ids import content_id
from graph.types import LanguageModel
from modegraph.tuning.settings import TuneSettings

Row = dict[str, Any]
"""A row of a file of questions, as `read_questions` reads it."""
HOPS, UNANSWERABLE_SHARE = (1, 2), 0.2
LARGER_SHARES = (0.4, 0.5)
"""Shares of documents to test on, tried if the share in the settings gives too few questions."""
PASSAGES_SEARCHED = 10
NO_ANSWER = "no answer is given"
NOT_FOUND = "the answer is in none of the passages found for the question"
BOTH_PARTS = "its documents are in both parts"
NO_PASSAGE = "a sentence of its evidence (or its answer, if it has no evidence) is in no passage of its documents"
REPEATED = "it repeats an earlier question"
SHARED_FACT = "its evidence, or the same question with the same answer, is in both parts"


@dataclass(frozen=True)
class SplitQuestions:
    """The questions, each with its split, the split of each document, and how many questions were left out, by reason."""

    rows: Sequence[Row]
    documents: Mapping[str, str]
    left_out: Counter[str]

    def count(self, split: str, answerable: bool = False) -> int:
        """The number of questions in a split; with `answerable`, only of those that have an answer."""
        return sum(row["split"] == split and (bool(row["answers"]) or not answerable) for row in self.rows)


def split_questions(
    index: Index, settings: TuneSettings, teacher_questions: Sequence[Row | Dropped] = ()
) -> SplitQuestions:
    """The questions for training and testing: the user's, or the teacher's and those made by rules; UserError for too few documents or questions."""
    text_of = {
        source: content_id(*(passage.text for passage in index.passages_of(source))) for source in index.sources()
    }
    given, with_questions = teacher_questions, set(text_of)
    if settings.questions is not None:
        given = user_rows(index, Path(settings.questions))
        usable = (row for row in given if not isinstance(row, Dropped))
        with_questions = {source for row in usable for source in row["gold_ids"]}
    texts = {text_of[source] for source in with_questions}
    check_distinct(len(texts), "distinct documents with questions")
    for share in (settings.test_share, *(each for each in LARGER_SHARES if each > settings.test_share)):
        splits = split_documents(text_of, texts, settings.seed, share)
        rows = with_splits(given, splits)
        if settings.questions is None:
            rows = chain(rows, rule_rows(index, settings, splits))
        found = usable_questions(index, rows, splits)
        enough = found.count("test") >= settings.min_test_questions and found.count("test", answerable=True)
        if enough and found.count("train", answerable=True):
            return found
    reasons = "".join(f"; {count} left out: {why}" for why, count in found.left_out.most_common())
    counts = f"{found.count('train')} questions to learn from and {found.count('test')} to test on{reasons}"
    expected = f"questions with answers in both parts, and {settings.min_test_questions} or more to test on"
    raise UserError(counts, expected, "add documents, or give your own --questions")


def check_distinct(count: int, what: str) -> None:
    """UserError for fewer than two documents: they cannot be divided."""
    if count < 2:
        remedy = "add documents, or save the sections of a document as separate files"
        raise UserError(f"{what}: {count}", "two or more: some to learn from, the others to test on", remedy)


def split_documents(text_of: Mapping[str, str], candidates: Iterable[str], seed: int, share: float) -> dict[str, str]:
    """The split of each document, the same for copies of one text: a `share` of the candidate texts, at least one, is for testing.

    >>> split_documents({"a": "x", "b": "y", "c": "x"}, ["x", "y"], 0, 0.5)
    {'a': 'train', 'b': 'test', 'c': 'train'}
    """
    order = sorted(candidates, key=lambda text: content_id("tune", str(seed), text))
    test = set(order[: max(1, round(share * len(order)))])
    return {source: "test" if text in test else "train" for source, text in text_of.items()}


def rule_rows(index: Index, settings: TuneSettings, splits: Mapping[str, str]) -> Iterator[Row]:
    """Questions from the index's sentences."""
    rows = template_questions(index, settings.max_questions, HOPS, settings.seed, UNANSWERABLE_SHARE, splits)
    return map(question_to_json, rows)


def teacher_rows(
    index: Index, settings: TuneSettings, teacher: LanguageModel, judge: LanguageModel, seconds: float
) -> list[Row | Dropped]:
    """Questions that `teacher` writes within `seconds`, each about one sentence of a document.

    A question is usable only if retrieval ranks this document first and `judge` gives the same answer from the passage of the sentence; a Dropped
    stands for each unusable question.
    """
    spec = QuestionSpec(settings.max_questions, (1,), settings.seed)
    search = parse_settings(RetrieveSettings, {"top_k": PASSAGES_SEARCHED}, "tune")
    deadline = time.monotonic() + seconds
    candidates = candidate_rows(index, spec, teacher, judge, search)
    return [
        row if isinstance(row, Dropped) else question_to_json(row)
        for row in takewhile(lambda _: time.monotonic() < deadline, candidates)
    ]


def user_rows(index: Index, file: Path) -> list[Row | Dropped]:
    """The user's questions, each with the gold documents that its row names.

    An answerable question whose row names no document gets the document that `find_sources` finds. A Dropped stands for each question whose answer
    is not found, and for each question without an answer whose kind is not `unanswerable`.
    """
    questions = read_questions(file)
    check_gold(questions, frozenset(index.sources()))
    gold_of = {question.id: list(question.sources) for question in questions}
    unlocated = [question for question in questions if question.answers and not gold_of[question.id]]
    for question, source in zip(unlocated, find_sources(index, unlocated), strict=True):
        gold_of[question.id] += [source] if source else []
    rows: list[Row | Dropped] = []
    for question, (_, row) in zip(questions, read_question_rows(file), strict=True):
        gold = gold_of[question.id]
        if question.answers and not gold:
            rows.append(Dropped(NOT_FOUND))
        elif question.answers or question.kind == UNANSWERABLE:
            rows.append(row | {"answers": list(question.answers), "gold_ids": gold})
        else:
            rows.append(Dropped(NO_ANSWER))
    return rows


def find_sources(index: Index, questions: Sequence[Question]) -> list[str]:
    """For each question, the document of the retrieved passage that `passage_with_answer` chooses; "" if it finds none."""
    settings = parse_settings(RetrieveSettings, {"top_k": PASSAGES_SEARCHED}, "tune")
    evidences = retrieve_many(index, [question.text for question in questions], settings)
    found = (
        passage_with_answer(build_context(evidence, PASSAGES_SEARCHED), question)
        for question, evidence in zip(questions, evidences, strict=True)
    )
    return [excerpt.source if excerpt else "" for excerpt in found]


def with_splits(rows: Iterable[Row | Dropped], splits: Mapping[str, str]) -> Iterator[Row | Dropped]:
    """The questions with the split of their documents, or Dropped if these are in both parts; questions without documents are for testing."""
    for row in rows:
        if isinstance(row, Dropped):
            yield row
            continue
        parts = {splits[source] for source in row["gold_ids"]} or {"test"}
        yield Dropped(BOTH_PARTS) if len(parts) > 1 else row | {"split": parts.pop()}


def usable_questions(index: Index, rows: Iterable[Row | Dropped], splits: Mapping[str, str]) -> SplitQuestions:
    """The distinct questions whose passages are known or that are unanswerable, without test questions about facts that are also in the training part.

    The others are counted in `left_out`.
    """
    left_out: Counter[str] = Counter()
    by_id: dict[str, Row] = {}
    for row in rows:
        if isinstance(row, Dropped):
            left_out[row.why] += 1
        elif row["id"] in by_id:
            left_out[REPEATED] += 1
        else:
            by_id[row["id"]] = row
    candidates = list(by_id.values())
    source = set_of_index(index, [parse_question(row, row["id"]) for row in candidates])
    shared = shared_facts(source, splits)
    used = []
    for row, question in zip(candidates, source.questions, strict=True):
        if question.is_answerable and not question.gold_ids:
            left_out[NO_PASSAGE] += 1
        elif question.id in shared:
            left_out[SHARED_FACT] += 1
        else:
            used.append(row)
    return SplitQuestions(used, splits, left_out)


def shared_facts(source: ReadingSet, splits: Mapping[str, str]) -> set[str]:
    """The ids of the test questions with a piece of evidence (or, without evidence, a gold passage) that occurs word for word in a training document,
    and of those that are also training questions with the same answer.

    The same question with another answer does not count: the documents may be copies of one form, filled in differently.
    """
    passages = [passage for passage in source.passages.values() if splits[passage.source] == "train"]
    text = folded(" ".join(passage.text for passage in passages))

    def with_answers(question: ReadingQuestion) -> set[tuple[str, str]]:
        return {(normalise_question(question.text), folded(answer)) for answer in question.answers or [""]}

    def facts(question: ReadingQuestion) -> Sequence[str]:
        return question.evidence or [source.passages[passage_id].text for passage_id in question.gold_ids]

    trained_on = {pair for question in source.questions if question.split == "train" for pair in with_answers(question)}
    return {
        question.id
        for question in source.questions
        if question.split == "test"
        and (with_answers(question) & trained_on or any(folded(fact) in text for fact in facts(question)))
    }


def folded(text: str) -> str:
    """A string with its case folded and white space reduced to single spaces."""
    return " ".join(text.casefold().split())
