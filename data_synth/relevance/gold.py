"""Questions with the relevance data in their file: the gold sentences, the documents published with each question, and its split.

Public multi-hop sets give gold sentences as `supporting_sentences`, [document id, sentence number] pairs that refer to the
`sentences` of their corpus file, and the documents of a question as `context_ids`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_synth.relevance.relevance_form import GoldQuestion
from graph.documents.questions import Question, Quote, read_question_rows, read_questions
from graph.errors import UserError
from graph.shared.jsonl import read_jsonl

CORPUS = "corpus.jsonl"
"""The name of the file with the sentences, looked for in the folder of the questions by default."""


def read_gold_questions(file: Path) -> list[GoldQuestion]:
    """The questions of a file, or of a folder written by `synth questions`, in order; UserError with the line number for a malformed field."""
    questions = read_questions(file)
    rows = {row["id"]: (row, where) for where, row in read_question_rows(file)}
    return [_gold_question(question, *rows[question.id]) for question in questions]


def with_sentences(questions: Sequence[GoldQuestion], corpus: Path) -> list[GoldQuestion]:
    """The questions with the text of their numbered gold sentences as evidence; a question that already has evidence keeps it.

    UserError if `corpus` is needed and missing, or has no sentence of a given number.
    """
    numbers = [() if one.question.evidence else one.gold_numbers for one in questions]
    if not any(numbers):
        return list(questions)
    if not corpus.is_file():
        found = f"{corpus}: no such file, but the questions refer to sentences of its documents by number"
        raise UserError(found, 'the corpus file with "sentences"', "give --corpus FILE")
    sources = {source for pairs in numbers for source, _ in pairs}
    sentences = {row["id"]: row.get("sentences", []) for _, row in read_jsonl(corpus) if row.get("id") in sources}
    return [
        replace(one, question=replace(one.question, evidence=_quotes(sentences, pairs, one.question.id)))
        if pairs
        else one
        for one, pairs in zip(questions, numbers, strict=True)
    ]


def check_sources(questions: Iterable[GoldQuestion], sources: Collection[str]) -> None:
    """UserError when a document of a question, gold or not, is not among `sources`, those of the index."""
    known = set(sources)
    for gold in questions:
        for source in (*gold.gold_sources, *gold.own_sources):
            if source not in known:
                found = f"question {gold.question.id!r} names document {source!r}, which is not in the index"
                expected = "an index of the documents that the questions were written for"
                remedy = "index those documents, or fix gold_ids, evidence, supporting_sentences and context_ids"
                raise UserError(found, expected, remedy)


def _gold_question(question: Question, row: Mapping[str, Any], where: str) -> GoldQuestion:
    own, pairs = row.get("context_ids", []), row.get("supporting_sentences", [])
    if not isinstance(own, list) or not all(isinstance(source, str) for source in own):
        raise UserError(f"{where}: 'context_ids' is {str(own)[:80]}", "a list of document ids", "fix the row")
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        found = f"{where}: 'supporting_sentences' is {str(pairs)[:80]}"
        raise UserError(found, "a list of [document id, sentence number] pairs", "fix the row")
    return GoldQuestion(question, tuple(own), tuple((source, number) for source, number in pairs), row.get("split"))


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int)


def _quotes(
    sentences: Mapping[str, list[str]], pairs: Iterable[tuple[str, int]], question_id: str
) -> tuple[Quote, ...]:
    quotes = []
    for source, number in pairs:
        texts = sentences.get(source)
        if texts is None or not 0 <= number < len(texts):
            problem = "is not in the corpus file" if texts is None else f"has {len(texts)} sentences in the corpus file"
            found = f"question {question_id!r}: gold sentence {number} of {source!r}, which {problem}"
            expected = "the corpus that the sentence numbers refer to"
            raise UserError(found, expected, "give it as --corpus, or fix the row")
        quotes.append(Quote(source, texts[number]))
    return tuple(quotes)
