"""What a policy thinks of a pair: log-probabilities and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from eval.shared.rows import HeldOutRow
from eval.shared.types import PairScore
from graph.shared.console import track
from train.model.logps import TokenizedRow, completion_logps, pad_rows, tokenize_row

SEQUENCES_PER_BATCH = 8


def score_pairs(model: Any, tokenizer: Any, rows: Sequence[HeldOutRow]) -> list[PairScore]:
    """log π(y_w|x) and log π(y_l|x) of every row, in order; sequences of like length share a batch."""
    completions = [(row.prompt, text) for row in rows for text in (row.chosen, row.rejected)]
    tokenized = [tokenize_row(tokenizer, prompt, text) for prompt, text in completions]
    logps = [0.0] * len(tokenized)
    for batch in track(_batches_by_length(tokenized), "log π: responses", len(tokenized), size=len):
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        input_ids_BT, mask_BT = pad_rows([tokenized[index] for index in batch], pad_id)
        with torch.inference_mode():
            logps_B = completion_logps(model, input_ids_BT.to(model.device), mask_BT.to(model.device))
        for index, logp in zip(batch, logps_B.tolist(), strict=True):
            logps[index] = logp
    tokens = [len(row.ids) - row.prompt_tokens for row in tokenized]
    sides = list(zip(logps, tokens, strict=True))
    return [
        PairScore(chosen[0], rejected[0], chosen[1], rejected[1])
        for chosen, rejected in zip(sides[::2], sides[1::2], strict=True)
    ]


def _batches_by_length(rows: Sequence[TokenizedRow]) -> Iterator[list[int]]:
    by_length = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    for start in range(0, len(by_length), SEQUENCES_PER_BATCH):
        yield by_length[start : start + SEQUENCES_PER_BATCH]
