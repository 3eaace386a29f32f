"""Questions with the passages that answer them, in the layout that public sets are converted to: a folder with corpus.jsonl and questions.jsonl.

Fields of a question:

* "id", "question", "answers" (or "answer", a string; a question without answers is unanswerable) and "gold_ids";
* if known, "context_ids" (passages of the same document or found by retrieval), "evidence" (sentences, or objects with a "quote"),
  "supporting_sentences" ([passage id, number]), and "kind" or "type";
* "split": train, dev or test (val and validation mean dev); by default from the hash of the question's words, the same in every set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_synth.relevance.relevance_form import CORPUS
from data_synth.rows import SPLIT_OF
from graph.documents.questions import check_ids, split_by_hash
from graph.errors import UserError
from graph.retrieve.parts.diversity import SIGN
from graph.shared.jsonl import read_jsonl
from graph.types import Excerpt

QUESTIONS = "questions.jsonl"
YES_NO = frozenset({"yes", "no"})
_WORD = re.compile(rf"\w+|(?<!\S)-(?=\d)|{SIGN}")
"""A word, the minus of a number, or a sign."""


@dataclass(frozen=True)
class ReadingQuestion:
    """One question. The passages `gold_ids` together answer it, in the sentences `evidence`; `context_ids` are the passages that the set gives with it,
    distractors and possibly gold passages.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...]
    context_ids: tuple[str, ...]
    evidence: tuple[str, ...]
    kind: str
    split: str

    @property
    def is_answerable(self) -> bool:
        """Whether the passages answer the question."""
        return bool(self.answers)

    @property
    def is_yes_no(self) -> bool:
        """Whether the answer is yes or no."""
        return bool(self.answers) and self.answers[0].casefold() in YES_NO


@dataclass(frozen=True)
class ReadingSet:
    """The questions of one folder or index, and the passages by id."""

    name: str
    passages: Mapping[str, Excerpt]
    questions: tuple[ReadingQuestion, ...]


def read_set(folder: Path) -> ReadingSet:
    """A set read from its folder; UserError for a folder without questions or with a repeated id, and with file and line for a malformed row or one that names
    a missing passage."""
    passages: dict[str, Excerpt] = {}
    sentences: dict[str, list[str]] = {}
    for line, row in read_jsonl(folder / CORPUS):
        where = f"{folder / CORPUS} line {line}"
        title = row.get("title") or ""
        if not all(isinstance(text, str) for text in (row.get("id"), row.get("text"), title)):
            found = f"{where}: 'id' or 'text' is missing, or one of 'id', 'text' and 'title' is not a string"
            raise UserError(found, "a passage with an id, a text and perhaps a title", "fix the row")
        if row["id"] in passages:
            raise UserError(f"{where}: id {row['id']!r} appears twice", "unique ids", "rename one")
        passages[row["id"]] = Excerpt(row["id"], title, row["text"], source=row["id"])
        sentences[row["id"]] = row.get("sentences") or []
    questions = tuple(
        _question(row, passages, sentences, f"{folder / QUESTIONS} line {line}")
        for line, row in read_jsonl(folder / QUESTIONS)
    )
    if not questions:
        raise UserError(f"{folder / QUESTIONS}: no questions", "one JSON object per line", "give another folder")
    check_ids((question.id for question in questions), folder / QUESTIONS)
    return ReadingSet(folder.absolute().name, passages, questions)


@lru_cache(maxsize=1024)
def normalise_question(text: str) -> str:
    """The words and signs of a question, without case, punctuation and extra spaces: equal for repeated questions.

    >>> normalise_question("Who wrote  “Emma”?"), normalise_question("What is C++?")
    ('who wrote emma', 'what is c + +')
    """
    return " ".join(_WORD.findall(text.casefold()))


def _question(
    row: Mapping[str, Any], passages: Mapping[str, Excerpt], sentences: Mapping[str, list[str]], where: str
) -> ReadingQuestion:
    for key in ("id", "question"):
        if not isinstance(row.get(key), str) or not row[key].strip():
            raise UserError(f"{where}: {key!r} is {row.get(key)!r}", "a non-empty string", "add the field")
    if not isinstance(row.get("answer"), str | None):
        raise UserError(f"{where}: 'answer' is {row['answer']!r:.80}", "a string", "fix the row")
    if row.get("answer") and not row.get("answers"):
        row = {**row, "answers": [row["answer"]]}
    for key in ("answers", "gold_ids", "context_ids"):
        if not isinstance(row.get(key, []), list) or not all(isinstance(item, str) for item in row.get(key, [])):
            raise UserError(f"{where}: {key!r} is {row[key]!r:.80}", "a list of strings", "fix the row")
    gold, context = tuple(dict.fromkeys(row.get("gold_ids", ()))), tuple(row.get("context_ids", ()))
    for passage_id in (*gold, *context):
        if passage_id not in passages:
            found = f"{where}: no passage {passage_id!r} in {CORPUS}"
            raise UserError(found, f"ids of passages in {CORPUS}", "fix the row")
    split = row.get("split") or split_by_hash(" ".join(re.findall(r"\w+", row["question"].casefold())))
    if str(split) not in SPLIT_OF:
        raise UserError(f"{where}: split {split!r}", f"one of {', '.join(SPLIT_OF)}", "fix the row")
    try:
        evidence = [item["quote"] if isinstance(item, Mapping) else item for item in row.get("evidence", ())]
        for passage, number in row.get("supporting_sentences", ()):
            # HotpotQA names some sentence numbers that do not exist: they add nothing.
            evidence += sentences.get(passage, [])[number : number + 1]
        evidence = [sentence.strip() for sentence in evidence]
    except (AttributeError, KeyError, TypeError, ValueError):
        found = f"{where}: evidence {row.get('evidence')!r:.80}, supporting sentences {row.get('supporting_sentences')!r:.80}"
        expected = 'strings or {"quote"} objects, and [passage id, sentence number] pairs'
        raise UserError(found, expected, "fix the row") from None
    kind = row.get("kind") or row.get("type") or ""
    if not isinstance(kind, str):
        raise UserError(f"{where}: kind or type {kind!r:.80}", "a string", "fix the row")
    answers = () if kind == "unanswerable" else tuple(filter(None, map(str.strip, row.get("answers", ()))))
    return ReadingQuestion(
        row["id"], row["question"].strip(), answers, gold, context, tuple(evidence), kind, SPLIT_OF[split]
    )
