"""Two writers and three readers use one index at the same time, in separate processes: is anything lost, duplicated, or mixed from two generations?

Run: python -P benchmarks/writers.py [--seconds 120] [--store sqlite postgresql://…] [--json]. A database must be empty. In each turn a writer
adds, changes or deletes one of its pairs of documents (no other writer edits them); when it adds or changes a pair, it also writes a document that both
writers share. Every sentence of a pair states the pair's version. At the end the index is compared with one that a single writer builds from the pairs
that the two writers left in it. Readers repeatedly open the newest generation, query it, and check that it contains exactly the documents of the versions
that its sentences state. The encoder is the stub of benchmarks/edits.py.
"""

import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.edits import open_stub
from benchmarks.report import Check, new_parser, print_report
from graph.build.build import build_index
from graph.build.derive import encoded_text
from graph.build.lifecycle import compact_index, delete_documents, index_status, verify_index
from graph.errors import UserError
from graph.index.index import FreshIndex, Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.console import quiet
from graph.store.index_settings import IndexSettings
from graph.store.manifest import read_manifest
from graph.types import Document

WRITERS, READERS = 2, 3
PAIRS = 12
"""Largest number of pairs of a writer."""
MIN_TURNS = 4
"""Fewest turns of a writer, however short the time."""
DELETED_SHARE = 0.25
"""Share of deletions among the turns in which there is something to delete."""
PAUSE_S = 0.05
"""Pause of a reader between two reads, and of the main process between two checks of whether a process has ended."""
SETTINGS = IndexSettings(
    max_passage_tokens=40, max_chunk_tokens=80, max_summary_tokens=20, communities="igraph", merge_factor=3
)
SHARED = Document("shared", "Shared", "The Lantern was sold to Ada Marlow in 1911. Both writers say so.")
RETRIEVAL = RetrieveSettings(mode="hops", top_k=5)
VERSION = re.compile(r"version (\d+) of pair (\d+) of writer (\d+)")

Pair = tuple[int, int]
"""A writer and the number of one of its pairs."""


@dataclass
class WriterResult:
    """A writer's number of turns, the versions of its pairs that remain in the index, by number of the pair, and its processor seconds."""

    turns: int = 0
    remaining: dict[int, int] = field(default_factory=dict)
    processor_s: float = 0.0


@dataclass
class ReaderResult:
    """How often a reader read the index, the versions of all pairs in every generation that it read, and its processor seconds."""

    reads: int = 0
    generations: dict[int, dict[Pair, int]] = field(default_factory=dict)
    processor_s: float = 0.0


def documents_of(writer: int, number: int, version: int) -> list[Document]:
    """A pair: two documents of several passages, in which each sentence states the version."""
    statement = f"version {version} of pair {number} of writer {writer}"
    places = ["Port Ellery", "Tarn", "Quill", f"Isle {writer}-{number}"]
    return [
        Document(
            f"{writer}-{number}-{half}",
            f"Keeper {writer}-{number}-{half}",
            " ".join(
                f"Keeper {half} of {location} wrote {statement} in {1800 + version % 200}." for location in places
            ),
        )
        for half in "ab"
    ]


@quiet()
def write(folder: Path, writer: int, stop: Path) -> WriterResult:
    """Edit the index until `stop` exists, at least MIN_TURNS times."""
    rng, result = random.Random(writer), WriterResult()
    while result.turns < MIN_TURNS or not stop.exists():
        result.turns += 1
        if result.remaining and rng.random() < DELETED_SHARE:
            number = rng.choice(sorted(result.remaining))
            version = result.remaining.pop(number)
            delete_documents(folder, [document.source for document in documents_of(writer, number, version)], open_stub)
        else:
            number = rng.randrange(PAIRS)
            result.remaining[number] = result.turns
            build_index(folder, [*documents_of(writer, number, result.turns), SHARED], SETTINGS, open_stub)
    result.processor_s = time.process_time()
    return result


