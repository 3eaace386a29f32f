"""The engine for any OpenAI-compatible server (vLLM, llama.cpp, a hosted one), and for several servers of one model: chat completions over HTTP.

The key comes from OPENAI_API_KEY, or is "none". At most `in_flight` calls run concurrently, however many callers there are. With several
servers, a call goes to the one with the most free slots. A ledger's keys contain the model's name but no URL, so a run can continue on other
servers."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Lock
from typing import Any
from urllib.parse import urlsplit

import openai
import stamina

from graph.errors import ModelUnavailable, UserError
from graph.shared.console import say
from graph.types import AnswerForm, Completion, CompletionRequest, Message
from serve.http.settings import is_loopback

IN_FLIGHT = 8
ATTEMPTS = 4
FIRST_WAIT_S, MAX_WAIT_S = 0.25, 8.0
TIMEOUT_S = 300.0
RETRIED = (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError)
QUICK_S = 2.0
"""Timeout of requests that generate nothing: for the list of models and for token counts."""
UNKNOWN_WINDOW_RETRY_S, UNREACHABLE_RETRY_S = 60.0, 5.0
TURN_TOKENS = 8
"""Estimated upper limit of the tokens that a chat template adds to a turn."""
WINDOW_FIELDS = ("max_model_len", "context_window", "context_length", "max_context_length", "n_ctx")
"""Names of a model's context window in a server's list of models: vLLM and SGLang, Groq, OpenRouter, others, llama.cpp."""
NO_ROUTE = frozenset({404, 405, 501})
"""Statuses of a server that lacks a route."""
REFUSALS = frozenset({400, 413, 422})
"""Statuses about a single request (too long, not allowed), after which the next may succeed."""
UNREADABLE_OUTPUT = "output that does not match the expected"
"""llama.cpp's message, with status 500, when it cannot parse a model's reply against a schema (broken UTF-8): the next request may succeed."""
_TARGET = re.compile(r"(?P<name>.+?)@(?P<url>[a-z][a-z0-9+.-]*:.*)", re.IGNORECASE)


def open_openai(target: str) -> OpenAIModel:
    """The model of `NAME@URL`; UserError when it has the wrong form or the URL is not http(s). No call is made."""
    return OpenAIModel(*split_target(target))


def split_target(target: str) -> tuple[str, str]:
    """The name and URL of `NAME@URL`; UserError as in `open_openai`.

    >>> split_target("qwen@http://localhost:8000/v1")
    ('qwen', 'http://localhost:8000/v1')
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise UserError(f"openai:{target}", "openai:NAME@URL", "for example openai:qwen@http://localhost:8000/v1")
    try:
        url = urlsplit(match["url"])
        is_valid = url.scheme.lower() in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # a port that is not a number up to 65535, or a malformed IPv6 address
        is_valid = False
    if not is_valid:
        expected = "an http:// or https:// address, such as http://localhost:8000/v1"
        raise UserError(f"openai:{target}: URL {match['url']!r}", expected, "fix the URL")
    return match["name"], match["url"]


def uses_proxy(url: str) -> bool:
    """Whether requests to a URL use the proxy set in the environment, if there is one; requests to this machine never do.

    >>> uses_proxy("http://127.0.0.1:8000/v1"), uses_proxy("http://gpu:8000/v1")
    (False, True)
    """
    return not is_loopback(urlsplit(url).hostname or "")


