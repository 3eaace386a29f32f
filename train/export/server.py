"""A client for a server's models: their names, the tokens of a prompt, log-probabilities of given tokens, greedy replies.

vLLM provides all of these, llama.cpp all but log-probabilities of given tokens, other OpenAI-compatible servers (Ollama) less. Anything
that a server does not provide is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import openai

from data_synth.rows import MALFORMED
from graph.errors import UserError
from graph.models.load import one_line
from graph.types import Message
from serve.engines.child import CommandServer
from serve.engines.llama import LlamaSpec
from serve.engines.openai_api import TIMEOUT_S, key_of_environment, without_password

TOKEN_ID_PREFIX = "token_id:"
MODEGRAPH_OWNER = "modegraph"
"""The `owned_by` of models in the list of modegraph's own server."""
RETRIES = 20
"""Retries of a request that a busy server refuses, such as a server that answers one request at a time."""
LOGPROBS = {"logprobs": True, "top_logprobs": 1}
TOKEN_IDS = {"return_tokens_as_token_ids": True}


@dataclass(frozen=True)
class Reply:
    """A server's greedy reply: tokens (None if not provided), their log-probabilities in nats, the server's count of prompt tokens."""

    ids: tuple[int, ...] | None
    logps: Sequence[float]
    prompt_tokens: int


