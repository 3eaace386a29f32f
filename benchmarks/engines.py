"""Indexing with the engines local and ray: the processor time of each, and whether their indexes have the same rows and, compacted, the same bytes.

Run: python -P benchmarks/engines.py [--corpus FOLDER …] [--every 1] [--documents 2000] [--stub] [--json]. A FOLDER contains documents, or a
corpus.jsonl, of which every `--every`-th document is used; without --corpus, the documents are invented. The encoder is the embedded one, or with
--stub the stub of edits.py, which takes almost no time; rules extract the propositions. Each build runs separately, on Ray with one worker
per core; its processor time is that of all processes that it started, including Ray's own (Linux only).
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from secrets import token_hex
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psutil

from benchmarks.edits import open_stub
from benchmarks.index import invented_documents
from benchmarks.report import Check, new_parser, print_report
from graph.build.build import build_index
from graph.build.lifecycle import compact_index
from graph.documents.read import read_documents
from graph.models.encoder import open_encoder
from graph.store.index_settings import IndexSettings
from graph.store.sqlite import SQLITE_FILE
from graph.types import Document, OpenEncoder
from graph.workers.engines import ENGINES, open_workers

MAX_RAY_TO_LOCAL = 1.15
MARK, POLL_S = "MODEGRAPH_ENGINES_RUN", 0.2
NOT_DERIVED = ("index.", "ledger.", "writer")
"""Beginnings of the names of files that are not derived from the rows: the databases of rows and of model calls, and the writers' locks."""


@dataclass(frozen=True)
class Work:
    """What to index: every `every`-th document of `corpus`, or of `invented` invented documents if it is None, with the embedded encoder or a stub."""

    corpus: Path | None
    every: int
    invented: int
    stub: bool

    @property
    def name(self) -> str:
        part = f", 1 document in {self.every}" if self.every > 1 else ""
        return f"{'invented' if self.corpus is None else self.corpus}{part}{', stub encoder' if self.stub else ''}"

    def documents(self) -> Iterator[Document]:
        if self.corpus is None:
            return islice(invented_documents(self.invented), 0, None, self.every)
        rows = self.corpus / "corpus.jsonl"
        return islice(read_documents(rows if rows.is_file() else self.corpus, print), 0, None, self.every)

    @property
    def open_encoder(self) -> OpenEncoder:
        return open_stub if self.stub else open_encoder

    @property
    def options(self) -> list[str]:
        """The command-line options for this work."""
        corpus = [] if self.corpus is None else ["--corpus", str(self.corpus)]
        stub = ["--stub"] if self.stub else []
        return [*corpus, "--every", str(self.every), "--documents", str(self.invented), *stub]


def build(engine: str, work: Work, out: Path) -> None:
    """Build the index of `work` in `out` with an engine."""
    with open_workers(engine) as workers:
        build_index(out, work.documents(), IndexSettings(), work.open_encoder, workers=workers)


def measure(engine: str, work: Work, out: Path) -> tuple[float, float]:
    """Processor seconds and wall-clock seconds of a build in a separate process, including all processes that it starts."""
    call = [sys.executable, "-P", __file__, "--build", engine, "--out", str(out), *work.options]
    mark = token_hex(8)
    started, seconds = perf_counter(), dict[int, float]()
    child = subprocess.Popen(call, env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(ROOT), MARK: mark})
    while child.poll() is None:
        seconds |= processor_seconds(mark)
        sleep(POLL_S)
    if child.returncode:
        raise SystemExit(f"{engine}: the build ended with status {child.returncode}, not 0; see its messages above")
    return sum(seconds.values()), perf_counter() - started


def processor_seconds(mark: str) -> dict[int, float]:
    """Processor seconds so far of every process that has the mark in its environment, by process id: Ray does not wait for its workers, so the
    kernel adds their time to no other process.
    """
    seconds = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                times = process.cpu_times()
                seconds[process.pid] = times.user + times.system
    return seconds


def contents_of(folder: Path, encoder: OpenEncoder) -> tuple[list[str], dict[str, bytes]]:
    """Compact an index; return its rows before, as SQL, and its derived files afterwards."""
    with sqlite3.connect(folder / SQLITE_FILE) as database:
        rows = list(database.iterdump())
    compact_index(folder, encoder)
    derived = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(NOT_DERIVED)]
    return rows, {str(file.relative_to(folder)): file.read_bytes() for file in derived}


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--corpus", type=Path, action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="use every N-th document")
    parser.add_argument("--documents", type=int, default=2_000, help="number of invented documents")
    parser.add_argument("--stub", action="store_true", help="use an encoder that takes almost no time")
    parser.add_argument("--build", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    works = [
        Work(corpus, arguments.every, arguments.documents, arguments.stub) for corpus in arguments.corpus or [None]
    ]
    if arguments.build:
        build(arguments.build, works[0], arguments.out)
        return 0
    figures: dict[str, float | str] = {}
    checks: list[Check] = []
    for work in works:
        with tempfile.TemporaryDirectory() as folder:
            folders = {engine: Path(folder) / engine for engine in ENGINES}
            times = {engine: measure(engine, work, out) for engine, out in folders.items()}
            first, second = (contents_of(out, work.open_encoder) for out in folders.values())
        for engine, (processor_s, clock_s) in times.items():
            figures |= {
                f"{work.name}: {engine}, processor s": processor_s,
                f"{work.name}: {engine}, wall-clock s": clock_s,
            }
        ratio = times["ray"][0] / times["local"][0]
        checks += [
            Check(f"{work.name}: processor time of ray / local", ratio, MAX_RAY_TO_LOCAL, at_least=False),
            Check(
                f"{work.name}: the same rows and, compacted, the same bytes", float(first == second), 1, at_least=True
            ),
        ]
    return print_report("engines", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
