"""uvicorn's connections with timeouts, and a shutdown that loses no request.

Idle connections are closed after a while, or earlier to make way for new ones; uvicorn limits neither the time in which request headers
arrive nor how long a closing connection takes. If a request is answered before all of it has been read, its connection is closed as in RFC 9112
§9.6, since a TCP reset could otherwise lose the answer. A stopping server answers 503 at /ready for `unready_s`, so that load balancers send new
requests elsewhere; it then accepts and answers the clients that have already connected, and closes."""

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
"""How long the server goes on reading and discarding the rest of a request, so that its client can read the answer."""


class LingeringTransport:
    """A transport whose `close` shuts down only the sending side while the client may still be sending; the connection closes within LINGER_S.

    `unread` returns whether more of a request may arrive. The protocol discards what arrives after `close`.
    """

    def __init__(self, inner: asyncio.Transport, unread: Callable[[], bool]) -> None:
        self._inner, self._unread = inner, unread
        self._lingering = False

    def close(self) -> None:
        if self._unread():
            self.linger()
        elif not self._lingering:
            self._inner.close()

    def linger(self) -> None:
        """Shut down the sending side; the connection closes when the client closes its side, or after LINGER_S."""
        if not self.is_closing():
            self._lingering = True
            self._inner.write_eof()
            self._inner.resume_reading()
            asyncio.get_running_loop().call_later(LINGER_S, self._inner.close)

    def is_closing(self) -> bool:
        return self._lingering or self._inner.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


FIRST_REQUEST_S = 1.0
"""How long a stopping server waits for the first request of a connection."""
MAX_STALLED_CHECKS = 6
"""A client that does not read its answer is disconnected after this many periods of `idle_s` without progress."""


def protocol_of(overflow: OverflowMiddleware, idle_s: float, max_connections: int) -> type[asyncio.Protocol]:
    """The protocol class of one server: connections are idle for at most `idle_s`, and there are at most `max_connections`."""
    attributes = {"overflow": overflow, "idle_s": idle_s, "max_connections": max_connections, "idle": {}}
    return type("Connection", (WatchedConnection,), attributes)


class WatchedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with timeouts, and a check of the first bytes of each request.

    A connection is idle while no request is being answered on it. After `idle_s` it is closed, however many bytes of headers, or of an
    unwanted body, have arrived; at `max_connections`, the connection that has been idle longest is closed for a new one.
    """

    overflow: ClassVar[OverflowMiddleware]
    idle_s: ClassVar[float]
    max_connections: ClassVar[int]
    idle: ClassVar[dict[WatchedConnection, None]]
    """The idle connections of this server, longest idle first."""

    conn: Any
    lingering: LingeringTransport
    is_idle: bool | None = None
    timer: asyncio.TimerHandle | None = None
    unsent = stalled_checks = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.max_connections and self.idle:
            next(iter(self.idle)).give_way()
        self.lingering = LingeringTransport(transport, self.is_unread)
        super().connection_made(cast(asyncio.Transport, self.lingering))
        self.restart_timer()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        fresh = self.conn.our_state is h11.IDLE and not self.conn.trailing_data[0]
        if fresh and self.overflow.refuses(data):
            self.transport.write(self.overflow.answer)
            self.lingering.linger()
        else:
            super().data_received(data)
            self.restart_timer()

    def is_unread(self) -> bool:
        """Whether the body of a request has not been read to its end, or the request could not be parsed."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def shutdown(self) -> None:
        """Close for a stopping server: after the answer in progress, if any; a new connection first gets FIRST_REQUEST_S to send its first request."""
        if self.cycle is None:
            self.loop.call_later(FIRST_REQUEST_S, self.end)
        else:
            self.end()

    def end(self) -> None:
        """Close, after the answer in progress if there is one."""
        if not self.transport.is_closing():
            super().shutdown()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.restart_timer()

    def resume_writing(self) -> None:
        self.stalled_checks = 0
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.stop_timer()

    def restart_timer(self) -> None:
        """Restart the timer if the connection has become idle or busy."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle != self.is_idle:
            self.stop_timer()
            self.is_idle = is_idle
            self.timer = self.loop.call_later(self.idle_s, self.check_progress)
            if is_idle:
                self.idle[self] = None

    def stop_timer(self) -> None:
        """Stop the timer, and remove the connection from the idle connections."""
        self.idle.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()

    def give_way(self) -> None:
        """Close immediately, to make room for another connection."""
        self.transport.abort()
        self.connections.discard(self)
        self.stop_timer()

    def check_progress(self) -> None:
        """Runs every `idle_s` after the connection became idle or busy: closes an idle connection that has sent everything, aborts a stalled one."""
        unsent = self.transport.get_write_buffer_size()
        self.stalled_checks = self.stalled_checks + 1 if 0 < self.unsent <= unsent else 0
        self.unsent = unsent
        if self.stalled_checks == MAX_STALLED_CHECKS:
            self.transport.abort()
        elif self.is_idle and not unsent:
            self.timeout_keep_alive_handler()
        self.timer = self.loop.call_later(self.idle_s, self.check_progress)


TICK_S = 0.1
CLOSE_HEADER = (b"connection", b"close")


def url_of(host: str, port: int) -> str:
    """The URL of a server.

    >>> url_of("localhost", 8080), url_of("::1", 8080)
    ('http://localhost:8080', 'http://[::1]:8080')
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class DrainingServer(uvicorn.Server):
    """A uvicorn server that calls `announce` with its URL once it listens. It sets `stopping` on the signal to stop and keeps listening for `unready_s`;
    a second Ctrl-C ends the wait.
    """

    def __init__(
        self, config: uvicorn.Config, stopping: asyncio.Event, unready_s: float, announce: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._stopping, self._unready_s, self._announce = stopping, unready_s, announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, and announce the URL: the port of a server on any free port is known only now."""
        await super().startup(sockets)
        self._announce(url_of(self.config.host, self.servers[0].sockets[0].getsockname()[1]))

    async def main_loop(self) -> None:
        """Run until the signal to stop, then for `unready_s`, so that load balancers notice."""
        await super().main_loop()
        self._stopping.set()
        self.config.encoded_headers.append(CLOSE_HEADER)
        ticks = round(self._unready_s / TICK_S)
        for tick in range(ticks + 1):
            await self.on_tick(tick)  # Updates the headers of all answers: the date, and Connection: close.
            if tick == ticks or self.force_exit:
                break
            await asyncio.sleep(TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer all connected clients, and shut down as uvicorn does."""
        await self._accept_waiting(sockets or [])
        await super().shutdown(sockets)

    async def _accept_waiting(self, sockets: list[socket.socket]) -> None:
        """Accept the connections in the kernel's queue, which closing the socket would drop."""
        listeners = [listening.dup() for server in self.servers for listening in server.sockets]
        for server in self.servers:
            server.close()
        for listening in sockets:
            listening.close()
        waiting = [connection for listener in listeners for connection in accept_pending(listener)]
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        """The protocol of a connection, constructed as uvicorn constructs it."""
        protocol_class = self.config.http_protocol_class
        return protocol_class(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]


def accept_pending(listener: socket.socket) -> list[socket.socket]:
    """Close a listening socket, and return its connections that were not yet accepted."""
    accepted: list[socket.socket] = []
    with closing(listener):
        listener.setblocking(False)
        while True:
            try:
                accepted.append(listener.accept()[0])
            except OSError:  # None is left, or the limit on open files is reached.
                return accepted
