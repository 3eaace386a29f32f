"""Do MS and DPO train a real model differently? The cosine of their gradients, at K = 2, 8 and 16 and two values of β_r.

    python -P benchmarks/experiments/gradients.py responses/train.jsonl --model smollm2 --prompts 16 --json
    python -P benchmarks/experiments/gradients.py responses/train.jsonl --model runs/ms --prompts 16 --json

`--model` is a language model, which gets a new LoRA adapter, or a run of `train ms` or `train dpo` that trained an adapter; the reference is the base
model of the adapter. Gradients are with respect to all weights of the adapter. At a cosine of 1 both losses take a first step in the same direction; for
comparison, the cosine of the gradients of one loss on the two halves of the prompts is also given.

Legend: R responses of a prompt, W weights of the adapter.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from peft import get_peft_model
from torch import Tensor
from transformers import set_seed

from benchmarks.report import new_parser
from data_synth.rows import ResponseRow
from graph.errors import UserError
from graph.models.checkpoint import RUN_RECORD, is_adapter
from graph.shared.console import track
from train.model.load import device, load_model, load_tokenizer, without_dropout
from train.model.packing import choose_layout
from train.preference.groups import combine_rewards, split_into_groups, tokenize_members
from train.preference.losses import dpo_loss, mode_seeking_loss
from train.run.data import read_responses
from train.run.loop import lora_config
from train.run.settings import LoraSettings

LOSSES = {"MS": mode_seeking_loss, "DPO": dpo_loss}
REWARDS = {"correct": 1.0, "format": 0.25, "citations": 0.25, "length": 0.25}
"""The reward weights of configs/train/ms-k64-smollm2.yaml."""
SIZES, BETA, BETAS_REWARD = (2, 8, 16), 0.1, (0.25, 1.0)


@dataclass(frozen=True)
class Arm:
    """A loss on groups of `size` responses, with `beta_reward` as its β_r."""

    loss: str
    size: int
    beta_reward: float

    def response_gradient(self, log_ratios_R: Tensor, rewards_R: Tensor, seed: str) -> Tensor:
        """The derivative of the loss, averaged over the prompt's groups, with respect to the log-ratio of each response: float[R]."""
        free_R = log_ratios_R.clone().requires_grad_()
        groups = split_into_groups(len(free_R), self.size, random.Random(seed))
        losses = [LOSSES[self.loss](free_R[None, at], rewards_R[None, at], BETA, self.beta_reward) for at in groups]
        return torch.autograd.grad(torch.cat(losses).mean(), free_R)[0]


ARMS = tuple(Arm(*values) for values in product(LOSSES, SIZES, BETAS_REWARD))


@dataclass
class Gradients:
    """Each arm's gradients, summed separately over prompts with even and odd numbers (float32[W] each), and the cosine of MS with DPO for each prompt."""

    halves: dict[tuple[Arm, int], Tensor] = field(default_factory=dict)
    by_prompt: dict[tuple[int, float], list[float]] = field(default_factory=dict)

    def add(self, number: int, gradients: Mapping[Arm, Tensor]) -> None:
        for arm, gradient_W in gradients.items():
            key = (arm, number % 2)
            self.halves[key] = self.halves[key] + gradient_W if key in self.halves else gradient_W
        for size, beta_reward in product(SIZES, BETAS_REWARD):
            pair = [gradients[Arm(loss, size, beta_reward)] for loss in LOSSES]
            self.by_prompt.setdefault((size, beta_reward), []).append(cosine(*pair))

    def rows(self) -> Iterator[dict[str, float]]:
        """For each K and β_r: the cosine of MS with DPO over all prompts, the median of the cosines of single prompts, and for each loss the cosine of its
        gradients on the two halves of the prompts.
        """
        for size, beta_reward in product(SIZES, BETAS_REWARD):
            halves = {loss: [self.halves[Arm(loss, size, beta_reward), half] for half in (0, 1)] for loss in LOSSES}
            yield {
                "K": size,
                "beta_reward": beta_reward,
                "MS with DPO": cosine(*(even + odd for even, odd in halves.values())),
                "median by prompt": float(torch.tensor(self.by_prompt[size, beta_reward]).median()),
                **{f"{loss} with itself, other prompts": cosine(*pair) for loss, pair in halves.items()},
            }


def cosine(one: Tensor, other: Tensor) -> float:
    """The cosine of two vectors."""
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


def usable_rows(file: Path, count: int) -> list[ResponseRow]:
    """The first `count` prompts with 16 or more responses, the first 16 of which differ in reward."""
    rows = (row for row in read_responses(file) if len(row.responses) >= max(SIZES))
    return [row for row in rows if len(set(combine_rewards(row, REWARDS)[: max(SIZES)])) > 1][:count]


def measure(model_name: str, rows: Sequence[ResponseRow], seed: int) -> list[dict[str, float]]:
    """The rows of the table (`Gradients.rows`); UserError for a run that trained all weights."""
    set_seed(seed)
    if (Path(model_name) / RUN_RECORD).is_file() and not is_adapter(model_name):
        found = f"{model_name}: a run that trained all weights"
        raise UserError(found, "an adapter, whose base is the reference", "train it with lora.rank=16")
    model = load_model(model_name, "float32", trainable=True)
    if not is_adapter(model_name):
        model = get_peft_model(model, lora_config(LoraSettings(rank=16, alpha=32)))
    without_dropout(model.to(device()))
    tokenizer = load_tokenizer(model_name)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [tokenize_members(tokenizer, row, range(max(SIZES))) for row in rows]
    logps_of = choose_layout(model, max(group.tokens for group in groups), None)
    gradients = Gradients()
    for number, (row, group) in enumerate(zip(track(rows, "prompts", len(rows)), groups, strict=True)):
        with torch.no_grad(), model.disable_adapter():
            reference_R = logps_of(model, [group])
        logps_R = logps_of(model, [group])
        ratios_R = logps_R.detach() - reference_R
        rewards_R = torch.tensor(combine_rewards(row, REWARDS)[: max(SIZES)])
        found = {}
        for arm in ARMS:
            gradient_R = arm.response_gradient(ratios_R.cpu(), rewards_R, f"{seed}/{row.id}").to(logps_R.device)
            parts = torch.autograd.grad(logps_R, weights, gradient_R, retain_graph=True)
            found[arm] = torch.cat([part.flatten() for part in parts]).cpu()
        gradients.add(number, found)
    return list(gradients.rows())


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument(
        "responses", type=Path, help="file written by `synth responses`, with 16 or more responses per prompt"
    )
    parser.add_argument("--model", default="smollm2", help="a model, or a run that trained an adapter")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = usable_rows(options.responses, options.prompts)
    if len(rows) < 2:
        found = f"{options.responses}: {len(rows)} usable prompts (--prompts {options.prompts})"
        expected = f"at least 2, each with {max(SIZES)} or more responses that differ in reward"
        raise UserError(found, expected, "sample more responses, or raise --prompts")
    table = measure(options.model, rows, options.seed)
    if options.json:
        print(json.dumps({"model": options.model, "prompts": len(rows), "beta": BETA, "rows": table}, indent=2))
        return 0
    for row in table:
        print(
            ", ".join(
                f"{name} {value:g}" if name in ("K", "beta_reward") else f"{name} {value:.3f}"
                for name, value in row.items()
            )
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
