"""How far a merged, exported or served model diverges from the trained one, over completions of its dev rows, its training rows or fixed prompts.

Legend: N completion tokens, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from graph.answer.prompt import answer_messages, format_answer
from graph.text.prompting import escape_special_tokens
from graph.types import Message
from train.model.load import device, load_tokenizer
from train.model.logps import TokenizedRow, tokenize_row
from train.run.conversations import read_conversations
from train.run.data import contains_responses, read_responses
from train.run.record import RunRecord

TOKENS_COMPARED = 2048
"""The maximum number of completion tokens whose distributions are compared; those of both models take 2.5 GB in float32 for a vocabulary of 152,000."""


@dataclass(frozen=True)
class MergeLoss:
    """The divergence caused by merging, over `tokens` completion tokens of `measured_on`.

    `kl_nats_per_token` is the mean of KL(adapter on base ‖ merged); `largest_gap_nats` is the largest |log π − log π'| of a token of a completion.
    """

    kl_nats_per_token: float
    largest_gap_nats: float
    tokens: int
    measured_on: str


def probe_rows(run: Path, record: RunRecord) -> tuple[str, list[TokenizedRow]]:
    """The source and the rows for a comparison, as in `probe_turns`, up to TOKENS_COMPARED completion tokens (at least one row)."""
    tokenizer = load_tokenizer(str(run))
    measured_on, turns = probe_turns(record)
    rows: list[TokenizedRow] = []
    tokens = 0
    for prompt, completion in turns:
        row = tokenize_row(tokenizer, prompt, completion)
        tokens += len(row.completion)
        if rows and tokens > TOKENS_COMPARED:
            break
        rows.append(row)
    return measured_on, rows


def probe_turns(record: RunRecord) -> tuple[str, list[tuple[Sequence[Message], str]]]:
    """The source and the conversations: a run's dev rows, or else its training rows, or else fixed ones."""
    data_files = [file for name in ("dev", "train") if (file := Path(record.data) / f"{name}.jsonl").is_file()]
    return (data_files[0].name, data_turns(data_files[0])) if data_files else ("fixed prompts", fixed_turns())


def data_turns(file: Path) -> list[tuple[Sequence[Message], str]]:
    """Each prompt of a file with the completion to learn, or with the first of its responses."""
    if contains_responses(file):
        return [(row.prompt, row.responses[0]) for row in read_responses(file)]
    return [(row.prompt, row.completion) for row in read_conversations(file)]


def fixed_turns() -> list[tuple[Sequence[Message], str]]:
    """The questions of prompts/probes.txt with their answers: question, reason and answer on a line, separated by tabs."""
    lines = files("train").joinpath("prompts/probes.txt").read_text(encoding="utf-8").splitlines()
    parts = [line.split("\t") for line in lines]
    return [(answer_messages(question, ()), format_answer(reason, answer)) for question, reason, answer in parts]


def token_logps(model: Any, rows: Sequence[TokenizedRow]) -> list[Tensor]:
    """log π(· | prefix) at every completion token: float32[N, V] on the CPU for each row."""
    model.to(device()).eval()
    return [row_logps(model, row) for row in rows]


@torch.no_grad()
def row_logps(model: Any, row: TokenizedRow) -> Tensor:
    """log π(· | prefix) at every completion token of a row, by a model in evaluation mode: float32[N, V] on the CPU."""
    ids_1T = torch.tensor([row.ids], device=device())
    logits_NV: Tensor = model(input_ids=ids_1T, logits_to_keep=len(row.completion) + 1, use_cache=False).logits[0, :-1]
    return logits_NV.float().log_softmax(-1).cpu()


def merge_loss(
    before: Sequence[Tensor], after: Sequence[Tensor], rows: Sequence[TokenizedRow], measured_on: str
) -> MergeLoss:
    """The mean divergence and the largest gap between two models' distributions [N, V] at the completion tokens of each row."""
    kl_N = torch.cat([token_kl(p_NV, q_NV) for p_NV, q_NV in zip(before, after, strict=True)])
    gaps = [
        (p_NV - q_NV).gather(1, torch.tensor(row.completion)[:, None]).abs().max()
        for p_NV, q_NV, row in zip(before, after, rows, strict=True)
    ]
    return MergeLoss(float(kl_N.mean()), float(max(gaps)), len(kl_N), measured_on)


def token_kl(logps_NV: Tensor, others_NV: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ_v p_v (log p_v − log q_v) of each row, in nats: float32[N]."""
    return (logps_NV.exp() * (logps_NV - others_NV)).sum(-1)


REPLY_TOKENS = 24
"""Maximum number of tokens of a greedy reply."""


@dataclass(frozen=True)
class ProbeConversation:
    """A prompt for a server, and its tokens with those of the recorded answer."""

    messages: tuple[Message, ...]
    row: TokenizedRow

    def with_answer(self, ids: Sequence[int]) -> TokenizedRow:
        """The tokens of the prompt, followed by those of another answer."""
        return TokenizedRow((*self.row.prompt, *ids), self.row.prompt_tokens)


@dataclass(frozen=True)
class CompletionScores:
    """The run's log-probabilities of a completion's tokens, and how far each is below that of the run's most likely token, in nats."""

    logps: tuple[float, ...]
    nats_below_best: tuple[float, ...]


def read_probe_conversations(
    record: RunRecord, tokenizer: PreTrainedTokenizerBase, number: int
) -> tuple[str, list[ProbeConversation]]:
    """(source, the first `number` distinct conversations of `probe_turns`)."""
    measured_on, turns = probe_turns(record)
    distinct = list(dict.fromkeys((tuple(messages), text) for messages, text in turns))[:number]
    return measured_on, [
        ProbeConversation(
            tuple(Message(turn.role, escape_special_tokens(turn.content, tokenizer)) for turn in messages),
            tokenize_row(tokenizer, messages, text),
        )
        for messages, text in distinct
    ]


def score_completion(model: Any, row: TokenizedRow) -> CompletionScores:
    """A row's completion scored by a model in evaluation mode."""
    logps_NV = row_logps(model, row)
    own_N = logps_NV.gather(1, torch.tensor(row.completion)[:, None])[:, 0]
    return CompletionScores(tuple(own_N.tolist()), tuple((logps_NV.amax(-1) - own_N).tolist()))


def first_difference(ours: Sequence[int], theirs: Sequence[int], tokenizer: Any) -> tuple[int, str, str]:
    """The position, counted from 1, at which two token sequences first differ, and the next four tokens of each as text."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    position = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    here, there = (repr(tokenizer.decode(list(ids[position : position + 4]))) for ids in (ours, theirs))
    return position + 1, here, there
