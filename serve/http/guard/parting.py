"""The end of a connection on which a request was answered before all of it was read: RFC 9112 §9.6.

Closed at once over bytes that are unread, or that come later, TCP resets a connection, and its peer may lose an answer that it has not
read yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_S = 1.0
"""How long what still comes of a request is passed over, so that its sender can read the answer."""


class PartingTransport:
    """A connection's transport, whose `close` ends our side alone while the peer may still be sending, and the whole within LINGER_S.

    `unread` tells whether something of a request may still come. What comes after `close` is for the protocol to pass over.
    """

    def __init__(self, inner: asyncio.Transport, unread: Callable[[], bool]) -> None:
        self._inner, self._unread = inner, unread
        self._parted = False

    def close(self) -> None:
        if self._unread():
            self.part()
        elif not self._parted:
            self._inner.close()

    def part(self) -> None:
        """End our side, and the connection when the peer ends its own, or after LINGER_S."""
        if not self.is_closing():
            self._parted = True
            self._inner.write_eof()
            self._inner.resume_reading()
            asyncio.get_running_loop().call_later(LINGER_S, self._inner.close)

    def is_closing(self) -> bool:
        return self._parted or self._inner.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
