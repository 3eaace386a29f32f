"""The completion for a question that no passage was found for: "not in the documents", without a call of the model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from graph.prompt.answer import NOT_FOUND
from serve.http.backends.backend import Body


@dataclass(frozen=True)
class CannedCompletion:
    """The same text for each of `n` choices, in OpenAI's form."""

    model: str
    text: str
    n: int

    def completion(self) -> dict[str, Any]:
        """The whole completion."""
        message = {"role": "assistant", "content": self.text}
        choices = [{"index": index, "message": message, "finish_reason": "stop"} for index in range(self.n)]
        return {**self._head("chat.completion"), "choices": choices, "usage": _NOTHING}

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The same as chunks, the last with the usage."""
        head = self._head("chat.completion.chunk")
        for index in range(self.n):
            delta = {"role": "assistant", "content": self.text}
            yield {**head, "choices": [{"index": index, "delta": delta, "finish_reason": "stop"}]}
        yield {**head, "choices": [], "usage": _NOTHING}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": self.model}


_NOTHING = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def not_found(body: Body) -> CannedCompletion:
    """What a request is answered when there is nothing to answer from."""
    return CannedCompletion(body["model"], NOT_FOUND, body.get("n", 1))
