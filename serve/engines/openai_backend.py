"""The engine behind a URL (vLLM or any OpenAI-compatible server), asked over HTTP without blocking; its replies are checked before use.

When a client goes away the request to the server is closed, and vLLM stops generating. Special tokens in what clients and documents wrote are
broken before they reach a chat template: here those of the templates in use, since the model's own tokenizer is not at hand."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

import httpx2
from starlette.responses import Response, StreamingResponse

from graph.types import LanguageModel
from serve.conversation.prompt import is_too_long
from serve.engines.chat_backend import TOO_LONG, Body
from serve.engines.engine_fields import is_deep
from serve.engines.openai_api import REFUSALS, OpenAIModel, without_password
from serve.http.encoding import DONE, ascii_json, event
from serve.http.errors import ApiError

_KNOWN_TOKENS = re.compile(
    r"<(?=[|｜/a-z]|</?s)(?:\|[^|<>]{1,60}\|>|｜[^｜<>]{1,60}｜>|/?(?:s|think|tool_call)>|(?:unk|pad|bos|eos|mask)>|</?sys>>"
    r"|(?:start|end)_of_turn>|(?:begin|end)_of_(?:text|sentence)>)"
    r"|\[/?(?:inst|system_prompt|available_tools|tool_calls|tool_results)\]",
    re.IGNORECASE,
)


def escape_known_tokens(text: str) -> str:
    """`text` with a space in every special token of a known chat template.

    >>> escape_known_tokens("a<|im_end|>b</s>[INST]")
    'a< |im_end|>b< /s>[ INST]'
    """
    while _KNOWN_TOKENS.search(text):
        text = _KNOWN_TOKENS.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "finish_reason", "role")
COUNT_FIELDS = ("index", "prompt_tokens", "completion_tokens", "total_tokens")


def is_valid_reply(made: Any, part: Literal["message", "delta"]) -> bool:
    """Whether `made` is a completion (its choices have a message) or a chunk of one (they have a delta).

    >>> is_valid_reply({"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 3}}, "message")
    True
    >>> is_valid_reply({"choices": [None]}, "message"), is_valid_reply({"choices": [], "usage": {"prompt_tokens": -1}}, "delta")
    (False, False)
    """
    if not isinstance(made, dict) or not isinstance(made.get("choices"), list) or is_deep(made):
        return False
    whole = part == "message"
    return (
        all(_is_choice(choice, part, whole) for choice in made["choices"])
        and _has_count_fields(made.get("usage"))
        and not (whole and not made["choices"])
    )


def _is_choice(choice: Any, part: str, whole: bool) -> bool:
    if not isinstance(choice, dict) or not _has_count_fields(choice) or not _has_text_fields(choice):
        return False
    said = choice.get(part)
    return (isinstance(said, dict) and _has_text_fields(said)) or (said is None and not whole)


def _has_text_fields(held: dict[str, Any]) -> bool:
    return all(held.get(name) is None or isinstance(held[name], str) for name in TEXT_FIELDS)


def _has_count_fields(held: Any) -> bool:
    if held is None:
        return True
    return isinstance(held, dict) and all(held.get(name) is None or _is_count(held[name]) for name in COUNT_FIELDS)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


LOG = logging.getLogger("modegraph.serve")
CONNECT_TIMEOUT_S, CHECK_TIMEOUT_S = 2.0, 2.0
KEEPALIVE_S = 2.0
"""How long a connection is kept for the next request: servers, vLLM's among them, close theirs after five seconds."""
CONNECTION_DROPPED = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
HEALTH_TTL_S = 3.0
"""How long an answer counts as a sign that the server is there."""
PASSED_ON = frozenset({400, 404, 413, 422, 429})
"""Statuses of the server that are about the request; all others are about the server."""
KEY_REFUSED = frozenset({401, 403})
"""Those about the key that this server sends, not the client's."""
JSON, SSE = "application/json", "text/event-stream"


class OpenAIBackend:
    """`models` maps the names that clients ask for to those of the server at `url`."""

    def __init__(
        self, url: str, key: str, models: Mapping[str, str], escape_special_tokens: Callable[[str], str]
    ) -> None:
        self.url = url.rstrip("/")
        self.models = tuple(models)
        self.escape_special_tokens = escape_special_tokens
        self._upstream = dict(models)
        self._languages: dict[str, OpenAIModel] = {
            name: OpenAIModel(upstream, self.url, key) for name, upstream in models.items()
        }
        timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=KEEPALIVE_S)
        self._http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=timeout, limits=limits)
        self._answered_s = float("-inf")

    async def start(self) -> None:
        """Nothing: the server runs by itself."""

    async def close(self) -> None:
        await self._http.aclose()

    async def check(self) -> None:
        if time.monotonic() - self._answered_s < HEALTH_TTL_S:
            return
        try:
            answer = await self._http.get(f"{self.url}/models", timeout=CHECK_TIMEOUT_S)
        except httpx2.HTTPError as problem:
            raise self._gone(problem) from None
        if answer.status_code == 401:
            raise self._shut(answer.status_code, answer.text)
        if answer.status_code >= 500:
            raise self._failed(answer.status_code, answer.text)
        self._answered_s = time.monotonic()

    async def complete(self, body: Body) -> dict[str, Any]:
        answer = await self._send("chat/completions", self._translated(body))
        try:
            data = await answer.aread()
            made = json.loads(data)
        except httpx2.HTTPError as problem:
            raise self._gone(problem) from None
        except (ValueError, RecursionError):
            raise self._odd() from None
        finally:
            await answer.aclose()
        if not is_valid_reply(made, "message"):
            raise self._odd()
        return {**made, "model": body["model"]}

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        asked = {**self._translated(body), "stream": True, "stream_options": {"include_usage": True}}
        return self._chunks(await self._send("chat/completions", asked), body["model"])

    async def respond(self, body: Body) -> Response:
        try:
            answer = await self._send("responses", self._translated(body))
        except ApiError as problem:
            if problem.status == 404:
                raise ApiError(
                    404, "no_responses", "the engine has no /v1/responses; use /v1/chat/completions"
                ) from None
            raise
        kind = answer.headers.get("content-type", "application/json")
        if kind.partition(";")[0].strip().lower() not in (JSON, SSE):
            await answer.aclose()
            raise self._odd()
        return StreamingResponse(self._closing(answer), media_type=kind)

    def language_model(self, model: str) -> LanguageModel:
        return self._languages[model]

    def _translated(self, body: Body) -> dict[str, Any]:
        return {**body, "model": self._upstream[body["model"]]}

    async def _send(self, path: str, body: Body) -> httpx2.Response:
        """The server's answer, its status 200 and its body unread; ApiError when it is refused or there is none."""
        data = ascii_json(body)
        request = self._http.build_request(
            "POST", f"{self.url}/{path}", content=data, headers={"Content-Type": "application/json"}
        )
        try:
            answer = await self._sent(request)
            if answer.status_code == 200:
                self._answered_s = time.monotonic()
                return answer
            text = (await answer.aread()).decode("utf-8", "replace")
            await answer.aclose()
        except httpx2.HTTPError as problem:
            raise self._gone(problem) from None
        if answer.status_code in REFUSALS and is_too_long(text):
            remedy = "start a new conversation, ask a shorter question, lower max_tokens, or serve a model with a larger window"
            raise ApiError(answer.status_code, TOO_LONG, f"the model's server: {_reason(text)}; {remedy}")
        if answer.status_code in PASSED_ON:
            raise ApiError(answer.status_code, "refused_by_model", f"the model's server: {_reason(text)}")
        if answer.status_code in KEY_REFUSED:
            raise self._shut(answer.status_code, text)
        raise self._failed(answer.status_code, text)

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        """The head of the answer; asked once more where the server let go of a kept connection just as it was used."""
        try:
            return await self._http.send(request, stream=True)
        except CONNECTION_DROPPED:
            return await self._http.send(request, stream=True)

    async def _chunks(self, answer: httpx2.Response, model: str) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream; ApiError 502 where one is odd, and where the stream ends before the answer does."""
        ended = False
        try:
            async for line in answer.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:"):
                    continue
                if data == "[DONE]":
                    ended = True
                    continue
                chunk = json.loads(data)
                if isinstance(chunk, dict) and "error" in chunk:
                    raise self._gone(RuntimeError(f"an error in the stream: {_reason(data)}"))
                if not is_valid_reply(chunk, "delta"):
                    raise self._odd()
                ended = ended or any(choice.get("finish_reason") for choice in chunk["choices"])
                yield {**chunk, "model": model}
        except httpx2.HTTPError as problem:
            raise self._gone(problem) from None
        except (ValueError, RecursionError):
            raise self._odd() from None
        finally:
            await answer.aclose()
        if not ended:
            raise ApiError(502, "cut_off", "the model's server ended its answer half-way")

    async def _closing(self, answer: httpx2.Response) -> AsyncIterator[bytes]:
        """The bytes of an answer that is passed on; where a stream breaks off, what became of it as its last event."""
        try:
            async for part in answer.aiter_bytes():
                yield part
        except httpx2.HTTPError as problem:
            yield b"\n\n" + event(self._gone(problem).body()) + DONE
        finally:
            await answer.aclose()

    def _gone(self, problem: Exception) -> ApiError:
        self._answered_s = float("-inf")
        LOG.warning("%s does not answer: %s: %s", without_password(self.url), type(problem).__name__, problem)
        message = "the model's server does not answer; /v1/retrieve still works"
        return ApiError(503, "model_gone", message, headers={"Retry-After": "5"})

    def _failed(self, status: int, text: str) -> ApiError:
        problem = self._gone(RuntimeError(f"status {status}: {_reason(text)}"))
        problem.message = f"the model's server fails (its status: {status}); /v1/retrieve still works"
        return problem

    def _shut(self, status: int, text: str) -> ApiError:
        LOG.error("%s refuses our key: status %d: %s", without_password(self.url), status, _reason(text))
        told = f"the model's server refuses the key of this one (its status: {status}); whoever runs this server can fix it"
        return ApiError(502, "model_refuses_key", f"{told}: OPENAI_API_KEY")

    def _odd(self) -> ApiError:
        return ApiError(502, "odd_answer", "the model's server answered with something that is no chat completion")


def _reason(text: str) -> str:
    """What a server's error says, in one line of at most 300 characters."""
    try:
        found = json.loads(text)
        error = found.get("error", found) if isinstance(found, dict) else found
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except ValueError:
        pass
    return " ".join(text.split())[:300]
