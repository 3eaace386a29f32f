"""An index edited at random by processes that are often killed (SIGKILL), and read continuously: does it end up like one built from scratch?

Run: python -P benchmarks/experiments/edited.py [--edits 200] [--seed 0] [--json]. Documents are added, changed and deleted, one edit per process,
mostly written as patches of the existing arrays. Every tenth edit is killed at each of its commits in turn until it completes; half of the
others are killed at a random moment. A reader that runs from the start checks every generation that it opens, and the three before it: each must be
complete and the result of an edit. Then the index is compacted and compared, to the byte, with one built from the final documents.
"""

import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import graph.build.build
from benchmarks.edits import open_stub
from benchmarks.report import Check, new_parser, print_report
from graph.build.build import Edit, build_index, edit_index
from graph.build.lifecycle import compact_index, verify_index
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.store.embedding_cache import PendingVectors
from graph.store.index_settings import IndexSettings
from graph.store.manifest import generation_of, read_manifest
from graph.store.sqlite import SqliteStore
from graph.types import Document

SETTINGS = IndexSettings(communities="igraph", layers_on_edit="later", merge_factor=4)
INITIAL_DOCUMENTS, RANDOM_WORDS = 30, 12
MAX_PATCHED_SHARE = 0.5
"""Share of changed documents up to which an edit writes patches; chosen so that an edit occasionally writes all arrays."""
RANDOM_KILL_SHARE, MAX_KILL_DELAY_S, COMMIT_KILL_EVERY = 0.5, 0.4, 10
"""Every COMMIT_KILL_EVERY-th edit is killed at each of its commits. A RANDOM_KILL_SHARE of the others is killed once, at most MAX_KILL_DELAY_S after its
start."""
OLD_GENERATIONS = 3
STATES, FAILED, OPENED = "states.jsonl", "failed", "opened"

State = dict[str, int]
"""The version of each document."""


def document(source: str, version: int) -> Document:
    """A document generated from its name and its version: sentences that state the version, and one to three that other documents may share."""
    rng = random.Random(f"{source} {version}")
    sentences = [f"Keeper {source} of Port {chr(65 + rng.randrange(20))}orr wrote version {version} of {source}."]
    sentences += [f"The {chr(65 + rng.randrange(6))}antern sails to Tarn.", "J. Marlow keeps bees.", "東京の塔"][
        : rng.randint(1, 3)
    ]
    sentences += [
        " ".join(f"w{rng.randrange(200)}" for _ in range(RANDOM_WORDS)).capitalize() + f" in {source} {version}."
    ]
    return Document(source, "Jane Marlow" if rng.random() < 0.1 else "", " ".join(sentences))


def in_process(work: Callable[[], object], kill_after_s: float | None = None, at_commit: int = 0) -> bool:
    """Do the work in a child process, optionally killed after `kill_after_s` seconds or after its `at_commit`-th commit; return whether it was killed."""
    child = os.fork()
    if child == 0:
        _run_and_exit(partial(_edit, work, at_commit))
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status not in (0, signal.SIGKILL):
        code = os.waitstatus_to_exitcode(status)
        raise SystemExit(f"an edit ended with exit code {code}; expected 0, or -9 (SIGKILL) for one that is killed")
    return status != 0


