"""Indexing by the engines local and ray: processor time of either, and whether the two indexes are the same to the byte.

Run: python -P benchmarks/engines.py [--corpus FOLDER …] [--documents 2000] [--json]. A FOLDER is documents, or holds a corpus.jsonl;
without one, documents of invented prose. Embedded encoder, rules. Each build runs apart, with a Ray of one worker to a core; its
processor time is that of all processes that it started, Ray's own among them (Linux).
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from time import perf_counter, sleep

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from benchmarks.index import invented_documents
from benchmarks.report import Check, print_report
from graph.build.build import build_index
from graph.build.lifecycle import compact_index
from graph.documents.read import read_documents
from graph.encode.encoder import open_encoder
from graph.store.settings import IndexSettings
from graph.store.sqlite import FILE
from graph.workers.open import ENGINES, open_workers

MOST_TIMES_LOCAL = 1.15
MARK, LOOK_S = "MODEGRAPH_ENGINES_RUN", 0.2
NOT_DERIVED = ("index.", "writer")


def corpus_in(folder: Path) -> Path:
    """The documents of a folder."""
    return folder / "corpus.jsonl" if (folder / "corpus.jsonl").is_file() else folder


def build(engine: str, corpus: Path | None, documents: int, out: Path) -> None:
    """Make one index."""
    found = invented_documents(documents) if corpus is None else read_documents(corpus_in(corpus), print)
    with open_workers(engine) as workers:
        build_index(out, found, IndexSettings(), open_encoder, workers=workers)


def measure(engine: str, corpus: Path | None, documents: int, out: Path) -> tuple[float, float]:
    """Seconds of the processor and of the clock for a build in a process of its own and all that come of it."""
    source = [] if corpus is None else ["--corpus", str(corpus)]
    call = [
        sys.executable,
        "-P",
        __file__,
        "--build",
        engine,
        "--out",
        str(out),
        "--documents",
        str(documents),
        *source,
    ]
    mark = token_hex(8)
    started, spent = perf_counter(), dict[int, float]()
    child = subprocess.Popen(call, env={"OMP_NUM_THREADS": "1", **os.environ, MARK: mark})
    while child.poll() is None:
        spent |= spent_by(mark)
        sleep(LOOK_S)
    if child.returncode:
        raise SystemExit(f"{engine}: the build failed")
    return sum(spent.values()), perf_counter() - started


def spent_by(mark: str) -> dict[int, float]:
    """Seconds of the processor so far of every process that has the mark in its environment, by its number: Ray does not wait for its workers, so the
    kernel adds theirs to nobody's.
    """
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
    return found


def is_same(one: Path, other: Path) -> bool:
    """Whether two indexes have the same rows, and after `compact` the same bytes in every file that is derived of them."""
    rows, files = [], []
    for folder in (one, other):
        compact_index(folder, open_encoder)
        with sqlite3.connect(folder / FILE) as database:
            rows.append(list(database.iterdump()))
        derived = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(NOT_DERIVED)]
        files.append({str(file.relative_to(folder)): file.read_bytes() for file in derived})
    return rows[0] == rows[1] and files[0] == files[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, action="append", default=[])
    parser.add_argument("--documents", type=int, default=2_000, help="of invented prose")
    parser.add_argument("--build", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.build:
        build(arguments.build, next(iter(arguments.corpus), None), arguments.documents, arguments.out)
        return 0
    figures: dict[str, float | str] = {}
    checks: list[Check] = []
    for corpus in arguments.corpus or [None]:
        name = "invented" if corpus is None else corpus.name
        with tempfile.TemporaryDirectory() as place:
            folders = {engine: Path(place) / engine for engine in ENGINES}
            spent = {engine: measure(engine, corpus, arguments.documents, out) for engine, out in folders.items()}
            same = is_same(*folders.values())
        for engine, (processor_s, clock_s) in spent.items():
            figures |= {f"{name}: {engine}, processor s": processor_s, f"{name}: {engine}, clock s": clock_s}
        ratio = spent["ray"][0] / spent["local"][0]
        checks += [
            Check(f"{name}: processor time of ray against local", ratio, MOST_TIMES_LOCAL, at_least=False),
            Check(f"{name}: the same rows, and bytes after compact", float(same), 1, at_least=True),
        ]
    return print_report("engines", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
