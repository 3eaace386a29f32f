"""How well a trained selector ranks labelled candidates of other data: average precision, next to the cosine's.

    python benchmarks/experiments/selector.py --selector FOLDER --index INDEX --items items.jsonl --split dev --json

INDEX contains the candidates as documents (`modegraph index corpus.jsonl`). A line of `items` is {"id", "question", "split",
"candidates": [{"id", "text", "label"}]}, as EntailmentBank's is converted.

Legend: n candidates of a question.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from data_synth.relevance.relevance_rows import rows_of_sources
from eval.statistics import bootstrap_difference
from graph.index.index import Index, open_index
from graph.retrieve.learned.light import FEATURES, Classifier, judge, measure, open_selector, view_of
from graph.retrieve.parts.query import Query
from graph.shared.console import track
from graph.shared.jsonl import read_jsonl

COSINE = "cosine"


def scores_of(
    index: Index, query: Query, rows_n: NDArray[np.int64], selector: Classifier
) -> dict[str, NDArray[np.float64]]:
    """The candidates' scores by cosine and by the selector."""
    view = view_of(index, query)
    return {
        COSINE: measure(index, query, view, rows_n)[:, FEATURES.index("nearness")].astype(np.float64),
        "selector": judge(selector, index, query, view, rows_n),
    }


def precisions(index: Index, item: Mapping[str, Any], selector: Classifier) -> dict[str, float]:
    """The average precision of one question's candidates by each score."""
    rows_n = np.array([rows_of_sources(index, [candidate["id"]])[0] for candidate in item["candidates"]], np.int64)
    label_n = np.array([candidate["label"] for candidate in item["candidates"]])
    query = Query(item["question"], index.encode_queries([item["question"]])[0])
    return {
        name: float(average_precision_score(label_n, scores_n))
        for name, scores_n in scores_of(index, query, rows_n, selector).items()
    }


def ranking_of(index: Path, selector: str, items: Path, split: str) -> dict[str, dict[str, Any]]:
    """Mean average precision over the questions of a split, and its difference from the cosine's, by score."""
    opened, trained = open_index(index), open_selector(selector)
    rows = [row for _, row in read_jsonl(items) if row["split"] == split]
    usable = [item for item in rows if any(candidate["label"] for candidate in item["candidates"])]
    precisions_Q = [precisions(opened, item, trained) for item in track(usable, "questions", len(usable))]
    by_score = {name: [by_name[name] for by_name in precisions_Q] for name in precisions_Q[0]}
    return {
        name: {
            "questions": len(values),
            "MAP": float(np.mean(values)),
            "minus cosine": asdict(bootstrap_difference(values, by_score[COSINE])),
        }
        for name, values in by_score.items()
    }


def main() -> None:
    """Read, rank, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("selector", "index", "items"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = ranking_of(Path(arguments.index), arguments.selector, Path(arguments.items), arguments.split)
    if arguments.json:
        print(json.dumps({"split": arguments.split, "scores": report}, indent=2))
        return
    for name, figures in report.items():
        print(f"{name:20} MAP {figures['MAP']:.3f}, minus cosine {figures['minus cosine']['mean']:+.3f}")


if __name__ == "__main__":
    main()
