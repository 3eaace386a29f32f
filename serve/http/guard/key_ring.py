"""The keys that a running server knows: those of its file as it is now, and how often each may ask."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path

from graph.shared.errors import UserError
from serve.http.guard.key_file import Key, hash_of, read_keys

LOG = logging.getLogger("modegraph.serve")


class KeyRing:
    """Finds keys. The file is read again whenever it has changed: what was revoked opens nothing from the next request on.

    While it is away or cannot be read, nobody is let in; the log says so once.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp = self._stamp_now()
        self._keys = _by_hash(read_keys(file))
        self._buckets: dict[str, Bucket] = {}

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
        bucket = self._buckets.setdefault(key.sha256, Bucket(key.rate))
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


class Bucket:
    """Holds a minute's requests at most, and fills evenly."""

    def __init__(self, rate: int) -> None:
        self._held, self._at = float(rate), -1.0

    def take(self, rate: int, now_s: float) -> float:
        """0 where one was there, which is taken; else the seconds until there is one, at `rate` a minute.

        >>> bucket = Bucket(2)
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
