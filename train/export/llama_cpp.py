"""A GGUF file opened by llama.cpp itself and compared with the run: greedy replies, and their tokens' log-probabilities.

llama.cpp writes the replies, the run reads them: a reply is the run's own where each of its tokens is the run's first choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.shared.console import track
from graph.shared.errors import UserError
from serve.engines.child import OwnServer
from serve.engines.llama import CONTEXT_TOKENS, SLOTS, read_llama
from train.export.conversations import REPLY_TOKENS, Along, Conversation, along, first_difference
from train.export.server import Reply, Server, own_server
from train.model.models import device

CONVERSATIONS = 100
NEAR_TIE = 0.02
"""Nats between the two likeliest tokens below which rounding may choose either."""


@dataclass(frozen=True)
class FileGaps:
    """How far a file is from the run as it computes in `precision`, in nats of a token of llama.cpp's greedy replies.

    `same_replies` have the run's greedy tokens throughout; `near_ties` more depart from them first where the run's two likeliest tokens
    are less than NEAR_TIE apart.
    """

    precision: str
    same_replies: int
    near_ties: int
    largest_gap_nats: float
    mean_gap_nats: float


def fitting(asked: Sequence[Conversation], window: int) -> list[Conversation]:
    """The conversations whose prompt and reply fit into a window of so many tokens, and into llama.cpp's."""
    return [each for each in asked if len(each.prompt) + REPLY_TOKENS <= min(window, CONTEXT_TOKENS)]


def llama_replies(
    file: Path, adapters: Mapping[str, Path], asked: Sequence[Conversation], tokenizer: Any
) -> list[Reply]:
    """llama.cpp's greedy replies by a file and the one adapter on it, if any.

    UserError when it does not open them, or reads a prompt in other tokens than training did.
    """
    spec = read_llama(str(file), adapters)
    name = next(iter(adapters), spec.name)
    with closing(OwnServer(spec)) as child:
        child.wait()
        server = own_server(spec, child)

        def reply(each: Conversation) -> Reply:
            _check_prompt(server, name, each, file, tokenizer)
            return server.greedy(name, each.messages, REPLY_TOKENS, tokenizer)

        at_once = SLOTS if max(len(each.prompt) for each in asked) + REPLY_TOKENS <= CONTEXT_TOKENS // SLOTS else 1
        with ThreadPoolExecutor(at_once) as pool:
            return list(track(pool.map(reply, asked), "replies by llama.cpp", len(asked)))


def compare(model: Any, precision: str, asked: Sequence[Conversation], replies: Sequence[Reply]) -> FileGaps:
    """What the run's model says along the replies, beside what llama.cpp said."""
    model.to(device()).eval()
    ours = list(track(_along(model, asked, replies), f"the run in {precision}", len(asked)))
    gaps = [
        abs(a - b)
        for reply, own in zip(replies, ours, strict=True)
        for a, b in zip(reply.logps, own.logps, strict=True)
    ]
    first = [departure(own) for own in ours]
    return FileGaps(
        precision,
        same_replies=first.count(0.0),
        near_ties=sum(0 < nats < NEAR_TIE for nats in first),
        largest_gap_nats=max(gaps),
        mean_gap_nats=sum(gaps) / len(gaps),
    )


def departure(own: Along) -> float:
    """How much likelier the run's own first choice is at the first token of a reply that is not it, in nats; 0 where each is.

    >>> departure(Along((-0.1, -0.9, -2.0), (0.0, 0.5, 1.0))), departure(Along((-0.1,), (0.0,)))
    (0.5, 0.0)
    """
    return next((nats for nats in own.behind if nats > 0), 0.0)


def _along(model: Any, asked: Sequence[Conversation], replies: Sequence[Reply]) -> Iterator[Along]:
    for each, reply in zip(asked, replies, strict=True):
        yield along(model, each.answered_by(reply.ids or ()))


def _check_prompt(server: Server, name: str, each: Conversation, file: Path, tokenizer: Any) -> None:
    found = server.prompt_ids(name, each.messages) or ()
    if found != each.prompt:
        place, here, there = first_difference(each.prompt, found, tokenizer)
        raise UserError(
            f"{file.name}: llama.cpp reads a prompt in other tokens than training did: from token {place} on {there}",
            here,
            "export the run with --merge, and convert the folder with llama.cpp's own converter",
        )