def read(folder: Path, stop: Path) -> ReaderResult:
    """Read the index until `stop` exists; AssertionError for an older generation, a damaged one or results from unknown documents."""
    fresh, result, last = FreshIndex(folder, open_stub), ReaderResult(), 0
    while not stop.exists():
        index = fresh.get()
        result.reads += 1
        generation = index.manifest.generation
        assert generation >= last, f"opened generation {generation} after {last}, expected no older one"
        if generation > last:
            result.generations[generation] = versions_in(index)
        last = generation
        evidence = retrieve(index, "What did the keeper of Tarn write?", RETRIEVAL)
        sources = set(index.sources())
        found = [scored.item.source for scored in evidence.passages]
        assert found and set(found) <= sources, (
            f"found passages of documents {found}, expected at least one passage, and only documents of the index: {sorted(sources)}"
        )
        time.sleep(PAUSE_S)
    result.processor_s = time.process_time()
    return result


def versions_in(index: Index) -> dict[Pair, int]:
    """The version of every pair; AssertionError unless the index contains exactly the documents of these versions, with their vectors."""
    data, versions = index.data, dict[Pair, int]()
    for text in data.passage_texts:
        for version, number, writer in VERSION.findall(text):
            pair = int(writer), int(number)
            known = versions.setdefault(pair, int(version))
            assert known == int(version), f"pair {pair}: versions {known} and {version}, expected one"
    expected = {
        document.source: document for pair, version in versions.items() for document in documents_of(*pair, version)
    }
    expected[SHARED.source] = SHARED
    sources = sorted(index.sources())
    assert sources == sorted(expected), f"documents {sources}, expected {sorted(expected)}"
    passages = list(map(index.passage, range(len(data.passage_ids))))
    for source, document in expected.items():
        text = " ".join(passage.text for passage in passages if passage.source == source)
        assert text == document.text, f"document {source}: text {text!r}, expected {document.text!r}"
    for texts, vectors_ND in (
        ([encoded_text(passage.title, passage.text) for passage in passages], data.passage_vectors_PD),
        (list(data.proposition_texts), data.proposition_vectors_ND),
    ):
        assert np.allclose(open_stub("").encode(texts), vectors_ND[:], atol=1e-5), (
            f"generation {index.manifest.generation}: stored vectors differ from the encoder's, expected differences of at most 1e-5"
        )
    return versions


@quiet()
def measure(store: str, seconds: float, scratch: Path) -> tuple[dict[str, float], list[Check]]:
    """Run the writers and readers on one store: the figures, and the checks of the index that they leave; if a process failed, only a check that fails."""
    name = "sqlite" if store == "sqlite" else "postgresql"
    folder, twin, stop_writing, stop_reading = (scratch / each for each in ("index", "twin", "written", "read"))
    if name == "postgresql":
        from graph.postgres.schema import place_in_database

        place_in_database(folder, store)
    build_index(folder, [SHARED], SETTINGS, open_stub)
    with ProcessPoolExecutor(WRITERS + READERS, get_context("forkserver")) as pool:
        writers = [pool.submit(write, folder, writer, stop_writing) for writer in range(WRITERS)]
        readers = [pool.submit(read, folder, stop_reading) for _ in range(READERS)]
        wait_for(seconds, [*writers, *readers])
        stop_writing.touch()
        problems = [each.exception() for each in writers]
        stop_reading.touch()
        problems += [each.exception() for each in readers]
    for problem in filter(None, problems):
        print(f"{name}: {problem!r}", file=sys.stderr)
    if any(problems):
        return {}, [Check(f"{name}: processes that failed", sum(map(bool, problems)), 0, at_least=False)]
    writer_results, reader_results = [each.result() for each in writers], [each.result() for each in readers]
    remaining = [
        (writer, number, version)
        for writer, each in enumerate(writer_results)
        for number, version in each.remaining.items()
    ]
    build_index(
        twin, [SHARED, *(document for each in remaining for document in documents_of(*each))], SETTINGS, open_stub
    )
    turns = sum(each.turns for each in writer_results)
    generations_read = {generation for each in reader_results for generation in each.generations}
    figures = {
        f"{name}: turns of the writers": turns,
        f"{name}: fewest turns of a writer": min(each.turns for each in writer_results),
        f"{name}: reads by the readers": sum(each.reads for each in reader_results),
        f"{name}: generations that readers opened": len(generations_read),
        f"{name}: writers, processor s": sum(each.processor_s for each in writer_results),
        f"{name}: readers, processor s": sum(each.processor_s for each in reader_results),
    }
    return figures, checks_of(name, folder, twin, writer_results, reader_results)


