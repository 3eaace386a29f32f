"""Exports an index into a separate schema in PostgreSQL, to be queried with SQL and pgvector.

One transaction: new tables are filled next to the previous export, indexed, analysed and renamed into its place; a failure leaves the previous
export unchanged. The tables are those of --parquet, with vectors as halfvec; ends of edges are ids, and docs/postgres.md lists the
kinds of ends for each kind of edge.
Legend: N rows, D dimensions."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from psycopg import errors, sql
from psycopg.types import TypeInfo
from psycopg.types.string import BytesBinaryDumper

from graph.errors import UserError
from graph.export.elements import COLUMNS, NODE_KINDS, NODE_TABLES, Value, edges, escape_key, nodes, occurrences
from graph.index.index import Index
from graph.postgres.connect import Connection, database_of, replace_nul, transaction
from graph.shared.console import track
from graph.store.data import VECTOR_FIELDS
from graph.store.vectors import Matrix

EXPORT_FORMAT = 1
"""Format of the tables, stored in the table `export` with the source of the export."""
SCHEMA = "modegraph"
OLDEST_PGVECTOR = (0, 8, 4)
MAX_DIMENSIONS = 4_000
"""The maximum that pgvector can index as halfvec."""
_SCHEMA_NAME = re.compile("[a-z_][a-z0-9_]{0,39}")
_EXPORT_TABLE = """CREATE TABLE export (format int4 NOT NULL, index text COLLATE "C" NOT NULL, encoder text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL, exported_at timestamptz NOT NULL DEFAULT now())"""


@dataclass(frozen=True)
class ExportReport:
    """The number of rows in each table, and the server's maintenance_work_mem while it built the vector indexes."""

    rows: dict[str, int]
    maintenance_work_mem: str


def export_index(index: Index, dsn: str, schema: str = SCHEMA) -> ExportReport:
    """Write the tables and their indexes.

    UserError, with the previous export unchanged, when the database cannot be reached or has no pgvector 0.8.4 or newer, when the schema
    belongs to another role, is not an export, has a newer format or contains anything else, when another export to it is running, or when the
    role may not write; also for an invalid schema name and for too many dimensions.
    """
    if not _SCHEMA_NAME.fullmatch(schema) or schema.startswith("pg_"):
        expected = "up to 40 characters from a-z, 0-9 and _, not starting with pg_"
        raise UserError(f"--schema {schema}", expected, "choose another name")
    dimensions = index.data.passage_vectors_PD.shape[1]
    if dimensions > MAX_DIMENSIONS:
        expected = f"at most {MAX_DIMENSIONS:,}, the maximum that pgvector can index"
        raise UserError(f"{index.folder}: vectors of {dimensions:,} dimensions", expected, "use --parquet")
    with transaction(dsn) as connection:
        extension_schema = _check_pgvector(connection, database_of(dsn))
        replaces = _check_schema(connection, database_of(dsn), schema)
        partial_schema = f"{schema}-partial"  # no name of a --schema contains a hyphen
        _run(connection, "CREATE SCHEMA {}", partial_schema)
        _run(connection, "SET LOCAL search_path = {}, {}", partial_schema, extension_schema)
        _run(connection, "SET LOCAL statement_timeout = 0")
        rows = _fill(connection, index, dimensions)
        if replaces:
            _drop(connection, database_of(dsn), schema)
        _run(connection, "ALTER SCHEMA {} RENAME TO {}", partial_schema, schema)
        (memory,) = connection.execute("SELECT current_setting('maintenance_work_mem')").fetchone() or ("",)
    return ExportReport(rows, str(memory))


def _check_pgvector(connection: Connection, database: str) -> str:
    """The schema that contains pgvector; UserError if it is missing or too old."""
    query = "SELECT extversion, nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
    found = connection.execute(query).fetchone()
    required = "pgvector " + ".".join(map(str, OLDEST_PGVECTOR)) + " or newer"
    if found is None:
        remedy = "run in that database, as a superuser: CREATE EXTENSION vector"
        raise UserError(f"{database}: no pgvector", required, remedy)
    version, extension_schema = map(str, found)
    if tuple(map(int, re.findall(r"\d+", version))) < OLDEST_PGVECTOR:
        remedy = "install it, then run in that database: ALTER EXTENSION vector UPDATE"
        raise UserError(
            f"{database}: pgvector {version}", f"{required}, because older versions can build faulty indexes", remedy
        )
    return extension_schema


