"""The backend for an engine behind a URL (vLLM or any OpenAI-compatible server), over asynchronous HTTP; chat completions are validated.

When a client disconnects, the request to the server is closed and vLLM stops generating. Special tokens in text from clients and documents
are escaped before they reach a chat template; `escape_known_tokens` does so for a model whose tokenizer is not available."""

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
from serve.engines.chat_backend import TOO_LONG, Body, ChatBackend
from serve.engines.engine_fields import is_too_deep
from serve.engines.openai_api import REFUSALS, OpenAIModel, uses_proxy, without_password
from serve.http.encoding import DONE, SSE, ascii_json, event
from serve.http.errors import ApiError, model_unavailable

_KNOWN_TOKENS = re.compile(
    r"<(?=[|｜/a-z]|</?s)(?:\|[^|<>]{1,60}\|>|｜[^｜<>]{1,60}｜>|/?(?:s|think|tool_call|tool_response)>|(?:unk|pad|bos|eos|mask)>|</?sys>>"
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


def is_valid_reply(reply: Any, part: Literal["message", "delta"]) -> bool:
    """Whether `reply` is a completion (its choices have a message) or a chunk of one (its choices have a delta).

    >>> is_valid_reply({"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 3}}, "message")
    True
    >>> is_valid_reply({"choices": [None]}, "message"), is_valid_reply({"choices": [], "usage": {"prompt_tokens": -1}}, "delta")
    (False, False)
    """
    if not isinstance(reply, dict) or not isinstance(reply.get("choices"), list) or is_too_deep(reply):
        return False
    choices, usage = reply["choices"], reply.get("usage")
    if (part == "message" and not choices) or not isinstance(usage, dict | None):
        return False
    return all(_is_choice(choice, part) for choice in choices) and _has_count_fields(usage or {})


def _is_choice(choice: Any, part: str) -> bool:
    if not isinstance(choice, dict) or not _has_count_fields(choice) or not _has_text_fields(choice):
        return False
    content = choice.get(part)
    return (isinstance(content, dict) and _has_text_fields(content)) or (content is None and part == "delta")


def _has_text_fields(fields: dict[str, Any]) -> bool:
    return all(fields.get(name) is None or isinstance(fields[name], str) for name in TEXT_FIELDS)


def _has_count_fields(fields: dict[str, Any]) -> bool:
    counts = [fields[name] for name in COUNT_FIELDS if fields.get(name) is not None]
    return all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)


LOG = logging.getLogger("modegraph.serve")
CONNECT_TIMEOUT_S, CHECK_TIMEOUT_S = 2.0, 2.0
KEEPALIVE_S = 2.0
"""How long an idle connection is reused: servers such as vLLM close theirs after five seconds."""
CONNECTION_DROPPED = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
HEALTH_TTL_S = 3.0
"""How long after a response the server counts as healthy."""
PASSED_ON = frozenset({400, 404, 413, 422, 429})
"""Error statuses that are about the request; all others are about the model's server, or about the key sent to it."""
KEY_REFUSED = frozenset({401, 403})
"""Statuses about the key that this server sends, not about the client's key."""
JSON = "application/json"


