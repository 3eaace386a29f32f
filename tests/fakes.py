"""Stand-ins for models that many tests share: scripted replies, and vectors from hashes."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, Literal

import numpy as np

from graph.extract.entities import find_entities
from graph.models.encoder import unit_rows
from graph.shared.ids import content_id
from graph.text.sentences import split_units
from graph.types import AnswerForm, Completion, CompletionRequest, Floats, Message, Prompts
from tests.servers import QuietHandler, http_server


class HashEncoder:
    """An encoder whose vectors come from hashes of words: texts that share words have similar vectors. `encoded` lists all encoded texts."""

    dimensions = 16
    prompts = Prompts()

    def __init__(self, fingerprint: str = "hash-encoder") -> None:
        self.fingerprint = fingerprint
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Floats:
        self.encoded += texts
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        return unit_rows(
            np.stack([sum((self._vector_of(word) for word in text.split()), self._vector_of("")) for text in texts])
        )

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        return self.encode(texts)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def _vector_of(self, word: str) -> Floats:
        return np.random.default_rng(int(content_id(word)[:8], 16)).normal(size=self.dimensions).astype(np.float32)


class ScriptedModel:
    """A language model whose text is `reply(request)`; `requests` lists every request that reached it, in order of arrival."""

    def __init__(
        self,
        reply: Callable[[CompletionRequest], str],
        finish_reason: Literal["stop", "length"] = "stop",
        name: str = "scripted",
        batch_size: int = 1,
        window: int | None = None,
        form: AnswerForm = "reasoned",
    ) -> None:
        self.name, self.form = name, form
        self.batch_size, self.in_flight = batch_size, 8 if batch_size == 1 else 1
        self.requests: list[CompletionRequest] = []
        self._reply, self._finish_reason, self._window = reply, finish_reason, window

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        self.requests += requests
        return [
            Completion(text, self._finish_reason, prompt_tokens=10, completion_tokens=len(text.split()))
            for text in map(self._reply, requests)
        ]

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def window(self) -> int | None:
        return self._window

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return sum(self.count_tokens(turn.content) for turn in messages)


@dataclass
class ChatServer:
    """A real HTTP server on this machine that answers requests for chat completions; `requests` contains their bodies."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    max_running: int = 0
    cut_off: int = 0
    """The number of requests whose client disconnected before the end of the reply."""


Reply = Callable[[dict[str, Any], int], "str | tuple[int, str]"]
"""Maps a request body and the number of the call (from 1) to the text of a completion, or to an HTTP status and a raw body."""


@contextmanager
def chat_server(
    reply: Reply, seconds_per_word: float = 0.0, window: int | None = None, tokenize_statuses: Sequence[int] = ()
) -> Iterator[ChatServer]:
    """Serve `reply` at an OpenAI-compatible address until the block ends; a stream is sent word by word.

    With `window`, the server lists one model with that window, as vLLM does; /tokenize counts words as tokens, and its first calls are
    answered with the HTTP statuses `tokenize_statuses`.
    """
    statuses = iter(tokenize_statuses)
    lock = threading.Lock()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            models = [] if window is None else [{"id": "tiny", "object": "model", "max_model_len": window}]
            self._send_json(200, json.dumps({"object": "list", "data": models}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize":
                self._send_json(next(statuses, 200), json.dumps({"count": word_count(body), "max_model_len": window}))
                return
            with lock:
                state.requests.append(body)
                number = len(state.requests)
                state.running += 1
                state.max_running = max(state.max_running, state.running)
            answer = reply(body, number)
            with lock:
                state.running -= 1
            if wait([self.connection], 0):  # nothing more is sent on it, so it is readable only once it is closed
                with lock:
                    state.cut_off += 1
            elif isinstance(answer, str) and body.get("stream"):
                self._send_stream(body, answer)
            else:
                self._send_json(*((200, _chat_completion(body, answer)) if isinstance(answer, str) else answer))

        def _send_json(self, status: int, data: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(data.encode())

        def _send_stream(self, body: dict[str, Any], text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                for chunk in _chat_chunks(body, text):
                    self.wfile.write(f"data: {chunk}\n\n".encode())
                    self.wfile.flush()
                    time.sleep(seconds_per_word)
            except OSError:
                with lock:
                    state.cut_off += 1

    with http_server(Handler) as address:
        state = ChatServer(f"{address}/v1")
        yield state


def word_count(body: dict[str, Any]) -> int:
    """The number of words in the messages of a request."""
    return sum(len(turn["content"].split()) for turn in body["messages"])


def _chat_completion(body: dict[str, Any], text: str) -> str:
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    cut = limit is not None and len(text.split()) > limit
    words = text.split()[:limit] if cut else [text]
    message = {"role": "assistant", "content": " ".join(words)}
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {"index": choice, "message": message, "finish_reason": "length" if cut else "stop"}
                for choice in range(body.get("n", 1))
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )


def _chat_chunks(body: dict[str, Any], text: str) -> Iterator[str]:
    """The completion as a stream: one word per chunk for each choice, the end of each choice, the usage and the end marker."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    choices = range(body.get("n", 1))
    for piece in re.findall(r"\s*\S+|\s+$", text):
        for choice in choices:
            yield json.dumps(
                {**head, "choices": [{"index": choice, "delta": {"content": piece}, "finish_reason": None}]}
            )
    for choice in choices:
        yield json.dumps({**head, "choices": [{"index": choice, "delta": {}, "finish_reason": "stop"}]})
    yield json.dumps({**head, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}})
    yield "[DONE]"


def requested_passage(body: dict[str, Any]) -> tuple[str, str]:
    """Title and text of the passage that a request for extraction quotes."""
    title, _, text = body["messages"][1]["content"].partition("\nPassage: ")
    return json.loads(title.removeprefix("Title: ")), json.loads(text)


def is_extraction(body: dict[str, Any]) -> bool:
    """Whether a request is for extraction from a passage, rather than for the domain of the collection."""
    return "propositions" in body["response_format"]["json_schema"]["schema"]["properties"]


def extraction_reply(body: dict[str, Any]) -> str:
    """The reply of a good model: each sentence of the passage with its names, or the domain of the collection."""
    if not is_extraction(body):
        return json.dumps({"entity_types": ["ship", "village"], "topics": ["island life"]})
    title, text = requested_passage(body)
    propositions = [
        {"text": unit.text, "entities": list(find_entities(unit.text)), "topic": title or "isles", "facts": []}
        for unit in split_units(text)
    ]
    return json.dumps({"entities": [], "propositions": propositions})
