"""Questions with their gold answers: the input of data synthesis, training and evaluation.

One JSON object per line: {"id", "question", "answers"} and, where known, "gold_ids", "evidence" [{"id", "quote"}], "type", "hops",
"split", "reasoning", "options", "near" [{"id", "quote"}]. Only data_synth reads "supporting_sentences", the [document id, sentence number] pairs of
public multi-hop data sets.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl

SPLITS = ("train", "dev", "test")
MAX_SOURCES_SHOWN = 5
"""The maximum number of missing documents that an error message lists."""


@dataclass(frozen=True)
class Quote:
    """A sentence that supports an answer, and the `source` of its document."""

    source: str
    text: str


@dataclass(frozen=True)
class Question:
    """One question; `kind` is its type ("single", "multi", "boolean", …), `gold_sources` the documents that answer it.

    For an unanswerable question, `near` are the sentences that answer the question from which it was made.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    gold_sources: tuple[str, ...] = ()
    evidence: tuple[Quote, ...] = ()
    kind: str = ""
    hops: int | None = None
    split: str = "test"
    reasoning: str = ""
    options: Mapping[str, str] | None = None
    near: tuple[Quote, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The documents that the question names, each once: gold ones, and those of its quotes."""
        quoted = (quote.source for quote in (*self.evidence, *self.near))
        return tuple(dict.fromkeys((*self.gold_sources, *quoted)))


def read_questions(source: Path | str) -> list[Question]:
    """All questions of a JSONL file, or of a folder written by `synth questions`, in order.

    UserError as in `parse_question`, for a repeated id, and if there are no questions.
    """
    questions = [parse_question(row, where) for where, row in read_question_rows(Path(source))]
    if not questions:
        raise UserError(f"{source}: no questions", "one JSON object per line", "give a questions file")
    check_ids((question.id for question in questions), source)
    return questions


def check_ids(ids: Iterable[str], source: Path | str) -> None:
    """UserError for an id that appears twice."""
    known: set[str] = set()
    for each in ids:
        if each in known:
            raise UserError(f"{source}: id {each!r} appears twice", "unique ids", "rename one")
        known.add(each)


def question_files(source: Path) -> list[Path]:
    """The file itself; for a folder, its questions.jsonl, or else the splits that `synth questions` wrote. UserError for a folder with none of them."""
    if not source.is_dir():
        return [source]
    whole, splits = source / "questions.jsonl", [source / f"{split}.jsonl" for split in SPLITS]
    if files := [whole] if whole.is_file() else [file for file in splits if file.is_file()]:
        return files
    found = f"{source}: contains none of questions.jsonl, {', '.join(file.name for file in splits)}"
    raise UserError(found, "a file of questions, or a folder written by `synth questions`", "check the path")


def read_question_rows(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file of questions, each with its file and line; for a folder, those of its questions.jsonl or else of its splits."""
    for file in question_files(source):
        for line, row in read_jsonl(file):
            yield f"{file} line {line}", row


def parse_question(row: Mapping[str, Any], where: str) -> Question:
    """A row as a Question; UserError, naming `where`, for an invalid value of any field but "hops"."""
    for key in ("id", "question"):
        if not isinstance(row.get(key), str) or not row[key].strip():
            found = f"{where}: {key!r} is {row.get(key)!r}"
            raise UserError(found, "a non-empty string", "give every row an id and a question")
    answers = row.get("answers", [row["answer"]] if "answer" in row else [])
    gold, evidence, near = row.get("gold_ids", []), row.get("evidence", []), row.get("near", [])
    for key, texts in (("answers", answers), ("gold_ids", gold)):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UserError(f"{where}: {key!r} is {texts!r}", "a list of strings", "fix the row")
    for key, quotes in (("evidence", evidence), ("near", near)):
        if not isinstance(quotes, list) or not all(map(_is_quote, quotes)):
            raise UserError(f"{where}: {key!r} is {quotes!r:.200}", 'a list of {"id", "quote"}', "fix the row")
    options = row.get("options")
    if options is not None and not (isinstance(options, Mapping) and all(isinstance(o, str) for o in options.values())):
        raise UserError(f"{where}: 'options' is {options!r:.200}", 'an object like {"A": "text"}', "fix the row")
    for key in ("type", "reasoning"):
        if not isinstance(row.get(key) or "", str):
            raise UserError(f"{where}: {key!r} is {row[key]!r:.200}", "a string", "fix the row")
    split = row.get("split", "test")
    if split not in SPLITS:
        raise UserError(f"{where}: split {split!r}", f"one of {', '.join(SPLITS)}", "fix the row")
    return Question(
        id=row["id"],
        text=row["question"].strip(),
        answers=tuple(answers),
        gold_sources=tuple(gold),
        evidence=_quotes(evidence),
        kind=row.get("type") or "",
        hops=row.get("hops"),
        split=split,
        reasoning=row.get("reasoning") or "",
        options=options,
        near=_quotes(near),
    )


def question_problems(row: Mapping[str, Any]) -> list[str]:
    """The first problem of a row of a questions file, as a list of one message; an empty list for a valid row."""
    try:
        question = parse_question(row, "")
    except UserError as problem:
        return [str(problem).removeprefix(": ")]
    return ["an answer is empty"] if not all(answer.strip() for answer in question.answers) else []


def _is_quote(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(key), str) for key in ("id", "quote"))


def _quotes(rows: Iterable[Mapping[str, str]]) -> tuple[Quote, ...]:
    return tuple(Quote(row["id"], row["quote"]) for row in rows)


def split_by_hash(key: str) -> str:
    """train, dev or test, for about 80, 10 and 10 % of keys; always the same for the same key."""
    bucket = int(content_id("split", key)[:8], 16) % 10
    return "dev" if bucket == 8 else "test" if bucket == 9 else "train"


def check_gold(questions: Iterable[Question], sources: Collection[str]) -> None:
    """UserError if questions name documents that are not in the index, since no retrieval could find them."""
    check_indexed((source for question in questions for source in question.sources), sources)


def check_indexed(named: Iterable[str], sources: Collection[str]) -> None:
    """UserError if questions name documents that are not among `sources`, the documents of the index."""
    known = set(sources)
    missing = [source for source in dict.fromkeys(named) if source not in known]
    if missing:
        names = ", ".join(repr(source) for source in missing[:MAX_SOURCES_SHOWN])
        more = f" and {len(missing) - MAX_SOURCES_SHOWN:,} more" if len(missing) > MAX_SOURCES_SHOWN else ""
        found = f"questions name documents that are not in the index: {names}{more}"
        expected = "an index of the documents that the questions were written for"
        raise UserError(found, expected, "index those documents, or fix the rows that name them")
