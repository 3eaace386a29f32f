"""A cross selector of facts that many questions share, learned from EntailmentBank's train split and checked on its dev split.

    python -P benchmarks/experiments/facts.py --data FOLDER --out DIR [--set KEY=VALUE]... [--json]

FOLDER holds corpus.jsonl, questions.jsonl and items.jsonl, as EntailmentBank is converted. A tenth of its train questions choose the
step and the blend; its dev questions are read only to be measured. No question is in two of these, facts are: most questions draw on
the same ones. Candidates are the distractors that the set has for each question: of other facts nobody has said that they do not help.
What an earlier call left in DIR is used again.
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
    """Train questions to train and dev, the set's dev questions to test, each with its candidates; its own test split is left out."""
    candidates = {row["id"]: [each["id"] for each in row["candidates"]] for _, row in read_jsonl(data / "items.jsonl")}
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
    """A command of ours; its talk goes to standard error."""
    subprocess.run([sys.executable, "-P", "-m", "modegraph", *map(str, words)], check=True, stdout=sys.stderr)


def main() -> int:
    """Index, label, train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    index, relevance, selector = (given.out / name for name in ("index", "relevance", "selector"))
    given.out.mkdir(parents=True, exist_ok=True)
    if not index.is_dir():
        modegraph("index", given.data / "corpus.jsonl", "--out", index)
    if not relevance.is_dir():
        write_jsonl(given.out / "questions.jsonl", questions_with_splits(given.data))
        labels = ("--questions", given.out / "questions.jsonl", "--corpus", given.data / "corpus.jsonl")
        modegraph("synth", "relevance", index, *labels, "--out", relevance, "--negatives", 0, "--split-by", "questions")
    if not (selector / "selector.json").is_file():
        config = ROOT / "configs" / "train" / "selector-facts.yaml"
        values = [f"data=[{relevance}]", f"output={selector}", *given.set]
        modegraph("train", "selector", "--config", config, *(word for value in values for word in ("--set", value)))
    scores = ranking_of(index, str(selector), given.data / "items.jsonl", CHECKED)
    seconds = json.loads((selector / "selector.json").read_text())["train_seconds"]
    figures: dict[str, float | str] = {"questions": scores["cosine"]["questions"], "training, s": seconds}
    figures |= {f"MAP, {name}": found["MAP"] for name, found in scores.items()}
    gain = scores["cross"]["minus cosine"]
    figures["cross minus cosine, 95 %"] = f"{gain['low']:+.3f} to {gain['high']:+.3f}"
    checks = [
        Check("MAP of cross minus cosine", gain["mean"], LEAST_GAIN, at_least=True),
        Check("seconds of training", seconds, MOST_SECONDS, at_least=False),
    ]
    return print_report("facts", figures, checks, given.json)


if __name__ == "__main__":
    sys.exit(main())
