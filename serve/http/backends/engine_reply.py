"""What an engine answers, looked at before it is used: a chat completion in OpenAI's form, or a chunk of one."""

from __future__ import annotations

from typing import Any, Literal

from serve.http.backends.engine_fields import is_deep

TEXTS = ("content", "reasoning_content", "reasoning", "finish_reason", "role")
COUNTS = ("index", "prompt_tokens", "completion_tokens", "total_tokens")


def is_sound(made: Any, part: Literal["message", "delta"]) -> bool:
    """Whether `made` is a completion (its choices have a message) or a chunk of one (they have a delta).

    >>> is_sound({"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 3}}, "message")
    True
    >>> is_sound({"choices": [None]}, "message"), is_sound({"choices": [], "usage": {"prompt_tokens": -1}}, "delta")
    (False, False)
    """
    if not isinstance(made, dict) or not isinstance(made.get("choices"), list) or is_deep(made):
        return False
    whole = part == "message"
    return (
        all(_is_choice(choice, part, whole) for choice in made["choices"])
        and _is_counted(made.get("usage"))
        and not (whole and not made["choices"])
    )


def _is_choice(choice: Any, part: str, whole: bool) -> bool:
    if not isinstance(choice, dict) or not _is_counted(choice) or not _is_worded(choice):
        return False
    said = choice.get(part)
    return (isinstance(said, dict) and _is_worded(said)) or (said is None and not whole)


def _is_worded(held: dict[str, Any]) -> bool:
    return all(held.get(name) is None or isinstance(held[name], str) for name in TEXTS)


def _is_counted(held: Any) -> bool:
    if held is None:
        return True
    return isinstance(held, dict) and all(held.get(name) is None or _is_count(held[name]) for name in COUNTS)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
