"""The engine for models on this machine or from the hub, through transformers (hf_open.py opens them).

Batches are padded on the left, and a prompt that several requests share is read once: K responses to it cost one reading and K
writings. A JSON schema cannot be enforced here and is left to the prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer

from graph.shared.types import Completion, CompletionRequest
from serve.engines.local import PLAIN, LocalModel, Ready, Sampling, TokenLogps, Watcher
from serve.engines.sampling import GumbelSampler, StreamingCriteria, cuts, weights


class HfModel(LocalModel):
    """A LanguageModel over a transformers model and its tokenizer; its window is unbounded where its config names none."""

    kind, gives_logps = "hf", True

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        window = int(getattr(model.config.get_text_config(), "max_position_embeddings", sys.maxsize))
        super().__init__(name, tokenizer, window, _stop_ids(model, tokenizer))
        self._model = model.eval()
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self._stop_ids, default=0)
        self._pad_id = int(pad_id)
        # The model's own defaults (top_p, repetition penalty, …) would bend greedy decoding and the sampler below.
        model.generation_config = GenerationConfig(
            eos_token_id=sorted(self._stop_ids) or None, pad_token_id=self._pad_id
        )

    def run(
        self, batch: Sequence[Ready], watcher: Watcher | None = None, sampling: Sampling = PLAIN
    ) -> list[Completion]:
        """One batch of prompts with the same room; shorter prompts are padded on the left."""
        longest = max(len(prompt.ids) for prompt in batch)
        padded = [[self._pad_id] * (longest - len(prompt.ids)) + prompt.ids for prompt in batch]
        mask = [[0] * (longest - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch]
        device = self._model.device
        ids_BT, mask_BT = torch.tensor(padded, device=device), torch.tensor(mask, device=device)
        sampler = GumbelSampler([prompt.request for prompt in batch], cuts(sampling))
        with torch.inference_mode():
            output_BT = self._model.generate(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                past_key_values=read_shared(self._model, ids_BT, mask_BT),
                max_new_tokens=batch[0].room,
                do_sample=False,
                logits_processor=LogitsProcessorList([*weights(sampling, longest), sampler]),
                stopping_criteria=StoppingCriteriaList(
                    [StreamingCriteria(watcher, longest)] if watcher is not None else []
                ),
            )
        written = output_BT[:, longest:].tolist()
        return [self.completion_of(prompt, ids) for prompt, ids in zip(batch, written, strict=True)]

    def token_logps(self, request: CompletionRequest, ids: Sequence[int], top: int) -> list[TokenLogps]:
        """By one reading of the prompt with what was written."""
        prompt = self.prompt_ids(request.messages)
        row_1T = torch.tensor([[*prompt, *ids]], device=self._model.device)
        with self._lock, torch.inference_mode():
            logits_1NV = self._model(input_ids=row_1T, logits_to_keep=len(ids) + 1, use_cache=False).logits
        logps_NV = logits_1NV[0, :-1].float().log_softmax(-1)
        best_NK = logps_NV.topk(top)
        likeliest = zip(best_NK.indices.tolist(), best_NK.values.tolist(), strict=True)
        return [
            TokenLogps(token, float(logps_NV[place, token]), tuple(zip(tokens, logps, strict=True)))
            for place, (token, (tokens, logps)) in enumerate(zip(ids, likeliest, strict=True))
        ]


def read_shared(model: Any, ids_BT: Tensor, mask_BT: Tensor) -> DynamicCache | None:
    """Keys and values of all but the last token of each row, equal rows read once; `generate` goes on from there.

    None where no two rows are equal, and for models whose cache cannot be dealt out so (sliding windows, recurrent states).
    """
    first, rows = first_of_equals(ids_BT.tolist())
    if len(first) == len(rows) or ids_BT.shape[1] < 2:
        return None
    read = model.generate(
        input_ids=ids_BT[first],
        attention_mask=mask_BT[first],
        max_new_tokens=1,
        do_sample=False,
        return_dict_in_generate=True,
    )
    cache = read.past_key_values
    if type(cache) is not DynamicCache or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.crop(-1)
    cache.batch_select_indices(torch.tensor(rows, device=ids_BT.device))
    return cache


def first_of_equals(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Where each distinct row stands first, and for every row the number of the distinct one that it equals.

    >>> first_of_equals([[7, 8], [9], [7, 8]])
    ([0, 1], [0, 1, 0])
    """
    numbers: dict[tuple[int, ...], int] = {}
    of_rows = [numbers.setdefault(tuple(row), len(numbers)) for row in rows]
    return [of_rows.index(number) for number in range(len(numbers))], of_rows


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text: the generation config's (one or several) and the tokenizer's."""
    listed = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = [listed] if isinstance(listed, int) else list(listed or ())
    return frozenset([*ids, *([tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else [])])