def _run_and_exit(work: Callable[[], object], log: str = os.devnull) -> NoReturn:
    """Do the work and exit this process, whatever happens, without running the parent's cleanup; `log` receives standard error."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    try:
        work()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


def _edit(work: Callable[[], object], at_commit: int) -> None:
    if at_commit:
        _kill_at(at_commit)
    work()


def _kill_at(commit: int) -> None:
    """Kill this process after its `commit`-th commit: of the store, of a batch of vectors, or of the manifest, which is renamed into place."""
    remaining = [commit]

    def count_calls(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **keywords: object) -> object:
            result = function(*arguments, **keywords)
            remaining[0] -= 1
            if not remaining[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    transaction, committed = SqliteStore.transaction, count_calls(lambda: None)

    @contextmanager
    def counted_transaction(store: SqliteStore) -> Iterator[None]:
        with transaction(store):
            yield
        committed()

    graph.build.build.publish = count_calls(graph.build.build.publish)  # type: ignore[assignment]
    SqliteStore.transaction = counted_transaction  # type: ignore[method-assign]
    PendingVectors.put = count_calls(PendingVectors.put)  # type: ignore[method-assign]


def read_continuously(folder: Path, notes: Path, writer: int) -> None:
    """Open and check every new generation, and the OLD_GENERATIONS before it, until the writer ends; raise an error at the first problem."""
    opened: list[tuple[Index, State]] = []
    generations: set[int] = set()
    while os.getppid() == writer:
        newest = open_index(folder, open_stub)
        if newest.manifest.generation not in generations:
            opened = [*opened[-OLD_GENERATIONS:], (newest, _state_of(newest))]
            generations.add(newest.manifest.generation)
            (notes / OPENED).write_text(str(len(generations)))
        states = [json.loads(line) for line in (notes / STATES).read_text().splitlines()]
        for index, state in opened:
            if state not in states or _state_of(index) != state:
                raise AssertionError(
                    f"generation {index.manifest.generation}: documents changed after it was opened, or match no edit; "
                    "expected the unchanged result of one edit"
                )
            source = random.choice(sorted(state))
            top = retrieve(index, f"Who wrote of {source}?", RetrieveSettings(mode="hops", top_k=3)).passages
            unnamed = [passage.item.source for passage in top if f"{passage.item.source} " not in passage.item.text]
            if unnamed:
                raise AssertionError(
                    f"generation {index.manifest.generation}: retrieved passages of {', '.join(unnamed)} do not name their document; "
                    "expected every passage to name it"
                )


def _state_of(index: Index) -> State:
    """The version of each document; ValueError if the passages of a document state no version or several."""
    state = {}
    for source in index.sources():
        texts = [passage.text for passage in index.passages_of(source)]
        (state[source],) = {int(word) for text in texts for word in re.findall(r"\b\d+\b", text)}
    return state


def run_edits(scratch: Path, edits: int, seed: int) -> dict[str, float | str]:
    """Make all edits while a reader runs, then compare the index with one built from scratch; return the figures."""
    folder, notes, rng = scratch / "index", scratch / "notes", random.Random(seed)
    notes.mkdir()
    state: State = {f"d{number}": 10_000 for number in range(INITIAL_DOCUMENTS)}
    build_index(folder, [document(*item) for item in state.items()], SETTINGS, open_stub)
    (notes / STATES).write_text(json.dumps(state) + "\n")
    reader = os.fork()
    if reader == 0:
        _run_and_exit(partial(read_continuously, folder, notes, os.getppid()), str(notes / FAILED))
    kills = {"at a commit": 0, "at a random moment": 0}
    kinds = {"inserted": 0, "updated": 0, "deleted": 0}
    for number in range(1, edits + 1):
        kind = rng.choices(["inserted", "updated", "deleted"], [3, 3, 2])[0]
        source = f"d{INITIAL_DOCUMENTS + number}" if kind == "inserted" else rng.choice(sorted(state))
        kinds[kind] += 1
        state = {item: version for item, version in state.items() if item != source}
        version = 10_000 + number
        if kind != "deleted":
            state = dict(sorted([*state.items(), (source, version)]))
        with (notes / STATES).open("a") as file:
            file.write(json.dumps(state) + "\n")

        change = Edit(delete=source) if kind == "deleted" else Edit(add=[document(source, version)])
        edit = partial(edit_index, folder, partial(list, [change]), open_stub)
        commit = 1
        while number % COMMIT_KILL_EVERY == 0 and in_process(edit, at_commit=commit):
            kills["at a commit"] += 1
            commit += 1
        if number % COMMIT_KILL_EVERY and rng.random() < RANDOM_KILL_SHARE:
            kills["at a random moment"] += in_process(edit, kill_after_s=rng.uniform(0, MAX_KILL_DELAY_S))
        if in_process(edit):
            raise SystemExit(
                f"edit {number}: killed from outside this script; expected it to complete (is there enough memory?)"
            )
    time.sleep(1)
    os.kill(reader, signal.SIGKILL)
    failed = "" if os.waitpid(reader, 0)[1] == signal.SIGKILL else (notes / FAILED).read_text().splitlines()[-1]
    damage = len(verify_index(folder))
    generations = generation_of(folder) or 0
    compact_index(folder, open_stub)
    build_index(scratch / "scratch", [document(*item) for item in state.items()], SETTINGS, open_stub)
    one, other = (read_manifest(item) for item in (folder, scratch / "scratch"))
    same = (one.files, one.segments, one.ann) == (other.files, other.segments, other.ann)
    return {
        **{f"documents {kind}": count for kind, count in kinds.items()},
        **{f"killed {when}": count for when, count in kills.items()},
        "generations": generations,
        "generations that the reader opened": float((notes / OPENED).read_text()),
        "reader: problems": float(bool(failed)),
        **({"reader": failed} if failed else {}),
        "damaged files": damage,
        "files unlike those of a build from scratch": float(not same),
    }


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    graph.build.build.PATCHED_FROM_PASSAGES, graph.build.build.MAX_PATCHED_SHARE = 0, MAX_PATCHED_SHARE
    with tempfile.TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        figures = run_edits(Path(scratch), options.edits, options.seed)
    killed = float(figures["killed at a commit"]) + float(figures["killed at a random moment"])
    checks = [
        Check("kills", killed, options.edits / 5, at_least=True),
        *(
            Check(name, float(figures[name]), 0, at_least=False)
            for name in ("reader: problems", "damaged files", "files unlike those of a build from scratch")
        ),
    ]
    return print_report("edited", figures, checks, options.json)


if __name__ == "__main__":
    sys.exit(main())
