"""Sampling K responses to one prompt with a transformers model: side by side after one shared copy of the prompt, and with `generate`.

Run: python -P benchmarks/sampling.py [--model smollm2] [--prompt-tokens 800] [--tokens 32] [--sizes 1,8,16] [--json]. `generate` decodes
K copies of the prompt as a batch. The report gives the processor seconds of each method, and whether the greedy tokens are equal.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch

from benchmarks.report import Check, new_parser, print_report
from graph.types import CompletionRequest, Message
from serve.engines.hf import GumbelSampler, HfModel, decode_side_by_side
from serve.engines.hf_open import open_hf

MIN_SPEEDUP = 2.0


def run_timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a function, and its processor seconds."""
    started = time.process_time()
    with torch.inference_mode():
        found = run()
    return found, time.process_time() - started


def prompt_of(model: HfModel, tokens: int) -> torch.Tensor:
    """The ids of a prompt of about `tokens` tokens: int64[1, T]."""
    lines = (f"In the year {1700 + n} the keeper of lamp {n} counted {n * 7} ships." for n in range(tokens))
    text = ""
    for line in lines:
        if model.count_tokens(text) >= tokens:
            break
        text += f"{line}\n"
    return torch.tensor([model.prompt_ids((Message("user", f"{text}Tell me about the lamps."),))])


def measure(model: HfModel, prompt_1T: torch.Tensor, size: int, tokens: int) -> tuple[float, float, bool]:
    """Processor seconds of both methods for `size` greedy responses, none of which ends early, and whether all tokens are equal."""
    request = CompletionRequest((Message("user", ""),), tokens, 0.0)
    ids_BT = prompt_1T.expand(size, -1)
    mask_BT = torch.ones_like(ids_BT)
    sampler = GumbelSampler([request] * size)
    ours, our_s = run_timed(
        lambda: decode_side_by_side(model._model, ids_BT, mask_BT, sampler.noisy_scores, tokens, frozenset())
    )
    lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens}
    theirs, their_s = run_timed(
        lambda: model._model.generate(input_ids=ids_BT, attention_mask=mask_BT, do_sample=False, **lengths)
    )
    return our_s, their_s, ours == theirs[:, ids_BT.shape[1] :].tolist()


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompt-tokens", type=int, default=800)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--sizes", default="1,8,16", help="numbers of responses K, separated by commas")
    options = parser.parse_args()
    model = open_hf(options.model)
    prompt_1T = prompt_of(model, options.prompt_tokens)
    measure(model, prompt_1T, 1, 2)
    figures: dict[str, float | str] = {"prompt tokens": prompt_1T.shape[1], "tokens": options.tokens}
    checks = []
    for size in map(int, options.sizes.split(",")):
        our_s, their_s, equal = measure(model, prompt_1T, size, options.tokens)
        figures |= {f"K = {size}, side by side, processor s": our_s, f"K = {size}, generate, processor s": their_s}
        figures[f"K = {size}, generate / side by side"] = their_s / our_s
        checks.append(Check(f"K = {size}: the same greedy tokens", float(equal), 1.0, at_least=True))
    checks.append(Check(f"K = {size}: times as fast as generate", their_s / our_s, MIN_SPEEDUP, at_least=True))
    return print_report("sampling", figures, checks, options.json)


if __name__ == "__main__":
    sys.exit(main())
