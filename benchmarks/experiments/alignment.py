"""Mode-seeking against DPO at several K: expected reward at equal KL on held-out prompts, over seeds.

Run: python -P benchmarks/experiments/alignment.py --model SFT_RUN --data RESPONSES [--json] [--seeds 3] [--steps 40] [--out DIR]. Every system learns from
the same scored responses by the same number of steps from each seed, at several β_r, which is what makes its frontier; a batch
has about as many responses for every K. Runs that are there already are not trained again, so an interrupted experiment goes on.
"""

import argparse
import json
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from eval.alignment.measure import measure_runs
from eval.alignment.report import align, tables_as_text, to_json, write_alignment
from eval.alignment.sample import Drawing
from graph.console import say
from train.data import read_responses
from train.models import load_policy
from train.preference import train_dpo, train_ms
from train.settings import DpoSettings, MsSettings
from train.types import RECORD

SYSTEMS = (("ms", 64), ("ms", 8), ("ms", 2), ("dpo", 64), ("dpo", 2))
REWARDS = {"correct": 1.0, "format": 0.5, "citations": 0.25}
BETA = 0.2


def train(arguments: argparse.Namespace, method: str, size: int, beta_reward: float, seed: int) -> Path:
    """One run of the grid, or what an earlier call left of it."""
    output = arguments.out / f"{method}-k{size}-r{beta_reward:g}-s{seed}"
    if (output / RECORD).exists():
        return output
    values = {
        "model": str(arguments.model),
        "data": str(arguments.data),
        "output": str(output),
        "learning_rate": arguments.learning_rate,
        "max_steps": arguments.steps,
        "warmup_share": 0.1,
        "batch_size": max(1, arguments.responses_a_step // size),
        "beta": BETA,
        "beta_reward": beta_reward,
        "responses": size,
        "rewards": REWARDS,
        "seed": seed,
        "logging_steps": 5,
        "reference_cache": str(arguments.out / f"reference-k{size}-s{seed}.safetensors"),
    }
    say(f"training {output.name}")
    train_ms(MsSettings(**values)) if method == "ms" else train_dpo(DpoSettings(**values))
    return output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the SFT run that the responses were drawn from")
    parser.add_argument("--data", type=Path, required=True, help="scored responses: train.jsonl and test.jsonl")
    parser.add_argument("--out", type=Path, default=Path("alignment"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--responses-a-step", type=int, default=64)
    parser.add_argument("--beta-rewards", type=float, nargs="+", default=[0.2, 0.6, 2.0])
    parser.add_argument("--systems", nargs="+", default=[f"{method}:{size}" for method, size in SYSTEMS])
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    systems = [(system.partition(":")[0], int(system.partition(":")[2])) for system in arguments.systems]
    grid = product(systems, range(arguments.seeds), arguments.beta_rewards)
    folders = [train(arguments, method, size, beta_reward, seed) for (method, size), seed, beta_reward in grid]
    drawing = Drawing(arguments.samples, arguments.max_tokens, 0)
    measured, reference = measure_runs(folders, read_responses(arguments.data / "test.jsonl"), drawing, load_policy)
    found = align(measured, reference, drawing)
    write_alignment(found, arguments.out)
    print(json.dumps(to_json(found)) if arguments.json else tables_as_text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
