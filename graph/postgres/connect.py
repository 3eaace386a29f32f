"""Connections to PostgreSQL: opened within seconds or refused; single transactions; one-line errors without passwords."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graph.errors import Unavailable, UserError, first_line
from graph.shared.console import say
from graph.store.index_settings import DATABASE_FILE, read_database

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as problem:
    raise UserError(f"psycopg: {problem}", "the extra `scale`", "pip install 'modegraph[scale]'") from None

CONNECT_S = 3
"""Connection timeout per address of the host, unless the connection string sets another."""
IDLE_S = 60
"""Idle time before a TCP keepalive, so that no network device drops the connection."""
ADDRESS_PARAMETERS = ("host", "port", "dbname")
SECRETS = {"password", "sslpassword"}

Connection = psycopg.Connection[tuple[object, ...]]


@contextmanager
def transaction(dsn: str) -> Iterator[Connection]:
    """A connection for one transaction: committed when the block ends, rolled back when it fails. Notices go to standard error.

    UserError when the database cannot be reached or refuses a statement of the block.
    """
    database = database_of(dsn)
    with report_refusals(dsn), _connect(dsn) as connection:
        connection.add_notice_handler(lambda notice: say(f"{database}: {notice.message_primary}"))
        yield connection


def connect(dsn: str) -> Connection:
    """A connection in autocommit mode; a transaction starts with BEGIN. UserError when the database cannot be reached."""
    with report_refusals(dsn):
        return _connect(dsn, autocommit=True)


@contextmanager
def report_refusals(dsn: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into `Unavailable`, or into a plain UserError for text that PostgreSQL cannot store."""
    try:
        yield
    except psycopg.Error as problem:
        raise _as_user_error(database_of(dsn), problem) from None


def database_of(dsn: str) -> str:
    """The user, host, port, database and service of a connection string, as a URL; UserError when the string cannot be read.

    >>> database_of("host=db user=me password=word dbname=docs")
    'postgresql://me@db/docs'
    """
    parameters = _parse_dsn(dsn)
    user, host, port, name = (parameters.get(key, "") for key in ("user", *ADDRESS_PARAMETERS))
    service = f"?service={parameters['service']}" if "service" in parameters else ""
    return f"postgresql://{user and user + '@'}{host}{port and ':' + port}{name and '/' + name}{service}"


def _connect(dsn: str, autocommit: bool = False) -> Connection:
    """Connect, without prepared statements: a pooler may hand the next transaction to another server process."""
    defaults = {"connect_timeout": str(CONNECT_S), "application_name": "modegraph", "keepalives_idle": str(IDLE_S)}
    return psycopg.connect(make_conninfo(**defaults | _parse_dsn(dsn)), prepare_threshold=None, autocommit=autocommit)


def parameters_of(dsn: str) -> dict[str, str]:
    """The parameters of a connection string, to be stored; UserError when a password is among them."""
    parameters = _parse_dsn(dsn)
    if SECRETS & parameters.keys():
        found = f"{database_of(dsn)}: a password, which would be stored with the index"
        raise UserError(found, "an address without a password", "put it in PGPASSWORD or ~/.pgpass")
    return parameters


def dsn_of(folder: Path) -> str:
    """The connection string of the database that contains the rows of the index in a folder; UserError when database.json has an unknown parameter."""
    try:
        return make_conninfo(**read_database(folder))
    except psycopg.ProgrammingError as problem:
        found = f"{folder / DATABASE_FILE}: {first_line(problem)}"
        raise UserError(found, "parameters of a PostgreSQL connection", "correct the file") from None


def _parse_dsn(dsn: str) -> dict[str, str]:
    """The parameters of a connection string. UserError, which quotes no part of the string, when it is invalid or its address contains part of a password."""
    with suppress(psycopg.ProgrammingError):
        parameters = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
        if not any("@" in parameters.get(name, "") for name in ADDRESS_PARAMETERS):
            return parameters
    remedy = "write special characters in the password as %40 and so on, or put it in PGPASSWORD"
    raise UserError("the connection string cannot be read", "postgresql://USER@HOST/DATABASE", remedy)


def _as_user_error(database: str, problem: psycopg.Error) -> UserError:
    found = f"{database}: {' '.join((problem.diag.message_primary or str(problem)).split())}"
    if isinstance(problem, psycopg.errors.InsufficientPrivilege):
        return Unavailable(found, "a role with that permission", "have it granted, or connect as another role")
    if isinstance(problem, psycopg.DataError):
        return UserError(found, "text that PostgreSQL can store", "remove the character from the document")
    if problem.sqlstate is None:
        first = str(problem).partition("\n")[0]
        return Unavailable(
            f"{database}: {first}", "a server that answers", "check the address, the role and its password"
        )
    remedy = "nothing was changed; resolve this in the database, then try again"
    return Unavailable(found, "a database that accepts the statement", remedy)


def replace_nul(text: str) -> str:
    """The text with U+FFFD instead of NUL, which PostgreSQL cannot store."""
    return text.replace("\0", "\ufffd")
