"""A server with two collections and two access labels, shared by the holders of three keys; tests check that no key reveals hidden documents."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2

from graph.build.build import build_index
from graph.types import Document
from serve.http.keys import change_keys, make_key
from tests.fakes import ChatServer, HashEncoder, chat_server
from tests.serve.conftest import SETTINGS
from tests.serve.http.collector import Collector, run_collector
from tests.serve.http.running import Running, serving

SEA, HILL, MOOR = "zanzibar", "quaxley", "vurmond"
QUESTIONS = ("Who built the Lantern of Tarn?", f"What of {SEA.title()}, {HILL.title()} and {MOOR.title()}?")
REPLY = "###Reason: It says so [1] [2] [3]. ###Answer: so [1], so [2], so [3] and [4]"


def documents(word: str, folder: str, **metadata: Any) -> list[Document]:
    name = word.title()
    texts = {
        "lantern": f"The Lantern of {name} was built in 1911 by the {name} Yard of Tarn. Tarn is a village of 312 people.",
        "yard": f"The {name} Yard stands in Tarn. It was founded by Ada {name} in 1880.",
        "ada": f"Ada {name} was a shipwright. She taught Jonas {name} of Tarn.",
    }
    return [Document(f"{folder}/{key}", f"{key.title()} {name}", text, metadata) for key, text in texts.items()]


COLLECTIONS = {
    "isles": documents(SEA, "sea", team="sea") + documents(HILL, "hill", team="hill"),
    "moors": documents(MOOR, "moor"),
}


@dataclass(frozen=True)
class Holder:
    """The holder of a key: the word in all documents that the holder may see, and the words of the other documents, which must never be sent to the holder."""

    headers: dict[str, str]
    collection: str
    visible_word: str
    hidden_words: tuple[str, ...]
    hidden_documents: tuple[tuple[str, str], ...]
    """Collection and source of some documents that are hidden from the holder."""


@dataclass(frozen=True)
class SharedServer:
    """The server, the model server and span collector that it uses, the holders of its keys, and the headers of its operator."""

    running: Running
    upstream: ChatServer
    collector: Collector
    holders: dict[str, Holder]
    operator: dict[str, str]


@contextmanager
def serving_shared(folder: Path) -> Iterator[SharedServer]:
    """Build the collections in a folder and serve them until the `with` block ends; spans are sent every 200 ms."""
    for name, contents in COLLECTIONS.items():
        build_index(folder / name, contents, SETTINGS, lambda spec: HashEncoder())
    rights: dict[str, dict[str, Any]] = {
        "label": {"scopes": ("read",), "collections": ("isles",), "where": ("team=sea",)},
        "writer": {"scopes": ("read", "write"), "collections": ("isles",), "where": ("source=hill/*",)},
        "collection": {"scopes": ("read",), "collections": ("moors",)},
    }
    new_keys = {name: make_key(name, **fields) for name, fields in rights.items()}
    change_keys(folder / "keys.json", lambda keys: [key for key, _ in new_keys.values()])
    headers = {name: {"Authorization": f"Bearer {text}"} for name, (_, text) in new_keys.items()}
    holders = {
        "label": Holder(headers["label"], "isles", SEA, (HILL, MOOR), (("isles", "hill/ada"), ("moors", "moor/ada"))),
        "writer": Holder(headers["writer"], "isles", HILL, (SEA, MOOR), (("isles", "sea/ada"), ("moors", "moor/ada"))),
        "collection": Holder(
            headers["collection"], "moors", MOOR, (SEA, HILL), (("isles", "sea/ada"), ("isles", "hill/ada"))
        ),
    }
    with (
        patch.dict(os.environ, {"OTEL_BSP_SCHEDULE_DELAY": "200"}),
        run_collector() as collector,
        chat_server(lambda body, number: REPLY) as upstream,
        serving(
            [folder / "isles", folder / "moors"],
            f"openai:tiny@{upstream.url}",
            api_key="operator",
            keys=str(folder / "keys.json"),
            otlp_endpoint=collector.url,
            writable=True,
            feedback=True,
        ) as running,
    ):
        yield SharedServer(running, upstream, collector, holders, {"Authorization": "Bearer operator"})


def hidden_collection(holder: Holder) -> str:
    """The collection that the holder may not see."""
    (found,) = COLLECTIONS.keys() - {holder.collection}
    return found


def requests_to_refuse(
    shared: SharedServer, holder: Holder, collection: str, source: str
) -> list[Callable[[], httpx2.Response]]:
    """One request of each kind that names the collection or the document `source`, neither of which the holder may see."""
    running, headers = shared.running, holder.headers
    there, here = f"?collection={collection}", f"?collection={holder.collection}"
    turns = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 9}
    search = {"type": "file_search", "vector_store_ids": [collection]}
    vote = {"kind": "vote", "user": "reader-0001", "consent": True, "question": "Who?", "rating": "up"}
    vote["answer"] = {"model": "tiny", "text": "so"}
    return [
        lambda: running.get(f"/v1/documents/{source}{there}", headers=headers),
        lambda: running.get(f"/v1/documents/{source}{here}", headers=headers),
        lambda: running.get(f"/v1/graph/neighbourhood{here}&kind=document&id={source}", headers=headers),
        lambda: running.get(f"/v1/graph/entities{there}", headers=headers),
        lambda: running.get(f"/v1/models/tiny@{collection}", headers=headers),
        lambda: running.get(f"/v1/vector_stores/{collection}", headers=headers),
        lambda: running.post(f"/v1/vector_stores/{collection}/search", json={"query": "Who?"}, headers=headers),
        lambda: running.post(f"/v1/retrieve{there}", json={"query": "Who?"}, headers=headers),
        lambda: running.post(
            f"/v1/retrieve{here}", json={"query": "Who?", "where": [f"source={source}"]}, headers=headers
        ),
        lambda: running.post("/v1/chat/completions", json={**turns, "model": f"tiny@{collection}"}, headers=headers),
        lambda: running.post("/v1/messages", json={**turns, "model": f"tiny@{collection}"}, headers=headers),
        lambda: running.post(
            "/v1/responses", json={"model": "tiny", "input": "Who?", "tools": [search]}, headers=headers
        ),
        lambda: running.post(
            f"/v1/documents{here}", json={"documents": [{"source": source, "text": "x"}]}, headers=headers
        ),
        lambda: running.delete(f"/v1/documents/{source}{here}", headers=headers),
        lambda: running.delete(f"/v1/documents/{source}{there}", headers=headers),
        lambda: running.post(f"/v1/feedback{there}", json=vote, headers=headers),
        lambda: running.get(f"/v1/feedback/reader-0001{there}", headers=headers),
        lambda: running.delete(f"/v1/feedback/reader-0001{there}", headers=headers),
    ]
