"""The learned router on a mix of single-hop, multi-hop and abstract questions: quality against milliseconds, beside every single mode.

Run: python -P benchmarks/experiments/router.py --data INDEX QUESTIONS [--data INDEX QUESTIONS]... [--out DIR] [--limit N] [--json].
For each index, route rows are made (`synth route`) of its questions and, where the public set states them, of the single-hop
questions that a multi-hop question is made of; a router learns from the train and dev splits of all rows (`train router`) and is
measured on their test splits (`eval router`). What an earlier call left in --out is used again. The costs are wall-clock times:
run it where nothing else runs.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from data_synth.contexts import check_gold
from data_synth.dataset.write import write_dataset
from data_synth.relevance.gold import CORPUS, read_gold_questions
from data_synth.route import PASSAGES, ROUTE, parse_modes, route_rows
from eval.router import evaluate_router, router_json, router_text, write_router_report
from graph.documents.questions import SPLITS
from graph.extract.entities import entity_key
from graph.index.index import Index, open_index
from graph.retrieve.learned.router import query_features
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import DIRECT_STRATEGIES
from graph.shared.console import say, track
from graph.shared.jsonl import read_jsonl, write_jsonl
from graph.store.manifest import MANIFEST
from graph.types import Evidence
from train.router.router import train_router
from train.run.settings import RouterSettings
from train.shared.labelled import SUMMARY

TOLERANCE = 0.01
TIMED = 60
"""Questions of an index that modes are timed on when it is by processor time."""


def with_single_hops(file: Path, limit: int | None) -> Iterator[dict[str, Any]]:
    """The first questions of a file, each followed by those of its single hops whose gold document is known."""
    titles = read_titles(file.parent / CORPUS)
    for _, row in list(read_jsonl(file))[:limit]:
        yield row
        for number, hop in enumerate(single_hops(row, titles)):
            yield {**hop, "id": f"{row['id']}-hop{number}", "type": "single hop"}


def single_hops(row: Mapping[str, Any], titles: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """MuSiQue's sub-questions that refer to no other ("#1"), and 2Wiki's that name exactly one of the gold documents."""
    for hop in row.get("decomposition", ()):
        if "#" not in hop["question"] and ">>" not in hop["question"]:
            yield {"question": hop["question"], "gold_ids": [hop["gold_id"]]}
    for hop in row.get("qa_pairs", ()):
        asked = entity_key(hop["question"])
        named = [source for source in row["gold_ids"] if titles.get(source) and titles[source] in asked]
        if len(named) == 1:
            yield {"question": hop["question"], "gold_ids": named}


def read_titles(corpus: Path) -> dict[str, str]:
    """The key of each document's title, by its id; none where there is no such file."""
    return {row["id"]: entity_key(row["title"]) for _, row in read_jsonl(corpus)} if corpus.is_file() else {}


def make_rows(index: Path, questions: Path, out: Path, modes: str, limit: int | None) -> Path:
    """The route rows of an index, or those that an earlier call left."""
    rows = out / "rows" / index.name
    if (rows / SUMMARY).exists():
        return rows
    file = out / "questions" / f"{index.name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(file, with_single_hops(questions, limit))
    opened, asked = open_index(index), read_gold_questions(file)
    check_gold((each.question for each in asked), frozenset(opened.sources()))
    origin = {"Index": index.name, "Encoder": opened.encoder_source.fingerprint, "Modes": modes}
    write_dataset(rows, route_rows(opened, asked, parse_modes(modes), TOLERANCE, 0, None, track), ROUTE, origin)
    return rows


def retime(index: Path, rows: Path) -> None:
    """Replace the milliseconds of rows by medians over TIMED questions of one thread's processor time, which other work delays less."""
    files = [rows / f"{split}.jsonl" for split in SPLITS]
    held = {file: [row for _, row in read_jsonl(file)] for file in files}
    texts = [row["question"] for of in held.values() for row in of][:: max(1, sum(map(len, held.values())) // TIMED)]
    opened = open_index(index)
    queries = [Query(text, vector_D) for text, vector_D in zip(texts, opened.encode_queries(texts), strict=True)]
    modes = [mode for mode in DIRECT_STRATEGIES if mode in held[files[0]][0]["runs"]]
    times = {
        mode: processor_ms(
            partial(ask, opened, RetrieveSettings.model_validate({"mode": mode, "top_k": PASSAGES})), queries
        )
        for mode in modes
    }
    making_ms = processor_ms(partial(query_features, opened), queries)
    say(f"{rows.name}: features {making_ms:.2f} ms, " + ", ".join(f"{mode} {ms:.2f}" for mode, ms in times.items()))
    for file, of in held.items():
        for row in of:
            row["features_ms"] = making_ms
            for mode, run_of in row["runs"].items():
                run_of["milliseconds"] = times[mode]
        write_jsonl(file, of)


def ask(index: Index, settings: RetrieveSettings, query: Query) -> Evidence:
    """One question in one mode."""
    return DIRECT_STRATEGIES[settings.mode](index, query, settings)


def processor_ms(work: Callable[[Query], object], queries: Sequence[Query]) -> float:
    """Median milliseconds of one thread's processor time; the first query warms up and is asked again."""
    work(queries[0])
    taken = []
    for query in queries:
        started = thread_time()
        work(query)
        taken.append(1000 * (thread_time() - started))
    return round(median(taken), 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs=2, action="append", required=True, metavar=("INDEX", "QUESTIONS"))
    parser.add_argument("--out", type=Path, default=Path("router-experiment"))
    parser.add_argument("--modes", default="dense,hierarchy,lexical,hybrid,hops,paths")
    parser.add_argument("--limit", type=int, help="questions of each file, before their single hops")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--processor-time", action="store_true", help="time by one thread's processor time")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    there = [(index, questions) for index, questions in arguments.data if present(index, questions)]
    if not there:
        return 0
    folders = []
    for index, questions in there:
        made = (arguments.out / "rows" / index.name / SUMMARY).exists()
        folders.append(make_rows(index, questions, arguments.out, arguments.modes, arguments.limit))
        if arguments.processor_time and not made:
            retime(index, folders[-1])
    router = arguments.out / "router"
    if not router.exists():
        data = tuple(str(folder) for folder in folders)
        train_router(RouterSettings(data=data, output=str(router), tolerance=arguments.tolerance))
    report = evaluate_router(folders, str(router), "test", seed=0)
    write_router_report(report, arguments.out / "report")
    print(json.dumps(router_json(report)) if arguments.json else router_text(report))
    return 0


def present(index: Path, questions: Path) -> bool:
    """Whether an index and its questions are there; says which is missing."""
    missing = [str(path) for path in (index / MANIFEST, questions) if not path.exists()]
    if missing:
        say(f"skipped {index}: no {', no '.join(missing)}")
    return not missing


if __name__ == "__main__":
    sys.exit(main())
