"""
title: modegraph
description: Answers from a modegraph index; their citations are shown as Open WebUI's sources, numbered as in the text.
version: 1.0.0
requirements: aiohttp, pydantic
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from pydantic import BaseModel, Field

Emit = Callable[[dict[str, Any]], Awaitable[None]]


class Pipe:
    """A function of the kind "pipe": each model of the server becomes a model in Open WebUI."""

    class Valves(BaseModel):
        url: str = Field("http://127.0.0.1:8080/v1", description="address of modegraph serve, with /v1")
        key: str = Field("", description="API key, if the server requires one")

    def __init__(self) -> None:
        self.valves = self.Valves()

    async def pipes(self) -> list[dict[str, str]]:
        """The models of the server."""
        async with self._session() as session:
            return [{"id": each["id"], "name": each["id"]} for each in (await self._get(session, "models"))["data"]]

    async def pipe(
        self, body: dict[str, Any], __event_emitter__: Emit | None = None, __task__: str | None = None
    ) -> AsyncIterator[str]:
        """The answer as it is generated, with its sources at the end. Tasks of Open WebUI itself, such as titles of chats, run without a search."""
        async with self._session() as session:
            request = {"model": body["model"].split(".", 1)[-1], "stream": True}
            if __task__:
                without_search = {**request, "messages": body["messages"], "retrieval": {"enabled": False}}
                async for event in self._events(session, "chat/completions", without_search):
                    for choice in event.get("choices", ()):
                        yield choice["delta"].get("content") or ""
                return
            stores = [each["id"] for each in (await self._get(session, "vector_stores"))["data"]]
            if not stores:
                raise RuntimeError("the server shows no collection: it has none, or the key allows none")
            store = next((each for each in stores if request["model"].endswith(f"@{each}")), stores[0])
            searching = {"tools": [{"type": "file_search", "vector_store_ids": [store]}], "input": body["messages"]}
            text = RenumberedText()
            async for event in self._events(session, "responses", {**request, **searching}):
                yield text.take(event)
            if __event_emitter__ is not None:
                for source in text.sources():
                    await __event_emitter__({"type": "source", "data": source})

    def _session(self) -> aiohttp.ClientSession:
        headers = {"Authorization": f"Bearer {self.valves.key}"} if self.valves.key else {}
        return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=None, sock_connect=10))

    async def _get(self, session: aiohttp.ClientSession, path: str) -> Any:
        async with session.get(f"{self.valves.url}/{path}") as response:
            return await _read(response)

    async def _events(
        self, session: aiohttp.ClientSession, path: str, body: Mapping[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a stream; RuntimeError with the server's message if the server refuses the request or fails."""
        async with session.post(f"{self.valves.url}/{path}", json=body) as response:
            if response.status != 200:
                await _read(response)
            async for line in response.content:
                data = line.decode().strip().removeprefix("data:").strip()
                if line.startswith(b"data:") and data != "[DONE]":
                    event = json.loads(data)
                    problem = event.get("error") or (event.get("response") or {}).get("error")
                    if problem:
                        raise RuntimeError(problem["message"])
                    yield event


class RenumberedText:
    """The streamed text, with its citations numbered in the order of their first use, as Open WebUI numbers its sources.

    The newest piece is withheld until later events show which of its brackets are citations.
    """

    def __init__(self) -> None:
        self._pending, self._start = "", 0
        self._marks: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._cited: list[dict[str, Any]] = []

    def take(self, event: Mapping[str, Any]) -> str:
        """The text that can be shown after an event."""
        if event["type"] == "response.output_text.annotation.added":
            self._marks.append(event["annotation"])
            return ""
        if event["type"] not in ("response.output_text.delta", "response.output_text.done"):
            return ""
        shown = self._renumber_pending()
        self._start += len(self._pending)
        self._pending = event.get("delta", "")
        self._marks = []
        return shown

    def sources(self) -> list[dict[str, Any]]:
        """The cited passages in the form of Open WebUI's sources, in the order of their numbers."""
        return [
            {
                "source": {"name": each["title"], "url": each["url"]},
                "document": [each["text"]],
                "metadata": [{"source": each["url"], "name": each["title"]}],
            }
            for each in self._cited
        ]

    def _renumber_pending(self) -> str:
        parts, at = [], 0
        for mark in self._marks:
            start, end = mark["index"] - self._start, mark["end_index"] - self._start
            parts += [self._pending[at:start], f"[{self._number(mark)}]"]
            at = end
        return "".join([*parts, self._pending[at:]])

    def _number(self, mark: dict[str, Any]) -> int:
        if mark["url"] not in self._numbers:
            self._numbers[mark["url"]] = len(self._numbers) + 1
            self._cited.append(mark)
        return self._numbers[mark["url"]]


async def _read(response: aiohttp.ClientResponse) -> Any:
    """The JSON of a response; RuntimeError with the server's message if the status is not 200, and for anything other than JSON, such as a proxy's page."""
    try:
        content = await response.json(content_type=None)
        if response.status == 200:
            return content
        message = content["error"]["message"]
    except (ValueError, TypeError, LookupError):
        message = (
            f"{response.url} answers with status {response.status}, not as modegraph serve does: check the address"
        )
    raise RuntimeError(message)
