"""The tables of an export: those of --parquet, one of each kind of node, with their vectors as halfvec, one of occurrences, one of edges.

Ends of edges are ids; the kind of an edge tells what they are of (`EDGES` in docs/postgres.md).
"""

from collections.abc import Callable, Iterator
from itertools import repeat

from graph.export.parts import NODE_KINDS, NodeKind, Value, edges, nodes, occurrences
from graph.index.index import Index
from graph.postgres.values import halfvecs, storable, storable_json, storable_key
from graph.store.data import VECTOR_FIELDS

TEXT, JSON, WHOLE, REAL, VECTOR = "text", "jsonb", "int4", "float4", "halfvec"
NODES: dict[NodeKind, str] = {
    "document": "documents",
    "passage": "passages",
    "proposition": "propositions",
    "entity": "entities",
    "topic": "topics",
    "summary": "summaries",
}
TABLES: dict[str, dict[str, str]] = {
    "documents": {"id": TEXT, "title": TEXT, "metadata": JSON},
    "passages": {
        "id": TEXT,
        "source": TEXT,
        "order": WHOLE,
        "start": WHOLE,
        "end": WHOLE,
        "text": TEXT,
        "vector": VECTOR,
    },
    "propositions": {"id": TEXT, "text": TEXT, "vector": VECTOR},
    "entities": {"id": TEXT, "text": TEXT, "vector": VECTOR},
    "topics": {"id": TEXT, "text": TEXT},
    "summaries": {"id": TEXT, "layer": WHOLE, "text": TEXT, "vector": VECTOR},
    "occurrences": {"proposition": TEXT, "passage": TEXT, "start": WHOLE, "end": WHOLE},
    "edges": {"kind": TEXT, "source": TEXT, "target": TEXT, "weight": REAL},
}
INDEXES = (
    *(f"ALTER TABLE {table} ADD PRIMARY KEY (id)" for table in NODES.values()),
    'ALTER TABLE passages ADD UNIQUE (source, "order")',
    "CREATE INDEX occurrences_of_proposition ON occurrences (proposition)",
    "CREATE INDEX occurrences_of_passage ON occurrences (passage)",
    "CREATE INDEX edges_by_source ON edges (source, kind)",
    "CREATE INDEX edges_by_target ON edges (target, kind)",
    *(f"CREATE INDEX {table}_by_vector ON {table} USING hnsw (vector halfvec_cosine_ops)" for table in VECTOR_FIELDS),
)
"""Made when the tables are full: inserting row by row under an HNSW index takes many times as long."""
Row = tuple[object, ...]


def create_table(table: str, dimensions: int) -> str:
    """The statement that makes a table, for vectors of that many dimensions."""
    types = {TEXT: 'text COLLATE "C"', VECTOR: f"halfvec({dimensions})"}
    columns = [f'"{name}" {types.get(kind, kind)} NOT NULL' for name, kind in TABLES[table].items()]
    return f"CREATE TABLE {table} ({', '.join(columns)})"


def rows_of(index: Index, table: str) -> Iterator[Row]:
    """The rows of a table, in canonical order."""
    if table == "occurrences":
        for found in occurrences(index):
            yield found.proposition, found.passage, found.start, found.end
    elif table == "edges":
        for edge in edges(index):
            yield edge.kind, _end(edge.source), _end(edge.target), edge.weight
    else:
        (kind,) = (each for each in NODE_KINDS if NODES[each] == table)
        clean = [_CLEAN.get(name, storable) for name in TABLES[table] if TABLES[table][name] != VECTOR]
        vectors = halfvecs(getattr(index.data, VECTOR_FIELDS[table][1])) if table in VECTOR_FIELDS else repeat(None)
        for node, vector in zip(nodes(index, kind), vectors, strict=False):
            values = [
                make(value) if isinstance(value, str) else value
                for make, value in zip(clean, node.values.values(), strict=True)
            ]
            yield (*values, vector) if vector is not None else tuple(values)


_CLEAN: dict[str, Callable[[str], Value]] = {"id": storable_key, "source": storable_key, "metadata": storable_json}


def _end(key: str) -> str:
    """The id in a node's key."""
    return storable_key(key.partition(":")[2])
