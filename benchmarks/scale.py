"""An index at several sizes: seconds of a build by step, peak memory, the cost of an edit and of a query.

Run: python -P benchmarks/scale.py [--sizes 10000 100000] [--set vectors=float16]… [--json]. Documents and encoder are those of edits.py;
each document has one passage and four propositions. Each size runs in a separate process. Builds and edits are in processor seconds without the
encoder, queries in processor and wall-clock time; the time until a server's answers reflect an edit is wall-clock time.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.edits import SETTINGS, Stopwatch, StubEncoder, edit_checks, invented_document, watch_steps
from benchmarks.edits import measure as measure_edits
from benchmarks.report import Check, measure_in_process, new_parser, peak_mib, print_report, seconds_of
from graph.build.build import build_index
from graph.build.lifecycle import compact_index, delete_documents, index_status
from graph.config import parse_settings, set_value
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import STRATEGIES
from graph.shared.modes import Mode
from graph.store.index_settings import IndexSettings
from graph.store.manifest import generation_of
from serve.http.telemetry import Metrics
from serve.server.collections import POLL_S, LiveIndex

MODES: tuple[Mode, ...] = ("hops", "hybrid")
QUERIES, MAX_MS = 50, 100
MAX_GROWTH = 1.2
"""Largest allowed ratio of the build seconds per passage to those at the next smaller size."""
BUILD_PEAK, MAX_MIB = "peak MiB of build and edits", 10 * 1024
"""Measured before the queries and a compaction: both map all files again, so their resident memory depends on how much memory is free."""
EDITS, MAX_S = 3, 2
"""Number of edits that a server must pick up, and the longest allowed delay in seconds."""
SEGMENTS, MAX_SLOWER = 10, 1.25
"""Number of segments to query, and the largest allowed ratio of the query time to that on one segment."""


def measure(passages: int, settings: IndexSettings) -> dict[str, float]:
    """All figures of one size."""
    watch = Stopwatch()
    watch_steps(watch)
    with tempfile.TemporaryDirectory() as scratch:
        measure_edits(Path(scratch) / "imports", 20, watch, settings)
        folder = Path(scratch) / "index"
        figures = measure_edits(folder, passages, watch, settings)
        figures[f"{passages}: {BUILD_PEAK}"] = peak_mib()
        index = open_index(folder, lambda spec: StubEncoder(watch))
        for mode in MODES:
            clock_ms, processor_ms = time_queries(index, passages, mode)
            figures |= {f"{passages}: {mode}, ms": clock_ms, f"{passages}: {mode}, processor ms": processor_ms}
        figures[f"{passages}: visible to a server, s"] = visible_after_s(folder, passages, settings, StubEncoder(watch))
        figures |= time_segments(folder, passages, settings, watch)
        recalls = index_status(folder).ann_recall
        figures |= {f"{passages}: recall of ANN indexes, {kind}": recall for kind, recall in recalls.items()}
    return figures | {f"{passages}: peak MiB": peak_mib()}


def visible_after_s(folder: Path, passages: int, settings: IndexSettings, encoder: StubEncoder) -> float:
    """Seconds until a running server's answers reflect an edit: POLL_S, the longest wait for a poll, plus the median time to open and warm the index."""
    live = LiveIndex(folder, "auto", lambda spec: encoder, Metrics())
    later, seconds = settings.model_copy(update={"layers_on_edit": "later"}), []
    for number in range(1, 1 + EDITS):
        build_index(folder, [invented_document(passages + number)], later, lambda spec: encoder)
        seconds.append(seconds_of(lambda: asyncio.run(live.refresh())))
        served, newest = live.current.number, generation_of(folder)
        assert served == newest, f"the server has generation {served} after edit {number}; expected {newest}"
    delete_documents(
        folder, [invented_document(passages + number).source for number in range(1, 1 + EDITS)], lambda spec: encoder
    )
    return POLL_S + median(seconds)