def _check_schema(connection: Connection, database: str, schema: str) -> bool:
    """Whether the schema contains a previous export to replace; UserError if it may not be replaced, or if another export is writing to it."""
    lock = connection.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", (f"modegraph {schema}",))
    if lock.fetchone() != (True,):
        found = f"{database}: another export to schema {schema} is running"
        raise UserError(found, "one export at a time", "wait until it ends")
    query = """SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = 'export'), pg_has_role(nspowner, 'USAGE')
        FROM pg_namespace n WHERE nspname = %s"""
    row = connection.execute(query, (schema,)).fetchone()
    if row is None:
        return False
    is_export, is_owner = row
    if not is_export:
        found = f"{database}: schema {schema} is not an export of an index"
        raise UserError(found, "an export, or a new schema", "name another with --schema")
    if not is_owner:
        remedy = "connect as its owner, or name another with --schema"
        raise UserError(f"{database}: schema {schema} belongs to another role", "a schema owned by this role", remedy)
    format_query = sql.SQL("SELECT format FROM {}.export").format(sql.Identifier(schema))
    (version,) = connection.execute(format_query).fetchone() or (0,)
    if int(str(version)) > EXPORT_FORMAT:
        remedy = "install that version, or name another with --schema"
        found = f"{database}: schema {schema} has format {version}, from a newer modegraph"
        raise UserError(found, f"at most format {EXPORT_FORMAT}", remedy)
    return True


def _fill(connection: Connection, index: Index, dimensions: int) -> dict[str, int]:
    """Create and fill the tables, build their indexes, analyse them for the planner; return the number of rows by table."""
    halfvec = TypeInfo.fetch(connection, "halfvec")
    assert halfvec is not None
    halfvec.register(connection)
    number = halfvec.oid

    class HalfvecDumper(BytesBinaryDumper):
        """Passes the bytes of `halfvecs` on unchanged."""

        oid = number

    connection.adapters.register_dumper(None, HalfvecDumper)
    counts: dict[str, int] = {}

    def copy(table: str) -> None:
        connection.execute(create_table(table, dimensions))
        counts[table] = _copy(connection, index, table)

    statements = (*INDEXES, *(f"ANALYZE {table}" for table in TABLES))
    steps = [partial(copy, table) for table in TABLES]
    steps += [partial(_run, connection, statement) for statement in statements]
    for step in track(steps, "Steps of the export", len(steps)):
        step()
    connection.execute(_EXPORT_TABLE)
    values = (EXPORT_FORMAT, index.manifest.identity, index.settings.encoder, index.manifest.encoder)
    connection.execute("INSERT INTO export VALUES (%s, %s, %s, %s)", values)
    return counts


def _copy(connection: Connection, index: Index, table: str) -> int:
    """Copy the rows in binary format, already frozen (allowed because the same transaction creates the table); return their number."""
    count = 0
    with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary, FREEZE)") as rows:
        rows.set_types(list(TABLES[table].values()))
        for row in rows_of(index, table):
            rows.write_row(row)
            count += 1
    return count


def _drop(connection: Connection, database: str, schema: str) -> None:
    """Drop the previous export; UserError when other objects depend on it or are in its schema."""
    try:
        for table in (*TABLES, "export"):
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(schema, table)))
        _run(connection, "DROP SCHEMA {}", schema)
    except errors.DependentObjectsStillExist as problem:
        detail = " ".join((problem.diag.message_detail or "").split()).rstrip(".")
        found = f"{database}: schema {schema} cannot be replaced: {detail}"
        remedy = "drop those objects, or name another schema with --schema; the previous export is unchanged"
        raise UserError(found, "a schema that contains only the export", remedy) from None


