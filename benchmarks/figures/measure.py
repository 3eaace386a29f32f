"""Compute the data of two figures in docs/: one question's walk through the graph, and one prompt's responses under MS and DPO.

Run: PYTHONPATH=. python -P -m benchmarks.figures.measure [walk | batch] [--index FOLDER] [--json]. Writes
walk.json and batch.json in benchmarks/figures/data, which `make figures` draws. `batch` needs smollm2 (modegraph models get smollm2) and takes
minutes; both build an index of examples/documents unless --index names one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import modegraph as mg
from benchmarks.figures.style import DATA
from graph.shared.jsonl import read_jsonl, write_json, write_jsonl
from train.model.load import load_policy
from train.model.logps import completion_logps, pad_rows, tokenize_row
from train.preference.groups import combine_rewards
from train.run.data import read_responses
from train.run.settings import MsSettings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
WALK_QUESTION = (
    "Who was the engineer of the structure drawn on the jars of the firm that buys nearly the whole quince crop?"
)
BATCH_QUESTION_ID = "q001"
MODEL, K, STEPS = "smollm2", 12, 8
TRAINING: dict[str, Any] = {
    "learning_rate": 1e-4,
    "batch_size": 1,
    "max_steps": STEPS,
    "beta": 0.1,
    "beta_reward": 0.25,
    "lora": {"rank": 16, "alpha": 32},
    "rewards": {"correct": 1.0, "grounded": 0.5},
    "logging_steps": 1,
}
"""Settings that train a new adapter. The answer form is not rewarded, because no response of the untuned model follows it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["walk", "batch"], help="both by default")
    parser.add_argument("--index", type=Path, help="an index of examples/documents")
    parser.add_argument("--json", action="store_true", help="print the data")
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        work = Path(name)

        def index() -> mg.Index:
            return mg.open(options.index) if options.index else mg.index(EXAMPLES / "documents", out=work / "index")

        measures = {
            "walk": lambda: walk(index()),
            "batch": lambda: batch(index(), work),
        }
        for what in [options.what] if options.what else measures:
            data = measures[what]()
            write_json(DATA / f"{what}.json", data)
            print(json.dumps(data) if options.json else f"{DATA / what}.json")


def walk(index: mg.Index) -> dict[str, Any]:
    """The five best passages of `hops` with the paths to them, and the rank of each in `dense`."""
    evidence = index.retrieve(WALK_QUESTION, mode="hops", selector="none", top_k=5)
    dense = [scored.item.id for scored in index.retrieve(WALK_QUESTION, mode="dense", top_k=100).passages]
    gold = next(row["gold_ids"] for row in questions() if row["question"] == WALK_QUESTION)
    return {
        "question": WALK_QUESTION,
        "passages": [
            {
                "title": scored.item.title,
                "score": round(scored.score, 3),
                "gold": scored.item.source in gold,
                "dense rank": dense.index(scored.item.id) + 1 if scored.item.id in dense else None,
                "path": list(path),
            }
            for scored, path in zip(evidence.passages, evidence.paths, strict=True)
        ],
    }


def batch(index: mg.Index, work: Path) -> dict[str, Any]:
    """K responses of the untuned model to one prompt, their rewards, and log π of each before and after a few steps of MS and of DPO on them."""
    write_jsonl(
        work / "questions.jsonl", ({**row, "split": "train"} for row in questions() if row["id"] == BATCH_QUESTION_ID)
    )
    command = ["synth", "responses", index.folder, "--questions", work / "questions.jsonl", "--policy", MODEL]
    command += [
        "--samples",
        K,
        "--top-k",
        1,
        "--context-size",
        1,
        "--max-answer-tokens",
        40,
        "--out",
        work / "responses",
    ]
    subprocess.run([sys.executable, "-P", "-m", "modegraph", *map(str, command)], check=True)
    (row,) = read_responses(work / "responses" / "train.jsonl")
    runs = {
        stage: train(model=MODEL, data=work / "responses", out=work / stage, **TRAINING)
        for stage, train in (("MS", mg.train.ms), ("DPO", mg.train.dpo))
    }
    settings = MsSettings(model=MODEL, data="", output="", **TRAINING)
    return {
        "question": row.question,
        "model": MODEL,
        "settings": {key: TRAINING[key] for key in ("learning_rate", "max_steps", "beta", "beta_reward", "rewards")},
        "responses": list(row.responses),
        "rewards": [round(reward, 3) for reward in combine_rewards(row, settings.rewards)],
        "logps": {name: logps(str(run), row) for name, run in {"untuned": MODEL, **runs}.items()},
    }


@torch.no_grad()
def logps(source: str, row: Any) -> list[float]:
    """log π of each response, summed over its tokens, in nats."""
    model, tokenizer = load_policy(source)
    rows = [tokenize_row(tokenizer, row.prompt, response) for response in row.responses]
    values = [completion_logps(model, *pad_rows([tokenized], tokenizer.pad_token_id)) for tokenized in rows]
    return [round(value.item(), 2) for value in values]


def questions() -> list[dict[str, Any]]:
    """The questions in examples/."""
    return [row for _, row in read_jsonl(EXAMPLES / "questions.jsonl")]


if __name__ == "__main__":
    main()
