"""Clients that each send one request after another through nginx until the `with` block ends; the outcome of every request is recorded."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import httpx2

QUESTION = "Who built the Lantern?"
PAUSE_S = 0.4
"""The pause between the requests of one client: the servers always have requests, but still have time for uploads."""
READ_ONLY_KINDS = ("search", "document")
"""Kinds of requests that only read, which nginx may send again."""


@dataclass(frozen=True)
class Outcome:
    """A request, and the problem with its answer; the problem is "" if the answer is good."""

    id: str
    kind: str
    problem: str


def answer(client: httpx2.Client, headers: dict[str, str]) -> str:
    """Request a chat completion; return the problem. The question contains the request's id, so that a test finds it in the requests to the model's server."""
    reply = client.post("/v1/chat/completions", json=chat_body(headers), headers=headers)
    return "" if reply.status_code == 200 and "1911" in reply.text else f"{reply.status_code} {reply.text[:200]}"


def stream(client: httpx2.Client, headers: dict[str, str]) -> str:
    """Request a streamed chat completion; return the problem. A good stream ends with [DONE] and contains no error."""
    with client.stream(
        "POST", "/v1/chat/completions", json={**chat_body(headers), "stream": True}, headers=headers
    ) as reply:
        text = "".join(reply.iter_text())
    complete = reply.status_code == 200 and text.endswith("data: [DONE]\n\n") and '"error"' not in text
    return "" if complete else f"{reply.status_code} {text[-200:]}"


def search(client: httpx2.Client, headers: dict[str, str]) -> str:
    """Search, by a POST that only reads; return the problem."""
    reply = client.post("/v1/retrieve", json={"query": f"Lantern {headers['X-Request-Id']}"}, headers=headers)
    return "" if reply.status_code == 200 and reply.json()["passages"] else f"{reply.status_code} {reply.text[:200]}"


def document(client: httpx2.Client, headers: dict[str, str]) -> str:
    """Read a document by GET; return the problem."""
    reply = client.get("/v1/documents/lantern", headers=headers)
    return "" if reply.status_code == 200 and reply.json()["title"] else f"{reply.status_code} {reply.text[:200]}"


KINDS: dict[str, Callable[[httpx2.Client, dict[str, str]], str]] = {
    "answer": answer,
    "stream": stream,
    "search": search,
    "document": document,
}
"""For each kind of request, the function that sends one and returns the problem with its answer ("" for a good answer)."""


def chat_body(headers: dict[str, str]) -> dict[str, object]:
    question = f"{QUESTION} {headers['X-Request-Id']}"
    # Without this, the server might abstain, because no document contains the number in the question.
    always_answer = {"abstain": 1}
    return {"model": "tiny", "messages": [{"role": "user", "content": question}], "retrieval": always_answer}


@contextmanager
def running_clients(url: str, clients: int) -> Iterator[list[Outcome]]:
    """Run this many clients during the `with` block; after it, every client has received its last answer."""
    outcomes: list[Outcome] = []
    stop = threading.Event()

    def send_requests(number: int) -> None:
        with httpx2.Client(base_url=url, timeout=60, verify=False) as client:
            for turn in count():
                if stop.is_set():
                    return
                kind = list(KINDS)[(number + turn) % len(KINDS)]
                request_id = f"r{number}-{turn}-{time.monotonic_ns()}"
                try:
                    problem = KINDS[kind](client, {"X-Request-Id": request_id})
                except httpx2.HTTPError as failed:
                    problem = repr(failed)
                outcomes.append(Outcome(request_id, kind, problem))
                stop.wait(PAUSE_S)

    threads = [threading.Thread(target=send_requests, args=(number,)) for number in range(clients)]
    for each in threads:
        each.start()
    try:
        yield outcomes
    finally:
        stop.set()
        for each in threads:
            each.join()
