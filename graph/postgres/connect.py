"""A connection to PostgreSQL: opened in seconds or not at all, one transaction, and what is refused told in one line without a password."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graph.errors import Unavailable, UserError
from graph.shared.console import say
from graph.store.database import read_database

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as problem:
    raise UserError(f"psycopg: {problem}", "the extra scale", "pip install 'modegraph[scale]'") from None

CONNECT_S = 3
"""For each address of the host, unless the connection string says otherwise."""
IDLE_S = 60
"""After which a silent connection shows that it is still there, for what would forget it on the way."""
ADDRESS_PARAMETERS = ("host", "port", "dbname")
SECRETS = {"password", "sslpassword"}

Connection = psycopg.Connection[tuple[object, ...]]


@contextmanager
def transaction(dsn: str) -> Iterator[Connection]:
    """A connection of one transaction: committed when the block ends, undone when it fails. Notices go to standard error.

    UserError when the database cannot be reached or refuses what the block asks of it.
    """
    shown = database_of(dsn)
    with report_refusals(dsn), _connect(dsn) as connection:
        connection.add_notice_handler(lambda notice: say(f"{shown}: {notice.message_primary}"))
        yield connection


def connect(dsn: str) -> Connection:
    """A connection on which each statement is a transaction of its own, unless it says BEGIN. UserError when there is none to be had."""
    with report_refusals(dsn):
        return _connect(dsn, autocommit=True)


@contextmanager
def report_refusals(dsn: str) -> Iterator[None]:
    """What PostgreSQL refuses becomes a UserError: `Unavailable`, unless it is a text that it cannot hold."""
    try:
        yield
    except psycopg.Error as problem:
        raise _as_user_error(database_of(dsn), problem) from None


def database_of(dsn: str) -> str:
    """Where a connection string leads, without the rest of it; UserError when it cannot be read.

    >>> database_of("host=db user=me password=word dbname=docs")
    'postgresql://me@db/docs'
    """
    given = _parse_dsn(dsn)
    user, host, port, name = (given.get(key, "") for key in ("user", *ADDRESS_PARAMETERS))
    service = f"?service={given['service']}" if "service" in given else ""
    return f"postgresql://{user and user + '@'}{host}{port and ':' + port}{name and '/' + name}{service}"


def _connect(dsn: str, autocommit: bool = False) -> Connection:
    """Never prepared statements: a pooler may hand the next transaction to another server process."""
    options = {
        "connect_timeout": str(CONNECT_S),
        "application_name": "modegraph",
        "keepalives_idle": str(IDLE_S),
        **_parse_dsn(dsn),
    }
    return psycopg.connect(make_conninfo(**options), prepare_threshold=None, autocommit=autocommit)


def parameters_of(dsn: str) -> dict[str, str]:
    """The parameters that a connection string gives, to be kept; UserError when a password is among them."""
    given = _parse_dsn(dsn)
    if SECRETS & given.keys():
        remedy = "leave it to PGPASSWORD or ~/.pgpass"
        raise UserError(f"{database_of(dsn)}: a password, which would be kept with the index", "none", remedy)
    return given


def dsn_of(folder: Path) -> str:
    """The connection string of the database that has the rows of the index in a folder."""
    return make_conninfo(**read_database(folder))


def _parse_dsn(dsn: str) -> dict[str, str]:
    """The parts that a connection string gives; UserError, without a word of it, when it has none or a password spilt into its place."""
    with suppress(psycopg.ProgrammingError):
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
        if not any("@" in given.get(name, "") for name in ADDRESS_PARAMETERS):
            return given
    remedy = "write special characters of a password as %40 and so on, or leave it to PGPASSWORD"
    raise UserError("the connection string cannot be read", "postgresql://USER@HOST/DATABASE", remedy)


def _as_user_error(shown: str, problem: psycopg.Error) -> UserError:
    said = " ".join((problem.diag.message_primary or str(problem)).split())
    if isinstance(problem, psycopg.errors.InsufficientPrivilege):
        return Unavailable(f"{shown}: {said}", "a role that may", "have it granted, or connect as another role")
    if isinstance(problem, psycopg.DataError):
        return UserError(f"{shown}: {said}", "text that PostgreSQL can hold", "take the character out of the document")
    if problem.sqlstate is None:
        first = str(problem).partition("\n")[0]
        return Unavailable(f"{shown}: {first}", "a server that answers", "check the address, the role and its password")
    return Unavailable(f"{shown}: {said}", "", "nothing was changed")
