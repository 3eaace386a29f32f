"""Converts public datasets to documents and questions for retrieval, or to scored responses and claims for training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from data_synth.claims.claims import ClaimRow
from data_synth.rows import MALFORMED, SPLIT_OF, Dropped, ResponseRow, Sampling
from graph.answer.prompt import answer_messages
from graph.answer.support import support_row
from graph.documents.questions import split_by_hash
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl
from graph.types import Excerpt

T = TypeVar("T")
LABELS = ("yes", "no", "maybe")


def read_items(file: Path, read: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
    """Every row converted by `read`; UserError naming file, line and problem for a malformed row."""
    for line, row in read_jsonl(file):
        try:
            yield read(row)
        except MALFORMED as problem:
            found = f"{file} line {line}: {type(problem).__name__} {problem}"
            expected = "a row of the named set as published"
            raise UserError(found, expected, "name the set that the file belongs to") from None


def pubmedqa(row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(document, question) of PubMedQA (Jin et al. 2019): the abstract without its conclusion, and the question with the conclusion as reasoning."""
    source = f"pubmed-{row['id']}"
    document = {"id": source, "title": "", "text": "\n\n".join(row["context"])}
    question = {
        "id": row["id"],
        "question": row["question"],
        "answers": [row["label"]],
        "gold_ids": [source],
        "type": "boolean",
        "options": {label: label for label in LABELS},
        "split": SPLIT_OF[row["split"]],
        "reasoning": row["reasoning"],
    }
    return document, question


def multiple_choice(row: Mapping[str, Any]) -> dict[str, Any]:
    """A question of MedMCQA (Pal et al. 2022) or RiddleSense (Lin et al. 2021), with its options in the question text."""
    options = dict(row["options"])
    option_text = " ".join(f"({letter}) {option}" for letter, option in options.items())
    return {
        "id": row["id"],
        "question": f"{row['question']} {option_text}",
        "answers": [row["answer"]],
        "type": "choice",
        "options": options,
        "split": SPLIT_OF[row["split"]],
        "reasoning": row.get("reasoning") or "",
    }


def qa_feedback(row: Mapping[str, Any]) -> ResponseRow:
    """QA-Feedback (Wu et al. 2023): four responses to a question with passages, and the share of human comparisons that each one won (a tie counts half)."""
    excerpts = tuple(
        Excerpt(content_id(row["id"], str(n)), passage["title"], passage["text"])
        for n, passage in enumerate(row["passages"])
    )
    responses = {response["text"]: float(response["score"]) for response in row["responses"]}
    return ResponseRow(
        id=row["id"],
        prompt=answer_messages(row["prompt"], excerpts),
        responses=tuple(responses),
        rewards={"human": tuple(responses.values())},
        question_id=row["id"],
        question=row["prompt"],
        answers=(row["gold"],),
        kind="long",
        split=split_by_hash(row["id"]),
        context_size=len(excerpts),
        context_ids=tuple(excerpt.id for excerpt in excerpts),
        sampling=Sampling(samples=len(row["responses"]), temperature=0.0, max_tokens=0, seed=0),
        policy="qa_feedback, four published responses",
    )


SUPPORT_ROWS, SET_README, LICENCE = "rows.jsonl", "README.md", "Licence:"
NO_PASSAGE = "a row without a passage or a sentence"


def support_sets(folder: Path) -> dict[str, Path]:
    """The rows.jsonl of each set in `folder`, or, if it contains no set, its own rows.jsonl, by name of the set; UserError if there is no such file."""
    files = {file.parent.name: file for file in sorted(folder.glob(f"*/{SUPPORT_ROWS}"))}
    if not files and (folder / SUPPORT_ROWS).is_file():
        return {folder.resolve().name: folder / SUPPORT_ROWS}
    if not files:
        expected = f"a folder of sets, each with {SUPPORT_ROWS}, or one such set"
        raise UserError(f"{folder}: no {SUPPORT_ROWS} in it or in any of its folders", expected, "check the path")
    return files


def support_origin(files: Mapping[str, Path]) -> dict[str, str]:
    """The origin of the sentences for the dataset card: each set with the licence that its README states."""
    return {f"Set {name}, licence": _licence(file.parent / SET_README) for name, file in files.items()}


def _licence(readme: Path) -> str:
    lines = readme.read_text(encoding="utf-8").splitlines() if readme.is_file() else []
    return next((line.removeprefix(LICENCE).strip() for line in lines if line.startswith(LICENCE)), "") or "not stated"


def support_claims(files: Mapping[str, Path]) -> Iterator[ClaimRow | Dropped]:
    """The sentences of all sets as claims; UserError with file and line for a malformed row or an unknown split."""
    for name, file in files.items():
        for line, raw in read_jsonl(file):
            row = support_row(raw, f"{file} line {line}")
            if row.split not in SPLIT_OF:
                found = f"{file} line {line}: split is {row.split!r}"
                raise UserError(found, f"one of {', '.join(SPLIT_OF)}", "fix the row")
            first, *further = [passage for passage in row.passages if passage.strip()] or [""]
            if not first or not row.claim.strip():
                yield Dropped(NO_PASSAGE)
                continue
            yield ClaimRow(
                id=f"{name}/{row.id or line}",
                title="",
                passage=first,
                claim=row.claim,
                supported=row.supported,
                kind=row.kind,
                split=SPLIT_OF[row.split],
                further=tuple(further),
                dataset=name,
            )
