"""The last step of the commands that make training data: rows shown as a preview, or written to a folder with a dataset card and a summary.

The folder contains {train,dev,test}.jsonl, the same rows as .parquet files, summary.json and the dataset card. Rows are streamed to a folder of
unfinished files, which are moved into place when all are complete, `summary.json` last: it also marks the folder as a modegraph dataset. The
statistics of the rows, and of dropped ones, are counted while the rows are streamed.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Generic, TextIO

from data_synth.rows import MALFORMED, Dropped, Form, R, separate_dropped, split_files
from graph.documents.parse.plain import clean
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.shared.console import print_json, say
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json

SAMPLED_ROWS = 2000
"""Size of the uniform sample of rows held in memory for a form's measures."""


@dataclass(frozen=True)
class Lengths:
    """Lengths in words."""

    mean: float
    median: float
    longest: int


@dataclass(frozen=True)
class Summary:
    """Statistics of the written and the dropped rows: `counts` by table of the card and value, `lengths` by part of a row, `measures` of a sample."""

    form: str
    origin: Mapping[str, str]
    rows: int
    duplicates: int
    drops: dict[str, int]
    by_split: dict[str, int]
    counts: dict[str, dict[str, int]]
    lengths: dict[str, Lengths]
    measures: dict[str, float]

    @property
    def mostly_lost(self) -> bool:
        """Whether there are no rows, or more than half of them were dropped (duplicates do not count)."""
        return self.rows < max(1, sum(self.drops.values()))


@dataclass
class Tally(Generic[R]):
    """Running counts over the rows of one form."""

    form: Form[R]
    drops: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    tables: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    words: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    sample: list[R] = field(default_factory=list)
    row_hashes: set[bytes] = field(default_factory=set)
    duplicates: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def is_duplicate(self, row: R) -> bool:
        """Whether an earlier row has the same texts; if so, this one is counted as a duplicate."""
        key = bytes.fromhex(content_id(*self.form.texts(row)))
        if key in self.row_hashes:
            self.duplicates += 1
            return True
        self.row_hashes.add(key)
        return False

    def add(self, row: R) -> None:
        """Count a row that is written; it may enter the sample."""
        self.splits[row.split] += 1
        for table, value in self.form.counts(row).items():
            self.tables[table][value] += 1
        for part, words in self.form.lengths(row).items():
            self.words[part].append(words)
        # Reservoir sampling (Vitter 1985, algorithm R): every row so far is equally likely to be in the sample.
        if len(self.sample) < SAMPLED_ROWS:
            self.sample.append(row)
        elif (slot := self.rng.randrange(self.splits.total())) < SAMPLED_ROWS:
            self.sample[slot] = row

    def summary(self, origin: Mapping[str, str]) -> Summary:
        """The statistics of all rows so far."""
        return Summary(
            form=self.form.name,
            origin=dict(origin),
            rows=self.splits.total(),
            duplicates=self.duplicates,
            drops=dict(sorted(self.drops.items())),
            by_split={split: self.splits[split] for split in SPLITS if split in self.splits},
            counts={table: _ordered(counts) for table, counts in self.tables.items()},
            lengths={
                part: Lengths(round(mean(words), 2), median(words), max(words)) for part, words in self.words.items()
            },
            measures={what: round(value, 4) for what, value in self.form.measures(self.sample).items()},
        )


def _ordered(counts: Counter[str]) -> dict[str, int]:
    """The counts in the order of the counted values: numbers by size, then words alphabetically.

    >>> list(_ordered(Counter(["word", "another word", "10", "9"])))
    ['9', '10', 'another word', 'word']
    """
    return dict(
        sorted(counts.items(), key=lambda item: (0, int(item[0]), "") if item[0].isdecimal() else (1, 0, item[0]))
    )


if TYPE_CHECKING:
    import pyarrow as pa


MAKER = "modegraph"
_CARD = """\
---
configs:
- config_name: default
  data_files:
{data_files}
---

# {title}

{rows:,} rows made by `{maker} {command}`. {about}

```python
from datasets import load_dataset

rows = load_dataset("path/to/this/folder")
```

{origin}

## Counts

{counts}

## Lengths in words

{lengths}
{measures}
## What was left out

{drops}

Exact duplicates removed: {duplicates:,}.
"""


