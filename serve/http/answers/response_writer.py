"""A response of OpenAI's as it comes about: its items, and the events that tell of them, in the order of the open specification.

The last event has the whole response, so that an answer that is not streamed is that one's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from graph.shared.types import Excerpt
from serve.http.routes.generate import Ended
from serve.http.routes.parts import Shown
from serve.http.shared.errors import ApiError
from serve.views.citations import file_citation

Event = dict[str, Any]
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a text did not end by itself: OpenAI's words for chat completions, and for responses."""


class ResponseWriter:
    """`fields` are those of the response that stay; `base` is the address that links to passages begin with.

    Items follow one another: the search, the reasoning, the message. Reasoning that comes when the message has begun waits for its end.
    """

    def __init__(self, fields: dict[str, Any], excerpts: Sequence[Excerpt], base: str) -> None:
        head = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": int(time.time())}
        self._response = {**head, "completed_at": None, "incomplete_details": None, "error": None, **fields}
        self._excerpts, self._base = excerpts, base
        self._output: list[dict[str, Any]] = []
        self._events = 0
        self._open: _Text | None = None
        self._late = ""

    def begin(self) -> list[Event]:
        """The response is there, and being worked on."""
        return [self._whole(kind, "in_progress") for kind in ("response.created", "response.in_progress")]

    def searched(self, query: str, results: list[dict[str, Any]] | None) -> list[Event]:
        """The index was searched for `query`; `results` only where they were asked for."""
        item = {"type": "file_search_call", "id": f"fs_{uuid4().hex}", "queries": [query]}
        place = {"item_id": item["id"], "output_index": len(self._output)}
        begun = self._event(
            "response.output_item.added",
            output_index=place["output_index"],
            item={**item, "status": "in_progress", "results": None},
        )
        steps = [self._event(f"response.file_search_call.{each}", **place) for each in SEARCH_STEPS]
        self._output.append({**item, "status": "completed", "results": results})
        return [begun, *steps, self._done()]

    def show(self, shown: Shown) -> list[Event]:
        """Text of the reasoning, and of the message with its citations."""
        made: list[Event] = []
        if shown.reasoning and self._is_open("message"):
            self._late += shown.reasoning
        elif shown.reasoning:
            made += self._say("reasoning", shown.reasoning)
        if shown.content:
            made += self._say("message", shown.content)
        for mark in shown.marks:
            noted = file_citation(mark, self._excerpts[mark.number - 1], self._base)
            made.append(self._noted(noted))
        return made

    def end(self, ended: Ended) -> list[Event]:
        """The text has ended, and with it the response."""
        why = INCOMPLETE.get(ended.finish_reason)
        status = "completed" if why is None else "incomplete"
        late = self._late
        made = [] if self._open is not None else self._say("message", "")
        if self._is_open("message"):
            told = {"removed": list(ended.removed), "unsupported": ended.unsupported, "answered": ended.answered}
            self._output[-1] |= told
        made += self._close(status)
        if late:
            made += [*self._say("reasoning", late), *self._close(status)]
        usage = {
            "input_tokens": ended.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": ended.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": ended.prompt_tokens + ended.completion_tokens,
        }
        self._response |= {"usage": usage, "incomplete_details": None if why is None else {"reason": why}}
        self._response["completed_at"] = int(time.time()) if why is None else None
        return [*made, self._whole(f"response.{status}", status)]

    def fail(self, problem: ApiError) -> Event:
        """The response ends in an error."""
        self._response["error"] = {"code": "server_error", "message": problem.message}
        return self._whole("response.failed", "failed")

    def _say(self, kind: str, text: str) -> list[Event]:
        """More of the text of an item, which begins here if it is not open."""
        made = [] if self._is_open(kind) else [*self._close("completed"), *self._start(kind)]
        assert self._open is not None
        self._open.part["text"] += text
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        return [*made, *([self._event(f"{TEXTS[kind]}.delta", **self._place(), delta=text, **more)] if text else [])]

    def _start(self, kind: str) -> list[Event]:
        index = len(self._output)
        self._open = _Text(kind, index)
        self._output.append(self._open.item)
        empty = {**self._open.item, "content": []}
        begun = self._event("response.output_item.added", output_index=index, item=empty)
        return [begun, self._event("response.content_part.added", **self._place(), part=dict(self._open.part))]

    def _noted(self, annotation: dict[str, Any]) -> Event:
        assert self._open is not None
        notes = self._open.part["annotations"]
        self._open.part["annotations"] = [*notes, annotation]
        return self._event(
            "response.output_text.annotation.added",
            **self._place(),
            annotation_index=len(notes),
            annotation=annotation,
        )

    def _close(self, status: str) -> list[Event]:
        """The end of the item that is open, if one is."""
        if self._open is None:
            return []
        kind, part, place = self._open.kind, dict(self._open.part), self._place()
        self._open.item["status"] = status
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        made = [
            self._event(f"{TEXTS[kind]}.done", **place, text=part["text"], **more),
            self._event("response.content_part.done", **place, part=part),
            self._done(),
        ]
        self._open = None
        return made

    def _done(self) -> Event:
        """The last item is done."""
        item, index = self._output[-1], len(self._output) - 1
        return self._event("response.output_item.done", output_index=index, item=dict(item))

    def _is_open(self, kind: str) -> bool:
        return self._open is not None and self._open.kind == kind

    def _place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open.item["id"], "output_index": self._open.index, "content_index": 0}

    def _whole(self, kind: str, status: str) -> Event:
        return self._event(kind, response={**self._response, "status": status, "output": list(self._output)})

    def _event(self, kind: str, **values: Any) -> Event:
        self._events += 1
        return {"type": kind, "sequence_number": self._events - 1, **values}


SEARCH_STEPS = ("in_progress", "searching", "completed")
TEXTS = {"message": "response.output_text", "reasoning": "response.reasoning_text"}
"""What the events of an item's text are called."""


class _Text:
    """An item that is being written, and its one part."""

    def __init__(self, kind: str, index: int) -> None:
        self.kind, self.index = kind, index
        self.part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        self.item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{uuid4().hex}", "summary": []}
        if kind == "message":
            self.part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self.item = {"type": "message", "id": f"msg_{uuid4().hex}", "role": "assistant"}
        self.item |= {"status": "in_progress", "content": [self.part]}
