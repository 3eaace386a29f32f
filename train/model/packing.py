"""The packed layout, with shared prefixes: each prompt once, followed by its K responses, and several prompts per row; and the choice of layout.

Log-probabilities and gradients equal those of the plain layout, one sequence per response: a response attends to its prompt and to itself, and
its positions continue from the prompt's end. Legend: B rows, T tokens of a row, N response tokens row after row, R responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.utils.rnn import pad_sequence

from graph.errors import UserError, first_line
from graph.shared.console import say
from train.model.attention import SHARED_PREFIX, GroupSpan, group_span, on_device, use_shared_prefix_attention
from train.model.logps import (
    TokenizedRow,
    check_rotation,
    completion_logps,
    logps_at,
    pad_rows,
    rotation_limit,
    unwrapped,
)

ERRORS = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Errors in a trial that mean that the model is unsuitable."""
TRIAL_NATS, HALF_PRECISION_TRIAL_NATS = 1e-3, 0.3
HALF_PRECISION_TRIAL_SHARE = 1 / 64
"""The allowed gap as a share of a log-probability: bfloat16 rounds logits between 16 and 32, common for wrong tokens of a tuned model, by up to .06."""


@dataclass(frozen=True)
class TokenizedGroup:
    """A prompt and its responses as token ids; UserError for an empty prompt, no response, or a response without a scored token.

    `context_tokens` has, for each response, the number of its first tokens that are not scored (by default 0): `prompt` may be the common
    prefix of several prompts; a response is then the rest of one of these prompts, as context, and its answer.
    """

    prompt: tuple[int, ...]
    responses: tuple[tuple[int, ...], ...]
    context_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.context_tokens:
            object.__setattr__(self, "context_tokens", (0,) * len(self.responses))
        scored = [len(text) - context for text, context in zip(self.responses, self.context_tokens, strict=True)]
        if not self.prompt or not scored or min(scored) < 1:
            found = f"a prompt of {len(self.prompt)} tokens with responses of {scored} scored tokens"
            raise UserError(found, "a prompt token, a response, and a scored token in each response", "drop the row")

    @property
    def scored_tokens(self) -> int:
        return sum(map(len, self.responses)) - sum(self.context_tokens)

    @property
    def tokens(self) -> int:
        """The length of the group in a row."""
        return len(self.prompt) + sum(map(len, self.responses))


TRIAL_GROUPS = (TokenizedGroup((3, 1, 4, 1, 5), ((9, 2, 6), (5, 3))), TokenizedGroup((5, 8), ((9,), (7, 9, 3))))


@dataclass(frozen=True)
class PackedBatch:
    """Rows of packed groups, padded on the right to the longest: int64 tensors.

    group_BT numbers the groups in their order, from 0 (-1 in padding); response_BT numbers all their responses, from 1 (0 in prompts
    and padding). scored_BT marks the N scored tokens; predictors_N has, for each of them, row after row, the position in the row that
    predicts it: the previous position or, for the first token of a response, the prompt's last. `spans` locate each group.
    """

    ids_BT: Tensor
    positions_BT: Tensor
    group_BT: Tensor
    response_BT: Tensor
    scored_BT: Tensor
    predictors_N: Tensor
    spans: tuple[GroupSpan, ...]

    def to(self, device: torch.device) -> PackedBatch:
        """The same batch on `device`."""
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors, spans=on_device(self.spans, device))


def pack_rows(groups: Sequence[TokenizedGroup], budget_tokens: int) -> PackedBatch:
    """Groups packed into rows of at most `budget_tokens`; a longer group has a row to itself."""
    first_responses = list(accumulate((len(group.responses) for group in groups), initial=1))
    numbers = first_fit(groups, budget_tokens)
    rows = [_row(row_groups, groups, first_responses) for row_groups in numbers]
    ids, positions, group_of, response_of, scored, predictors = (list(column) for column in zip(*rows, strict=True))
    return PackedBatch(
        pad_sequence(ids, batch_first=True),
        pad_sequence(positions, batch_first=True),
        pad_sequence(group_of, batch_first=True, padding_value=-1),
        pad_sequence(response_of, batch_first=True),
        pad_sequence(scored, batch_first=True).bool(),
        torch.cat(predictors),
        tuple(span for row, row_groups in enumerate(numbers) for span in _group_spans(row, row_groups, groups)),
    )


