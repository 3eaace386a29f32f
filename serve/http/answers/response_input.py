"""The input of a response, texts alone: as the engine gets it, or as the turns of a conversation that is answered from the index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from serve.http.shared.errors import ApiError

KINDS = frozenset(
    [
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "input_text",
        "output_text",
        "text",
        "refusal",
        "summary_text",
        "reasoning_text",
    ]
)
"""What an input is made of: texts, and calls of the client's own functions."""
NAMES = frozenset({"type", "role", "id", "status", "call_id", "name"})
TEXTS = frozenset({"text", "refusal", "arguments"})
NESTED = frozenset({"content", "output", "summary"})
"""Fields of an item that are a text or hold further items."""
ROLES = frozenset({"user", "assistant", "system", "developer"})
PASSED_OVER = frozenset({"reasoning", "file_search_call"})
"""Items of an earlier response that a conversation brings along; its passages and thoughts are not shown to the model again."""


def plain(value: Any, escape: Callable[[str], str], place: str) -> Any:
    """An input, or the content of one of its items: texts, special tokens escaped; ApiError 400 naming the place of anything else."""
    if isinstance(value, str):
        return escape(value)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ApiError(400, "bad_value", f"{place}: expected a text or a list of objects", place)
    return [_item(item, escape, f"{place}.{number}") for number, item in enumerate(value)]


def _item(item: dict[str, Any], escape: Callable[[str], str], place: str) -> dict[str, Any]:
    if item.get("type", "message") not in KINDS:
        told = f"{place}.type: this server passes on text alone: no images, files or tools of the engine's own"
        raise ApiError(400, "not_supported", told, f"{place}.type")
    made: dict[str, Any] = {}
    for name, value in item.items():
        if name in NESTED and value is not None:
            made[name] = plain(value, escape, f"{place}.{name}")
        elif name in NAMES | TEXTS and isinstance(value, str):
            made[name] = escape(value) if name in TEXTS else value
    return made | ({"annotations": []} if item.get("type") == "output_text" else {})


def turns(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An input as messages of a chat completion; ApiError 400 naming the place of what is no message.

    >>> turns([{"role": "user", "content": [{"type": "input_text", "text": "Who?"}]}, {"type": "reasoning", "id": "r"}])
    [{'role': 'user', 'content': 'Who?'}]
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    kept = [(f"input.{number}", item) for number, item in enumerate(given) if item.get("type") not in PASSED_OVER]
    return [_turn(item, place) for place, item in kept]


def _turn(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    if item.get("type", "message") != "message" or item.get("role") not in ROLES:
        told = f"{place}: with file_search only messages are supported, of {', '.join(sorted(ROLES))}"
        raise ApiError(400, "not_supported", told, place)
    parts = plain(item.get("content"), str, f"{place}.content")
    texts = [parts] if isinstance(parts, str) else [part.get("text") or part.get("refusal") or "" for part in parts]
    return {"role": item["role"], "content": "\n".join(texts)}
