"""The keys of a server in one file: made by `modegraph keys`, read by `modegraph serve --keys`. Of a key it has the hash alone.

A key is 256 random bits, so that one round of SHA-256 hides it: there is nothing to guess.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, Field, field_validator, model_validator

from graph.index.filters import Condition, parse_condition
from graph.shared.config import Settings, parse_settings
from graph.shared.errors import UserError
from serve.http.shared.access import Access, Scope

MARK = "mg_"
ID_DIGITS = 8
WRITING_WITHIN = (
    "a key that may write is held to sources (--where 'source=sales/*'): a writer gives all other metadata itself"
)


class Key(Settings):
    """One key: who has it, and what it opens. Several may have one name; `id` is the beginning of the hash."""

    name: str = Field(min_length=1, max_length=80, pattern=r"^[\w.@+-]+$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    scopes: tuple[Scope, ...] = Field(min_length=1)
    collections: tuple[str, ...] | None = None
    where: tuple[str, ...] = ()
    rate: int | None = Field(None, ge=1)
    created: AwareDatetime
    expires: AwareDatetime | None = None

    @field_validator("where")
    @classmethod
    def _conditions(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            try:
                parse_condition(each)
            except UserError as problem:
                raise ValueError(str(problem)) from None
        return given

    @model_validator(mode="after")
    def _writes_where_it_sees(self) -> Key:
        if "write" in self.scopes and any((each.key, each.operator) != ("source", "=") for each in self.conditions):
            raise ValueError(WRITING_WITHIN)
        return self

    @property
    def id(self) -> str:
        """What `modegraph keys` calls it."""
        return self.sha256[:ID_DIGITS]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What the documents that it sees must meet."""
        return tuple(parse_condition(each) for each in self.where)

    def access(self) -> Access:
        """Its rights."""
        only = None if self.collections is None else frozenset(self.collections)
        return Access(self.name, self.id, frozenset(self.scopes), only, self.conditions)

    def has_ended(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires is not None and now >= self.expires


def make_key(name: str, **values: Any) -> tuple[Key, str]:
    """A new key of that name, and the text that its holder sends; UserError for values that a key cannot have."""
    text = MARK + secrets.token_urlsafe(32)
    fields = {"name": name, "sha256": hash_of(text), "created": datetime.now(UTC), **values}
    return parse_settings(Key, fields, "keys add"), text


def hash_of(text: str) -> str:
    """The hash of a key, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(file: Path) -> list[Key]:
    """The keys in a file; UserError when it is not there or not such a file."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        rows = [dict(row) for row in held["keys"]]
    except FileNotFoundError:
        raise UserError(f"{file}: no such file", "a file of keys", "make one with `modegraph keys add`") from None
    except (OSError, ValueError, KeyError, TypeError) as problem:
        told = f"{file}: not a file of keys ({type(problem).__name__})"
        raise UserError(told, '{"keys": […]}', "restore it, or make a new one with `modegraph keys add`") from None
    return [parse_settings(Key, row, f"{file}, key {number}") for number, row in enumerate(rows, 1)]


def change_keys(file: Path, change: Callable[[list[Key]], list[Key]]) -> list[Key]:
    """Write what `change` makes of the keys in a file (none where it is not there), whole or not at all, for its owner's eyes.

    Whoever else changes the file waits.
    """
    try:
        descriptor = os.open(file.with_name(f"{file.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as problem:
        raise UserError(f"{file}: {problem.strerror}", "a file in a folder that can be written", "check it") from None
    with os.fdopen(descriptor, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = change(read_keys(file) if file.exists() else [])
        rows = [key.model_dump(mode="json", exclude_none=True) for key in keys]
        partial = file.with_name(f"{file.name}.new")
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as out:
            json.dump({"keys": rows}, out, indent=2)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    return keys