def checks_of(
    name: str, folder: Path, twin: Path, writers: Sequence[WriterResult], readers: Sequence[ReaderResult]
) -> list[Check]:
    """The checks of an index after the writers and readers have ended; `twin` is the index of a single writer."""
    turns = sum(each.turns for each in writers)
    return [
        Check(f"{name}: processes that failed", 0, 0, at_least=False),
        Check(
            f"{name}: difference between the numbers of turns and of new generations",
            abs(index_status(folder).generation - 1 - turns),
            0,
            False,
        ),
        Check(
            f"{name}: generations in which readers found different versions",
            len(generations_read_differently(readers)),
            0,
            at_least=False,
        ),
        Check(
            f"{name}: generations that do not differ from the previous one in exactly one pair",
            len(generations_not_one_pair_apart(readers)),
            0,
            at_least=False,
        ),
        Check(
            f"{name}: fewest generations that a reader opened",
            min(len(each.generations) for each in readers),
            2,
            True,
        ),
        Check(f"{name}: damaged files", len(verify_index(folder)), 0, at_least=False),
        Check(
            f"{name}: as many rows as in a single writer's index (1: yes)",
            float(same_rows(folder, twin)),
            1,
            at_least=True,
        ),
        Check(
            f"{name}: same files as in a single writer's index, after compact (1: yes)",
            float(same_bytes(folder, twin)),
            1,
            True,
        ),
    ]


def wait_for(seconds: float, running: Sequence["Future[WriterResult] | Future[ReaderResult]"]) -> None:
    """Wait for `seconds`, or until a process fails."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(each.done() for each in running):
        time.sleep(PAUSE_S)


def generations_read_differently(readers: Sequence[ReaderResult]) -> set[int]:
    """The generations in which two readers found different versions."""
    first: dict[int, dict[Pair, int]] = {}
    return {
        generation
        for reader in readers
        for generation, versions in reader.generations.items()
        if first.setdefault(generation, versions) != versions
    }


def generations_not_one_pair_apart(readers: Sequence[ReaderResult]) -> set[int]:
    """The generations that differ from the previous one in no pair or in more than one, if both were read."""
    versions_by_generation = {
        number: versions.items() for reader in readers for number, versions in reader.generations.items()
    }
    changed = {
        at: {pair for pair, _ in versions_by_generation[at] ^ versions_by_generation[at - 1]}
        for at in versions_by_generation
        if at - 1 in versions_by_generation
    }
    return {at for at, pairs in changed.items() if len(pairs) != 1}


def same_rows(folder: Path, twin: Path) -> bool:
    """Whether each table that `index_status` counts has equally many rows in both indexes, and the first has no unfinished run."""
    first, second = index_status(folder), index_status(twin)
    return first.rows == second.rows and not first.unfinished


def same_bytes(folder: Path, twin: Path) -> bool:
    """Whether every derived file is the same in both indexes, after compacting them."""
    for index in (folder, twin):
        compact_index(index, open_stub)
    first, second = read_manifest(folder), read_manifest(twin)
    return (first.files, first.segments) == (second.files, second.segments)


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument(
        "--store", nargs="+", default=["sqlite"], help="one or more of: sqlite, and empty databases as postgresql://…"
    )
    arguments = parser.parse_args()
    figures: dict[str, float | str] = {"seconds": arguments.seconds}
    checks: list[Check] = []
    for store in arguments.store:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                store_figures, store_checks = measure(store, arguments.seconds, Path(scratch))
            except UserError as problem:
                raise SystemExit(str(problem)) from None
        figures |= store_figures
        checks += store_checks
    return print_report("writers", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
