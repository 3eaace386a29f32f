"""The queue of an index's writers in its database, across machines: first come, first served, one at a time.

A writer takes a ticket: a row of `leases`, whose key is the *fence*. The lowest ticket has the turn. A ticket is a lease of LEASE_S: its
writer renews it while it waits and writes, and waiting writers discard tickets that have expired, or whose process ran on the same machine
and has ended. Every writing transaction begins by renewing the ticket, which locks the ticket until the transaction ends. If the ticket is
gone, the writer was inactive for longer than its lease: its late write is refused. All times are the database's.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread

import psycopg

from graph.errors import UserError
from graph.postgres.connect import Connection, connect, database_of, report_refusals, transaction
from graph.postgres.schema import SCHEMA, migrate
from graph.store.lock import GiveUp, wait_for_turn

LEASE_S = 60.0
POLL_S = 0.1
MAX_FENCE = 2**63 - 1
STATEMENT_S = 60.0
"""Interval at which a writing transaction sends a statement: reading a scanned document or downloading an encoder may exceed its idle limit."""
LIMITS = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "'10min'",
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""Settings of a writing transaction: a disconnected machine is detected after 50 s, a writer idle in a transaction after ten minutes."""
_TAKE_TICKET = f"""INSERT INTO {SCHEMA}.leases (writer, machine, process, expires_at)
    VALUES (%s, %s, %s, clock_timestamp() + make_interval(secs => %s)) RETURNING fence"""
_RENEW = f"UPDATE {SCHEMA}.leases SET expires_at = clock_timestamp() + make_interval(secs => %s) WHERE fence = %s"
_UNLOCKED = f"SELECT fence FROM {SCHEMA}.leases WHERE fence = %s FOR UPDATE SKIP LOCKED"
"""Selects a ticket unless a transaction has locked it: a locked ticket need not be renewed."""
_DISCARD = f"""DELETE FROM {SCHEMA}.leases WHERE fence IN (SELECT fence FROM {SCHEMA}.leases
    WHERE fence = %s AND (%s OR expires_at < clock_timestamp()) FOR UPDATE SKIP LOCKED)"""
"""Discards a ticket that no transaction has locked and whose writer is gone or has let it expire."""
_AHEAD = f"""SELECT fence, writer, machine, process, expires_at < clock_timestamp() FROM {SCHEMA}.leases WHERE fence < %s ORDER BY fence"""


@dataclass(frozen=True)
class Turn:
    """The turn of the writer with this ticket."""

    folder: Path
    fence: int

    def begin(self, connection: Connection) -> None:
        """Begin a transaction under the lease. The server aborts it if this writer stops responding, because other writers wait."""
        connection.execute(f"BEGIN; {'; '.join(f'SET LOCAL {name} = {value}' for name, value in LIMITS.items())}")
        try:
            self.renew(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def renew(self, connection: Connection) -> None:
        """Renew the lease within a transaction; the lease is then locked until the transaction ends. UserError if another writer has discarded the ticket."""
        if connection.execute(_RENEW, (LEASE_S, self.fence)).rowcount == 0:
            found = f"{self.folder}: this writer was inactive for longer than its lease of {LEASE_S:g} s, and another writer has taken over"
            remedy = f"this step wrote nothing; continue with: modegraph resume {self.folder}"
            raise UserError(found, "a writer that renews its lease", remedy)


@contextmanager
def kept_alive(connection: Connection) -> Iterator[None]:
    """Send a statement every STATEMENT_S seconds, so that only a writer that has stopped is idle."""
    done = Event()

    def send() -> None:
        while not done.wait(STATEMENT_S):
            # A lost connection is reported by the next write.
            with suppress(psycopg.Error):
                connection.execute("SELECT 1")

    sender = Thread(target=send, name="statements", daemon=True)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join()


@contextmanager
def writers_turn(dsn: str, folder: Path, give_up: GiveUp | None = None) -> Iterator[Turn]:
    """The turn to write, once all earlier writers are done; `give_up` and the errors are those of graph/store/lock.py.

    The schema is created or migrated first.
    """
    with transaction(dsn) as connection:
        # While `migrate` holds its lock, no other writer takes a ticket, so fences have the order of the transactions.
        migrate(connection, database_of(dsn))
        writer = f"{os.getpid()} of {platform.node()}"
        (fence,) = connection.execute(_TAKE_TICKET, (writer, _machine(), os.getpid(), LEASE_S)).fetchone() or (0,)
        turn = Turn(folder, int(str(fence)))
    done = Event()
    renewer = Thread(target=_renew, args=(dsn, turn, done), name="lease", daemon=True)
    renewer.start()
    try:
        with connect(dsn) as connection, report_refusals(dsn):
            wait_for_turn(folder, partial(_writer_ahead, connection, turn.fence), give_up, POLL_S)
        yield turn
    except OSError:
        # A writer whose lease has expired may fail because the next writer has removed files: then report the lost lease as the error.
        with transaction(dsn) as connection:
            turn.renew(connection)
        raise
    finally:
        done.set()
        renewer.join()
        # A ticket that cannot be deleted expires.
        with suppress(UserError), transaction(dsn) as connection:
            connection.execute(f"DELETE FROM {SCHEMA}.leases WHERE fence = %s", (turn.fence,))


def _renew(dsn: str, turn: Turn, done: Event) -> None:
    """Renew the lease every LEASE_S / 3 seconds. Failures are retried; a lost lease is reported by the next write."""
    while not done.wait(LEASE_S / 3):
        with suppress(UserError), transaction(dsn) as connection:
            if connection.execute(_UNLOCKED, (turn.fence,)).fetchone():
                connection.execute(_RENEW, (LEASE_S, turn.fence))


def _writer_ahead(connection: Connection, fence: int) -> str:
    """The writer with the lowest ticket before this one, "" if there is none; tickets that have expired or whose writers are gone are discarded."""
    for ticket, writer, where, process, expired in connection.execute(_AHEAD, (fence,)).fetchall():
        gone = _is_gone(where, process)
        if not (gone or expired) or connection.execute(_DISCARD, (ticket, gone)).rowcount == 0:
            return str(writer)
    return ""


def current_writer(dsn: str) -> str:
    """The writer with the lowest ticket that has not expired and whose writer is not gone; "" if there is none."""
    with transaction(dsn) as connection:
        tickets = connection.execute(_AHEAD, (MAX_FENCE,)).fetchall()
    return next((str(writer) for _, writer, *where, expired in tickets if not (expired or _is_gone(*where))), "")


def _is_gone(machine: object, process: object) -> bool:
    """Whether the process of a writer on this machine is no longer running; false for writers on others."""
    return machine == _machine() != "" and not _is_running(int(str(process)))


def _machine() -> str:
    """An id of this boot and process namespace, within which process ids are unique; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