def without_password(url: str) -> str:
    """A URL without user name and password, for messages.

    >>> without_password("http://user:secret@host:8000/v1")
    'http://host:8000/v1'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def key_of_environment() -> str:
    """OPENAI_API_KEY, or "none"; UserError if HTTP cannot send it."""
    key = os.environ.get("OPENAI_API_KEY") or "none"
    if not (key.isascii() and key.isprintable()):
        raise UserError("OPENAI_API_KEY: a character that HTTP cannot send", "printable ASCII", "copy the key again")
    return key


def window_of(name: str, models: Sequence[Mapping[str, Any]]) -> int | None:
    """The context window of a model in a server's list of models, or else that of the base model that it adapts; None if unknown.

    >>> window_of("sft", [{"id": "base", "max_model_len": 2048}, {"id": "sft", "parent": "base"}])
    2048
    """
    by_name = {model.get("id"): model for model in models}
    entry = by_name.get(name, {})
    sources = (entry, entry.get("meta") or {}, by_name.get(entry.get("parent"), {}))
    values = [source.get(field) for source in sources for field in WINDOW_FIELDS]
    return next((value for value in values if isinstance(value, int) and value > 0), None)


class NoAnswer(ModelUnavailable):
    """After all attempts, a server is still unreachable, overloaded or broken; another server of the same model may answer."""


class OpenAIModel:
    """A LanguageModel behind a URL, served as `served_as` if that differs from `name`; safe to share between threads.

    `extra` are fields beyond OpenAI's, sent with each request.
    """

    batch_size = 1
    form: AnswerForm = "reasoned"

    def __init__(
        self,
        name: str,
        url: str,
        key: str | None = None,
        served_as: str = "",
        in_flight: int = IN_FLIGHT,
        timeout_s: float = TIMEOUT_S,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.extra = dict(extra or {})
        self.served_as, self.in_flight = served_as or name, in_flight
        self.url = without_password(url).rstrip("/")
        self._client = openai.OpenAI(
            base_url=url,
            api_key=key or key_of_environment(),
            max_retries=0,
            timeout=timeout_s,
            http_client=openai.DefaultHttpxClient(trust_env=uses_proxy(url)),
        )
        self._window_lock = Lock()
        self._window: int | None = None
        self._next_window_check_s = self._next_count_s = -math.inf
        self._pool = ThreadPoolExecutor(max_workers=in_flight, thread_name_prefix="openai")

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Completions in the order of the requests; UserError naming the URL when the server is unreachable or refuses the key or model.

        For a request that the server refuses for another reason (REFUSALS, UNREADABLE_OUTPUT), the completion has the finish reason "refused".
        After an error, calls that have not started are cancelled (by Executor.map).
        """
        return list(self._pool.map(self._complete_one, requests))

    def count_tokens(self, text: str) -> int:
        """An upper estimate, since the protocol has no tokenizer: one token per 3 bytes of UTF-8, rounded up."""
        return -(-len(text.encode("utf-8", "replace")) // 3)

    def window(self) -> int | None:
        """The window from the server's list of models (vLLM reports it); requested again from time to time until it is known."""
        with self._window_lock:
            if self._window is None and time.monotonic() >= self._next_window_check_s:
                self._window, retry_s = self._find_window()
                self._next_window_check_s = time.monotonic() + retry_s
            return self._window

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """The count of the server's /tokenize, if it has one (vLLM does) and the estimate is at least half of the window; otherwise the estimate.

        After a failure (a timeout, an overloaded server) estimates are used for UNREACHABLE_RETRY_S.
        """
        estimate = sum(self.count_tokens(turn.content) + TURN_TOKENS for turn in messages)
        window = self.window()
        if window is None or 2 * estimate < window or time.monotonic() < self._next_count_s:
            return estimate
        try:
            body = {"model": self.served_as, "messages": [vars(turn) for turn in messages]}
            return int(self._post("/tokenize", body)["count"])
        except openai.APIError as problem:
            has_route = getattr(problem, "status_code", None) not in NO_ROUTE
            self._next_count_s = time.monotonic() + UNREACHABLE_RETRY_S if has_route else math.inf
        except (ValueError, KeyError, TypeError):
            self._next_count_s = math.inf
        return estimate

    def _find_window(self) -> tuple[int | None, float]:
        """The window, None if it is unknown, and the seconds until the next try."""
        try:
            models = self._client.with_options(timeout=QUICK_S).models.list().data or ()
            return window_of(self.served_as, [model.model_dump() for model in models]), UNKNOWN_WINDOW_RETRY_S
        except (openai.APIError, ValueError, AttributeError):
            return None, UNREACHABLE_RETRY_S

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The response of a route outside the protocol, at the root of the server."""
        root = str(self._client.base_url).rstrip("/").removesuffix("/v1")
        return self._client.with_options(timeout=QUICK_S).post(f"{root}{path}", body=dict(body), cast_to=object)

    def _complete_one(self, request: CompletionRequest) -> Completion:
        try:
            response = self._call(request)
        except openai.APIConnectionError as problem:
            cause = problem.__cause__ or problem
            found = f"openai:{self.name}@{self.url}: no answer after {ATTEMPTS} tries ({cause})"
            remedy = "start the server or fix the URL (it usually ends in /v1)"
            raise NoAnswer(found, "a running OpenAI-compatible server", remedy) from None
        except openai.APIStatusError as problem:
            reason = " ".join(str(problem.message).split())[:300]
            if problem.status_code in REFUSALS or UNREADABLE_OUTPUT in reason:
                return Completion(f"status {problem.status_code} ({reason})", "refused", 0, 0)
            found = f"openai:{self.name}@{self.url}: status {problem.status_code} ({reason})"
            if isinstance(problem, RETRIED):
                remedy = "see the server's log, and try again when the server answers"
                raise NoAnswer(found, "a completion", remedy) from None
            remedy = "check the model's name, the key in OPENAI_API_KEY and the server's log"
            raise UserError(found, "a completion", remedy) from None
        except (openai.APIError, ValueError) as problem:
            raise self._invalid_response(str(problem)) from None
        return self._completion_of(response)

    def _call(self, request: CompletionRequest) -> Any:
        """One chat completion, retried with back-off only if that can help: no connection, 429, 5xx."""
        options: dict[str, Any] = {}
        if request.seed is not None:
            options["seed"] = request.seed
        if request.schema is not None:
            schema = {"name": "answer", "schema": dict(request.schema), "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        for attempt in stamina.retry_context(
            on=RETRIED, attempts=ATTEMPTS, timeout=None, wait_initial=FIRST_WAIT_S, wait_max=MAX_WAIT_S
        ):
            with attempt:
                return self._client.chat.completions.create(
                    model=self.served_as,
                    messages=[{"role": turn.role, "content": turn.content} for turn in request.messages],  # type: ignore[misc]
                    max_tokens=request.max_tokens,
                    temperature=request.temperature,
                    extra_body=self.extra,
                    **options,
                )
        raise AssertionError("unreachable: after the last attempt, stamina raises its error")

    def _completion_of(self, response: Any) -> Completion:
        """The first choice of a response; any finish reason but "stop" (a filter, a tool call) counts as "length"."""
        choices = getattr(response, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            raise self._invalid_response("no choices")
        usage = response.usage
        return Completion(
            text=choices[0].message.content or "",
            finish_reason="stop" if choices[0].finish_reason == "stop" else "length",
            prompt_tokens=(usage and usage.prompt_tokens) or 0,
            completion_tokens=(usage and usage.completion_tokens) or 0,
        )

    def _invalid_response(self, reason: str) -> UserError:
        found = f"openai:{self.name}@{self.url}: not a chat completion ({' '.join(reason.split())[:300]})"
        return UserError(found, "an OpenAI-compatible server", "fix the URL (it usually ends in /v1)")


def open_pool(targets: Sequence[str]) -> ServerPool:
    """A pool of the servers in `NAME@URL` form, with one name for all; UserError for two names or a repeated server. No call is made."""
    servers = [open_openai(target) for target in targets]
    names = list(dict.fromkeys(server.name for server in servers))
    if len(names) > 1:
        found = f"servers of {' and '.join(repr(name) for name in names)}"
        raise UserError(found, "servers of one model, under one name", "serve the model under the same name everywhere")
    urls = _urls(servers)
    for number, url in enumerate(urls):
        if url in urls[:number]:
            raise UserError(f"openai:{names[0]}@{url}: given twice", "each server once", "remove one")
    return ServerPool(servers)


class ServerPool:
    """An Engine for one model behind several servers; safe to share between threads.

    Each server has at most its own `in_flight` calls. A server that does not answer is dropped, a message is printed, and the others
    take over its calls; once the last one is dropped, every call raises the error of that server.
    """

    batch_size = 1
    form: AnswerForm = "reasoned"

    def __init__(self, servers: Sequence[OpenAIModel]) -> None:
        self.name = servers[0].name
        self._first = servers[0]
        self._servers = list(servers)
        self._last_error: NoAnswer | None = None
        self._running = {server.url: 0 for server in servers}
        self._slot_freed = Condition()
        self._pool = ThreadPoolExecutor(self.in_flight, thread_name_prefix="servers")

    @property
    def in_flight(self) -> int:
        """The number of concurrent calls that the remaining servers accept."""
        return sum(server.in_flight for server in self._servers)

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Completions in the order of the requests, from any server; UserError as in OpenAIModel when no server is left, or one refuses."""
        return list(self._pool.map(self._complete_one, requests))

    def count_tokens(self, text: str) -> int:
        return self._first.count_tokens(text)

    def window(self) -> int | None:
        """The smallest window of the servers, since any of them may get the call."""
        return min((window for server in self._servers if (window := server.window()) is not None), default=None)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return self._first.prompt_tokens(messages)

    def _complete_one(self, request: CompletionRequest) -> Completion:
        while True:
            server = self._acquire()
            try:
                return server.complete([request])[0]
            except NoAnswer as problem:
                self._drop(server, problem)
            finally:
                self._release(server)

    def _acquire(self) -> OpenAIModel:
        """The server with the most free slots, once there is one; the last error is raised when no server is left."""
        with self._slot_freed:
            while not (free := [server for server in self._servers if self._free_slots(server) > 0]):
                if self._last_error is not None:
                    raise self._last_error
                self._slot_freed.wait()
            server = max(free, key=self._free_slots)
            self._running[server.url] += 1
            return server

    def _release(self, server: OpenAIModel) -> None:
        with self._slot_freed:
            self._running[server.url] -= 1
            self._slot_freed.notify()

    def _drop(self, server: OpenAIModel, problem: NoAnswer) -> None:
        """Stop using `server`."""
        with self._slot_freed:
            if server not in self._servers:
                return
            self._servers.remove(server)
            if self._servers:
                self._first = self._servers[0]
                say(f"{problem}: continuing with {', '.join(_urls(self._servers))}")
            else:
                self._last_error = problem
                self._slot_freed.notify_all()

    def _free_slots(self, server: OpenAIModel) -> int:
        return server.in_flight - self._running[server.url]


def _urls(servers: Sequence[OpenAIModel]) -> list[str]:
    return [server.url for server in servers]