class OpenAIBackend(ChatBackend):
    """`models` maps the model names that clients request to those of the server at `url`."""

    def __init__(
        self, url: str, key: str, models: Mapping[str, str], escape_special_tokens: Callable[[str], str]
    ) -> None:
        self.url = url.rstrip("/")
        self.models = tuple(models)
        self._escape = escape_special_tokens
        self._upstream = dict(models)
        self._language_models: dict[str, OpenAIModel] = {
            name: OpenAIModel(upstream, self.url, key) for name, upstream in models.items()
        }
        timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=KEEPALIVE_S)
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=timeout, limits=limits, trust_env=uses_proxy(self.url))
        self._last_response_s = float("-inf")

    async def close(self) -> None:
        await self._http.aclose()

    async def check(self) -> None:
        if time.monotonic() - self._last_response_s < HEALTH_TTL_S:
            return
        try:
            response = await self._http.get(f"{self.url}/models", timeout=CHECK_TIMEOUT_S)
        except httpx2.HTTPError as problem:
            raise self._unavailable(problem) from None
        if response.status_code in KEY_REFUSED:
            raise self._key_refused(response.status_code, response.text)
        if response.status_code >= 500:
            raise self._server_error(response.status_code, response.text)
        self._last_response_s = time.monotonic()

    async def complete(self, body: Body) -> dict[str, Any]:
        response = await self._send("chat/completions", self._upstream_body(body))
        try:
            data = await response.aread()
            completion = json.loads(data)
        except httpx2.HTTPError as problem:
            raise self._unavailable(problem) from None
        except (ValueError, RecursionError):
            raise self._invalid_reply() from None
        finally:
            await response.aclose()
        if not is_valid_reply(completion, "message"):
            raise self._invalid_reply()
        return {**completion, "model": body["model"]}

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        request = {**self._upstream_body(body), "stream": True, "stream_options": {"include_usage": True}}
        return self._chunks(await self._send("chat/completions", request), body["model"])

    async def respond(self, body: Body) -> Response:
        try:
            response = await self._send("responses", self._upstream_body(body))
        except ApiError as problem:
            if problem.status == 404 and self._upstream[body["model"]] not in problem.message:
                message = "the engine has no /v1/responses; use /v1/chat/completions"
                raise ApiError(404, "no_responses", message) from None
            raise
        media_type = response.headers.get("content-type", JSON)
        kind = media_type.partition(";")[0].strip().lower()
        if kind == SSE:
            return StreamingResponse(self._relay(response), media_type=media_type)
        try:
            if kind != JSON:
                raise self._invalid_reply()
            return Response(await response.aread(), media_type=media_type)
        except httpx2.HTTPError as problem:
            raise self._unavailable(problem) from None
        finally:
            await response.aclose()

    def language_model(self, model: str) -> LanguageModel:
        return self._language_models[model]

    def escape_special_tokens(self, text: str) -> str:
        return self._escape(text)

    def _upstream_body(self, body: Body) -> dict[str, Any]:
        """The request for the server, with the server's name for the model."""
        return {**body, "model": self._upstream[body["model"]]}

    async def _send(self, path: str, body: Body) -> httpx2.Response:
        """The server's response with status 200 and its body unread; ApiError when the server refuses or does not respond."""
        data = ascii_json(body)
        request = self._http.build_request("POST", f"{self.url}/{path}", content=data, headers={"Content-Type": JSON})
        try:
            response = await self._send_with_retry(request)
            if response.status_code == 200:
                self._last_response_s = time.monotonic()
                return response
            text = (await response.aread()).decode("utf-8", "replace")
            await response.aclose()
        except httpx2.HTTPError as problem:
            raise self._unavailable(problem) from None
        if response.status_code in REFUSALS and is_too_long(text):
            remedy = "start a new conversation, ask a shorter question, lower max_tokens, or serve a model with a larger window"
            raise ApiError(response.status_code, TOO_LONG, f"the model's server: {_reason(text)}; {remedy}")
        if response.status_code in PASSED_ON:
            raise ApiError(response.status_code, "refused_by_model", f"the model's server: {_reason(text)}")
        if response.status_code in KEY_REFUSED:
            raise self._key_refused(response.status_code, text)
        raise self._server_error(response.status_code, text)

    async def _send_with_retry(self, request: httpx2.Request) -> httpx2.Response:
        """The response, its body unread; the request is sent a second time if the connection breaks, as when the server has just closed an idle one."""
        try:
            return await self._http.send(request, stream=True)
        except CONNECTION_DROPPED:
            return await self._http.send(request, stream=True)

    async def _chunks(self, response: httpx2.Response, model: str) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream; ApiError 502 for an invalid chunk or a stream that ends before the answer is complete, 503 if the server fails."""
        ended = False
        try:
            async for line in _lines(response):
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:"):
                    continue
                if data == "[DONE]":
                    ended = True
                    continue
                chunk = json.loads(data)
                if isinstance(chunk, dict) and chunk.get("error") is not None:
                    raise self._unavailable(RuntimeError(f"an error in the stream: {_reason(data)}"))
                if not is_valid_reply(chunk, "delta"):
                    raise self._invalid_reply()
                ended = ended or any(choice.get("finish_reason") for choice in chunk["choices"])
                yield {**chunk, "model": model}
        except httpx2.HTTPError as problem:
            raise self._unavailable(problem) from None
        except (ValueError, RecursionError):
            raise self._invalid_reply() from None
        finally:
            await response.aclose()
        if not ended:
            raise ApiError(502, "cut_off", "the model's server stopped before its answer was complete; try again")

    async def _relay(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The bytes of an event stream that is passed on; if it breaks off, the error follows as the last event."""
        try:
            async for part in response.aiter_bytes():
                yield part
        except httpx2.HTTPError as problem:
            yield b"\n\n" + event(self._unavailable(problem).body()) + DONE
        finally:
            await response.aclose()

    def _unavailable(self, problem: Exception) -> ApiError:
        self._last_response_s = float("-inf")
        LOG.warning("%s does not answer: %s: %s", without_password(self.url), type(problem).__name__, problem)
        return model_unavailable("the model's server does not answer; /v1/retrieve still works")

    def _server_error(self, status: int, text: str) -> ApiError:
        self._last_response_s = float("-inf")
        LOG.warning("%s fails: status %d: %s", without_password(self.url), status, _reason(text))
        return model_unavailable(f"the model's server fails (status {status}); /v1/retrieve still works")

    def _key_refused(self, status: int, text: str) -> ApiError:
        LOG.error("%s refuses this server's key: status %d: %s", without_password(self.url), status, _reason(text))
        message = (
            f"the model's server refuses this server's key (status {status}); its operator must set OPENAI_API_KEY"
        )
        return ApiError(502, "model_refuses_key", message)

    def _invalid_reply(self) -> ApiError:
        return ApiError(
            502,
            "odd_answer",
            "the model's server sent a reply that is not in OpenAI's format; the operator must check its URL",
        )


async def _lines(response: httpx2.Response) -> AsyncIterator[str]:
    """The lines of an event stream. Only line feeds and carriage returns end one; `aiter_lines` splits at characters that JSON may contain, too."""
    rest = ""
    async for text in response.aiter_text():
        *lines, rest = re.split("[\r\n]", rest + text)
        for line in lines:
            yield line
    yield rest


def _reason(text: str) -> str:
    """The message of a server's error, in one line of at most 300 characters."""
    try:
        parsed = json.loads(text)
        error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, RecursionError):
        pass
    return " ".join(text.split())[:300]
