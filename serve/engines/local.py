"""A model in this process: what all such engines do alike. A subclass runs one batch of prompts.

One batch at a time, of prompts of similar length; several threads may share an engine.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from threading import Lock
from typing import Any

from graph.answer import template
from graph.errors import UserError
from graph.text.prompting import escape_special_tokens
from graph.types import AnswerForm, Completion, CompletionRequest, Message

Watcher = Callable[[list[int]], bool]
"""Sees the ids written so far after each token; True ends the generation."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen beside temperature and seed, as vLLM reads fields of these names; the values here ask for nothing."""

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


PLAIN = Sampling()


@dataclass(frozen=True)
class TokenLogps:
    """A written token, its log-probability in nats, and the likeliest tokens in its place with theirs."""

    token: int
    logp: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class PreparedPrompt:
    """A request ready to run: its place in the caller's list, its token ids, and the tokens it may still write."""

    place: int
    ids: list[int]
    room: int
    request: CompletionRequest


class LocalModel(ABC):
    """A LanguageModel by its tokenizer, `context_tokens` wide; `stop_ids` end a text.

    `kind` is what its SPEC begins with; one that `takes_schema` binds its reply to a request's JSON schema; one that `gives_logps` has
    the log-probabilities of what it wrote.
    """

    kind: str
    vocabulary: int
    """How many tokens the model has."""
    form: AnswerForm = "reasoned"
    batch_size, in_flight, takes_schema, gives_logps = 16, 1, False, False

    def __init__(self, name: str, tokenizer: Any, context_tokens: int, stop_ids: frozenset[int]) -> None:
        self.name, self.context_tokens = name, context_tokens
        self._tokenizer, self._stop_ids = tokenizer, stop_ids
        tokenizer.model_max_length = sys.maxsize  # or it warns of each prompt that is counted to see whether it fits
        self._open = template.reply_opening(tokenizer)
        self._lock, self._reading = Lock(), Lock()

    @abstractmethod
    def run(
        self, batch: Sequence[PreparedPrompt], watcher: Watcher | None = None, sampling: Sampling = PLAIN
    ) -> list[Completion]:
        """The replies to a batch of prompts with the same room, the tokens of the first shown to `watcher`."""

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Answers in the order asked; UserError when a prompt leaves no room in the context window."""
        completions: dict[int, Completion] = {}
        with self._lock:
            prompts = [self._prepare(place, request) for place, request in enumerate(requests)]
            for batch in _batches(prompts, self.batch_size):
                for prompt, completion in zip(batch, self.run(batch), strict=True):
                    completions[prompt.place] = completion
        return [completions[place] for place in range(len(requests))]

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` alone, without special tokens."""
        with self._reading:
            return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def window(self) -> int | None:
        """The context window; None where the model's config names none."""
        return self.context_tokens if self.context_tokens < sys.maxsize else None

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat; waits for no generation."""
        return len(self.prompt_ids(messages))

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a chat: by the tokenizer's template if it has one, else the contents joined by empty lines.

        No content can become a special token: each one that is spelt out in a message is broken by a space. UserError when the
        template refuses the chat.
        """
        with self._reading:
            if self._tokenizer.chat_template is not None:
                return template.prompt_ids(self._tokenizer, messages)
            text = "\n\n".join(escape_special_tokens(turn.content, self._tokenizer) for turn in messages) + "\n\n"
            return list(self._tokenizer(text)["input_ids"])

    def _prepare(self, place: int, request: CompletionRequest) -> PreparedPrompt:
        ids = self.prompt_ids(request.messages)
        room = self.context_tokens - len(ids)
        if room < 1:
            raise UserError(
                f"{self.kind}:{self.name}: a prompt of {len(ids):,} tokens",
                f"fewer than its context window of {self.context_tokens:,}",
                "a shorter prompt, or a model with a larger window",
            )
        return PreparedPrompt(place, ids, min(room, request.max_tokens), request)

    def stream(self, request: CompletionRequest, watcher: Watcher, sampling: Sampling = PLAIN) -> Completion:
        """As `complete` for one request, its tokens shown to `watcher` as they are written, until it has enough.

        UserError for a bias of a token that the model does not have.
        """
        for token in sampling.logit_bias:
            if not 0 <= token < self.vocabulary:
                raise UserError(
                    f"logit_bias of token {token}", f"tokens below {self.vocabulary:,}", "take the model's own ids"
                )
        with self._lock:
            return self.run([self._prepare(0, request)], watcher, sampling)[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of written token ids, special tokens left out; what a prompt leaves open begins in it."""
        return self._open + str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def token_text(self, token: int) -> str:
        """One token as text."""
        return str(self._tokenizer.decode([token]))

    def token_logps(self, request: CompletionRequest, ids: Sequence[int], top: int) -> list[TokenLogps]:
        """What the model says of each of the tokens that were written to a request, as it is: without temperature, penalties or cuts."""
        raise NotImplementedError

    def up_to_stop(self, ids: list[int]) -> list[int]:
        """The written tokens up to the one that ends a text."""
        return ids[: next((place for place, token in enumerate(ids) if token in self._stop_ids), len(ids))]

    def completion_of(self, prompt: PreparedPrompt, ids: list[int]) -> Completion:
        """What was written to a prompt, up to where it ends."""
        up_to_stop = self.up_to_stop(ids)
        return Completion(
            text=self.text_of(up_to_stop).strip(),
            finish_reason="length" if len(up_to_stop) == len(ids) else "stop",
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(up_to_stop),
        )


def _batches(prompts: Iterable[PreparedPrompt], size: int) -> Iterator[list[PreparedPrompt]]:
    """Groups of at most `size` prompts with equal room, of similar length, longest first."""
    ordered = sorted(prompts, key=lambda prompt: (-prompt.room, -len(prompt.ids), prompt.place))
    for _, group in groupby(ordered, key=lambda prompt: prompt.room):
        same_room = list(group)
        for start in range(0, len(same_room), size):
            yield same_room[start : start + size]