class Server:
    """An OpenAI-compatible server. Every method raises UserError if the server cannot be reached; `parents` and `greedy` also if it
    refuses a request or its reply has an unexpected form.

    `parents`, if known beforehand, maps the name of each model to that of its base model ("" unless it is an adapter); `extra` gives the
    request fields that select a model, besides its name. `label` is the server's name in reports, by default its URL.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        parents: Mapping[str, str] | None = None,
        extra: Callable[[str], Mapping[str, Any]] | None = None,
        label: str = "",
    ) -> None:
        self.url = without_password(url)
        self.label = label or self.url
        self._client = openai.OpenAI(
            base_url=url, api_key=key or key_of_environment(), timeout=TIMEOUT_S, max_retries=1
        )
        self._parents = dict(parents or {})
        self._extra: Callable[[str], Mapping[str, Any]] = extra or (lambda name: {})

    def parents(self) -> dict[str, str]:
        """The names of the server's models, each mapped to that of its base model if it is an adapter, else to "".

        llama.cpp lists one model, with all adapters applied at their scales; the model without them is added here as a second one.
        """
        if self._parents:
            return self._parents
        answer = self._send(lambda: self._client.get("/models", cast_to=object))
        adapters = self._root_route("/lora-adapters")
        try:
            rows = answer.get("data") or ()
            base_of = {str(each["id"]): str(each.get("parent") or "") for each in rows}
            is_ours = any(each.get("owned_by") == MODEGRAPH_OWNER for each in rows)
            adapter_ids = [each["id"] for each in adapters] if isinstance(adapters, list) else []
        except MALFORMED as problem:
            raise self._unexpected(f"not a list of models ({problem})") from None
        if is_ours:
            # Otherwise modegraph's server would retrieve passages and put them into the prompt.
            self._extra = lambda model: {"retrieval": {"enabled": False}}
        if len(base_of) == 1 and adapter_ids:
            (name,) = base_of
            bare = f"{name} at scale 0"
            # llama.cpp may reuse a prompt's cache that was computed at another scale.
            on: dict[str, Any] = {"cache_prompt": False}
            off = {**on, "model": name, "lora": [{"id": each, "scale": 0.0} for each in adapter_ids]}
            self._extra = lambda model: off if model == bare else on
            base_of = {name: bare, bare: ""}
        self._parents = base_of
        return base_of

    def prompt_ids(self, name: str, messages: Sequence[Message]) -> tuple[int, ...] | None:
        """The tokens of a chat up to its answer, with the server's own template; None if the server does not return them."""
        turns = [vars(turn) for turn in messages]
        # llama.cpp finds no text in this request, and returns no tokens.
        ids = self._tokens({"model": name, "messages": turns})
        if ids:
            return ids
        rendered = self._root_route("/apply-template", self._body(name, messages=turns))
        if not isinstance(rendered, dict) or not isinstance(rendered.get("prompt"), str):
            return None
        return self._tokens({"content": rendered["prompt"], "add_special": True, "parse_special": True})

    def prompt_logps(self, name: str, row: Sequence[int]) -> list[float] | None:
        """log π of every token of a row but the first; None if the server does not return them.

        One row per request: vLLM 0.32 on a CPU crashes on a batch of such requests with adapters.
        """
        body = self._body(name, prompt=list(row), max_tokens=1, temperature=0, prompt_logprobs=0)
        try:
            answer: Any = self._client.post("/completions", body=body, cast_to=object)
            entries = answer["choices"][0]["prompt_logprobs"]
            return [float(each[str(token)]["logprob"]) for token, each in zip(row[1:], entries[1:], strict=True)]
        except openai.APIConnectionError as problem:
            raise self._unreachable(problem) from None
        except (openai.APIError, ValueError, LookupError, TypeError):
            return None

    def greedy(self, name: str, messages: Sequence[Message], max_tokens: int, tokenizer: Any) -> Reply:
        """The greedy answer to a chat, without its tokens if the server does not provide them."""
        client = self._client.with_options(max_retries=RETRIES)
        turns = [vars(turn) for turn in messages]
        body = self._body(name, messages=turns, max_tokens=max_tokens, temperature=0)

        def complete() -> Any:
            for fields in (LOGPROBS | TOKEN_IDS, LOGPROBS):
                with suppress(openai.BadRequestError, openai.UnprocessableEntityError):
                    return client.post("/chat/completions", body=body | fields, cast_to=object)
            return client.post("/chat/completions", body=body, cast_to=object)

        answer = self._send(complete)
        try:
            entries = (answer["choices"][0].get("logprobs") or {}).get("content") or []
            ids = token_ids(entries, answer["choices"][0]["message"].get("content") or "", tokenizer)
            prompt_tokens = int((answer.get("usage") or {}).get("prompt_tokens", 0))
            return Reply(ids, [float(each["logprob"]) for each in entries], prompt_tokens)
        except MALFORMED as problem:
            raise self._unexpected(f"not a chat completion ({problem})") from None

    def _body(self, name: str, **fields: Any) -> dict[str, Any]:
        return {"model": name, **self._extra(name), **fields}

    def _tokens(self, body: Mapping[str, Any]) -> tuple[int, ...] | None:
        answer = self._root_route("/tokenize", body)
        return tuple(answer.get("tokens") or ()) or None if isinstance(answer, dict) else None

    def _root_route(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The response of a route at the server's root, outside OpenAI's protocol; None if the server lacks the route or refuses the request."""
        url = f"{str(self._client.base_url).rstrip('/').removesuffix('/v1')}{path}"
        try:
            if body is None:
                return self._client.get(url, cast_to=object)
            return self._client.post(url, body=dict(body), cast_to=object)
        except openai.APIConnectionError as problem:
            raise self._unreachable(problem) from None
        except (openai.APIError, ValueError):
            return None

    def _send(self, call: Callable[[], Any]) -> Any:
        try:
            answer = call()
        except openai.APIConnectionError as problem:
            raise self._unreachable(problem) from None
        except (openai.APIError, ValueError) as problem:
            found = f"{self.url}: {one_line(problem)}"
            remedy = "check the model's name, the key and the server's log"
            raise UserError(found, "an OpenAI-compatible server", remedy) from None
        if not isinstance(answer, dict):
            raise self._unexpected("not a JSON object")
        return answer

    def _unexpected(self, reason: str) -> UserError:
        """The error for a reply of unexpected form."""
        remedy = "fix the URL (it usually ends in /v1)"
        return UserError(f"{self.url}: {reason}", "an OpenAI-compatible server", remedy)

    def _unreachable(self, problem: openai.APIConnectionError) -> UserError:
        found = f"{self.url}: no answer ({problem.__cause__ or problem})"
        return UserError(found, "a running server", "start it, or fix the URL (it usually ends in /v1)")


def llama_client(spec: LlamaSpec, server: CommandServer) -> Server:
    """A client for the llama.cpp server that runs `spec`; its `parents` are the adapters and their base model."""
    parents = {**dict.fromkeys(spec.adapters, spec.name), spec.name: ""}
    return Server(server.url, server.key, parents, spec.extra, spec.spec_text)


def token_ids(entries: Sequence[Mapping[str, Any]], text: str, tokenizer: Any) -> tuple[int, ...] | None:
    """The tokens of a reply: by their ids if the server provides them, else from its text if the counts agree; else None."""
    if entries and all(str(each.get("token", "")).startswith(TOKEN_ID_PREFIX) for each in entries):
        return tuple(int(str(each["token"]).removeprefix(TOKEN_ID_PREFIX)) for each in entries)
    if entries and all(isinstance(each.get("id"), int) for each in entries):
        return tuple(each["id"] for each in entries)
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    for candidate in (ids, (*ids, tokenizer.eos_token_id)):
        if entries and len(candidate) == len(entries):
            return candidate
    return None
