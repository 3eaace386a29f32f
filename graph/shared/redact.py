"""Secrets are for the one they were given to: what is shown or written down has a mark in their place."""

import os
import re
from collections.abc import Mapping
from typing import Any

MARK = "***"
SHORTEST = 6
"""Characters of a value in the environment from which it is looked for in texts: shorter ones stand in ordinary words."""
_ASSIGNED = re.compile(
    r"(?i)(?<![\w-])((?:--)?(?:[\w.-]*[-_.])?(?:(?:api|access|secret|private)[-_]?key|(?<!per_)token|secret|passw(?:or)?d)\s*=\s*)((?:bearer\s+)?[^\s;,]+)"
)
_PASSWORD_OF_A_URL = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)(?=@)")
_KNOWN_SHAPES = re.compile(r"\b(?:hf_|sk-)[A-Za-z0-9_-]{8,}")
_VARIABLE = re.compile(r"(?i)(?:^|_)(?:key|token|password|secret)$")


def redact(text: str) -> str:
    """The text without passwords in addresses, values of `api_key=…`, keys of known shapes and secrets in the environment.

    >>> redact("--set api_key=abc; postgresql://me:word@host/db")
    '--set api_key=***; postgresql://me:***@host/db'
    """
    text = _PASSWORD_OF_A_URL.sub(rf"\1:{MARK}", text)
    text = _ASSIGNED.sub(rf"\1{MARK}", text)
    text = _KNOWN_SHAPES.sub(MARK, text)
    for value in secrets_in_environment():
        text = text.replace(value, MARK)
    return text


def redacted(value: Any) -> Any:
    """A JSON value for a record: each text redacted, and a text under a secret's name left out altogether."""
    if isinstance(value, Mapping):
        return {
            name: MARK if is_secret(str(name)) and isinstance(held, str) and held else redacted(held)
            for name, held in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return redact(value) if isinstance(value, str) else value


def is_secret(name: str) -> bool:
    """Whether a setting, a field or a variable of this name holds a secret.

    >>> is_secret("api_key"), is_secret("HF_TOKEN"), is_secret("max_answer_tokens"), is_secret("key_file_name")
    (True, True, False, False)
    """
    return bool(_VARIABLE.search(name))


def secrets_in_environment() -> list[str]:
    """Values of variables such as HF_TOKEN and OPENAI_API_KEY, longest first."""
    found = {value for name, value in os.environ.items() if is_secret(name) and len(value) >= SHORTEST}
    return sorted(found, key=len, reverse=True)
