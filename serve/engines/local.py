"""The base class of models in this process. A subclass runs one batch of prompts.

Batches run one at a time and contain prompts of similar length; several threads may share an engine.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from threading import Lock
from typing import Any

from graph.answer import template
from graph.errors import UserError
from graph.text.prompting import escape_special_tokens
from graph.types import AnswerForm, Completion, CompletionRequest, Message

Watcher = Callable[[list[int]], bool]
"""Called after each token with the ids generated so far; True stops the generation."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters besides temperature and seed, with vLLM's names and meaning; the defaults change nothing."""

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True)
class TokenLogps:
    """A generated token, its log-probability in nats, and the likeliest tokens at its position with their log-probabilities."""

    token: int
    logp: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class PreparedPrompt:
    """A request ready to run: its index in the caller's list, its token ids, and the number of tokens that may be generated for it."""

    index: int
    ids: list[int]
    max_new_tokens: int
    request: CompletionRequest


class LocalModel(ABC):
    """A LanguageModel with a tokenizer and a window of `context_tokens`; `stop_ids` end a reply.

    `kind` is the prefix of its SPEC; with `takes_schema` it constrains a reply to the request's JSON schema; with `gives_logps` it
    returns the log-probabilities of generated tokens. `reply_opening` is the beginning of every reply that the prompt already contains;
    `thread` is for requests of an event loop, which wait for each other there.
    """

    kind: str
    vocabulary: int
    """The size of the vocabulary."""
    form: AnswerForm = "reasoned"
    batch_size, in_flight, takes_schema, gives_logps = 16, 1, False, False

    def __init__(self, name: str, tokenizer: Any, context_tokens: int, stop_ids: frozenset[int]) -> None:
        self.name, self.context_tokens = name, context_tokens
        self._tokenizer, self._stop_ids = tokenizer, stop_ids
        tokenizer.model_max_length = sys.maxsize  # otherwise it warns about each long prompt that it counts
        self.reply_opening = template.reply_opening(tokenizer)
        self._lock, self._tokenizer_lock = Lock(), Lock()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="generate")

    @abstractmethod
    def run(
        self, batch: Sequence[PreparedPrompt], watcher: Watcher | None = None, sampling: Sampling = DEFAULT_SAMPLING
    ) -> list[Completion]:
        """The replies to a batch of prompts with the same `max_new_tokens`; `watcher` gets the tokens generated for the first prompt."""

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Completions in the order of the requests; UserError when a prompt fills the context window or the chat template refuses it."""
        completions: dict[int, Completion] = {}
        with self._lock:
            prompts = [self._prepare(index, request) for index, request in enumerate(requests)]
            for batch in _batches(prompts, self.batch_size):
                for prompt, completion in zip(batch, self.run(batch), strict=True):
                    completions[prompt.index] = completion
        return [completions[index] for index in range(len(requests))]

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` alone, without special tokens."""
        with self._tokenizer_lock:
            return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def window(self) -> int | None:
        """The context window; None if the model's config does not limit it."""
        return self.context_tokens if self.context_tokens < sys.maxsize else None

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat, counted without waiting for a running generation."""
        return len(self.prompt_ids(messages))

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a chat: by the tokenizer's template if it has one, else the contents joined by empty lines.

        No content can become a special token: a space breaks up each special token that a message spells out. UserError when the template refuses
        the chat.
        """
        with self._tokenizer_lock:
            if self._tokenizer.chat_template is not None:
                return template.prompt_ids(self._tokenizer, messages)
            text = "\n\n".join(escape_special_tokens(turn.content, self._tokenizer) for turn in messages) + "\n\n"
            return list(self._tokenizer(text)["input_ids"])

    def _prepare(self, index: int, request: CompletionRequest) -> PreparedPrompt:
        ids = self.prompt_ids(request.messages)
        max_new_tokens = self.context_tokens - len(ids)
        if max_new_tokens < 1:
            found = f"{self.kind}:{self.name}: a prompt of {len(ids):,} tokens"
            expected = f"fewer than its context window of {self.context_tokens:,}"
            raise UserError(found, expected, "use a shorter prompt, or a model with a larger window")
        return PreparedPrompt(index, ids, min(max_new_tokens, request.max_tokens), request)

    def stream(self, request: CompletionRequest, watcher: Watcher, sampling: Sampling = DEFAULT_SAMPLING) -> Completion:
        """Like `complete`, for one request; `watcher` gets the tokens as they are generated, and can stop the generation.

        UserError for a bias on a token that the model does not have.
        """
        for token in sampling.logit_bias:
            if not 0 <= token < self.vocabulary:
                expected = f"token ids from 0 to {self.vocabulary - 1:,}"
                raise UserError(f"logit_bias of token {token}", expected, "use ids of the model's own tokens")
        with self._lock:
            return self.run([self._prepare(0, request)], watcher, sampling)[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of generated token ids without special tokens, preceded by `reply_opening`."""
        return self.reply_opening + str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def token_text(self, token: int) -> str:
        """One token as text."""
        return str(self._tokenizer.decode([token]))

    def token_logps(self, request: CompletionRequest, ids: Sequence[int], top: int) -> list[TokenLogps]:
        """Log-probabilities of the tokens generated for a request, from the raw logits: without temperature, penalties or truncation."""
        raise NotImplementedError

    def up_to_stop(self, ids: list[int]) -> list[int]:
        """The generated tokens before the first stop token."""
        return list(takewhile(lambda token: token not in self._stop_ids, ids))

    def completion_of(self, prompt: PreparedPrompt, ids: list[int]) -> Completion:
        """The completion of a prompt, up to the first stop token."""
        up_to_stop = self.up_to_stop(ids)
        return Completion(
            text=self.text_of(up_to_stop).strip(),
            finish_reason="length" if len(up_to_stop) == len(ids) else "stop",
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(up_to_stop),
        )


def _batches(prompts: Iterable[PreparedPrompt], size: int) -> Iterator[list[PreparedPrompt]]:
    """Batches of at most `size` prompts with equal `max_new_tokens` and similar lengths, longest first, equal prompts together."""
    ordered = sorted(prompts, key=lambda prompt: (-prompt.max_new_tokens, -len(prompt.ids), prompt.ids, prompt.index))
    for _, group in groupby(ordered, key=lambda prompt: prompt.max_new_tokens):
        equal = list(group)
        for start in range(0, len(equal), size):
            yield equal[start : start + size]
