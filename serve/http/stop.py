"""How a server stops without losing a request: first it says so at /ready, then it takes in who has connected, then it closes.

Balancers that ask /ready have `unready_s` to send new requests elsewhere; whatever still comes is answered, and its connection ended. After
that, whoever connects is refused before a byte is sent, which any balancer tries elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import uvicorn

TICK_S = 0.1
CLOSE = (b"connection", b"close")


class LeavingServer(uvicorn.Server):
    """A uvicorn server that sets `leaving` when it is told to stop, and goes on listening for `unready_s`; a second Ctrl-C ends that."""

    def __init__(self, config: uvicorn.Config, leaving: asyncio.Event, unready_s: float) -> None:
        super().__init__(config)
        self._leaving, self._unready_s = leaving, unready_s

    async def main_loop(self) -> None:
        """Until told to stop, then as long as balancers need to notice."""
        await super().main_loop()
        self._leaving.set()
        self.config.encoded_headers.append(CLOSE)
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
        waiting = [connection for listener in listeners for connection in emptied(listener)]
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        """What answers on a connection, as uvicorn makes it."""
        kind = self.config.http_protocol_class
        return kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]


def emptied(listener: socket.socket) -> list[socket.socket]:
    """Close a listening socket, and return the connections that nobody had accepted yet."""
    found: list[socket.socket] = []
    with closing(listener):
        listener.setblocking(False)
        while True:
            try:
                found.append(listener.accept()[0])
            except OSError:  # None is left, or no file may be opened any more.
                return found