def time_segments(folder: Path, passages: int, settings: IndexSettings, watch: Stopwatch) -> dict[str, float]:
    """Processor time of queries on SEGMENTS segments, as a multiple of the time on one."""
    encoder = StubEncoder(watch)
    compacted = compacted_ms(folder, passages, encoder)
    separate_segments = settings.model_copy(update={"merge_factor": 100, "layers_on_edit": "later"})
    for number in range(1, SEGMENTS):
        build_index(folder, [invented_document(passages + number)], separate_segments, lambda spec: encoder)
    index = open_index(folder, lambda spec: encoder)
    segments = len(index.data.passage_vectors_PD.segments)
    assert segments == SEGMENTS, (
        f"{segments} segments after {SEGMENTS - 1} edits of a compacted index; expected {SEGMENTS}"
    )
    return {
        f"{passages}: {mode}, {SEGMENTS} segments: time relative to one segment": time_queries(index, passages, mode)[1]
        / compacted[mode]
        for mode in MODES
    }


def compacted_ms(folder: Path, passages: int, encoder: StubEncoder) -> dict[Mode, float]:
    """Processor milliseconds per query on the compacted index, by mode."""
    compact_index(folder, lambda spec: encoder)
    index = open_index(folder, lambda spec: encoder)
    return {mode: time_queries(index, passages, mode)[1] for mode in MODES}


def time_queries(index: Index, passages: int, mode: Mode) -> tuple[float, float]:
    """Median wall-clock and processor milliseconds per query about one of the documents, after a warm-up query that does not count."""
    rng, ask = random.Random(0), partial(STRATEGIES[mode], index, settings=RetrieveSettings(mode=mode, top_k=10))
    clock, processor = [], []
    for _ in range(QUERIES + 1):
        document = invented_document(rng.randrange(passages))
        text = f"What did the keeper of {document.title} say of {' '.join(document.text.split()[1:5])}?"
        query = Query(text, index.encode_queries([text])[0])
        started = process_time()
        clock.append(1000 * seconds_of(partial(ask, query)))
        processor.append(1000 * (process_time() - started))
    return median(clock[1:]), median(processor[1:])


def scale_checks(figures: Mapping[str, float | str], sizes: Sequence[int]) -> list[Check]:
    """Checks of build time per passage against the next smaller size, and of memory, edits and queries."""
    seconds_per_passage = {size: float(figures[f"{size}: build"]) / size for size in sizes}
    growth = [
        Check(
            f"{many} passages against {few}, build seconds per passage",
            seconds_per_passage[many] / seconds_per_passage[few],
            MAX_GROWTH,
            False,
        )
        for few, many in pairwise(sorted(sizes))
    ]
    memory = [Check(f"{size}: {BUILD_PEAK}", float(figures[f"{size}: {BUILD_PEAK}"]), MAX_MIB, False) for size in sizes]
    visibility = [
        Check(f"{size}: visible to a server, s", float(figures[f"{size}: visible to a server, s"]), MAX_S, False)
        for size in sizes
    ]
    queries = [
        Check(f"{size}: {mode}, ms", float(figures[f"{size}: {mode}, ms"]), MAX_MS, False)
        for size in sizes
        for mode in MODES
    ]
    segments = [
        Check(name, float(value), MAX_SLOWER, False)
        for name, value in figures.items()
        if name.endswith("relative to one segment")
    ]
    return [*growth, *memory, *visibility, *queries, *segments, *edit_checks(figures, sizes)]


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000], help="numbers of passages")
    parser.add_argument("--set", action="append", default=[], help="a setting of the index, KEY=VALUE")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    values = SETTINGS.model_dump()
    for assignment in arguments.set:
        set_value(values, assignment)
    settings = parse_settings(IndexSettings, values, "--set")
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, settings)))
        return 0
    figures: dict[str, float | str] = {}
    for size in arguments.sizes:
        figures |= measure_in_process(
            __file__, str(size), *(word for assignment in arguments.set for word in ("--set", assignment))
        )
    return print_report("scale", figures, scale_checks(figures, arguments.sizes), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
