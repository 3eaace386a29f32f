"""The likeliest token after token, behind prompts of different lengths at once: what training is measured by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from train.model.heads import unwrapped

TokenIds = tuple[int, ...]


def greedy_answers(
    model: Any, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[TokenIds], limit_tokens: int
) -> list[TokenIds]:
    """The likeliest token after token behind each prompt, with the end token if it came within `limit_tokens`."""
    base, end = unwrapped(model), tokenizer.eos_token_id
    batch = tokenizer.pad({"input_ids": [list(ids) for ids in prompts]}, padding_side="left", return_tensors="pt")
    plainly = GenerationConfig(
        max_new_tokens=limit_tokens,
        do_sample=False,
        repetition_penalty=1.0,
        use_cache=True,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
    )
    training = base.training
    base.eval()
    with torch.no_grad():
        ids_BT = base.generate(**batch.to(base.device), generation_config=plainly)
    base.train(training)
    written = ids_BT[:, batch["input_ids"].shape[1] :].tolist()
    return [tuple(ids[: ids.index(end) + 1] if end in ids else ids) for ids in written]
