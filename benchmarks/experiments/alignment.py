"""Mode-seeking against DPO at several K: expected reward at equal KL on held-out prompts, over seeds.

Run: python -P benchmarks/experiments/alignment.py --model SFT_RUN --data RESPONSES [--json] [--seeds 3] [--steps 40] [--out DIR]. Every system trains on
the same scored responses for the same number of steps from each seed, at several β_r, which form its frontier; a batch
has about as many responses for every K. Each system uses its best learning rate: of those given, the one with the highest reward on
dev.jsonl, tried with a seed that is used for nothing else. Finished runs are not trained again, so an interrupted experiment can resume.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from eval.alignment.frontier import align, alignment_json, tables_as_text, write_alignment
from eval.alignment.measure import measure_runs
from eval.alignment.sample import SamplingSettings
from graph.shared.console import say
from train.model.load import load_policy
from train.preference.preference import train_dpo, train_ms
from train.run.data import read_responses
from train.run.record import RECORD
from train.run.settings import DpoSettings, MsSettings

SYSTEMS = ("ms:64", "ms:8", "ms:2", "dpo:64", "dpo:2")
REWARDS = {"correct": 1.0, "format": 0.5, "citations": 0.25}
BETA = 0.2


@dataclass(frozen=True)
class Strength:
    """Settings in which runs of a system differ: β_r, learning rate and seed."""

    beta_reward: float
    learning_rate: float
    seed: int


def train(arguments: argparse.Namespace, system: str, strength: Strength) -> Path:
    """Train one run of the grid, or return the finished run of an earlier call."""
    method, _, k = system.partition(":")
    size = int(k)
    name = f"{method}-k{size}-r{strength.beta_reward:g}-lr{strength.learning_rate:g}-s{strength.seed}"
    output = arguments.out / name
    if (output / RECORD).exists():
        return output
    values = {
        "model": str(arguments.model),
        "data": str(arguments.data),
        "output": str(output),
        "learning_rate": strength.learning_rate,
        "max_steps": arguments.steps,
        "warmup_share": 0.1,
        "batch_size": max(1, arguments.responses_a_step // size),
        "beta": BETA,
        "beta_reward": strength.beta_reward,
        "responses": size,
        "rewards": REWARDS,
        "seed": strength.seed,
        "logging_steps": 5,
        "reference_cache": str(arguments.out / f"reference-k{size}-s{strength.seed}.safetensors"),
    }
    say(f"training {name}")
    train_ms(MsSettings(**values)) if method == "ms" else train_dpo(DpoSettings(**values))
    return output


def choose_rate(arguments: argparse.Namespace, system: str) -> float:
    """The learning rate with the highest reward on dev.jsonl, at the middle β_r."""
    if len(arguments.learning_rates) == 1:
        return float(arguments.learning_rates[0])
    middle = sorted(arguments.beta_rewards)[len(arguments.beta_rewards) // 2]
    trials = [Strength(middle, rate, arguments.seeds) for rate in arguments.learning_rates]
    folders = [train(arguments, system, trial) for trial in trials]
    measured, _ = measure_runs(folders, read_responses(arguments.data / "dev.jsonl"), drawing(arguments), load_policy)
    best, strength = max(zip(measured, trials, strict=True), key=lambda pair: pair[0].reward)
    summary = ", ".join(
        f"{trial.learning_rate:g}: {run.reward:.4f}" for run, trial in zip(measured, trials, strict=True)
    )
    say(f"{best.system}: learning rate {strength.learning_rate:g} (reward on dev {summary})")
    return strength.learning_rate


def drawing(arguments: argparse.Namespace) -> SamplingSettings:
    """The sampling settings of every measurement."""
    return SamplingSettings(arguments.samples, arguments.max_tokens, 0)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the SFT run that the responses were drawn from")
    parser.add_argument("--data", type=Path, required=True, help="scored responses: train, dev and test.jsonl")
    parser.add_argument("--out", type=Path, default=Path("alignment"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3])
    parser.add_argument("--responses-a-step", type=int, default=64)
    parser.add_argument("--beta-rewards", type=float, nargs="+", default=[0.2, 0.6, 2.0])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), help="METHOD:K; differences are from the first")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main() -> int:
    arguments = parse()
    rates = {system: choose_rate(arguments, system) for system in arguments.systems}
    grid = product(arguments.systems, range(arguments.seeds), arguments.beta_rewards)
    folders = [train(arguments, system, Strength(beta, rates[system], seed)) for system, seed, beta in grid]
    rows = read_responses(arguments.data / "test.jsonl")
    alignment = align(*measure_runs(folders, rows, drawing(arguments), load_policy), drawing(arguments))
    write_alignment(alignment, arguments.out)
    print(json.dumps(alignment_json(alignment)) if arguments.json else tables_as_text(alignment))
    return 0


if __name__ == "__main__":
    sys.exit(main())
