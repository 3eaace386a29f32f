"""A cross selector of facts that many questions share, learned from EntailmentBank's train split and checked on its dev split.

    python -P benchmarks/experiments/facts.py --data FOLDER --out DIR [--set KEY=VALUE]... [--json]

FOLDER contains corpus.jsonl, questions.jsonl and items.jsonl, as converted from EntailmentBank. A tenth of its train questions choose the
step and the blend; its dev questions are only used for measurement. No question is in two of these, but facts are: most questions draw on
the same ones. Candidates are the set's distractors for each question: other facts are not labelled as unhelpful.
Results of an earlier call in DIR are reused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.experiments.selector import ranking_of
from benchmarks.report import Check, print_report
from graph.shared.jsonl import read_jsonl, write_jsonl

CHECKED = "dev"
LEAST_GAIN, MOST_SECONDS = 0.1, 900
DEV_EVERY = 10


def questions_with_splits(data: Path) -> Iterator[dict[str, Any]]:
    """Each question with its candidates and its new split: train becomes train and dev, the set's dev becomes test, its test split is left out."""
    candidates = {
        row["id"]: [candidate["id"] for candidate in row["candidates"]] for _, row in read_jsonl(data / "items.jsonl")
    }
    for number, (_, row) in enumerate(read_jsonl(data / "questions.jsonl")):
        if row["split"] == CHECKED:
            yield {**row, "context_ids": candidates[row["id"]], "split": "test"}
        elif row["split"] == "train":
            yield {
                **row,
                "context_ids": candidates[row["id"]],
                "split": "dev" if number % DEV_EVERY == 0 else "train",
            }


def modegraph(*words: object) -> None:
    """Run a modegraph command; its output goes to standard error."""
    subprocess.run([sys.executable, "-P", "-m", "modegraph", *map(str, words)], check=True, stdout=sys.stderr)


def main() -> int:
    """Index, label, train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    index, relevance, selector = (arguments.out / name for name in ("index", "relevance", "selector"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not index.is_dir():
        modegraph("index", arguments.data / "corpus.jsonl", "--out", index)
    if not relevance.is_dir():
        write_jsonl(arguments.out / "questions.jsonl", questions_with_splits(arguments.data))
        labels = ("--questions", arguments.out / "questions.jsonl", "--corpus", arguments.data / "corpus.jsonl")
        modegraph("synth", "relevance", index, *labels, "--out", relevance, "--negatives", 0, "--split-by", "questions")
    if not (selector / "selector.json").is_file():
        config = ROOT / "configs" / "train" / "selector-facts.yaml"
        values = [f"data=[{relevance}]", f"output={selector}", *arguments.set]
        modegraph("train", "selector", "--config", config, *(word for value in values for word in ("--set", value)))
    scores = ranking_of(index, str(selector), arguments.data / "items.jsonl", CHECKED)
    seconds = json.loads((selector / "selector.json").read_text())["train_seconds"]
    figures: dict[str, float | str] = {"questions": scores["cosine"]["questions"], "training, s": seconds}
    figures |= {f"MAP, {name}": score["MAP"] for name, score in scores.items()}
    gain = scores["cross"]["minus cosine"]
    figures["cross minus cosine, 95 %"] = f"{gain['low']:+.3f} to {gain['high']:+.3f}"
    checks = [
        Check("MAP of cross minus cosine", gain["mean"], LEAST_GAIN, at_least=True),
        Check("seconds of training", seconds, MOST_SECONDS, at_least=False),
    ]
    return print_report("facts", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
