"""The engine for models on this machine or from the hub, through transformers: a full model or a PEFT adapter's folder.

One batch at a time, padded on the left; several threads may share an engine. A JSON schema cannot be enforced here and
is left to the prompt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from graph.control import defuse
from graph.errors import UserError
from graph.types import Completion, CompletionRequest, Message
from graph.weights import model_name
from serve.engines.steps import GumbelSampler, Watcher, Watching

BATCH_SIZE = 16
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def open_hf(target: str) -> HfModel:
    """Load a folder or a hub name (safetensors only); UserError when there is no such model."""
    path = Path(target).expanduser()
    if not path.is_dir() and _looks_like_path(target):
        raise UserError(
            f"hf:{target}: no such folder", "a model's or adapter's folder, or a hub name", "check the path"
        )
    where = str(path) if path.is_dir() else target
    config_file = path / ADAPTER_CONFIG
    base = _adapter_base(config_file) if config_file.is_file() else None
    model = _load(AutoModelForCausalLM, base or where, target, dtype=_dtype(), use_safetensors=True)
    if base is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, where)
    own_tokenizer = base is None or (path / "tokenizer_config.json").is_file()
    tokenizer = _load(AutoTokenizer, where if own_tokenizer else str(base), target)
    return HfModel(model_name(target), model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer)


def _looks_like_path(target: str) -> bool:
    """Whether a missing `target` was meant as a folder: a hub name is NAME or OWNER/NAME, in no folder that is here."""
    if target.startswith((".", "/", "~")) or "\\" in target or target.count("/") > 1:
        return True
    return "/" in target and Path(target).parent.is_dir()


def _adapter_base(config_file: Path) -> str:
    """The model that an adapter was trained on, from its adapter_config.json."""
    try:
        base = json.loads(config_file.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{config_file}: names no base model", "base_model_name_or_path", "save it again") from None
    if not (config_file.parent / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{config_file.parent}: no {ADAPTER_WEIGHTS}", "an adapter in safetensors", "save it again")
    if not isinstance(base, str) or (not Path(base).is_dir() and _looks_like_path(base)):
        raise UserError(f"{config_file}: base model {base!r} is not here", "its folder", "restore it or edit the file")
    return base


def _dtype() -> Any:
    return "auto" if torch.cuda.is_available() else torch.float32


def _load(kind: Any, where: str, target: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(where, **options)
    except (OSError, ValueError, KeyError) as problem:
        reason = " ".join(str(problem).split())[:300]
        raise UserError(
            f"hf:{target}: {where} cannot be loaded ({reason})",
            "a causal language model in safetensors",
            "check the name",
        ) from None


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

    batch_size = BATCH_SIZE

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        self.name = name
        self.context_tokens = int(getattr(model.config.get_text_config(), "max_position_embeddings", sys.maxsize))
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._stop_ids = _stop_ids(model, tokenizer)
        self._lock = Lock()
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
        with self._lock:
            return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a chat: by the tokenizer's template if it has one, else the contents joined by empty lines.

        No content can become a control token: each one that is spelt out in a message is broken by a space.
        """
        turns = [{"role": turn.role, "content": defuse(turn.content, self._tokenizer)} for turn in messages]
        if self._tokenizer.chat_template is None:
            text = "\n\n".join(turn["content"] for turn in turns) + "\n\n"
            return list(self._tokenizer(text)["input_ids"])
        chat = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
        return list(chat["input_ids"])

    def _prepare(self, place: int, request: CompletionRequest) -> _Prompt:
        ids = self.prompt_ids(request.messages)
        room = self.context_tokens - len(ids)
        if room < 1:
            raise UserError(
                f"hf:{self.name}: a prompt of {len(ids):,} tokens",
                f"fewer than its context window of {self.context_tokens:,}",
                "give fewer passages (--top-k) or a model with a larger window",
            )
        return _Prompt(place, ids, min(room, request.max_tokens), request)

    def stream(self, request: CompletionRequest, watcher: Watcher) -> Completion:
        """As `complete` for one request, its tokens shown to `watcher` as they are written, until it has enough."""
        with self._lock:
            return self._run([self._prepare(0, request)], watcher)[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of written token ids, control tokens left out."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def _run(self, batch: Sequence[_Prompt], watcher: Watcher | None = None) -> list[Completion]:
        """One batch of prompts with the same room; shorter prompts are padded on the left."""
        longest = max(len(prompt.ids) for prompt in batch)
        padded = [[self._pad_id] * (longest - len(prompt.ids)) + prompt.ids for prompt in batch]
        mask = [[0] * (longest - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch]
        device = self._model.device
        with torch.inference_mode():
            output_BT = self._model.generate(
                input_ids=torch.tensor(padded, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=batch[0].room,
                do_sample=False,
                logits_processor=LogitsProcessorList([GumbelSampler([prompt.request for prompt in batch])]),
                stopping_criteria=StoppingCriteriaList([Watching(watcher, longest)] if watcher is not None else []),
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
