"""uvicorn's connections with patience that ends, and a stop that loses no request.

Idle connections are closed after a while and give way to new ones before that; uvicorn limits neither the time in which a head comes nor how
long a closing connection takes. A request answered before all of it was read is closed as RFC 9112 §9.6 says, or TCP's reset could lose the
answer. A server that stops says so at /ready for `unready_s`, so that balancers send new requests elsewhere, then takes in who has
connected, then closes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any, ClassVar, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from serve.http.admission import OverflowMiddleware

LINGER_S = 1.0
"""How long what still comes of a request is passed over, so that its sender can read the answer."""


class LingeringTransport:
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


FIRST_REQUEST_S = 1.0
"""How long a stopping server waits for the request of a connection that has brought none yet."""
MAX_STUCK_CHECKS = 6
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
    parting: LingeringTransport
    rests: bool | None = None
    timer: asyncio.TimerHandle | None = None
    unsent = stuck = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.most and self.resting:
            next(iter(self.resting)).give_way()
        self.parting = LingeringTransport(transport, self.is_unread)
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
            self.loop.call_later(FIRST_REQUEST_S, self.end)
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
        if self.stuck == MAX_STUCK_CHECKS:
            self.transport.abort()
        elif self.rests and not unsent:
            self.timeout_keep_alive_handler()
        self.timer = self.loop.call_later(self.idle_s, self.look)


TICK_S = 0.1
CLOSE_HEADER = (b"connection", b"close")


class DrainingServer(uvicorn.Server):
    """A uvicorn server that sets `leaving` when it is told to stop, and goes on listening for `unready_s`; a second Ctrl-C ends that."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, unready_s: float) -> None:
        super().__init__(config)
        self._stopping, self._unready_s = stopping, unready_s

    async def main_loop(self) -> None:
        """Until told to stop, then as long as balancers need to notice."""
        await super().main_loop()
        self._stopping.set()
        self.config.encoded_headers.append(CLOSE_HEADER)
        ticks = round(self._unready_s / TICK_S)
        for tick in range(ticks + 1):
            await self.on_tick(tick)  # Keeps the headers of all answers: the date, and ours from now on.
            if tick == ticks or self.force_exit:
                break
            await asyncio.sleep(TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer all who have connected, and end as uvicorn does."""
        await self._take_in_the_last(sockets or [])
        await super().shutdown(sockets)

    async def _take_in_the_last(self, sockets: list[socket.socket]) -> None:
        """Accept those who wait in the kernel's queue, which closing the socket would cut off."""
        listeners = [listening.dup() for server in self.servers for listening in server.sockets]
        for server in self.servers:
            server.close()
        for each in sockets:
            each.close()
        waiting = [connection for listener in listeners for connection in accept_pending(listener)]
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        """What answers on a connection, as uvicorn makes it."""
        kind = self.config.http_protocol_class
        return kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]


def accept_pending(listener: socket.socket) -> list[socket.socket]:
    """Close a listening socket, and return the connections that nobody had accepted yet."""
    found: list[socket.socket] = []
    with closing(listener):
        listener.setblocking(False)
        while True:
            try:
                found.append(listener.accept()[0])
            except OSError:  # None is left, or no file may be opened any more.
                return found
