"""The cost of editing an index: one document added and one deleted, in processor seconds without the encoder, by step.

Run: python -P benchmarks/edits.py [--passages 500 2000] [--profile FILE] [--json]. The documents are invented and have
one passage and four propositions each; the stub encoder's time is subtracted. A step's seconds exclude those of nested steps. "later" marks
edits with layers_on_edit=later, which keep the existing communities.
"""

import cProfile
import importlib
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.report import Check, new_parser, print_report
from graph.build.build import build_index
from graph.build.lifecycle import delete_documents
from graph.index.index import open_index
from graph.models.encoder import unit_rows
from graph.shared.ids import content_id
from graph.store.index_settings import IndexSettings
from graph.types import Document, Floats, Prompts

DIMENSIONS, VOCABULARY = 384, 20_000
SUBJECT_DOCUMENTS, SUBJECT_WORDS = 100, 24
SETTINGS = IndexSettings(communities="igraph")
MAX_S = {10_000: 0.3, 100_000: 0.5, 1_000_000: 1.5}
"""Processor seconds that an edit may take, by the number of passages in the index."""
STEPS = {
    "rows of the store": [
        ("graph.build.changes", f"ChangedRows.{name}")
        for name in ("documents", "passages", "occurrences", "keys", "links", "_text")
    ],
    "orphans of the store": [("graph.store.rows", "Store.drop_orphans")],
    "terms": [("graph.build.derive", "derive_terms")],
    "vectors by id": [("graph.store.embedding_cache", "EmbeddingCache.encode")],
    "entities": [("graph.build.derive_entities", "_caseless_rows"), ("graph.build.derive_entities", "_Aliases.of")],
    "nearest neighbours": [
        ("graph.build.derive_entities", "similarity_graph"),
        ("graph.build.derive_entities", "edit_graph"),
        ("graph.hierarchy.layers", "similarity_graph"),
        ("graph.hierarchy.layers", "edit_graph"),
    ],
    "communities": [("graph.hierarchy.layers", "find_communities")],
    "summaries": [("graph.hierarchy.layers", "_add_summaries")],
    "files": [("graph.build.build", "save_arrays")],
    "ANN indexes": [("graph.store.arrays", "build_ann")],
    "seals": [("graph.store.seal", "Sealing.check_and_record"), ("graph.store.seal", "Sealing.current_sums")],
}
"""The steps that are timed: functions by module and name."""


class Stopwatch:
    """Processor seconds by step, excluding nested steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running = ["the rest"]
        self._since = time.process_time()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._count_elapsed()
        self._running.append(name)
        try:
            yield
        finally:
            self._count_elapsed()
            self._running.pop()

    def take(self) -> dict[str, float]:
        """The seconds since the last call."""
        self._count_elapsed()
        taken, self.seconds = dict(self.seconds), defaultdict(float)
        return taken

    def _count_elapsed(self) -> None:
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now


class StubEncoder:
    """An encoder that gives similar vectors to texts that share words; a word's vector is random, seeded by its hash. Its time is the step "encoder"."""

    fingerprint, prompts = "stub", Prompts()

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch

    def encode(self, texts: Sequence[str]) -> Floats:
        with self._watch.step("encoder"):
            vectors = [np.sum([_word_vector(word) for word in text.split()], axis=0) for text in texts]
            return unit_rows(np.array(vectors, np.float32).reshape(-1, DIMENSIONS))

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        return self.encode(texts)

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def open_stub(spec: str) -> StubEncoder:
    """A stub encoder instead of the encoder `spec`; its time is not counted."""
    return StubEncoder(Stopwatch())


@lru_cache(2 * VOCABULARY)
def _word_vector(word: str) -> Floats:
    rng = np.random.default_rng(int(content_id(word)[:8], 16))
    return rng.standard_normal(DIMENSIONS, dtype=np.float32)


