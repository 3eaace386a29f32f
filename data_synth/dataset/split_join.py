"""`modegraph data split` splits questions into train, dev and test by the hash of their ids; `modegraph data join` joins folders with rows of one kind.

The same questions, counts and seed give the same split; joined rows keep their split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from data_synth.dataset.validate import form_of
from data_synth.dataset.write import stated_origin
from data_synth.relevance.relevance_form import RELEVANCE, SPLIT_BY, read_gold_questions, with_sentences
from data_synth.rows import MALFORMED, Form, split_files
from graph.documents.questions import read_question_rows
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl

JOINED_FROM = "Joined from"


def split_questions(
    file: Path, corpus: Path, counts: Mapping[str, int], seed: int, anew: bool = False
) -> list[dict[str, Any]]:
    """The rows of `file` that are assigned to a split, in the order of the file, with their split and their gold sentences as evidence.

    `counts` is the number of questions for each split; remaining questions are left out. Unless `anew` is set, splits stated in the file are
    respected: test questions go to test only, train and dev questions never to test. Gold sentences given by number are read
    from `corpus`. UserError if fewer questions than requested are left for a split.
    """
    questions = {one.question.id: one for one in with_sentences(read_gold_questions(file), corpus)}
    order = sorted(questions, key=lambda key: content_id(str(seed), key))
    split_of: dict[str, str] = {}
    for split in ("test", "dev", "train"):
        remaining = (key for key in order if key not in split_of)
        free = [key for key in remaining if anew or may_assign(questions[key].stated_split, split)]
        if len(free) < counts.get(split, 0):
            found = f"{file}: {len(free):,} questions are left for {split}"
            remedy = "request fewer, or use --anew to ignore the splits in the file"
            raise UserError(found, f"{counts[split]:,}, as set by --{split}", remedy)
        split_of |= dict.fromkeys(free[: counts.get(split, 0)], split)
    rows = [{**row, "split": split_of[row["id"]]} for _, row in read_question_rows(file) if row["id"] in split_of]
    evidence = {key: [{"id": q.source, "quote": q.text} for q in questions[key].question.evidence] for key in split_of}
    return [{**row, "evidence": evidence[row["id"]]} if evidence[row["id"]] else row for row in rows]


def may_assign(stated: str | None, split: str) -> bool:
    """Whether a question may be assigned to `split`, given the split that its file states (None: none).

    >>> may_assign(None, "test"), may_assign("dev", "train"), may_assign("dev", "test"), may_assign("test", "train")
    (True, True, False, False)
    """
    return stated is None or (stated == "test") == (split == "test")


def join_rows(folders: Sequence[Path]) -> tuple[Form[Any], Iterator[Any]]:
    """The form of the rows, and the rows, read lazily.

    UserError for a folder without data files or if there are no rows; while the rows are read, for a row of another kind, a bad row
    or a repeated id.
    """
    files = [file for folder in folders for file in files_of(folder)]
    first = next(((file, values) for file in files for _, values in read_jsonl(file)), None)
    if first is None:
        named = ", ".join(map(str, files))
        raise UserError(f"{named}: no rows", "training data", "give folders that `modegraph synth` made")
    form = form_of(first[1], str(first[0]))
    return form, _rows(form, files)


def joined_origin(folders: Sequence[Path], form: Form[Any]) -> dict[str, str]:
    """The origin of joined rows: what the summaries of the folders state, with all values of each entry, and the names of the folders.

    Unless all folders state the same split, the joined rows count as split by questions. UserError for relevance rows of several
    encoders, whose features differ.
    """
    origins = [stated_origin(folder) for folder in folders]
    encoders = {
        origin.get("Encoder", "an unknown one"): folder for folder, origin in zip(folders, origins, strict=True)
    }
    if form is RELEVANCE and len(encoders) > 1:
        listed = ", ".join(f"{folder} with {encoder[:14]}" for encoder, folder in encoders.items())
        was_joined = any("Encoder" not in origin and JOINED_FROM in origin for origin in origins)
        remedy = "join the original folders again" if was_joined else "make them with one encoder"
        raise UserError(f"relevance rows of several encoders ({listed})", "one encoder", remedy)
    values = {key: dict.fromkeys(o[key] for o in origins if key in o) for key in chain.from_iterable(origins)}
    joined = {key: "; ".join(of_key) for key, of_key in values.items()}
    if len({origin.get(SPLIT_BY) for origin in origins}) > 1:
        joined[SPLIT_BY] = "questions"
    return joined | {JOINED_FROM: ", ".join(folder.absolute().name for folder in folders)}


def files_of(folder: Path) -> list[Path]:
    """The `split_files` of a folder; UserError if there are none."""
    files = split_files(folder)
    if not files:
        found = f"{folder}: no train.jsonl, dev.jsonl or test.jsonl"
        raise UserError(found, "a folder of training data", "check the path")
    return files


def _rows(form: Form[Any], files: Iterable[Path]) -> Iterator[Any]:
    expected = f"a row of {form.name}"
    first_at: dict[str, str] = {}
    located = ((f"{file} line {line}", values) for file in files for line, values in read_jsonl(file))
    for where, values in located:
        row_form = form_of(values, where)
        if row_form.name != form.name:
            raise UserError(f"{where}: a row of {row_form.name}", expected, "join data of one kind only")
        try:
            row = form.from_json(values)
            problems = form.problems(row)
        except MALFORMED as problem:
            problems = [f"{type(problem).__name__} {problem}"]
        if problems:
            raise UserError(f"{where}: {problems[0]}", expected, "list the bad rows with `modegraph data validate`")
        if row.id in first_at:
            found = f"{where}: id {row.id!r} appears twice"
            raise UserError(found, "unique ids", f"remove this row, or the one at {first_at[row.id]}")
        first_at[row.id] = where
        yield row
