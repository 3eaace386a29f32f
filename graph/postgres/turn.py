"""The line of an index's writers in its database, on whatever machine they are: first come, first served, one at a time.

A writer draws a ticket: a row of `leases`, whose key is the *fence*. The lowest ticket has the turn. A ticket is a lease of LEASE_S: its writer
renews it while it waits and writes, and whoever waits throws away those that have expired, or whose process is gone from the waiter's own
machine. Every transaction that writes renews its ticket first and so keeps it locked to its end: where it is gone, the writer slept past its lease,
another has its turn, and the late write is refused. Time is the database's alone.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from graph.errors import UserError
from graph.postgres.connect import Connection, connect, database_of, report_refusals, transaction
from graph.postgres.schema import SCHEMA, migrate
from graph.shared.console import say
from graph.store.lock import GiveUp, IndexBusy

LEASE_S = 60.0
POLL_S = 0.1
LIMITS = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "'10min'",
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""Of a transaction that writes: a machine that is cut off is missed after 50 s, a writer that does nothing in the middle of one after ten minutes."""
_DRAW = f"""INSERT INTO {SCHEMA}.leases (writer, machine, process, expires_at)
    VALUES (%s, %s, %s, clock_timestamp() + make_interval(secs => %s)) RETURNING fence"""
_RENEW = f"UPDATE {SCHEMA}.leases SET expires_at = clock_timestamp() + make_interval(secs => %s) WHERE fence = %s"
_UNLOCKED = f"SELECT fence FROM {SCHEMA}.leases WHERE fence = %s FOR UPDATE SKIP LOCKED"
"""A ticket that no transaction holds: one that is held need not be renewed."""
_DISCARD = f"""DELETE FROM {SCHEMA}.leases WHERE fence IN (SELECT fence FROM {SCHEMA}.leases
    WHERE fence = %s AND (%s OR expires_at < clock_timestamp()) FOR UPDATE SKIP LOCKED)"""
"""Throw a ticket away, whose writer is known to be gone or has not renewed it meanwhile, and which no transaction holds."""
_AHEAD = f"""SELECT fence, writer, machine, process, expires_at < clock_timestamp() FROM {SCHEMA}.leases WHERE fence < %s ORDER BY fence"""


@dataclass(frozen=True)
class Turn:
    """The turn of the writer with this ticket."""

    folder: Path
    fence: int

    def begin(self, connection: Connection) -> None:
        """Begin a transaction under the lease. The server ends it where nothing is heard of this writer, which would hold up the others."""
        connection.execute(f"BEGIN; {'; '.join(f'SET LOCAL {name} = {value}' for name, value in LIMITS.items())}")
        try:
            self.hold(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def hold(self, connection: Connection) -> None:
        """Renew the lease in a transaction, and lock it to its end. UserError when it went to another."""
        if connection.execute(_RENEW, (LEASE_S, self.fence)).rowcount == 0:
            found = f"{self.folder}: this writer did nothing for longer than its lease of {LEASE_S:g} s, and another has the turn"
            remedy = f"nothing of this step was written; go on with: modegraph resume {self.folder}"
            raise UserError(found, "a writer that renews its lease", remedy)


@contextmanager
def writers_turn(dsn: str, folder: Path, give_up: GiveUp | None = None) -> Iterator[Turn]:
    """The turn to write, when all who came before are done; `give_up` and the errors are those of graph/store/lock.py.

    The schema is made or brought up to date first.
    """
    with transaction(dsn) as connection:
        # Its lock lets one ticket be drawn at a time, so that numbers come in the order of their transactions.
        migrate(connection, database_of(dsn))
        turn = Turn(folder, _draw(connection))
    done = Event()
    renewing = Thread(target=_renew, args=(dsn, turn, done), name="lease", daemon=True)
    renewing.start()
    try:
        _wait(dsn, turn, give_up)
        yield turn
    except OSError:
        # A writer that comes too late misses the files that the one after it has removed.
        with transaction(dsn) as connection:
            turn.hold(connection)
        raise
    finally:
        done.set()
        renewing.join()
        # A ticket that cannot be given back expires.
        with suppress(UserError), transaction(dsn) as connection:
            connection.execute(f"DELETE FROM {SCHEMA}.leases WHERE fence = %s", (turn.fence,))


def _draw(connection: Connection) -> int:
    """A ticket after all that are there."""
    writer = f"{os.getpid()} of {platform.node()}"
    (fence,) = connection.execute(_DRAW, (writer, _machine(), os.getpid(), LEASE_S)).fetchone() or (0,)
    return int(str(fence))


def _renew(dsn: str, turn: Turn, done: Event) -> None:
    """Renew the lease at a third of its time. What fails is tried again; a lease that is lost is told by the next write."""
    while not done.wait(LEASE_S / 3):
        with suppress(UserError), transaction(dsn) as connection:
            if connection.execute(_UNLOCKED, (turn.fence,)).fetchone():
                connection.execute(_RENEW, (LEASE_S, turn.fence))


def _wait(dsn: str, turn: Turn, give_up: GiveUp | None) -> None:
    """Until nobody is ahead."""
    told = False
    with connect(dsn) as connection, report_refusals(dsn):
        while writer := _writer_ahead(connection, turn.fence):
            if give_up is not None and give_up():
                raise IndexBusy(turn.folder, writer)
            if give_up is None and not told:
                say(f"{turn.folder}: being written by process {writer}; waiting until it is done")
                told = True
            time.sleep(POLL_S)


def _writer_ahead(connection: Connection, fence: int) -> str:
    """Who has the lowest ticket before this one, "" when there is none; those whose writers are gone are thrown away."""
    machine = _machine()
    for each, writer, where, process, expired in connection.execute(_AHEAD, (fence,)).fetchall():
        gone = where == machine != "" and not _runs(int(str(process)))
        if not (gone or expired) or connection.execute(_DISCARD, (each, gone)).rowcount == 0:
            return str(writer)
    return ""


def _machine() -> str:
    """What tells the processes of one running system from those of all others; "" where that is not known."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
