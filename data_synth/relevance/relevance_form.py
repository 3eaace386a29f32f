"""The types of relevance data: a question with its gold documents and those it was published with, and the row for one of its candidate propositions.
Also functions that read the questions from their file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from data_synth.rows import Form, row_fields, row_from_json, row_schema, split_problems
from graph.documents.questions import Question, Quote, check_indexed, read_question_rows, read_questions
from graph.errors import UserError
from graph.retrieve.learned.light import FEATURES
from graph.shared.jsonl import read_jsonl
from graph.text.word_forms import count_words

if TYPE_CHECKING:
    import pyarrow as pa

FoundBy = Literal["gold", "own", "walk", "cosine"]
"""Why a proposition is a candidate: it is in a gold document ("gold") or in another document published with the question ("own"), or it is a hard
negative found by a random walk ("walk") or by cosine ("cosine")."""
LabelledBy = Literal["sentence", "passage", "model"]
"""The source of a relevance label: a gold sentence ("sentence"), a gold passage or document ("passage"), or a language model's choice ("model")."""
LABELS = {0: "irrelevant", 1: "relevant"}
FEATURE_DIGITS = 6
SplitBy = Literal["passages", "questions"]
"""What no two splits share: questions, passages and propositions ("passages"), or only questions ("questions")."""
SPLIT_BY = "Split by"
"""The key of the SplitBy value in a dataset's summary."""


@dataclass(frozen=True)
class GoldQuestion:
    """A question with the relevance data that its file has in addition to the gold documents.

    `own_sources` are the documents it was published with, gold ones and distractors; `gold_numbers` its gold sentences as (document,
    number) pairs; `stated_split` is None if the file states none.
    """

    question: Question
    own_sources: tuple[str, ...] = ()
    gold_numbers: tuple[tuple[str, int], ...] = ()
    stated_split: str | None = None

    @property
    def gold_sources(self) -> tuple[str, ...]:
        """The gold documents: those named as such, and those of quotes and of numbered gold sentences, each once."""
        quoted = (quote.source for quote in self.question.evidence)
        numbered = (source for source, _ in self.gold_numbers)
        return tuple(dict.fromkeys((*self.question.gold_sources, *quoted, *numbered)))


@dataclass(frozen=True)
class RelevanceRow:
    """One question and one proposition: `label` is 1 if the proposition is relevant. `features` are in the order of FEATURES."""

    id: str
    question_id: str
    question: str
    kind: str
    split: str
    proposition_id: str
    proposition: str
    passage_ids: tuple[str, ...]
    label: int
    labelled_by: LabelledBy
    found_by: FoundBy
    features: tuple[float, ...]


def relevance_to_json(row: RelevanceRow) -> dict[str, Any]:
    """A row as stored, with its features by name."""
    return row_fields(row) | {"features": dict(zip(FEATURES, row.features, strict=True))}


def relevance_from_json(row: Mapping[str, Any]) -> RelevanceRow:
    """The inverse of `relevance_to_json`; KeyError for a missing key or feature, TypeError or ValueError for a feature that is not a number."""
    return row_from_json(RelevanceRow, row, features=lambda features: tuple(float(features[name]) for name in FEATURES))


def relevance_schema() -> pa.Schema:
    """The columns of `relevance_to_json`, typed."""
    import pyarrow as pa

    features = pa.struct([(name, pa.float32()) for name in FEATURES])
    return row_schema(RelevanceRow, label=pa.int8(), features=features)


def relevance_problems(row: RelevanceRow) -> list[str]:
    """The problems that make a row unusable for training, in words; empty for a good row."""
    texts = {"question": row.question, "proposition": row.proposition, "question_id": row.question_id}
    problems = [f"{name} is empty" for name, text in texts.items() if not text.strip()]
    if row.label not in LABELS:
        problems.append(f"label is {row.label!r}, expected 0 or 1")
    problems += split_problems(row)
    if row.labelled_by not in get_args(LabelledBy):
        problems.append(f"labelled_by is {row.labelled_by!r}, expected one of {', '.join(get_args(LabelledBy))}")
    if row.found_by not in get_args(FoundBy):
        problems.append(f"found_by is {row.found_by!r}, expected one of {', '.join(get_args(FoundBy))}")
    if not row.passage_ids:
        problems.append("passage_ids is empty, so splits cannot be checked for shared passages")
    features = zip(FEATURES, row.features, strict=True)
    problems += [
        f"feature {name} is {value}, expected a finite number" for name, value in features if not isfinite(value)
    ]
    return problems


RELEVANCE: Form[RelevanceRow] = Form(
    name="relevance",
    title="Relevance of propositions to questions",
    about=(
        "Pairs of a question and a proposition, labelled 1 if the proposition helps to answer the question. The relevant ones are "
        "propositions of the gold sentences (`labelled_by` sentence), of the gold passages where no sentences are known (passage), "
        "or those that a language model chose (model). The others are in the question's documents (`found_by` gold, own) or "
        "are hard negatives, found by a walk from the best propositions (walk) or by cosine (cosine). "
        "No question is in two splits, and if split by passages, no passage or proposition either: hard negatives then come from the "
        "passages of the question's own split, so they are easier in the small splits. `features` are those that retrieval computes at query time."
    ),
    to_json=relevance_to_json,
    from_json=relevance_from_json,
    schema=relevance_schema,
    problems=relevance_problems,
    counts=lambda row: {
        "label": LABELS[row.label],
        "label by split": f"{LABELS[row.label]}, {row.split}",
        "labelled by": row.labelled_by,
        "found by": row.found_by,
        "kind of question": row.kind or "unspecified",
    },
    lengths=lambda row: {"question": count_words(row.question), "proposition": count_words(row.proposition)},
    texts=lambda row: (row.question_id, row.proposition),
)


CORPUS = "corpus.jsonl"
"""The file of documents or passages beside a file of questions."""


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
    """UserError for documents of the questions, gold or not, that are not among `sources`, those of the index."""
    check_indexed((source for gold in questions for source in (*gold.gold_sources, *gold.own_sources)), sources)


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
