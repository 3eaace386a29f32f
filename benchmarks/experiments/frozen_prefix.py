"""Does a reader learn as well if no gradient flows through the passages? Both ways, trained from the same start, and the seconds per step.

    python -P benchmarks/experiments/frozen_prefix.py ROWS --model smollm2 --steps 60 --seeds 0,1 --json

ROWS is a folder of reading rows with train.jsonl and dev.jsonl. `packed` is the layout of `train sft`: passages once, then their questions with
answers. `frozen` computes the same log-probabilities, but keeps the passages' keys and values as constants, so that the backward pass covers
only questions and answers: the model learns how to read passages, not how to write them into its keys. The dev loss is computed
with `packed` for both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch import Tensor

from graph.config import parse_settings
from graph.models.catalogue import resolve
from graph.models.checkpoint import is_adapter
from train.model.attention import chunk_mask
from train.model.load import load_tokenizer
from train.model.logps import logps_at, unwrapped
from train.model.packing import TokenizedGroup
from train.run.settings import SftSettings
from train.sft import read_sft_data, sft_trainer


def frozen_logps(model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """log π of the scored tokens of each response, as `packed_logps` computes it, but with the prompts' keys and values as constants: float32[R]."""
    return torch.cat([_frozen_group(model, group) for group in groups])


def _frozen_group(model: Any, group: TokenizedGroup) -> Tensor:
    """The last token of the prompt is computed with each response, because it may predict that response's first scored token."""
    prefix, last = group.prompt[:-1], group.prompt[-1:]
    responses = [last + response for response in group.responses]
    lengths = [len(response) for response in responses]
    device = unwrapped(model).device
    with torch.no_grad():
        cache = model(torch.tensor([prefix], device=device), use_cache=True, logits_to_keep=1).past_key_values
    mask_NT = chunk_mask(len(prefix), lengths)
    ids_N = torch.tensor([token for response in responses for token in response], device=device)
    positions_N = torch.cat([torch.arange(len(prefix), len(prefix) + length) for length in lengths])
    places, scored, owner = [], [], []
    start = 0
    for number, (response, context) in enumerate(zip(responses, group.context_tokens, strict=True)):
        places += range(start + context, start + len(response) - 1)
        scored += response[context + 1 :]
        owner += [number] * (len(response) - 1 - context)
        start += len(response)
    inputs = {
        "input_ids": ids_N[None],
        "position_ids": positions_N[None].to(device),
        "past_key_values": cache,
        "attention_mask": mask_NT[None, None].to(device),
    }
    sequences_N = torch.zeros(len(places), dtype=torch.long, device=device)
    logps_N = logps_at(model, inputs, sequences_N, torch.tensor(places, device=device), torch.tensor(scored))
    return logps_N.new_zeros(len(responses)).index_add(0, torch.tensor(owner, device=device), logps_N)


def main() -> int:
    """Parse, train each arm with each seed, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [run(options, arm, int(seed)) for seed in options.seeds.split(",") for arm in ("packed", "frozen")]
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for each in found:
            print(", ".join(f"{name} {value}" for name, value in each.items()))
    return 0


def run(options: argparse.Namespace, arm: str, seed: int) -> dict[str, Any]:
    """One run: dev loss before and after, the last training losses, and seconds a step."""
    with TemporaryDirectory() as folder:
        values = {
            "model": options.model,
            "data": str(options.rows),
            "output": str(Path(folder) / "run"),
            "lora": None if is_adapter(resolve(options.model)) else {},
            "learning_rate": options.learning_rate,
            "batch_size": 1,
            "gradient_accumulation": 4,
            "max_steps": options.steps,
            "seed": seed,
            "logging_steps": 5,
        }
        settings = parse_settings(SftSettings, values, "frozen_prefix")
        tokenizer = load_tokenizer(settings.model)
        trainer = sft_trainer(settings, read_sft_data(settings, tokenizer), tokenizer, Path(folder))
        before, packed = trainer.evaluate()["eval_loss"], trainer.logps_of
        trainer.logps_of = packed if arm == "packed" else frozen_logps
        started = time.process_time()
        trainer.train()
        seconds = (time.process_time() - started) / options.steps
        trainer.logps_of = packed
        after = trainer.evaluate()["eval_loss"]
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return {
        "arm": arm,
        "seed": seed,
        "dev loss before": round(before, 4),
        "dev loss after": round(after, 4),
        "last losses": losses[-3:],
        "processor seconds a step": round(seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
