"""An index as it grows: seconds of a build by step, peak memory, what an edit costs and what a query takes, at several sizes.

Run: python -P benchmarks/scale.py [--sizes 10000 100000] [--set vectors=float16]… [--json]. Documents and encoder are those of edits.py: one passage and four
propositions each, the encoder's time taken off. Seconds are of the processor; those of queries are of the clock too. Each size runs in a process of its own.
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
from benchmarks.report import Check, measured_apart, peak_mib, print_report, seconds_of
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
QUERIES, MOST_MS = 50, 100
MOST_GROWTH = 1.2
"""Seconds a passage, of a build against one of fewer passages."""
BUILT, MOST_MIB = "peak MiB of build and edits", 10 * 1024
"""Queries and a compaction after it map all files once more, as long as there is room for them."""
SEEN, LONGEST_S = 3, 2
"""Edits that a server is to see, and how soon."""
SEGMENTS, MOST_SLOWER = 10, 1.25
"""Segments that queries are asked of, and what they may take in times of one segment."""


def measure(passages: int, settings: IndexSettings) -> dict[str, float]:
    """All figures of one size."""
    watch = Stopwatch()
    watch_steps(watch)
    with tempfile.TemporaryDirectory() as place:
        measure_edits(Path(place) / "imports", 20, watch, settings)
        folder = Path(place) / "index"
        figures = measure_edits(folder, passages, watch, settings)
        figures[f"{passages}: {BUILT}"] = peak_mib()
        index = open_index(folder, lambda spec: StubEncoder(watch))
        for mode in MODES:
            of_clock, of_processor = time_queries(index, passages, mode)
            figures |= {f"{passages}: {mode}, ms": of_clock, f"{passages}: {mode}, ms of the processor": of_processor}
        figures[f"{passages}: seen by a server, s"] = visible_after_s(folder, passages, settings, StubEncoder(watch))
        figures |= time_segments(folder, passages, settings, watch)
        recalls = index_status(folder).ann_recall
        figures |= {f"{passages}: recall of ANN indexes, {kind}": recall for kind, recall in recalls.items()}
    return figures | {f"{passages}: peak MiB": peak_mib()}


def visible_after_s(folder: Path, passages: int, settings: IndexSettings, encoder: StubEncoder) -> float:
    """Seconds after which a server that runs answers from an added document, at most: until it looks, and then until the index is open and warm."""
    live = LiveIndex(folder, "auto", lambda spec: encoder, Metrics())
    later, taken = settings.model_copy(update={"layers_on_edit": "later"}), []
    for number in range(1, 1 + SEEN):
        build_index(folder, [invented_document(passages + number)], later, lambda spec: encoder)
        taken.append(seconds_of(lambda: asyncio.run(live.refresh())))
        assert live.current.number == generation_of(folder)
    delete_documents(
        folder, [invented_document(passages + number).source for number in range(1, 1 + SEEN)], lambda spec: encoder
    )
    return POLL_S + median(taken)


def time_segments(folder: Path, passages: int, settings: IndexSettings, watch: Stopwatch) -> dict[str, float]:
    """What queries take of the processor over SEGMENTS segments, in times of what they take over one."""
    encoder = StubEncoder(watch)
    one = compacted_ms(folder, passages, encoder)
    apart = settings.model_copy(update={"merge_factor": 100, "layers_on_edit": "later"})
    for number in range(1, SEGMENTS):
        build_index(folder, [invented_document(passages + number)], apart, lambda spec: encoder)
    index = open_index(folder, lambda spec: encoder)
    assert len(index.data.passage_vectors_PD.segments) == SEGMENTS
    return {
        f"{passages}: {mode}, {SEGMENTS} segments, times one": time_queries(index, passages, mode)[1] / one[mode]
        for mode in MODES
    }


def compacted_ms(folder: Path, passages: int, encoder: StubEncoder) -> dict[Mode, float]:
    """Milliseconds of the processor of queries once the index is compact, by mode."""
    compact_index(folder, lambda spec: encoder)
    index = open_index(folder, lambda spec: encoder)
    return {mode: time_queries(index, passages, mode)[1] for mode in MODES}


def time_queries(index: Index, passages: int, mode: Mode) -> tuple[float, float]:
    """Median milliseconds of a query about one of the documents, of the clock and of the processor, after one that is not counted."""
    draw, ask = random.Random(0), partial(STRATEGIES[mode], index, settings=RetrieveSettings(mode=mode, top_k=10))
    clock, processor = [], []
    for _ in range(QUERIES + 1):
        document = invented_document(draw.randrange(passages))
        text = f"What did the keeper of {document.title} say of {' '.join(document.text.split()[1:5])}?"
        query = Query(text, index.encode_queries([text])[0])
        started = process_time()
        clock.append(1000 * seconds_of(partial(ask, query)))
        processor.append(1000 * (process_time() - started))
    return median(clock[1:]), median(processor[1:])


def scale_checks(figures: Mapping[str, float | str], sizes: Sequence[int]) -> list[Check]:
    """Builds against those of fewer passages, memory, edits and queries."""
    a_passage = {size: float(figures[f"{size}: build"]) / size for size in sizes}
    grown = [
        Check(
            f"{many} passages against {few}, build seconds a passage",
            a_passage[many] / a_passage[few],
            MOST_GROWTH,
            False,
        )
        for few, many in pairwise(sorted(sizes))
    ]
    held = [Check(f"{size}: {BUILT}", float(figures[f"{size}: {BUILT}"]), MOST_MIB, False) for size in sizes]
    seen = [
        Check(f"{size}: seen by a server, s", float(figures[f"{size}: seen by a server, s"]), LONGEST_S, False)
        for size in sizes
    ]
    asked = [
        Check(f"{size}: {mode}, ms", float(figures[f"{size}: {mode}, ms"]), MOST_MS, False)
        for size in sizes
        for mode in MODES
    ]
    apart = [
        Check(name, float(value), MOST_SLOWER, False) for name, value in figures.items() if name.endswith("times one")
    ]
    return [*grown, *held, *seen, *asked, *apart, *edit_checks(figures, sizes)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000], help="passages")
    parser.add_argument("--set", action="append", default=[], help="a setting of the index, KEY=VALUE")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    values = SETTINGS.model_dump()
    for given in arguments.set:
        set_value(values, given)
    settings = parse_settings(IndexSettings, values, "--set")
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, settings)))
        return 0
    figures: dict[str, float | str] = {}
    for size in arguments.sizes:
        figures |= measured_apart(__file__, str(size), *(each for given in arguments.set for each in ("--set", given)))
    return print_report("scale", figures, scale_checks(figures, arguments.sizes), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
