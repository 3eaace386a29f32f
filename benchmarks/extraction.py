"""How much of a text is retained in its graph: facts of essays covered by our rule-based propositions, and by published graphs such as OpenIE's (MINE).

For each essay, 15 known facts are looked up among the texts of its graph: a fact counts as covered if its nearest text has at
least the given cosine. Run: python -P benchmarks/extraction.py FOLDER [--json]; FOLDER has MINE's files: corpus.jsonl, facts.jsonl
({"id", "facts"}) and graphs.jsonl ({"id", "system", "triples"}).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.report import Check, new_parser, print_report
from graph.documents.split import split_passages
from graph.extract.rules import extract_by_rules
from graph.models.encoder import open_encoder
from graph.shared.jsonl import read_jsonl
from graph.types import Document, Encoder

THRESHOLDS = (0.6, 0.7, 0.8)
CHECKED = 0.7


def rule_texts(document: Document, encoder: Encoder) -> list[str]:
    """The propositions that the rules extract from a document."""
    passages = split_passages(document, 200, encoder.count_tokens)
    return [occurrence.text for passage in extract_by_rules(document, passages) for occurrence in passage]


def best_cosines(facts: list[str], texts: list[str], encoder: Encoder) -> np.ndarray:
    """For each fact, the cosine of the nearest text; 0 when there is none."""
    if not texts:
        return np.zeros(len(facts))
    return (encoder.encode(facts) @ encoder.encode(texts).T).max(axis=1)


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    encoder = open_encoder("minilm")
    corpus = {
        row["id"]: Document(row["id"], row["title"], row["text"])
        for _, row in read_jsonl(arguments.folder / "corpus.jsonl")
    }
    facts = {row["id"]: row["facts"] for _, row in read_jsonl(arguments.folder / "facts.jsonl")}
    graphs = [row for _, row in read_jsonl(arguments.folder / "graphs.jsonl")]
    cosines_by_system: dict[str, list[np.ndarray]] = {"rules": []}
    rules = {}
    for essay, document in corpus.items():
        rules[essay] = best_cosines(facts[essay], rule_texts(document, encoder), encoder)
        cosines_by_system["rules"].append(rules[essay])
    for graph in graphs:
        texts = [" ".join(triple) for triple in graph["triples"]]
        cosines_by_system.setdefault(graph["system"], []).append(best_cosines(facts[graph["id"]], texts, encoder))
    rules_on_same_essays = [rules[graph["id"]] for graph in graphs if graph["system"] == "OpenIE"]
    cosines_of = {system: np.concatenate(cosines) for system, cosines in cosines_by_system.items()}
    figures = {
        f"{system} ≥ {least}": float((cosines >= least).mean())
        for system, cosines in cosines_of.items()
        for least in THRESHOLDS
    }
    ours, theirs = float((np.concatenate(rules_on_same_essays) >= CHECKED).mean()), figures[f"OpenIE ≥ {CHECKED}"]
    checks = [
        Check(f"rules minus OpenIE, share of facts covered at cosine {CHECKED}, same essays", ours - theirs, 0, True)
    ]
    return print_report("extraction", {"essays": len(corpus), **figures}, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
