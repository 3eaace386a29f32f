"""The peak memory of building an index, without its vectors, for a number of documents and for ten times as many.

Run: python -P benchmarks/memory.py [--documents 1000] [--json]. Each build runs in a separate process, with the embedded encoder;
the bytes of the vectors in the index are subtracted from its peak resident memory.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.index import invented_documents
from benchmarks.report import MIB, Check, measure_in_process, new_parser, peak_mib, print_report
from graph.build.build import build_index
from graph.models.encoder import open_encoder
from graph.store.arrays import load_arrays
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.index_settings import IndexSettings


def build_and_measure(documents: int) -> dict[str, float]:
    """MiB at the peak of this process after one build, and MiB of the index's vectors."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "index"
        build_index(folder, invented_documents(documents), IndexSettings(communities="igraph"), open_encoder)
        data = load_arrays(folder, IndexData)
        vectors = sum(getattr(data, field).nbytes for _, field in VECTOR_FIELDS.values())
    return {"peak": peak_mib(), "vectors": vectors / MIB}


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(build_and_measure(arguments.measure)))
        return 0
    few, many = (measure_in_process(__file__, str(count)) for count in (arguments.documents, 10 * arguments.documents))
    figures = {
        "documents": arguments.documents,
        "peak_mib": few["peak"],
        "vectors_mib": few["vectors"],
        "peak_mib_of_ten_times": many["peak"],
        "vectors_mib_of_ten_times": many["vectors"],
    }
    growth = (many["peak"] - many["vectors"]) / (few["peak"] - few["vectors"])
    checks = [Check("peak without vectors, ten times the documents (×)", growth, 1.3, at_least=False)]
    return print_report("memory", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