def first_fit(groups: Sequence[TokenizedGroup], budget_tokens: int) -> list[list[int]]:
    """The numbers of the groups of each row, first-fit decreasing (Johnson 1974): the longest first, ties in order."""
    rows: list[list[int]] = []
    free: list[int] = []
    for number in sorted(range(len(groups)), key=lambda number: -groups[number].tokens):
        tokens = groups[number].tokens
        row = next((row for row, left in enumerate(free) if left >= tokens), len(rows))
        if row == len(rows):
            rows.append([])
            free.append(budget_tokens)
        rows[row].append(number)
        free[row] -= tokens
    return rows


def _row(numbers: Sequence[int], groups: Sequence[TokenizedGroup], first_responses: Sequence[int]) -> list[Tensor]:
    """One row's ids_T, positions_T, group_T, response_T, scored_T and predictors_N."""
    columns: list[list[int]] = [[] for _ in range(6)]
    ids, positions, group_of, response_of, scored, predictors = columns
    for number in numbers:
        prompt, responses = groups[number].prompt, groups[number].responses
        prompt_end = len(ids) + len(prompt) - 1
        ids += prompt
        positions += range(len(prompt))
        response_of += [0] * len(prompt)
        scored += [0] * len(prompt)
        for offset, (response, context) in enumerate(zip(responses, groups[number].context_tokens, strict=True)):
            response_number = first_responses[number] + offset
            predictors += [prompt_end, *range(len(ids), len(ids) + len(response) - 1)][context:]
            scored += [0] * context + [1] * (len(response) - context)
            ids += response
            positions += range(len(prompt), len(prompt) + len(response))
            response_of += [response_number] * len(response)
        group_of += [number] * groups[number].tokens
    return [torch.tensor(column) for column in columns]


def _group_spans(row: int, numbers: Sequence[int], groups: Sequence[TokenizedGroup]) -> list[GroupSpan]:
    starts = accumulate((groups[number].tokens for number in numbers), initial=0)
    return [
        group_span(row, start, len(groups[number].prompt), [len(response) for response in groups[number].responses])
        for start, number in zip(starts, numbers, strict=False)
    ]


