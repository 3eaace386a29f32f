"""The engine for models on this machine or from the hub, through transformers (hf_open.py opens them).

One batch at a time, padded on the left, a prompt that several requests share read once; several threads may share an engine.
A JSON schema cannot be enforced here and is left to the prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from threading import Lock
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from graph.prompt import template
from graph.shared.errors import UserError
from graph.shared.types import Completion, CompletionRequest, Message
from graph.text.special_tokens import escape_special_tokens
from serve.engines.sampling import Sampling
from serve.engines.shared_prompts import read_shared
from serve.engines.steps import GumbelSampler, StreamingCriteria, Watcher

BATCH_SIZE = 16
PLAIN = Sampling()


@dataclass(frozen=True)
class _Prompt:
    """A request ready to run: its place in the caller's list, its token ids, and the tokens it may still write."""

    place: int
    ids: list[int]
    room: int
    request: CompletionRequest


class HfModel:
    """A LanguageModel over a transformers model and its tokenizer.

    `context_tokens` is the model's window, unbounded where its config names none.
    """

    batch_size, in_flight = BATCH_SIZE, 1

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        self.name = name
        self.context_tokens = int(getattr(model.config.get_text_config(), "max_position_embeddings", sys.maxsize))
        self._model = model.eval()
        self._tokenizer = tokenizer
        tokenizer.model_max_length = sys.maxsize  # or it warns of each prompt that is counted to see whether it fits
        self._stop_ids = _stop_ids(model, tokenizer)
        self._open = template.reply_opening(tokenizer)
        self._lock, self._reading = Lock(), Lock()
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self._stop_ids, default=0)
        self._pad_id = int(pad_id)
        # The model's own defaults (top_p, repetition penalty, …) would bend greedy decoding and the sampler below.
        model.generation_config = GenerationConfig(
            eos_token_id=sorted(self._stop_ids) or None, pad_token_id=self._pad_id
        )

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Answers in the order asked; UserError when a prompt leaves no room in the context window."""
        completions: dict[int, Completion] = {}
        with self._lock:
            prompts = [self._prepare(place, request) for place, request in enumerate(requests)]
            for batch in _batches(prompts, self.batch_size):
                for prompt, completion in zip(batch, self._run(batch), strict=True):
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

    def _prepare(self, place: int, request: CompletionRequest) -> _Prompt:
        ids = self.prompt_ids(request.messages)
        room = self.context_tokens - len(ids)
        if room < 1:
            raise UserError(
                f"hf:{self.name}: a prompt of {len(ids):,} tokens",
                f"fewer than its context window of {self.context_tokens:,}",
                "a shorter prompt, or a model with a larger window",
            )
        return _Prompt(place, ids, min(room, request.max_tokens), request)

    def stream(self, request: CompletionRequest, watcher: Watcher, sampling: Sampling = PLAIN) -> Completion:
        """As `complete` for one request, its tokens shown to `watcher` as they are written, until it has enough.

        UserError for a bias of a token that the model does not have.
        """
        tokens = self._model.get_input_embeddings().num_embeddings
        for token in sampling.logit_bias:
            if not 0 <= token < tokens:
                raise UserError(f"logit_bias of token {token}", f"tokens below {tokens:,}", "take the model's own ids")
        with self._lock:
            return self._run([self._prepare(0, request)], watcher, sampling)[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of written token ids, special tokens left out; what a prompt leaves open begins in it."""
        return self._open + str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def _run(
        self, batch: Sequence[_Prompt], watcher: Watcher | None = None, sampling: Sampling = PLAIN
    ) -> list[Completion]:
        """One batch of prompts with the same room; shorter prompts are padded on the left."""
        longest = max(len(prompt.ids) for prompt in batch)
        padded = [[self._pad_id] * (longest - len(prompt.ids)) + prompt.ids for prompt in batch]
        mask = [[0] * (longest - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch]
        device = self._model.device
        ids_BT, mask_BT = torch.tensor(padded, device=device), torch.tensor(mask, device=device)
        sampler = GumbelSampler([prompt.request for prompt in batch], sampling.cuts())
        with torch.inference_mode():
            output_BT = self._model.generate(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                past_key_values=read_shared(self._model, ids_BT, mask_BT),
                max_new_tokens=batch[0].room,
                do_sample=False,
                logits_processor=LogitsProcessorList([*sampling.weights(longest), sampler]),
                stopping_criteria=StoppingCriteriaList(
                    [StreamingCriteria(watcher, longest)] if watcher is not None else []
                ),
            )
        written = output_BT[:, longest:].tolist()
        return [self._completion(prompt, ids) for prompt, ids in zip(batch, written, strict=True)]

    def _completion(self, prompt: _Prompt, ids: list[int]) -> Completion:
        stop = next((place for place, token in enumerate(ids) if token in self._stop_ids), None)
        kept = ids if stop is None else ids[:stop]
        return Completion(
            text=self.text_of(kept).strip(),
            finish_reason="length" if stop is None else "stop",
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(kept),
        )


def _batches(prompts: Iterable[_Prompt], size: int) -> Iterator[list[_Prompt]]:
    """Groups of at most `size` prompts with equal room, of similar length, longest first."""
    ordered = sorted(prompts, key=lambda prompt: (-prompt.room, -len(prompt.ids), prompt.place))
    for _, group in groupby(ordered, key=lambda prompt: prompt.room):
        same_room = list(group)
        for start in range(0, len(same_room), size):
            yield same_room[start : start + size]


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text: the generation config's (one or several) and the tokenizer's."""
    listed = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = [listed] if isinstance(listed, int) else list(listed or ())
    return frozenset([*ids, *([tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else [])])
