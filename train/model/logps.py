"""From text to summed log-probabilities: Σ_t log π(y_t | x, y_<t) over a completion's tokens, its end token included.

Used by the trainers' checks, by the tests that hold TRL to our formulas, and by eval's margins and box plots.
Legend: B sequences (prompt then completion, padded on the right), T positions, N completion tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from graph.prompt.template import answer_ids, prompt_ids
from graph.shared.errors import UserError
from graph.shared.types import Message
from train.model.heads import logps_at, unwrapped
from train.model.rotation import check_rotation, rotation_limit


@dataclass(frozen=True)
class TokenizedRow:
    """One prompt and one completion as the trainers see them: `ids[:prompt_tokens]` is the prompt."""

    ids: tuple[int, ...]
    prompt_tokens: int


def completion_logps(model: Any, input_ids_BT: Tensor, completion_mask_BT: Tensor) -> Tensor:
    """Summed log-probability of each sequence's masked tokens: float32[B], never averaged over length.

    Padding must stand on the right, where causal attention keeps it from mattering; it and the prompt carry mask 0. UserError for
    rows that must not stand together (train/model/rotation.py).
    Logits are computed only where a completion's token is predicted, a chunk at a time (train/model/heads.py).
    """
    targets_BT = completion_mask_BT[:, 1:].bool()
    config = unwrapped(model).config
    if rotation_limit(config):
        order_T = torch.arange(1, input_ids_BT.shape[1] + 1, device=completion_mask_BT.device)
        check_rotation(config, (completion_mask_BT * order_T).amax(dim=1).tolist())
    rows_N, columns_N = targets_BT.nonzero(as_tuple=True)
    logps_N = logps_at(model, {"input_ids": input_ids_BT}, rows_N, columns_N, input_ids_BT[:, 1:][targets_BT])
    return torch.zeros(len(input_ids_BT), device=logps_N.device).index_add(0, rows_N, logps_N)


def tokenize_row(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], completion: str) -> TokenizedRow:
    """A chat prompt, the very tokens that the server reads (graph/prompt/template.py), and the completion up to its end token.

    UserError when the template does not close an assistant's turn with the end token (a model trained on such rows never learns to
    stop), or when the completion spells it.
    """
    prompt_tokens, answer = prompt_ids(tokenizer, prompt), answer_ids(tokenizer, prompt, completion)
    ends = answer.count(tokenizer.eos_token_id)
    if ends == 0:
        found = f"the chat template ends an assistant's turn without {tokenizer.eos_token!r}"
        raise UserError(found, "the end token after every answer", "use a tokenizer whose chat template writes it")
    if ends > 1:
        found = f"a completion that spells {tokenizer.eos_token!r}: {completion!r:.80}"
        raise UserError(found, "the end token at its end alone", "take it out of the text")
    written = answer[: answer.index(tokenizer.eos_token_id) + 1]
    return TokenizedRow((*prompt_tokens, *written), len(prompt_tokens))


def pad_rows(rows: Sequence[TokenizedRow], pad_id: int) -> tuple[Tensor, Tensor]:
    """Rows padded on the right to the longest: (input_ids_BT, completion_mask_BT), both int64."""
    longest = max(len(row.ids) for row in rows)
    ids = [[*row.ids, *[pad_id] * (longest - len(row.ids))] for row in rows]
    mask = [[int(row.prompt_tokens <= t < len(row.ids)) for t in range(longest)] for row in rows]
    return torch.tensor(ids), torch.tensor(mask)
