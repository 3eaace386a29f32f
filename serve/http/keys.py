"""The keys of a server: their rights, the file that stores them, and the key ring of a running server.

`modegraph keys` writes the file, and `modegraph serve --keys` reads it. The file stores a hash in place of each key: a key has 256 random
bits, so one round of SHA-256 is enough. A running server reloads the file when it changes, and limits the rate of each key."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import AwareDatetime, Field, field_validator, model_validator
from starlette.requests import HTTPConnection

from graph.config import Settings, parse_settings
from graph.errors import UserError, unreadable
from graph.index.filters import Condition, parse_condition

Scope = Literal["read", "write", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
ACCESS_FIELD = "modegraph.access"
"""The entry in the scope of an authenticated ASGI request that contains the caller's Access."""


@dataclass(frozen=True)
class Access:
    """The rights of the key named `key`, for those documents of `collections` (None: all) that meet every condition in `where`."""

    key: str = ""
    key_id: str = ""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    collections: frozenset[str] | None = None
    where: tuple[Condition, ...] = ()


FULL_ACCESS = Access()
NO_ACCESS = Access(scopes=frozenset(), collections=frozenset())


def access_of(request: HTTPConnection) -> Access:
    """The rights of the sender of a request."""
    access: Access = request.scope[ACCESS_FIELD]
    return access


KEY_PREFIX = "mg_"
ID_DIGITS = 8
WRITE_CONDITIONS_MESSAGE = "a key that may write can be limited only by source (--where 'source=sales/*'), since the writer sets all other metadata"


class Key(Settings):
    """One key: its holder and its rights. Several keys may have the same name; `id` is the beginning of the hash."""

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
    def _conditions(cls, conditions: tuple[str, ...]) -> tuple[str, ...]:
        for condition in conditions:
            try:
                parse_condition(condition)
            except UserError as problem:
                raise ValueError(str(problem)) from None
        return conditions

    @model_validator(mode="after")
    def _check_write_conditions(self) -> Key:
        limits = {(condition.key, condition.operator) for condition in self.conditions}
        if "write" in self.scopes and limits - {("source", "=")}:
            raise ValueError(WRITE_CONDITIONS_MESSAGE)
        return self

    @property
    def id(self) -> str:
        """The id that `modegraph keys` shows."""
        return self.sha256[:ID_DIGITS]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions on the documents that the key can read."""
        return tuple(parse_condition(condition) for condition in self.where)

    def access(self) -> Access:
        """The rights of the key."""
        collections = None if self.collections is None else frozenset(self.collections)
        return Access(self.name, self.id, frozenset(self.scopes), collections, self.conditions)

    def is_expired(self, now: datetime) -> bool:
        """Whether the key has expired at `now`."""
        return self.expires is not None and now >= self.expires


def make_key(name: str, **values: Any) -> tuple[Key, str]:
    """A new key with this name, and the text that its holder sends; UserError for invalid values."""
    text = KEY_PREFIX + secrets.token_urlsafe(32)
    fields = {"name": name, "sha256": hash_of(text), "created": datetime.now(UTC), **values}
    return parse_settings(Key, fields, "keys add"), text


def hash_of(text: str) -> str:
    """The hash of a key, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(file: Path) -> list[Key]:
    """The keys in a file; UserError when it is missing or not a file of keys, or when a key has invalid values."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        rows = [dict(row) for row in content["keys"]]
    except FileNotFoundError:
        raise UserError(f"{file}: no such file", "a file of keys", "make one with `modegraph keys add`") from None
    except OSError as problem:
        raise unreadable(file, problem, "a file of keys") from None
    except (ValueError, KeyError, TypeError) as problem:
        message = f"{file}: not a file of keys ({type(problem).__name__})"
        raise UserError(message, '{"keys": […]}', "restore it, or make a new one with `modegraph keys add`") from None
    return [parse_settings(Key, row, f"{file}, key {number}") for number, row in enumerate(rows, 1)]


def change_keys(file: Path, change: Callable[[list[Key]], list[Key]]) -> None:
    """Apply `change` to the keys in a file (none if it is missing), and write the file atomically, readable only by its owner.

    Concurrent changes wait for each other.
    """
    try:
        descriptor = os.open(file.with_name(f"{file.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as problem:
        raise UserError(f"{file}: {problem.strerror}", "a file in a writable folder", "check the folder") from None
    with os.fdopen(descriptor, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = change(read_keys(file) if file.exists() else [])
        rows = [key.model_dump(mode="json", exclude_none=True) for key in keys]
        partial = file.with_name(f"{file.name}.new")
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as output:
            json.dump({"keys": rows}, output, indent=2)
            output.flush()
            os.fsync(output.fileno())
        partial.replace(file)


LOG = logging.getLogger("modegraph.serve")


class KeyRing:
    """Looks up keys. The file is reloaded whenever it changes, so that a revoked key is refused at the next request.

    While the file is missing or unreadable, every key is refused; this is logged once.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp = self._stamp_now()
        self._keys = {key.sha256: key for key in read_keys(file)}
        self._buckets: dict[str, TokenBucket] = {}

    def find(self, text: str) -> Key | None:
        """The key with this text; None for an unknown text or an expired key.

        The lookup is by hash, so that its duration reveals nothing about the keys.
        """
        self._refresh()
        key = self._keys.get(hash_of(text))
        return None if key is None or key.is_expired(datetime.now(UTC)) else key

    def wait_s(self, key: Key) -> float:
        """Count a request and return 0 if the key's rate allows it; otherwise return the seconds to wait."""
        if key.rate is None:
            return 0.0
        bucket = self._buckets.setdefault(key.sha256, TokenBucket(key.rate))
        return bucket.take(key.rate, time.monotonic())

    def _refresh(self) -> None:
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp, self._keys = stamp, {}
        try:
            self._keys = {key.sha256: key for key in read_keys(self._file)}
        except UserError as problem:
            LOG.error("no keys are loaded: %s", problem)
        else:
            LOG.info("%d keys are loaded", len(self._keys))
        self._buckets = {sha256: bucket for sha256, bucket in self._buckets.items() if sha256 in self._keys}

    def _stamp_now(self) -> tuple[int, int, int] | None:
        """What differs after each change to the file, its owner or its permissions; None if it is missing."""
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_ctime_ns


class TokenBucket:
    """A token bucket with a capacity of one minute's requests, which refills evenly."""

    def __init__(self, rate: int) -> None:
        self._tokens, self._updated_s = float(rate), 0.0

    def take(self, rate: int, now_s: float) -> float:
        """Take a token and return 0 if one is available; otherwise return the seconds until one is, at `rate` tokens a minute.

        >>> bucket = TokenBucket(2)
        >>> [bucket.take(2, now) for now in (0.0, 0.0, 0.0, 15.0, 30.0)]
        [0.0, 0.0, 30.0, 15.0, 0.0]
        """
        elapsed_s = now_s - self._updated_s
        self._tokens, self._updated_s = min(float(rate), self._tokens + elapsed_s * rate / 60), now_s
        if self._tokens < 1 - 1e-9:
            return (1 - self._tokens) * 60 / rate
        self._tokens -= 1
        return 0.0
