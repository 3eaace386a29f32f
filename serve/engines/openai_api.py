"""The engine for any OpenAI-compatible server (vLLM, llama.cpp, a hosted one): chat completions over HTTP.

The key comes from OPENAI_API_KEY, or is "none". At most `IN_FLIGHT` calls run at once, whatever the number of callers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import openai
import stamina

from graph.errors import UserError
from graph.types import Completion, CompletionRequest

IN_FLIGHT = 8
ATTEMPTS = 4
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 8.0
TIMEOUT_S = 300.0
RETRIED = (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError)
REFUSALS = frozenset({400, 413, 422})
"""Statuses that are about one request (too long, not allowed) and say nothing about the next."""
_TARGET = re.compile(r"(?P<name>.+?)@(?P<url>[a-z][a-z0-9+.-]*:.*)", re.IGNORECASE)


def open_openai(target: str) -> OpenAIModel:
    """`NAME@URL` to a model; UserError when it has another form or the URL is not http(s). Makes no call."""
    return OpenAIModel(*split_target(target))


def split_target(target: str) -> tuple[str, str]:
    """`NAME@URL` to its parts; UserError as `open_openai`.

    >>> split_target("qwen@http://localhost:8000/v1")
    ('qwen', 'http://localhost:8000/v1')
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise UserError(f"openai:{target}", "openai:NAME@URL", "for example openai:qwen@http://localhost:8000/v1")
    url = urlsplit(match["url"])
    if url.scheme.lower() not in ("http", "https") or not url.hostname:
        raise UserError(f"openai:{target}: URL {match['url']!r}", "an http:// or https:// address", "mend the URL")
    return match["name"], match["url"]


def without_password(url: str) -> str:
    """A URL as messages show it.

    >>> without_password("http://user:secret@host:8000/v1")
    'http://host:8000/v1'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def key_of_environment() -> str:
    """OPENAI_API_KEY, or "none"."""
    return os.environ.get("OPENAI_API_KEY") or "none"


class OpenAIModel:
    """A LanguageModel behind a URL; safe to share between threads."""

    batch_size = 1

    def __init__(self, name: str, url: str, key: str | None = None) -> None:
        self.name = name
        self.url = without_password(url)
        self._client = openai.OpenAI(
            base_url=url, api_key=key or key_of_environment(), max_retries=0, timeout=TIMEOUT_S
        )
        self._pool = ThreadPoolExecutor(max_workers=IN_FLIGHT, thread_name_prefix="openai")

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Answers in the order asked; UserError naming the URL when the server cannot be reached or refuses key or model."""
        calls = [self._pool.submit(self._complete_one, request) for request in requests]
        try:
            return [call.result() for call in calls]
        finally:
            for call in calls:
                call.cancel()

    def count_tokens(self, text: str) -> int:
        """An upper estimate, since the protocol has no tokenizer: a token for every 3 bytes of UTF-8, rounded up."""
        return -(-len(text.encode("utf-8", "replace")) // 3)

    def _complete_one(self, request: CompletionRequest) -> Completion:
        try:
            answer = self._call(request)
        except openai.APIConnectionError as problem:
            cause = problem.__cause__ or problem
            raise UserError(
                f"openai:{self.name}@{self.url}: no answer after {ATTEMPTS} tries ({cause})",
                "a running OpenAI-compatible server",
                "start the server or mend the URL (it usually ends in /v1)",
            ) from None
        except openai.APIStatusError as problem:
            reason = " ".join(str(problem.message).split())[:300]
            if problem.status_code in REFUSALS:
                return Completion(f"status {problem.status_code} ({reason})", "refused", 0, 0)
            raise UserError(
                f"openai:{self.name}@{self.url}: status {problem.status_code} ({reason})",
                "a completion",
                "check the model's name, the key in OPENAI_API_KEY and the server's log",
            ) from None
        except (openai.APIError, ValueError) as problem:
            raise self._bad_answer(str(problem)) from None
        return self._read(answer)

    def _call(self, request: CompletionRequest) -> Any:
        """One chat completion, tried again with back-off only where another try can help: no connection, 429, 5xx."""
        options: dict[str, Any] = {}
        if request.seed is not None:
            options["seed"] = request.seed
        if request.schema is not None:
            schema = {"name": "answer", "schema": dict(request.schema), "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        for attempt in stamina.retry_context(
            on=RETRIED, attempts=ATTEMPTS, timeout=None, wait_initial=FIRST_WAIT_S, wait_max=LONGEST_WAIT_S
        ):
            with attempt:
                return self._client.chat.completions.create(
                    model=self.name,
                    messages=[{"role": turn.role, "content": turn.content} for turn in request.messages],  # type: ignore[misc]
                    max_tokens=request.max_tokens,
                    temperature=request.temperature,
                    **options,
                )
        raise AssertionError("stamina re-raises after the last attempt")

    def _read(self, answer: Any) -> Completion:
        """The first choice of a response; any end but "stop" (a filter, a tool call) counts as cut."""
        choices = getattr(answer, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            raise self._bad_answer("no choices")
        usage = answer.usage
        return Completion(
            text=choices[0].message.content or "",
            finish_reason="stop" if choices[0].finish_reason == "stop" else "length",
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
        )

    def _bad_answer(self, reason: str) -> UserError:
        found = f"openai:{self.name}@{self.url}: not a chat completion ({' '.join(reason.split())[:300]})"
        return UserError(found, "an OpenAI-compatible server", "mend the URL (it usually ends in /v1)")
