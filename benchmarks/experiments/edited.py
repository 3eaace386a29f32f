"""One index in one life: edited at random, killed (SIGKILL) all the while, and read all the while. Is it in the end what its documents make it?

Run: python -P benchmarks/experiments/edited.py [--edits 200] [--seed 0] [--json]. Documents come, change and go, one edit a process, written beside the arrays
that were there. Every tenth edit is killed at each of its commits, one after another, until it comes to its end, half of the others at a random moment. A reader that was there
from the start looks at every generation, and at the three before: each must be one that the edits made, whole. Then the index is compacted and compared with one
that is made of the last documents, to the byte.
"""

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import graph.build.build
from benchmarks.edits import Stopwatch, StubEncoder
from benchmarks.report import Check, print_report
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
FIRST, WORDS = 30, 12
MOST_BESIDE_SHARE = 0.5
"""Of the documents: so that an edit now and then writes all arrays."""
KILLED_SHARE, LONGEST_S, AT_COMMITS = 0.5, 0.4, 10
OLD = 3
STATES, FAILED, SEEN = "states.jsonl", "failed", "seen"

State = dict[str, int]
"""The version of each document."""


def document(source: str, version: int) -> Document:
    """Sentences that say which version of the document they are of, and one that other documents have too."""
    draw = random.Random(f"{source} {version}")
    told = [f"Keeper {source} of Port {chr(65 + draw.randrange(20))}orr wrote version {version} of {source}."]
    told += [f"The {chr(65 + draw.randrange(6))}antern sails to Tarn.", "J. Marlow keeps bees.", "東京の塔"][
        : draw.randint(1, 3)
    ]
    told += [" ".join(f"w{draw.randrange(200)}" for _ in range(WORDS)).capitalize() + f" in {source} {version}."]
    return Document(source, "Jane Marlow" if draw.random() < 0.1 else "", " ".join(told))


def encoder(spec: str) -> StubEncoder:
    return StubEncoder(Stopwatch())


def in_process(work: Callable[[], object], kill_after_s: float | None = None, at_commit: int = 0) -> bool:
    """Do it in a process of its own, killed at a moment or at a commit; whether it was."""
    child = os.fork()
    if child == 0:
        _end_with(partial(_edit, work, at_commit))
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status not in (0, signal.SIGKILL):
        raise SystemExit(f"an edit ended with status {status}")
    return status != 0


def _end_with(work: Callable[[], object], told: str = os.devnull) -> NoReturn:
    """Do it as the last thing of this process, whatever comes of it; what belongs to the parent is left alone. `told` gets what it says."""
    os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT), 2)
    try:
        work()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


def _edit(work: Callable[[], object], at_commit: int) -> None:
    if at_commit:
        _die_at(at_commit)
    work()


def _die_at(commit: int) -> None:
    """Have this process killed behind its commit of that number: of the store, or the manifest that is renamed into place."""
    left = [commit]

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **named: object) -> object:
            done = function(*given, **named)
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    graph.build.build.publish = counted(graph.build.build.publish)  # type: ignore[assignment]
    SqliteStore._committed = counted(SqliteStore._committed)  # type: ignore[method-assign]
    PendingVectors.put = counted(PendingVectors.put)  # type: ignore[method-assign]


def read_all_the_while(folder: Path, notes: Path, writer: int) -> None:
    """Look at every generation, and at those before, while the writer lives; the first thing that is wrong is raised."""
    held: list[tuple[Index, State]] = []
    seen: set[int] = set()
    while os.getppid() == writer:
        found = open_index(folder, encoder)
        if found.manifest.generation not in seen:
            held = [*held[-OLD:], (found, _state_of(found))]
            seen.add(found.manifest.generation)
            (notes / SEEN).write_text(str(len(seen)))
        states = [json.loads(line) for line in (notes / STATES).read_text().splitlines()]
        for index, state in held:
            if state not in states or _state_of(index) != state:
                raise AssertionError(f"generation {index.manifest.generation} is none that was made")
            source = random.choice(sorted(state))
            top = retrieve(index, f"Who wrote of {source}?", RetrieveSettings(mode="hops", top_k=3)).passages
            if any(f"{each.item.source} " not in each.item.text for each in top):
                raise AssertionError("a passage of another document")


def _state_of(index: Index) -> State:
    """The version of each document, which all of its passages and propositions tell alike."""
    state = {}
    for source in index.sources():
        texts = [passage.text for passage in index.passages_of(source)]
        (state[source],) = {int(word) for text in texts for word in re.findall(r"\b\d+\b", text)}
    return state


def live(place: Path, edits: int, seed: int) -> dict[str, float | str]:
    """All edits; how many, how often killed, and what the reader saw."""
    folder, notes, draw = place / "index", place / "notes", random.Random(seed)
    notes.mkdir()
    state: State = {f"d{number}": 10_000 for number in range(FIRST)}
    build_index(folder, [document(*each) for each in state.items()], SETTINGS, encoder)
    (notes / STATES).write_text(json.dumps(state) + "\n")
    reader = os.fork()
    if reader == 0:
        _end_with(partial(read_all_the_while, folder, notes, os.getppid()), str(notes / FAILED))
    kills = {"at a commit": 0, "at a random moment": 0}
    kinds = {"inserted": 0, "updated": 0, "deleted": 0}
    for number in range(1, edits + 1):
        kind = draw.choices(["inserted", "updated", "deleted"], [3, 3, 2])[0]
        source = f"d{FIRST + number}" if kind == "inserted" else draw.choice(sorted(state))
        kinds[kind] += 1
        state = {each: version for each, version in state.items() if each != source}
        version = 10_000 + number
        if kind != "deleted":
            state = dict(sorted([*state.items(), (source, version)]))
        with (notes / STATES).open("a") as file:
            file.write(json.dumps(state) + "\n")

        change = Edit(delete=source) if kind == "deleted" else Edit(add=[document(source, version)])
        edit = partial(edit_index, folder, partial(list, [change]), encoder)
        commit = 1
        while number % AT_COMMITS == 0 and in_process(edit, at_commit=commit):
            kills["at a commit"] += 1
            commit += 1
        if number % AT_COMMITS and draw.random() < KILLED_SHARE:
            kills["at a random moment"] += in_process(edit, kill_after_s=draw.uniform(0, LONGEST_S))
        if in_process(edit):
            raise SystemExit("killed by somebody else")
    time.sleep(1)
    os.kill(reader, signal.SIGKILL)
    failed = "" if os.waitpid(reader, 0)[1] == signal.SIGKILL else (notes / FAILED).read_text().splitlines()[-1]
    damage = len(verify_index(folder))
    generations = generation_of(folder) or 0
    compact_index(folder, encoder)
    build_index(place / "scratch", [document(*each) for each in state.items()], SETTINGS, encoder)
    one, other = (read_manifest(each) for each in (folder, place / "scratch"))
    same = (one.files, one.segments, one.ann) == (other.files, other.segments, other.ann)
    return {
        **{f"documents {kind}": count for kind, count in kinds.items()},
        **{f"killed {when}": count for when, count in kills.items()},
        "generations": generations,
        "generations that the reader saw": float((notes / SEEN).read_text()),
        "reader: problems": float(bool(failed)),
        **({"reader": failed} if failed else {}),
        "damaged files": damage,
        "files unlike those of a build from scratch": float(not same),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    graph.build.build.PATCHED_FROM_PASSAGES, graph.build.build.MAX_PATCHED_SHARE = 0, MOST_BESIDE_SHARE
    with tempfile.TemporaryDirectory(prefix="modegraph-bench-") as place:
        figures = live(Path(place), options.edits, options.seed)
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