def invented_document(number: int) -> Document:
    """One passage of four sentences about a place that only this document mentions and a place that others may mention too.

    A few words of the vocabulary are frequent, most are rare. About half of a document's words belong to its subject, which SUBJECT_DOCUMENTS
    documents share, as in a real collection.
    """
    rng, common = random.Random(number), _words(random.Random(f"subject {number // SUBJECT_DOCUMENTS}"), SUBJECT_WORDS)
    words = [word if rng.random() < 0.5 else rng.choice(common) for word in _words(rng, 32)]
    port, isle = f"Port {_name(number)}", f"Isle {_name(int(number * rng.random()))}"
    sentences = [
        f"Keeper {' '.join(words[8 * part : 8 * part + 8])} of {port} and {isle} in {1700 + rng.randrange(300)}."
        for part in range(4)
    ]
    return Document(f"d{content_id(str(number))[:12]}", port, " ".join(sentences))


def _words(rng: random.Random, count: int) -> list[str]:
    return [f"w{int(VOCABULARY * rng.random() ** 3)}" for _ in range(count)]


def _name(number: int) -> str:
    """A capitalised word for a number."""
    return "".join(chr(97 + (number // 26**digit) % 26) for digit in range(5)).title()


def as_step(watch: Stopwatch, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        with watch.step(name):
            return function(*arguments, **keywords)

    return call


def watch_steps(watch: Stopwatch) -> None:
    """Time every function of STEPS from this call on."""
    for step, functions in STEPS.items():
        for module, name in functions:
            owner: Any = importlib.import_module(module)
            *outer, last = name.split(".")
            for part in outer:
                owner = getattr(owner, part)
            setattr(owner, last, as_step(watch, step, getattr(owner, last)))


def measure(
    folder: Path, passages: int, watch: Stopwatch, settings: IndexSettings, profile: cProfile.Profile | None = None
) -> dict[str, float]:
    """Processor seconds of building an index of `passages` passages, adding and deleting one document, and opening: by step and in total; MB on disk."""
    figures: dict[str, float] = {}
    encoder = StubEncoder(watch)

    def note(edit: str) -> None:
        by_step = {step: seconds for step, seconds in watch.take().items() if step != "encoder"}
        figures[f"{passages}: {edit}"] = sum(by_step.values())
        figures.update({f"{passages}: {edit}: {step}": seconds for step, seconds in sorted(by_step.items())})

    added = invented_document(passages)
    watch.take()
    build_index(folder, map(invented_document, range(passages)), settings, lambda spec: encoder)
    note("build")
    for layers, suffix in (("now", ""), ("later", " later")):
        edit_settings = settings.model_copy(update={"layers_on_edit": layers})
        with profile or nullcontext():
            build_index(folder, [added], edit_settings, lambda spec: encoder)
        note(f"add{suffix}")
        with profile or nullcontext():
            delete_documents(folder, [added.source], lambda spec: encoder)
        note(f"delete{suffix}")
    open_index(folder, lambda spec: encoder)
    note("open")
    figures[f"{passages}: MB on disk"] = sum(file.stat().st_size for file in folder.rglob("*.*")) / 1e6
    return figures


def edit_checks(figures: Mapping[str, float | str], sizes: Sequence[int]) -> list[Check]:
    """Checks of the processor seconds per edit, for those sizes that MAX_S lists."""
    return [
        Check(
            f"{passages} passages: {edit}, processor seconds",
            float(figures[f"{passages}: {edit}"]),
            MAX_S[passages],
            at_least=False,
        )
        for passages in sizes
        for edit in ("add", "delete", "add later", "delete later")
        if passages in MAX_S
    ]


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--passages", type=int, nargs="+", default=[500, 2_000])
    parser.add_argument("--profile", type=Path, help="write cProfile's statistics of all edits to this file")
    arguments = parser.parse_args()
    watch, profile = Stopwatch(), cProfile.Profile() if arguments.profile else None
    watch_steps(watch)
    figures: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder) / "imports", 20, watch, SETTINGS)
        for passages in arguments.passages:
            figures |= measure(Path(folder) / str(passages), passages, watch, SETTINGS, profile)
    if profile is not None:
        profile.dump_stats(arguments.profile)
    return print_report("edits", figures, edit_checks(figures, arguments.passages), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
