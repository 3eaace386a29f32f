"""A message of Anthropic's as it comes about: blocks of text, each with the citations at its end, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from graph.prompt.citations import Mark
from graph.shared.types import Excerpt
from serve.http.routes.generate import Ended
from serve.http.routes.parts import Shown
from serve.views.citations import search_result_location

Event = dict[str, Any]
STOPS = {"length": "max_tokens", "content_filter": "refusal"}
"""Why a text ended, OpenAI's words to Anthropic's; all else is the end of a turn."""


class MessageWriter:
    """A block ends behind the citations of what it says; `thinks` tells whether the reasoning is shown.

    Reasoning that comes when the text has begun waits for its end.
    """

    def __init__(
        self, model: str, retrieval: dict[str, Any] | None, excerpts: Sequence[Excerpt], base: str, thinks: bool
    ) -> None:
        self._excerpts, self._base, self._thinks = excerpts, base, thinks
        self._blocks: list[dict[str, Any]] = []
        self._is_open = False
        self._chars = 0
        self._late = ""
        self.message: dict[str, Any] = {
            "id": f"msg_{uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._blocks,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
            "retrieval": retrieval,
        }

    def begin(self) -> list[Event]:
        """The message, still empty."""
        return [{"type": "message_start", "message": {**self.message, "content": []}}]

    def show(self, shown: Shown) -> list[Event]:
        """Some of the reasoning, and of the text with its citations."""
        made: list[Event] = []
        if shown.reasoning and self._thinks and self._has_text:
            self._late += shown.reasoning
        elif shown.reasoning and self._thinks:
            made += self._think(shown.reasoning)
        at = 0
        for mark in shown.marks:
            start, end = mark.start - self._chars, mark.end - self._chars
            made += [*self._say(shown.content[at:start]), *self._cite(shown.content[start:end], mark)]
            at = end
        made += self._say(shown.content[at:])
        self._chars += len(shown.content)
        return made

    def end(self, ended: Ended) -> list[Event]:
        """The text has ended, and with it the message."""
        made = [] if self._has_text else self._open("text")
        if self._late:
            made += self._think(self._late)
        made += self._close()
        usage = {"input_tokens": ended.prompt_tokens, "output_tokens": ended.completion_tokens}
        stop = {"stop_reason": STOPS.get(ended.finish_reason, "end_turn"), "stop_sequence": None}
        checked = {"removed": list(ended.removed), "unsupported": ended.unsupported, "answered": ended.answered}
        self.message |= {**stop, "usage": usage, **checked}
        delta = {**stop, **checked}
        return [*made, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]

    @property
    def _has_text(self) -> bool:
        return any(block["type"] == "text" for block in self._blocks)

    def _think(self, text: str) -> list[Event]:
        made = [] if self._is_in("thinking") else self._open("thinking")
        self._blocks[-1]["thinking"] += text
        return [*made, self._delta("thinking_delta", thinking=text)]

    def _say(self, text: str) -> list[Event]:
        """More text; what is said behind a citation is a block of its own."""
        if not text:
            return []
        made = [] if self._is_in("text") and not self._blocks[-1]["citations"] else self._open("text")
        self._blocks[-1]["text"] += text
        return [*made, self._delta("text_delta", text=text)]

    def _cite(self, text: str, mark: Mark) -> list[Event]:
        """A citation: its [n] belongs to the text that it stands behind."""
        made = [] if self._is_in("text") else self._open("text")
        told = search_result_location(mark, self._excerpts[mark.number - 1], self._base)
        self._blocks[-1]["text"] += text
        self._blocks[-1]["citations"] = [*(self._blocks[-1]["citations"] or []), told]
        return [*made, self._delta("text_delta", text=text), self._delta("citations_delta", citation=told)]

    def _open(self, kind: str) -> list[Event]:
        made = self._close()
        block: dict[str, Any] = {"type": "text", "text": "", "citations": None}
        if kind == "thinking":
            block = {"type": "thinking", "thinking": "", "signature": ""}
        self._blocks.append(block)
        self._is_open = True
        return [*made, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": dict(block)}]

    def _close(self) -> list[Event]:
        if not self._is_open:
            return []
        self._is_open = False
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]

    def _is_in(self, kind: str) -> bool:
        return self._is_open and bool(self._blocks[-1]["type"] == kind)

    def _delta(self, kind: str, **values: Any) -> Event:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": {"type": kind, **values}}
