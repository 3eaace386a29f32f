"""The folder of a dataset: {train,dev,test}.jsonl, the same as .parquet, summary.json and the dataset card.

Rows are streamed to a folder of unfinished files beside the finished ones, and moved into place when all are there,
`summary.json` last: it also tells an earlier dataset from somebody else's folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from data_synth.dataset.card import MAKER, dataset_card
from data_synth.dataset.summary import Summary, Tally
from data_synth.forms import Form, R
from data_synth.types import Dropped
from graph.documents.questions import SPLITS
from graph.shared.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

SUMMARY, CARD, LEDGER, UNFINISHED = "summary.json", "README.md", "ledger.sqlite", ".unfinished"
ROWS_PER_BATCH = 1000


def check_folder(folder: Path) -> None:
    """UserError unless `folder` is new, empty, an earlier dataset, or what an interrupted run left of one."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: a file", "a folder to write to", "choose another --out")
    files = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    foreign = [name for name in files if not name.startswith((LEDGER, UNFINISHED))]
    if foreign and not _is_ours(folder / SUMMARY):
        found = f"{folder}: holds other files ({min(foreign)!r})"
        raise UserError(found, "a new folder or an earlier dataset's", "choose another --out")


def write_dataset(folder: Path, rows: Iterable[R | Dropped], form: Form[R], origin: Mapping[str, str]) -> Summary:
    """Stream `rows` into a folder that `check_folder` passed; an earlier run's files are replaced when all rows are there.

    Exact duplicates are left out and counted. When `rows` raises, the folder is left as it was.
    """
    unfinished = folder / UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        summary = _write_all(unfinished, rows, form, origin)
    except BaseException:
        shutil.rmtree(unfinished)
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    _move_into_place(unfinished, folder)
    return summary


def write_parquet(lines: Path, target: Path, schema: pa.Schema) -> None:
    """The rows of a JSONL file as a Parquet file of the columns of `schema`, `ROWS_PER_BATCH` rows in memory at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    with lines.open(encoding="utf-8") as file, ParquetWriter(target, schema) as out:
        while batch := [json.loads(line) for line in islice(file, ROWS_PER_BATCH)]:
            out.write_table(pa.Table.from_pylist(batch, schema))


def _write_all(folder: Path, rows: Iterable[R | Dropped], form: Form[R], origin: Mapping[str, str]) -> Summary:
    tally = Tally(form)
    _write_lines(folder, rows, form, tally)
    summary = tally.summary(origin)
    for split in summary.by_split:
        write_parquet(folder / f"{split}.jsonl", folder / f"{split}.parquet", form.schema())
    (folder / CARD).write_text(dataset_card(summary, form), encoding="utf-8")
    described = json.dumps({"made_by": MAKER, **asdict(summary)}, indent=2, ensure_ascii=False)
    (folder / SUMMARY).write_text(described + "\n", encoding="utf-8")
    return summary


def _write_lines(folder: Path, rows: Iterable[R | Dropped], form: Form[R], tally: Tally[R]) -> None:
    files: dict[str, TextIO] = {}
    with ExitStack() as stack:
        for row in rows:
            if isinstance(row, Dropped):
                tally.drops[row.why] += 1
                continue
            if tally.is_duplicate(row):
                continue
            if row.split not in files:
                files[row.split] = stack.enter_context((folder / f"{row.split}.jsonl").open("w", encoding="utf-8"))
            files[row.split].write(json.dumps(form.to_json(row), ensure_ascii=False) + "\n")
            tally.add(row)


def _move_into_place(unfinished: Path, folder: Path) -> None:
    """Rename every finished file, the summary last; splits of an earlier run that this one lacks are removed."""
    for stale in _split_files(folder):
        if not (unfinished / stale.name).exists():
            stale.unlink()
    for file in sorted(unfinished.iterdir(), key=lambda file: file.name == SUMMARY):
        file.replace(folder / file.name)
    unfinished.rmdir()


def _split_files(folder: Path) -> Iterator[Path]:
    names = (f"{split}.{ending}" for split in SPLITS for ending in ("jsonl", "parquet"))
    return (folder / name for name in names if (folder / name).exists())


def _is_ours(marker: Path) -> bool:
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and str(found.get("made_by", "")).startswith(MAKER)
