"""From text to summed log-probabilities: Σ_t log π(y_t | x, y_<t) over a completion's tokens, its end token included; and greedy answers.

The logits of several chunks are not stored but recomputed for the gradient: with a vocabulary of 152k, those of 1,000 tokens take 600 MB.
If a model's rotary positions have a limit, rows on both sides of it (longrope) or above it (dynamic) are rejected, because transformers
rotates a whole batch according to its longest row.
Legend: B sequences (prompt then completion, padded on the right), T positions, C positions that predict, N completion tokens, D hidden
size, V vocabulary."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import GenerationConfig, PreTrainedTokenizerBase

from graph.answer.template import chat_ids
from graph.errors import UserError
from graph.types import Message


@dataclass(frozen=True)
class RotationLimit:
    """Rows of up to `tokens` tokens share one set of rotations. Longer rows share another if `longer_rows_alike`; else each length has a different one."""

    kind: str
    tokens: int
    longer_rows_alike: bool


def rotation_limit(config: Any) -> RotationLimit | None:
    """The limit of a model's rotary positions; None if rotations do not depend on a row's length."""
    config = config.get_text_config()
    parameters: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    for rope in [parameters, *(each for each in parameters.values() if isinstance(each, Mapping))]:
        kind = rope.get("rope_type", "default")
        if kind == "longrope":
            return RotationLimit(kind, int(rope["original_max_position_embeddings"]), longer_rows_alike=True)
        if "dynamic" in kind:
            return RotationLimit(kind, int(config.max_position_embeddings), longer_rows_alike=False)
    return None


def check_rotation(config: Any, lengths_tokens: Sequence[int]) -> None:
    """UserError if rows of these lengths (prompt and response) would be rotated differently in a batch than alone."""
    limit = rotation_limit(config)
    if limit is None or not lengths_tokens or max(lengths_tokens) <= limit.tokens:
        return
    if limit.longer_rows_alike and min(lengths_tokens) > limit.tokens:
        return
    raise UserError(
        f"rows of {min(lengths_tokens):,} to {max(lengths_tokens):,} tokens; the {limit.kind} positions of this model "
        f"({config.model_type}) change above {limit.tokens:,}",
        "rows on one side of that limit" if limit.longer_rows_alike else f"at most {limit.tokens:,} tokens",
        f"leave out the rows above {limit.tokens:,} tokens, or shorten their contexts",
    )


HEAD_CHUNK_TOKENS = 512
ROWS_PER_BATCH = 512
"""The number of rows tokenized in one call."""
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Settings of models that transform their logits after the head."""


def logps_at(
    model: Any, inputs: Mapping[str, Any], sequences_N: Tensor, positions_N: Tensor, token_ids_N: Tensor
) -> Tensor:
    """log π(token n | the context of position n of its sequence) of `model(**inputs)`: float32[N].

    The forward pass goes through `model` itself, including a wrapper (DDP). For a model that transforms its logits after the
    head (Gemma 2), the logits of all N tokens are computed and stored together.
    """
    columns_C, column_N = torch.unique(positions_N, return_inverse=True)
    base = unwrapped(model)
    if any(getattr(base.config.get_text_config(), name, None) for name in SOFT_CAPS):
        logits_BCV = model(**inputs, logits_to_keep=columns_C, use_cache=False).logits
        return _logps(nn.Identity(), logits_BCV[sequences_N, column_N], token_ids_N)
    with without_head(base) as head:
        states_BCD = model(**inputs, logits_to_keep=columns_C, use_cache=False).logits
    return chunked_logps(head, states_BCD[sequences_N, column_N], token_ids_N)


def unwrapped(model: Any) -> Any:
    """The model inside a wrapper (DDP), or the model itself."""
    return getattr(model, "module", model)


def chunked_logps(head: nn.Module, states_ND: Tensor, token_ids_N: Tensor) -> Tensor:
    """log softmax(head(state n)) at token n: float32[N], without autocast, which a Trainer's steps have only inside the model."""
    states_ND = states_ND.to(cast(Tensor, head.weight).dtype)
    with torch.autocast(states_ND.device.type, enabled=False):
        if len(states_ND) <= HEAD_CHUNK_TOKENS:
            return _logps(head, states_ND, token_ids_N)
        parts = (torch.split(each, HEAD_CHUNK_TOKENS) for each in (states_ND, token_ids_N))
        return torch.cat([checkpoint(_logps, head, *chunk, use_reentrant=False) for chunk in zip(*parts, strict=True)])


