"""Connections on which nothing is asked: they are closed after a while, and give way to new ones before that.

uvicorn limits neither the time in which a request's head comes nor the time that a closing connection takes, and counts the silent
among those that keep others out.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from serve.http.guard.overflow import OverflowMiddleware
from serve.http.guard.parting import PartingTransport

FIRST_S = 1.0
"""How long a stopping server waits for the request of a connection that has brought none yet."""
STUCK_LOOKS = 6
"""So many times `idle_s` an answer waits for a client that takes nothing of it."""


def protocol_of(overflow: OverflowMiddleware, idle_s: float, most: int) -> type[asyncio.Protocol]:
    """The protocol of one server's connections: they rest `idle_s` at most, and there are `most` of them."""
    bound = {"overflow": overflow, "idle_s": idle_s, "most": most, "resting": {}}
    return type("Connection", (WatchedConnection,), bound)


class WatchedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, with a look at the first bytes of a request before it, and patience that ends.

    A connection rests while no request is being answered on it. After a rest of `idle_s` it is closed, however many bytes of a head,
    or of a body that nobody waits for, have come; where there are `most` connections the one that rests longest is closed for the next.
    """

    overflow: ClassVar[OverflowMiddleware]
    idle_s: ClassVar[float]
    most: ClassVar[int]
    resting: ClassVar[dict[WatchedConnection, None]]
    """Of this server, those that rest, the longest first."""

    conn: Any
    parting: PartingTransport
    rests: bool | None = None
    timer: asyncio.TimerHandle | None = None
    unsent = stuck = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.most and self.resting:
            next(iter(self.resting)).give_way()
        self.parting = PartingTransport(transport, self.is_unread)
        super().connection_made(cast(asyncio.Transport, self.parting))
        self.watch()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        fresh = self.conn.our_state is h11.IDLE and not self.conn.trailing_data[0]
        if fresh and self.overflow.refuses(data):
            self.transport.write(self.overflow.answer)
            self.parting.part()
        else:
            super().data_received(data)
            self.watch()

    def is_unread(self) -> bool:
        """Whether a request has begun to come and not been read to its end."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def shutdown(self) -> None:
        """The server stops: end after the answer, or at once; a new connection may still bring its first request."""
        if self.cycle is None:
            self.loop.call_later(FIRST_S, self.end)
        else:
            self.end()

    def end(self) -> None:
        """Close, after the answer if there is one."""
        if not self.transport.is_closing():
            super().shutdown()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch()

    def resume_writing(self) -> None:
        self.stuck = 0
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.forget()

    def watch(self) -> None:
        """Begin to count anew where a rest begins or ends."""
        rests = self.cycle is None or self.cycle.response_complete
        if rests != self.rests:
            self.forget()
            self.rests = rests
            self.timer = self.loop.call_later(self.idle_s, self.look)
            if rests:
                self.resting[self] = None

    def forget(self) -> None:
        """Count no more."""
        self.resting.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()

    def give_way(self) -> None:
        """Close at once, for another connection."""
        self.transport.abort()
        self.connections.discard(self)
        self.forget()

    def look(self) -> None:
        """Once in `idle_s` from the beginning of a rest or an answer: close what rests and has nothing left to send."""
        unsent = self.transport.get_write_buffer_size()
        self.stuck = self.stuck + 1 if 0 < self.unsent <= unsent else 0
        self.unsent = unsent
        if self.stuck == STUCK_LOOKS:
            self.transport.abort()
        elif self.rests and not unsent:
            self.timeout_keep_alive_handler()
        self.timer = self.loop.call_later(self.idle_s, self.look)
