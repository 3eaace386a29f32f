"""What a server says of a model: its names, the tokens of a prompt, log-probabilities of given tokens, greedy replies.

vLLM says all of it, llama.cpp all but log-probabilities of given tokens, other OpenAI-compatible servers (Ollama) less: what a server
does not say is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import openai

from graph.errors import UserError
from graph.types import Message
from serve.engines.child import OwnServer
from serve.engines.llama import LlamaSpec
from serve.engines.openai_api import TIMEOUT_S, key_of_environment, without_password

A = TypeVar("A")
B = TypeVar("B")
TOKEN = "token_id:"
OURS = "modegraph"
"""Who owns the models of our own server, by its list of them."""
RETRIES = 20
"""Of a reply that a full server has no place for yet: a server that answers one at a time, asked for many at once."""
LOGPROBS = {"logprobs": True, "top_logprobs": 1, "return_tokens_as_token_ids": True}


@dataclass(frozen=True)
class Reply:
    """A greedy reply of a server: tokens (None where it does not give them), their log-probabilities in nats, tokens that it counted in the prompt."""

    ids: tuple[int, ...] | None
    logps: Sequence[float]
    prompt_tokens: int


class Server:
    """An OpenAI-compatible server. Every method raises UserError when it cannot be reached or refuses a request.

    `parents` are its models by name, each with the one that it is an adapter of, where that is known beforehand; `extra` gives the
    fields that choose one of them, beside its name. `called` is what reports call it, its URL unless said otherwise.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        parents: Mapping[str, str] | None = None,
        extra: Callable[[str], Mapping[str, Any]] | None = None,
        called: str = "",
    ) -> None:
        self.url = without_password(url)
        self.called = called or self.url
        self._client = openai.OpenAI(
            base_url=url, api_key=key or key_of_environment(), timeout=TIMEOUT_S, max_retries=1
        )
        self._parents = dict(parents or {})
        self._extra: Callable[[str], Mapping[str, Any]] = extra or (lambda name: {})

    def parents(self) -> dict[str, str]:
        """Its models, each with the one that it is an adapter of, "" where the server names none.

        llama.cpp lists one model, which has all adapters at their scales; without them it is a second one here.
        """
        if self._parents:
            return self._parents
        listed = self._send(lambda: self._client.get("/models", cast_to=object))
        rows = listed.get("data") or ()
        found = {str(each["id"]): str(each.get("parent") or "") for each in rows}
        if any(each.get("owned_by") == OURS for each in rows):
            # It would look for passages of its own, and put them into the prompt.
            self._extra = lambda asked: {"retrieval": {"enabled": False}}
        adapters = self._root_route("/lora-adapters")
        if len(found) == 1 and isinstance(adapters, list) and adapters:
            (name,) = found
            bare = f"{name} at scale 0"
            off = {"model": name, "lora": [{"id": each["id"], "scale": 0.0} for each in adapters]}
            self._extra = lambda asked: off if asked == bare else {}
            found = {name: bare, bare: ""}
        self._parents = found
        return found

    def prompt_ids(self, name: str, messages: Sequence[Message]) -> tuple[int, ...] | None:
        """The tokens of a chat up to its answer, by the server's own template."""
        turns = [vars(turn) for turn in messages]
        ids = self._tokens(
            {"model": name, "messages": turns}
        )  # llama.cpp finds no text in that, and answers with no tokens.
        if ids:
            return ids
        written = self._root_route("/apply-template", self._body(name, messages=turns))
        if not isinstance(written, dict) or not isinstance(written.get("prompt"), str):
            return None
        return self._tokens({"content": written["prompt"], "add_special": True, "parse_special": True})

    def prompt_logps(self, name: str, row: Sequence[int]) -> list[float] | None:
        """log π of every token of a row but the first.

        One row at a time: vLLM 0.32 on a CPU ends when it reads several such requests at once and has adapters.
        """
        body = self._body(name, prompt=list(row), max_tokens=1, temperature=0, prompt_logprobs=0)
        try:
            answer: Any = self._client.post("/completions", body=body, cast_to=object)
            along = answer["choices"][0]["prompt_logprobs"]
            return [float(each[str(token)]["logprob"]) for token, each in zip(row[1:], along[1:], strict=True)]
        except openai.APIConnectionError as problem:
            raise self._unreachable(problem) from None
        except (openai.APIError, ValueError, LookupError, TypeError):
            return None

    def greedy(self, name: str, messages: Sequence[Message], max_tokens: int, tokenizer: Any) -> Reply:
        """The greedy answer to a chat, without its tokens where the server gives none."""
        patient = self._client.with_options(max_retries=RETRIES)
        turns = [vars(turn) for turn in messages]
        body = self._body(name, messages=turns, max_tokens=max_tokens, temperature=0)

        def ask(more: Mapping[str, Any]) -> Any:
            return patient.post("/chat/completions", body={**body, **more}, cast_to=object)

        def ask_for_tokens() -> Any:
            try:
                return ask(LOGPROBS)
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                return ask({})

        answer = self._send(ask_for_tokens)
        try:
            entries = (answer["choices"][0].get("logprobs") or {}).get("content") or []
            ids = token_ids(entries, answer["choices"][0]["message"].get("content") or "", tokenizer)
            return Reply(
                ids,
                [float(each["logprob"]) for each in entries],
                int((answer.get("usage") or {}).get("prompt_tokens", 0)),
            )
        except (LookupError, TypeError, ValueError) as problem:
            raise UserError(
                f"{self.url}: no chat completion ({problem})", "an OpenAI-compatible server", "fix the URL"
            ) from None

    def _body(self, name: str, **fields: Any) -> dict[str, Any]:
        return {"model": name, **self._extra(name), **fields}

    def _tokens(self, body: Mapping[str, Any]) -> tuple[int, ...] | None:
        answer = self._root_route("/tokenize", body)
        return tuple(answer.get("tokens") or ()) or None if isinstance(answer, dict) else None

    def _root_route(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of a route beside the protocol's own, at the root of the server; None where it has none."""
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
            found = f"{self.url}: {' '.join(str(problem).split())[:200]}"
            raise UserError(
                found, "an OpenAI-compatible server", "check the model's name, the key and the server's log"
            ) from None
        if not isinstance(answer, dict):
            raise UserError(
                f"{self.url}: no JSON", "an OpenAI-compatible server", "fix the URL (it usually ends in /v1)"
            )
        return answer

    def _unreachable(self, problem: openai.APIConnectionError) -> UserError:
        found = f"{self.url}: no answer ({problem.__cause__ or problem})"
        return UserError(found, "a running server", "start it, or fix the URL (it usually ends in /v1)")


def own_server(spec: LlamaSpec, server: OwnServer) -> Server:
    """llama.cpp's server that runs `spec`: its adapters by their names, and their base by its own."""
    parents = {**dict.fromkeys(spec.adapters, spec.name), spec.name: ""}
    return Server(server.url, server.key, parents, spec.extra, spec.spec_text)


def at_once(ask: Callable[[A], B], items: Sequence[A], batch: int) -> list[B]:
    """`ask` of each, `batch` at a time."""
    with ThreadPoolExecutor(batch) as pool:
        return list(pool.map(ask, items))


def token_ids(entries: Sequence[Mapping[str, Any]], text: str, tokenizer: Any) -> tuple[int, ...] | None:
    """The tokens of a reply: by their ids where the server gives them, else by its text, if that has as many; None for neither."""
    if entries and all(str(each.get("token", "")).startswith(TOKEN) for each in entries):
        return tuple(int(str(each["token"]).removeprefix(TOKEN)) for each in entries)
    if entries and all(isinstance(each.get("id"), int) for each in entries):
        return tuple(each["id"] for each in entries)
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    for whole in (ids, (*ids, tokenizer.eos_token_id)):
        if entries and len(whole) == len(entries):
            return whole
    return None
