"""Building an index: time outside the encoder, the cost of one more document, and whether deleting it leaves no trace.

Run: python -P benchmarks/index.py [--corpus FILE.jsonl] [--passages 10000] [--json]. --passages is the maximum
number of documents; without --corpus, the documents are invented, with one passage each.
"""

import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import scipy.sparse as sp

from benchmarks.report import Check, new_parser, print_report
from graph.build.build import build_index
from graph.build.lifecycle import delete_documents, index_status
from graph.documents.read import read_documents
from graph.models.encoder import open_encoder
from graph.store.arrays import load_arrays
from graph.store.columns.moved import assembled
from graph.store.columns.strings import Strings
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.types import Document, Encoder, Floats

ADDED = Document(
    "added", "Added Light", "Added Light stands above Quill. It was first lit in 1902. Ada Marlow paid for it."
)
WORDS = [
    *("harbour", "ferry", "lamp", "tide", "bell", "keeper", "road", "mill", "salt", "rope", "quince", "fever"),
    *("chapel", "engine", "signal", "winter", "orchard", "letter"),
]
NAMES = [
    *("Ada Marlow", "Quill", "Port Ellery", "Tarn", "Lantern", "Marlow Yard", "Jonas Reed", "Salt Row", "Gull"),
    *("Corrow", "Pell", "Orrin", "Thole", "Brandt"),
]


class CountingEncoder:
    """An encoder that counts the texts that it encodes and the seconds it takes."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.fingerprint, self.prompts, self.count_tokens = encoder.fingerprint, encoder.prompts, encoder.count_tokens
        self.encode_queries = encoder.encode_queries
        self.texts, self.seconds = 0, 0.0

    def encode(self, texts: Sequence[str]) -> Floats:
        started = perf_counter()
        vectors = self._encoder.encode(texts)
        self.seconds += perf_counter() - started
        self.texts += len(texts)
        return vectors


def invented_documents(count: int) -> Iterator[Document]:
    """Documents of one passage and six sentences; each sentence contains two names, which may be the same."""
    rng = random.Random(0)
    for number in range(count):
        names = rng.sample(NAMES, 3)
        sentences = [
            f"{rng.choice(names)} {number % 97} kept the {' '.join(rng.choices(WORDS, k=6))} of {rng.choice(names)} in {rng.randint(1800, 1999)}."
            for _ in range(6)
        ]
        yield Document(f"d{number:06d}", f"{names[0]} {number}", " ".join(sentences))


def fingerprint(data: IndexData) -> str:
    """One hash of all arrays of an index."""
    digest = blake2b(digest_size=16)
    for field in fields(IndexData):
        value = assembled(getattr(data, field.name))
        parts = [value]
        if isinstance(value, Strings):
            parts = [value.data, value.starts]
        elif sp.issparse(value):
            parts = [value.indptr, value.indices, value.data]
        for part in parts:
            digest.update(part.tobytes())
    return digest.hexdigest()


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--passages", type=int, default=10_000)
    arguments = parser.parse_args()
    source = read_documents(arguments.corpus, print) if arguments.corpus else invented_documents(arguments.passages)
    documents = list(islice(source, arguments.passages))
    encoder = CountingEncoder(open_encoder("minilm"))
    settings = IndexSettings(communities="igraph")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "index"
        started = perf_counter()
        report = build_index(folder, documents, settings, lambda spec: encoder)
        total, encoder_seconds, encoded = perf_counter() - started, encoder.seconds, encoder.texts
        before, rows = fingerprint(load_arrays(folder, IndexData)), index_status(folder).rows
        started = perf_counter()
        build_index(folder, [ADDED], settings, lambda spec: encoder)
        added_seconds, added_texts = perf_counter() - started, encoder.texts - encoded
        new_texts = sum(
            len(getattr(load_arrays(folder, IndexData), field)) for field in ("passage_ids", "proposition_ids")
        )
        delete_documents(folder, ["added"], lambda spec: encoder)
        same = fingerprint(load_arrays(folder, IndexData)) == before and index_status(folder).rows == rows
    figures = {
        "passages": report.passages,
        "propositions": report.propositions,
        "entities": report.entities,
        "texts_encoded": encoded,
        "seconds": total,
        "encoder_seconds": encoder_seconds,
        "added_seconds": added_seconds,
        "added_texts_encoded": added_texts,
        "passages_and_propositions_after": new_texts,
    }
    checks = [
        Check("share of the time outside the encoder", 1 - encoder_seconds / total, 0.15, False),
        Check("one more document, share of the whole build's time", added_seconds / total, 0.02, False),
        Check("one more document, share of texts encoded again", added_texts / encoded, 0.01, False),
        Check("after deleting it, identical arrays and rows", float(same), 1, True),
    ]
    return print_report("index", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