def _run(connection: Connection, statement: str, *names: str) -> None:
    """Run a statement, each {} in it replaced by a quoted name."""
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


ROWS_AT_ONCE = 8_192
_NULL_IN_JSON = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def read_json_without_nul(text: str) -> Any:
    """The value of a JSON string, with U+FFFD instead of NUL and None instead of NaN and infinity, which jsonb cannot store.

    >>> read_json_without_nul('{"a": "x\\\\u0000", "b": "\\\\\\\\u0000", "c": [NaN, -Infinity]}')
    {'a': 'x\ufffd', 'b': '\\\\u0000', 'c': [None, None]}
    """
    return json.loads(_NULL_IN_JSON.sub("\\1\ufffd", text), parse_constant=lambda constant: None)


def halfvecs(vectors_ND: Matrix) -> Iterator[bytes]:
    """Each vector in pgvector's binary halfvec format: D and 0 in 16 bits each, then D half-precision numbers, all big-endian."""
    head = np.array([vectors_ND.shape[1], 0], ">u2").tobytes()
    for start in range(0, len(vectors_ND), ROWS_AT_ONCE):
        for half_D in np.asarray(vectors_ND[start : start + ROWS_AT_ONCE]).astype(">f2"):
            yield head + half_D.tobytes()


TEXT, VECTOR = "text", "halfvec"
TYPES = {str: TEXT, int: "int4", float: "float4"}
TABLES: dict[str, dict[str, str]] = {
    table: {name: "jsonb" if name == "metadata" else TYPES[kind] for name, kind in columns.items()}
    | ({"vector": VECTOR} if table in VECTOR_FIELDS else {})
    for table, columns in COLUMNS.items()
}
INDEXES = (
    *(f"ALTER TABLE {table} ADD PRIMARY KEY (id)" for table in NODE_TABLES.values()),
    'ALTER TABLE passages ADD UNIQUE (source, "order")',
    "CREATE INDEX occurrences_of_proposition ON occurrences (proposition)",
    "CREATE INDEX occurrences_of_passage ON occurrences (passage)",
    "CREATE INDEX edges_by_source ON edges (source, kind)",
    "CREATE INDEX edges_by_target ON edges (target, kind)",
    *(f"CREATE INDEX {table}_by_vector ON {table} USING hnsw (vector halfvec_cosine_ops)" for table in VECTOR_FIELDS),
)
"""Built after the tables are filled: inserting into an HNSW index row by row takes many times longer."""


def create_table(table: str, dimensions: int) -> str:
    """The statement that creates a table, for vectors of `dimensions`."""
    types = {TEXT: 'text COLLATE "C"', VECTOR: f"halfvec({dimensions})"}
    columns = [f'"{name}" {types.get(kind, kind)} NOT NULL' for name, kind in TABLES[table].items()]
    return f"CREATE TABLE {table} ({', '.join(columns)})"


def rows_of(index: Index, table: str) -> Iterator[tuple[object, ...]]:
    """The rows of a table, in canonical order."""
    if table == "occurrences":
        yield from occurrences(index)
    elif table == "edges":
        for edge in edges(index):
            yield edge.kind, _node_id(edge.source), _node_id(edge.target), edge.weight
    else:
        (kind,) = (each for each in NODE_KINDS if NODE_TABLES[each] == table)
        clean = [_CLEAN.get(name, replace_nul) for name in COLUMNS[table]]
        vectors = halfvecs(getattr(index.data, VECTOR_FIELDS[table][1])) if table in VECTOR_FIELDS else repeat(None)
        for node, vector in zip(nodes(index, kind), vectors, strict=False):
            values = [
                convert(value) if isinstance(value, str) else value
                for convert, value in zip(clean, node.values.values(), strict=True)
            ]
            yield (*values, vector) if vector is not None else tuple(values)


_CLEAN: dict[str, Callable[[str], Value]] = {
    "id": partial(escape_key, forbidden="\0"),
    "source": partial(escape_key, forbidden="\0"),
    "metadata": read_json_without_nul,
}


def _node_id(key: str) -> str:
    return escape_key(key.partition(":")[2], "\0")
