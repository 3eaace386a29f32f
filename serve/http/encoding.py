"""Encoding of requests and responses: input must be valid Unicode, and output is ASCII JSON, so that every string can be sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict
from starlette.responses import JSONResponse


def whole_characters(text: str) -> str:
    """The text unchanged; ValueError for a lone surrogate (half of a character), which UTF-8 cannot encode and tokenizers reject."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("contains half a character (a lone surrogate)")
    return text


SSE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
"""The last event of a stream in OpenAI's protocols."""
Text = Annotated[str, AfterValidator(whole_characters)]


class StrictModel(BaseModel):
    """A request or a part of one; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class AsciiJSONResponse(JSONResponse):
    """JSON with all non-ASCII characters escaped; an index may contain lone surrogates, which UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        return ascii_json(content)


def map_texts(change: Callable[[str], str], value: Any) -> Any:
    """A JSON value with `change` applied to every string in it, but not to field names."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(change, each) for each in value]
    return {name: map_texts(change, each) for name, each in value.items()} if isinstance(value, dict) else value


def with_whole_characters(value: Any) -> Any:
    """A JSON value with lone surrogates in its strings replaced, for output that must be UTF-8.

    >>> with_whole_characters({"text": ["a\\ud800b"]})
    {'text': ['a\ufffdb']}
    """
    return map_texts(lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), value)


def ascii_json(content: Any) -> bytes:
    """JSON in ASCII; numbers that JSON lacks (NaN, infinities) become null."""
    try:
        return json.dumps(content, allow_nan=False).encode("ascii")
    except ValueError:
        return json.dumps(json.loads(json.dumps(content), parse_constant=lambda name: None)).encode("ascii")


def event(content: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + ascii_json(content) + b"\n\n"


def named_event(content: Mapping[str, Any]) -> bytes:
    """One server-sent event, named after its `type`."""
    return b"event: " + str(content["type"]).encode("ascii") + b"\n" + event(content)