def dataset_card(summary: Summary, form: Form[R]) -> str:
    """README.md of the dataset, with its YAML front matter; no dates or paths, so that equal data give equal cards."""
    counts = {"split": summary.by_split, **summary.counts}
    lengths = [(part, words.mean, words.median, words.longest) for part, words in summary.lengths.items()]
    figures = markdown_table(("measured on a sample", "figure"), summary.measures.items())
    return _CARD.format(
        data_files="\n".join(f"  - split: {split}\n    path: {split}.parquet" for split in summary.by_split),
        title=form.title,
        rows=summary.rows,
        maker=MAKER,
        command=form.made_by or f"synth {form.name}",
        about=form.about,
        origin="\n".join(f"* {what}: {value}" for what, value in summary.origin.items()),
        counts="\n\n".join(_count_table(head, by) for head, by in counts.items()),
        lengths=markdown_table(("part", "mean", "median", "longest"), lengths),
        measures=f"\n## Measures\n\n{figures}\n" if summary.measures else "",
        drops=_count_table("dropped because", summary.drops) if summary.drops else "No row was dropped.",
        duplicates=summary.duplicates,
    )


def _count_table(head: str, counts: Mapping[str, int]) -> str:
    return markdown_table((head, "rows"), counts.items())


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    lines: list[Iterable[object]] = [head, ["---"] * len(head), *rows]
    cells = [[str(cell).replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


SUMMARY, CARD, LEDGER, UNFINISHED = "summary.json", "README.md", "ledger.sqlite", ".unfinished"
LOCK = f"{UNFINISHED}.lock"
ROWS_PER_BATCH = 1000


def check_folder(folder: Path, key: str = "form") -> None:
    """UserError unless `folder` is new, empty, an earlier dataset whose summary contains `key`, or the remains of an interrupted run.

    Summaries of rows contain "form", those of imported questions "questions": a dataset of one kind would not replace all files of the other.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: a file", "a folder to write to", "choose another --out")
    files = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    other = [name for name in files if not name.startswith((LEDGER, UNFINISHED))]
    if other and not any(_made_by_modegraph(each / SUMMARY, key) for each in (folder, folder / UNFINISHED)):
        found = f"{folder}: contains other files ({min(other)!r})"
        raise UserError(found, "a new folder, or that of an earlier dataset of this kind", "choose another --out")


def write_dataset(folder: Path, rows: Iterable[R | Dropped], form: Form[R], origin: Mapping[str, str]) -> Summary:
    """Stream `rows` into a folder that `check_folder` accepts; an earlier run's files are replaced once all rows are written.

    Exact duplicates are left out and counted. When `rows` raises, an earlier dataset is left unchanged; one whose run was
    killed while its files were moved into place is completed first. UserError while another process writes to the folder.
    """
    unfinished = folder / UNFINISHED
    with _sole_writer(folder):
        if _made_by_modegraph(unfinished / SUMMARY):
            _move_into_place(unfinished, folder)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            summary = _write_all(unfinished, rows, form, origin)
        except BaseException:
            shutil.rmtree(unfinished)
            raise
        _move_into_place(unfinished, folder)
    return summary


@contextmanager
def _sole_writer(folder: Path) -> Iterator[None]:
    """Lock a folder, which is made if necessary and then removed if nothing is written; UserError if another process has locked it."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(lock.fileno()).st_nlink:
                raise BlockingIOError  # The process that wrote until now has deleted the file.
        except BlockingIOError:
            found = f"{folder}: another process is writing to it"
            raise UserError(found, "one process at a time", "wait until it is done, or choose another --out") from None
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            if is_new and not any(folder.iterdir()):
                folder.rmdir()


def write_parquet(lines: Path, target: Path, schema: pa.Schema) -> None:
    """Write the rows of a JSONL file as a Parquet file with the columns of `schema`, `ROWS_PER_BATCH` rows in memory at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    with lines.open(encoding="utf-8") as file, ParquetWriter(target, schema) as out:
        while batch := [json.loads(line) for line in islice(file, ROWS_PER_BATCH)]:
            out.write_table(pa.Table.from_pylist(batch, schema))


def _write_all(folder: Path, rows: Iterable[R | Dropped], form: Form[R], origin: Mapping[str, str]) -> Summary:
    tally = Tally(form)
    files: dict[str, TextIO] = {}
    with ExitStack() as stack:
        for row in rows:
            if isinstance(row, Dropped):
                tally.drops[row.why] += 1
            elif not tally.is_duplicate(row):
                if row.split not in files:
                    files[row.split] = stack.enter_context((folder / f"{row.split}.jsonl").open("w", encoding="utf-8"))
                files[row.split].write(clean(json.dumps(form.to_json(row), ensure_ascii=False)) + "\n")
                tally.add(row)
    summary = tally.summary(origin)
    for split in summary.by_split:
        write_parquet(folder / f"{split}.jsonl", folder / f"{split}.parquet", form.schema())
    (folder / CARD).write_text(dataset_card(summary, form), encoding="utf-8")
    write_json(folder / SUMMARY, {"made_by": MAKER, **asdict(summary)})
    return summary


def _move_into_place(unfinished: Path, folder: Path) -> None:
    """Move every finished file into place, the summary last; splits of an earlier run that its summary lacks are deleted."""
    splits = json.loads((unfinished / SUMMARY).read_text(encoding="utf-8"))["by_split"]
    for stale in (*split_files(folder, "jsonl"), *split_files(folder, "parquet")):
        if stale.stem not in splits:
            stale.unlink()
    for file in sorted(unfinished.iterdir(), key=lambda file: file.name == SUMMARY):
        file.replace(folder / file.name)
    unfinished.rmdir()


def _made_by_modegraph(marker: Path, key: str = "form") -> bool:
    try:
        summary = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and str(summary.get("made_by", "")).startswith(MAKER) and key in summary


def stated_origin(folder: Path) -> dict[str, str]:
    """The origin of a dataset according to its summary; empty if there is none."""
    try:
        origin = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["origin"]
        return {str(key): str(value) for key, value in origin.items()}
    except (OSError, *MALFORMED):
        return {}


def show_rows(rows: Sequence[R | Dropped], form: Form[R]) -> str:
    """Each row's fields, one per line; a dropped row as its reason."""
    return "\n\n".join(f"dropped: {row.why}" if isinstance(row, Dropped) else _show_row(row, form) for row in rows)


def rows_to_json(rows: Sequence[R | Dropped], form: Form[R]) -> dict[str, Any]:
    """One object: the rows as stored, and the reason for each dropped row."""
    made, dropped = separate_dropped(rows)
    return {"rows": [form.to_json(row) for row in made], "dropped": [row.why for row in dropped]}


def show_summary(summary: Summary, out: Path) -> str:
    """A few lines: the number of rows, their folder, counts, lengths and measures, and the rows left out."""
    lines = [f"{summary.rows:,} rows in {out} ({_counts(summary.by_split)})"]
    lines += [f"by {table}: {_counts(counts)}" for table, counts in summary.counts.items()]
    if summary.lengths:
        lines.append("mean words: " + ", ".join(f"{part} {words.mean}" for part, words in summary.lengths.items()))
    lines += [f"{what}: {value:g}" for what, value in summary.measures.items()]
    if summary.drops or summary.duplicates:
        omitted = {**summary.drops, "exact duplicate": summary.duplicates}
        lines.append(f"left out: {_counts({why: count for why, count in omitted.items() if count})}")
    return "\n".join([*lines, f"dataset card: {out / CARD}"])


def _show_row(row: R, form: Form[R]) -> str:
    """Messages and lists of texts are shown below their name, other values next to it."""
    lines = []
    for name, value in form.to_json(row).items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and "content" in value[0]:
            lines += [f"{name}:", *(f"  {turn['role']}: {turn['content']}" for turn in value)]
        elif isinstance(value, list) and any(isinstance(item, str) and " " in item for item in value):
            lines += [f"{name}:", *(f"  - {item}" for item in value)]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def ledger_of(out: Path | None, preview: int | None) -> Path | None:
    """The file that stores the model calls of a run, in the output folder; None for a preview. UserError without a folder, and as in `check_folder`."""
    if preview is not None:
        return None
    if out is None:
        raise UserError("no --out", "a folder to write to", "give --out DIR, or --preview N to look at rows first")
    check_folder(out)
    return out / LEDGER


def write_or_preview(
    rows: Iterable[R | Dropped],
    form: Form[R],
    origin: Mapping[str, str],
    out: Path | None,
    preview: int | None,
    as_json: bool,
    warnings_of: Callable[[Summary], Sequence[str]] = lambda summary: (),
    strict: bool = False,
) -> bool:
    """Show the first `preview` rows, or write all into `out`; False if there are no rows, or more than half of them were dropped.

    Warnings that `warnings_of` finds in the summary are shown; with `strict`, they also make the result False.
    """
    if preview is not None or out is None:
        first = list(islice(rows, preview))
        print_json(rows_to_json(first, form)) if as_json else print(show_rows(first, form))
        return True
    summary = write_dataset(out, rows, form, origin)
    print_json({"out": str(out), **asdict(summary)}) if as_json else print(show_summary(summary, out))
    if summary.mostly_lost:
        dropped = sum(summary.drops.values())
        lost = f"{dropped:,} rows were dropped, only {summary.rows:,} remain" if dropped else "no row could be made"
        say(f"modegraph: {lost}; see {out / CARD}")
    warnings = warnings_of(summary)
    for warning in warnings:
        say(f"modegraph: warning: {warning}")
    return not summary.mostly_lost and not (strict and warnings)
