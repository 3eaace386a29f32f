"""The keys of a server: what each of them opens, the file that they are in, and the ring of a running server.

`modegraph keys` writes the file, `modegraph serve --keys` reads it. Of a key it has the hash alone: a key is 256 random bits, so that one
round of SHA-256 hides it. A running server reads the file again when it has changed, and counts how often each key asks."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import AwareDatetime, Field, field_validator, model_validator
from starlette.requests import HTTPConnection

from graph.config import Settings, parse_settings
from graph.errors import UserError
from graph.index.filters import Condition, parse_condition

Scope = Literal["read", "write", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
ACCESS_FIELD = "modegraph.access"
"""Where the scope of an ASGI request has it, once its key is known."""


@dataclass(frozen=True)
class Access:
    """The rights of a key, which is called `key`; of `collections` (None: of all) it sees the documents that meet every condition."""

    key: str = ""
    key_id: str = ""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    collections: frozenset[str] | None = None
    where: tuple[Condition, ...] = ()

    def seen_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the collections that it sees.

        >>> Access(collections=frozenset({"b", "x"})).seen_of(["a", "b"])
        ('b',)
        """
        return tuple(name for name in names if self.collections is None or name in self.collections)


FULL_ACCESS = Access()
NO_ACCESS = Access(scopes=frozenset(), collections=frozenset())


def access_of(request: HTTPConnection) -> Access:
    """The rights of whoever sent a request."""
    found: Access = request.scope[ACCESS_FIELD]
    return found


KEY_PREFIX = "mg_"
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
    text = KEY_PREFIX + secrets.token_urlsafe(32)
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


LOG = logging.getLogger("modegraph.serve")


class KeyRing:
    """Finds keys. The file is read again whenever it has changed: what was revoked opens nothing from the next request on.

    While it is away or cannot be read, nobody is let in; the log says so once.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp = self._stamp_now()
        self._keys = _by_hash(read_keys(file))
        self._buckets: dict[str, TokenBucket] = {}

    def find(self, text: str) -> Key | None:
        """The key whose text this is; None for any other text, and when its time is over.

        It is looked up by its hash, so that how long it takes tells nothing of the keys that there are.
        """
        self._refresh()
        key = self._keys.get(hash_of(text))
        return None if key is None or key.has_ended(datetime.now(UTC)) else key

    def wait_s(self, key: Key) -> float:
        """0 for a request that the key's rate allows now, which is counted; else the seconds until there is one."""
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
            self._keys = _by_hash(read_keys(self._file))
        except UserError as problem:
            LOG.error("no key is known: %s", problem)
        else:
            LOG.info("%d keys are known", len(self._keys))
        self._buckets = {each: bucket for each, bucket in self._buckets.items() if each in self._keys}

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            now = self._file.stat()
        except OSError:
            return None
        return now.st_ino, now.st_size, now.st_mtime_ns


class TokenBucket:
    """Holds a minute's requests at most, and fills evenly."""

    def __init__(self, rate: int) -> None:
        self._held, self._at = float(rate), -1.0

    def take(self, rate: int, now_s: float) -> float:
        """0 where one was there, which is taken; else the seconds until there is one, at `rate` a minute.

        >>> bucket = TokenBucket(2)
        >>> [bucket.take(2, now) for now in (0.0, 0.0, 0.0, 15.0, 30.0)]
        [0.0, 0.0, 30.0, 15.0, 0.0]
        """
        passed = now_s - self._at if self._at >= 0 else 0.0
        self._held, self._at = min(float(rate), self._held + passed * rate / 60), now_s
        if self._held < 1 - 1e-9:
            return (1 - self._held) * 60 / rate
        self._held -= 1
        return 0.0


def _by_hash(keys: list[Key]) -> dict[str, Key]:
    return {key.sha256: key for key in keys}