def is_visible(batch: PackedBatch, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Whether a query attends to a key: itself or an earlier token of its group, in the prompt or its own response."""
    group_BT, response_BT = batch.group_BT, batch.response_BT
    shared = (response_BT[row, key] == 0) | (response_BT[row, key] == response_BT[row, query])
    return (key <= query) & (group_BT[row, key] == group_BT[row, query]) & shared


def attention_mask(batch: PackedBatch, implementation: str) -> Any:
    """`is_visible` in the attention's format: bool[B, 1, T, T] for "sdpa", a BlockMask for "flex_attention"."""
    (rows, tokens), device = batch.ids_BT.shape, batch.ids_BT.device
    if implementation == "flex_attention":
        return create_block_mask(lambda b, _, q, k: is_visible(batch, b, q, k), rows, None, tokens, tokens, device)
    row_B11 = torch.arange(rows, device=device)[:, None, None]
    order_T = torch.arange(tokens, device=device)
    return is_visible(batch, row_B11, order_T[:, None], order_T)[:, None]


def packed_logps(model: Any, batch: PackedBatch) -> Tensor:
    """Summed log-probability of the scored tokens of each response: float32[R], in the order of the groups.

    Call it under the training's autocast, with a model that has no `packing_problem`.
    """
    base = unwrapped(model)
    batch = batch.to(base.device)
    inputs: dict[str, Any] = {"input_ids": batch.ids_BT, "position_ids": batch.positions_BT}
    implementation = base.config.get_text_config()._attn_implementation
    if implementation == SHARED_PREFIX:
        inputs |= {"attention_mask": batch.ids_BT.new_ones(1, 1, 1, 1, dtype=torch.bool)}
        inputs |= {"shared_prefixes": batch.spans}
    else:
        inputs |= {"attention_mask": attention_mask(batch, implementation)}
    scored_BT = batch.scored_BT
    logps_N = logps_at(model, inputs, scored_BT.nonzero()[:, 0], batch.predictors_N, batch.ids_BT[scored_BT])
    responses_N = batch.response_BT[scored_BT] - 1
    if rotation_limit(base.config):
        check_rotation(base.config, _row_tokens(batch.positions_BT[scored_BT], responses_N))
    return logps_N.new_zeros(int(responses_N.max()) + 1).index_add(0, responses_N, logps_N)


def _row_tokens(positions_N: Tensor, responses_N: Tensor) -> list[int]:
    """The length of each response with its prompt as a single sequence, from the positions of its tokens."""
    last_R = positions_N.new_zeros(int(responses_N.max()) + 1).scatter_reduce(0, responses_N, positions_N, "amax")
    return [int(last) + 1 for last in last_R]


def plain_logps(model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """The plain layout: one sequence per response, all in one batch, padded on the right: float32[R]."""
    rows = [
        TokenizedRow(group.prompt + response, len(group.prompt) + context)
        for group in groups
        for response, context in zip(group.responses, group.context_tokens, strict=True)
    ]
    ids_BT, mask_BT = pad_rows(rows, pad_id=0)
    device = unwrapped(model).device
    return completion_logps(model, ids_BT.to(device), mask_BT.to(device))


def packing_problem(model: Any, longest_tokens: int | None = None) -> str:
    """Why a model does not support `packed_logps`, in words; "" if it does.

    A sliding window is harmless if it covers the longest prompt with a response (`longest_tokens`; None: unknown). A model
    that passes these checks is also tried on a few tokens, because an attention implementation may silently ignore its mask.
    """
    base = unwrapped(model)
    config = base.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention", "sliding_attention"])
    window = getattr(config, "sliding_window", None) if "sliding_attention" in kinds else None
    other = sorted(kinds - {"full_attention", "sliding_attention"})
    if other or getattr(base, "_is_stateful", False):
        return f"it has layers that are not full attention ({', '.join(other) or 'recurrent'})"
    if config._attn_implementation not in ("sdpa", "flex_attention", SHARED_PREFIX):
        return f"its attention is {config._attn_implementation!r}; only sdpa and flex_attention accept the mask of a packed row"
    if window is not None and (longest_tokens is None or window < longest_tokens):
        return f"its attention has a sliding window of {window} tokens"
    return _trial(model)


def gap_beyond_rounding(model: Any, one_R: Tensor, other_R: Tensor) -> float:
    """The largest gap in nats between two computations of a trial's log-probabilities; 0 if rounding may explain it."""
    gap_R = (one_R - other_R).abs()
    if unwrapped(model).dtype.itemsize >= 4:
        allowed_R = torch.full_like(gap_R, TRIAL_NATS)
    else:
        allowed_R = (HALF_PRECISION_TRIAL_SHARE * one_R.abs()).clamp(min=HALF_PRECISION_TRIAL_NATS)
    return 0.0 if (gap_R <= allowed_R).all() else gap_R.max().item()


def _trial(model: Any) -> str:
    """Why a trial of packing on two small groups failed, in words; "" if it did not. Gradients stay enabled, because quantised layers may need them."""
    training = model.training
    model.eval()
    try:
        plain, packed = plain_logps(model, TRIAL_GROUPS), packed_logps(model, pack_rows(TRIAL_GROUPS, 12))
    except ERRORS as problem:
        return f"a trial of the packed layout failed ({type(problem).__name__}: {first_line(problem)})"
    finally:
        model.train(training)
    gap = gap_beyond_rounding(model, plain, packed)
    return f"in a trial, packed log-probabilities were {gap:.3g} nats away from the plain layout's" if gap else ""


LogpsOf = Callable[[Any, Sequence[TokenizedGroup]], Tensor]
"""Maps a model and groups to the log-probability of each of their responses, in order: packed or plain."""


def choose_layout(model: Any, longest_tokens: int, row_tokens: int | None) -> LogpsOf:
    """Packed if the model's attention supports it; otherwise plain, with a message that gives the reason.

    On a CPU, the attention of train/model/attention.py replaces the mask if its results are correct. On a GPU, its many small kernels
    would cost more than the masked pairs.
    """
    if reason := packing_problem(model, longest_tokens):
        say(f"plain layout, one sequence per response: {reason}")
        return plain_logps
    if model.config.get_text_config()._attn_implementation == "sdpa" and unwrapped(model).device.type == "cpu":
        use_shared_prefix_attention(model)
        if packing_problem(model, longest_tokens):
            model.set_attn_implementation("sdpa")
    return partial(_packed, row_tokens=row_tokens)


def _packed(model: Any, groups: Sequence[TokenizedGroup], row_tokens: int | None) -> Tensor:
    """The packed layout: `packed_logps` of the groups in rows of at most `row_budget` tokens."""
    one_row = unwrapped(model).config.get_text_config()._attn_implementation == SHARED_PREFIX
    return packed_logps(model, pack_rows(groups, row_budget(groups, row_tokens, one_row)))


def row_budget(groups: Sequence[TokenizedGroup], row_tokens: int | None, one_row: bool) -> int:
    """The maximum number of tokens in a row: `row_tokens` or, if it is None, the tokens of all groups with `one_row`, else those of the longest group."""
    tokens = [group.tokens for group in groups]
    return row_tokens or (sum(tokens) if one_row else max(tokens))