class PassThroughHead(nn.Module):
    """Replaces a head and returns the states unchanged; exposes the head's weight and bias, which some models access (Mamba, BERT)."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self._heads = (head,)

    @property
    def weight(self) -> Tensor:
        return cast(Tensor, self._heads[0].weight)

    @property
    def bias(self) -> Tensor | None:
        return cast("Tensor | None", getattr(self._heads[0], "bias", None))

    def forward(self, states: Tensor) -> Tensor:
        return states


@contextmanager
def without_head(model: Any) -> Iterator[nn.Module]:
    """Make `model` return the inputs of its head instead of logits; yield the head, and restore it at the end."""
    head = model.get_output_embeddings()
    model.set_output_embeddings(PassThroughHead(head))
    try:
        yield head
    finally:
        model.set_output_embeddings(head)


def _logps(head: nn.Module, states_ND: Tensor, token_ids_N: Tensor) -> Tensor:
    return -cross_entropy(head(states_ND[None])[0].float(), token_ids_N, reduction="none")


@dataclass(frozen=True)
class TokenizedRow:
    """One prompt and one completion as token ids."""

    ids: tuple[int, ...]
    prompt_tokens: int

    @property
    def prompt(self) -> tuple[int, ...]:
        return self.ids[: self.prompt_tokens]

    @property
    def completion(self) -> tuple[int, ...]:
        """The tokens of the completion, with its end token."""
        return self.ids[self.prompt_tokens :]


def completion_logps(model: Any, input_ids_BT: Tensor, completion_mask_BT: Tensor) -> Tensor:
    """Summed log-probability of each sequence's masked tokens: float32[B], never averaged over length.

    Padding must be on the right, where causal attention ignores it; padding and prompt have mask 0. UserError for rows that must not
    share a batch (`check_rotation`). Logits are computed only at positions that predict a completion's token, a chunk at a time.
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
    """`tokenize_rows` for one row."""
    return tokenize_rows(tokenizer, [(prompt, completion)])[0]


def tokenize_rows(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[tuple[Sequence[Message], str]]
) -> list[TokenizedRow]:
    """Chat prompts tokenized exactly as by the server (graph/answer/template.py), each with its completion, which ends with the end token.

    UserError if the template does not end an assistant's turn with the end token (a model trained on such rows never learns to
    stop), or if a completion contains the end token.
    """
    tokenized = []
    with all_cores():
        for first in range(0, len(rows), ROWS_PER_BATCH):
            batch = rows[first : first + ROWS_PER_BATCH]
            for (_, completion), (prompt, answer) in zip(batch, chat_ids(tokenizer, batch), strict=True):
                tokenized.append(TokenizedRow((*prompt, *_up_to_end(tokenizer, answer, completion)), len(prompt)))
    return tokenized


@contextmanager
def all_cores() -> Iterator[None]:
    """Within the block, tokenizers use every core. Elsewhere modegraph/start.py limits them to one; otherwise they would warn in every forked process."""
    variable = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(variable, "true")
    os.environ[variable] = "true"
    try:
        yield
    finally:
        os.environ[variable] = before


def _up_to_end(tokenizer: PreTrainedTokenizerBase, answer: list[int], completion: str) -> list[int]:
    """The tokens of an answer up to and including its end token; UserError unless it has exactly one."""
    ends = answer.count(tokenizer.eos_token_id)
    if ends == 0:
        found = f"the chat template ends an assistant's turn without {tokenizer.eos_token!r}"
        raise UserError(found, "the end token after every answer", "use a tokenizer whose chat template writes it")
    if ends > 1:
        found = f"a completion that contains {tokenizer.eos_token!r}: {completion!r:.80}"
        raise UserError(found, "the end token only at its end", "take it out of the text")
    return answer[: answer.index(tokenizer.eos_token_id) + 1]


def pad_rows(rows: Sequence[TokenizedRow], pad_id: int) -> tuple[Tensor, Tensor]:
    """Rows padded on the right to the longest: (input_ids_BT, completion_mask_BT), both int64."""
    longest = max(len(row.ids) for row in rows)
    ids = [[*row.ids, *[pad_id] * (longest - len(row.ids))] for row in rows]
    mask = [[int(row.prompt_tokens <= t < len(row.ids)) for t in range(longest)] for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


TokenIds = tuple[int, ...]


def greedy_answers(
    model: Any, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[TokenIds], limit_tokens: int
) -> list[TokenIds]:
    """The greedy completion of each prompt, with the end token if it comes within `limit_tokens`."""
    base, end = unwrapped(model), tokenizer.eos_token_id
    batch = tokenizer.pad({"input_ids": [list(ids) for ids in prompts]}, padding_side="left", return_tensors="pt")
    greedy = GenerationConfig(
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
        ids_BT = base.generate(**batch.to(base.device), generation_config=greedy)
    base.train(training)
    completions = ids_BT[:, batch["input_ids"].shape[1] :].tolist()
    return [tuple(ids[: ids.index(end) + 1] if end in ids else ids) for ids in completions]
