"""What a server tells of a model: its names, the tokens of a prompt, log-probabilities of given tokens, greedy replies.

vLLM tells all of it. Other OpenAI-compatible servers (llama.cpp, Ollama) tell less: what they do not tell is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai

from eval.served.types import Reply
from graph.shared.errors import UserError
from graph.shared.types import Message
from serve.engines.openai_api import TIMEOUT_S, key_of_environment, split_target, without_password

A = TypeVar("A")
B = TypeVar("B")
TOKEN = "token_id:"


def read_target(spec: str) -> tuple[str, str]:
    """(name, URL) of `openai:NAME@URL`, or of a URL alone, whose name is ""; UserError for anything else."""
    if spec.startswith(("http://", "https://")) and urlsplit(spec).hostname:
        return "", spec
    kind, _, target = spec.partition(":")
    if kind != "openai":
        raise UserError(
            f"{spec!r}", "openai:NAME@URL, or the URL of a server", "start the server and give its URL (…/v1)"
        )
    return split_target(target)


class Server:
    """An OpenAI-compatible server. Every method raises UserError when it cannot be reached or refuses what was asked."""

    def __init__(self, url: str) -> None:
        self.url = without_password(url)
        self._client = openai.OpenAI(base_url=url, api_key=key_of_environment(), timeout=TIMEOUT_S, max_retries=1)

    def parents(self) -> dict[str, str]:
        """The models that it lists, each with the one that it is an adapter of, "" where it tells of none."""
        listed = self._send(lambda: self._client.get("/models", cast_to=object))
        return {str(each["id"]): str(each.get("parent") or "") for each in listed.get("data") or ()}

    def prompt_ids(self, name: str, messages: Sequence[Message]) -> tuple[int, ...] | None:
        """The tokens of a chat up to its answer, by the server's own template."""
        root = str(self._client.base_url).rstrip("/").removesuffix("/v1")
        body = {"model": name, "messages": [vars(turn) for turn in messages]}
        try:
            told: Any = self._client.post(f"{root}/tokenize", body=body, cast_to=object)
        except openai.APIConnectionError as problem:
            raise self._unreachable(problem) from None
        except (openai.APIError, ValueError):
            return None
        return tuple(told.get("tokens") or ()) or None if isinstance(told, dict) else None

    def prompt_logps(self, name: str, row: Sequence[int]) -> list[float] | None:
        """log π of every token of a row but the first.

        One row at a time: vLLM 0.32 on a CPU ends when it reads several such requests at once and has adapters.
        """
        body = {"model": name, "prompt": list(row), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        try:
            told: Any = self._client.post("/completions", body=body, cast_to=object)
            along = told["choices"][0]["prompt_logprobs"]
            return [float(each[str(token)]["logprob"]) for token, each in zip(row[1:], along[1:], strict=True)]
        except openai.APIConnectionError as problem:
            raise self._unreachable(problem) from None
        except (openai.APIError, ValueError, LookupError, TypeError):
            return None

    def greedy(self, name: str, messages: Sequence[Message], max_tokens: int, tokenizer: Any) -> Reply:
        """The greedy answer to a chat."""
        body = {
            "model": name,
            "messages": [vars(turn) for turn in messages],
            "max_tokens": max_tokens,
            "temperature": 0,
            "logprobs": True,
            "return_tokens_as_token_ids": True,
        }
        told = self._send(lambda: self._client.post("/chat/completions", body=body, cast_to=object))
        try:
            entries = (told["choices"][0].get("logprobs") or {}).get("content") or []
            ids = token_ids(entries, told["choices"][0]["message"].get("content") or "", tokenizer)
            return Reply(
                ids,
                [float(each["logprob"]) for each in entries],
                int((told.get("usage") or {}).get("prompt_tokens", 0)),
            )
        except (LookupError, TypeError, ValueError) as problem:
            raise UserError(
                f"{self.url}: no chat completion ({problem})", "an OpenAI-compatible server", "fix the URL"
            ) from None

    def _send(self, call: Callable[[], Any]) -> Any:
        try:
            told = call()
        except openai.APIConnectionError as problem:
            raise self._unreachable(problem) from None
        except (openai.APIError, ValueError) as problem:
            found = f"{self.url}: {' '.join(str(problem).split())[:200]}"
            raise UserError(
                found, "an OpenAI-compatible server", "check the model's name, the key and the server's log"
            ) from None
        if not isinstance(told, dict):
            raise UserError(
                f"{self.url}: no JSON", "an OpenAI-compatible server", "fix the URL (it usually ends in /v1)"
            )
        return told

    def _unreachable(self, problem: openai.APIConnectionError) -> UserError:
        found = f"{self.url}: no answer ({problem.__cause__ or problem})"
        return UserError(found, "a running server", "start it, or fix the URL (it usually ends in /v1)")


def at_once(ask: Callable[[A], B], asked: Sequence[A], batch: int) -> list[B]:
    """`ask` of each, `batch` at a time."""
    with ThreadPoolExecutor(batch) as pool:
        return list(pool.map(ask, asked))


def token_ids(entries: Sequence[Mapping[str, Any]], text: str, tokenizer: Any) -> tuple[int, ...] | None:
    """The tokens of a reply: by their ids where they are told, else by its text, if that has as many; None for neither."""
    if entries and all(str(each.get("token", "")).startswith(TOKEN) for each in entries):
        return tuple(int(str(each["token"]).removeprefix(TOKEN)) for each in entries)
    if entries and all(isinstance(each.get("id"), int) for each in entries):
        return tuple(each["id"] for each in entries)
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    for whole in (ids, (*ids, tokenizer.eos_token_id)):
        if entries and len(whole) == len(entries):
            return whole
    return None
