"""Stand-ins for what a model would say or compute; everything else in the tests is the real thing."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import numpy as np

from graph.encoder import unit_rows
from graph.extract.names import find_names
from graph.extract.units import split_units
from graph.ids import content_id
from graph.types import Completion, CompletionRequest, Floats


class HashEncoder:
    """An encoder whose vectors come from hashes of words: texts that share words are near. `seen` lists what it encoded."""

    dimensions = 16

    def __init__(self, fingerprint: str = "hash-encoder") -> None:
        self.fingerprint = fingerprint
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> Floats:
        self.seen += texts
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        return unit_rows(np.stack([sum((self._word(word) for word in text.split()), self._word("")) for text in texts]))

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def _word(self, word: str) -> Floats:
        return np.random.default_rng(int(content_id(word)[:8], 16)).normal(size=self.dimensions).astype(np.float32)


class ScriptedModel:
    """A language model whose text is `reply(request)`; `asked` lists every request that reached it, in order of arrival."""

    def __init__(
        self,
        reply: Callable[[CompletionRequest], str],
        finish_reason: Literal["stop", "length"] = "stop",
        name: str = "scripted",
        batch_size: int = 1,
    ) -> None:
        self.name = name
        self.batch_size = batch_size
        self.asked: list[CompletionRequest] = []
        self._reply, self._finish_reason = reply, finish_reason

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        self.asked += requests
        return [
            Completion(text, self._finish_reason, prompt_tokens=10, completion_tokens=len(text.split()))
            for text in map(self._reply, requests)
        ]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


@dataclass
class ChatServer:
    """A real HTTP server on this machine that answers chat completions: `asked` are the bodies it was sent."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0


Reply = Callable[[dict[str, Any], int], "str | tuple[int, str]"]
"""(request body, number of the call from 1) to the text of a completion, or to (HTTP status, raw body)."""


@contextmanager
def chat_server(reply: Reply) -> Iterator[ChatServer]:
    """Serve `reply` at an OpenAI-compatible address until the block ends."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                state.asked.append(body)
                number = len(state.asked)
                state.running += 1
                state.most_running = max(state.most_running, state.running)
            made = reply(body, number)
            with lock:
                state.running -= 1
            status, data = (200, _chat_completion(body, made)) if isinstance(made, str) else made
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(data.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = ChatServer(f"http://127.0.0.1:{server.server_address[1]}/v1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _chat_completion(body: dict[str, Any], text: str) -> str:
    cut = len(text.split()) > body["max_tokens"]
    words = text.split()[: body["max_tokens"]] if cut else [text]
    message = {"role": "assistant", "content": " ".join(words)}
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )


def asked_passage(body: dict[str, Any]) -> tuple[str, str]:
    """Title and text of the passage that a request for an extraction quotes."""
    title, _, text = body["messages"][1]["content"].partition("\nPassage: ")
    return json.loads(title.removeprefix("Title: ")), json.loads(text)


def is_extraction(body: dict[str, Any]) -> bool:
    """Whether a request asks to read a passage (and not for the domain of the collection)."""
    return "propositions" in body["response_format"]["json_schema"]["schema"]["properties"]


def extraction_reply(body: dict[str, Any]) -> str:
    """What a good model would say: each sentence of the passage with its names, or the domain of the collection."""
    if not is_extraction(body):
        return json.dumps({"entity_types": ["ship", "village"], "topics": ["island life"]})
    title, text = asked_passage(body)
    propositions = [
        {"text": unit.text, "entities": list(find_names(unit.text)), "topic": title or "isles", "facts": []}
        for unit in split_units(text)
    ]
    return json.dumps({"entities": [], "propositions": propositions})
