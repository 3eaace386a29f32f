"""The elements of an index as files for other tools.

GraphML is for graph tools (igraph, networkx, Gephi): one directed graph, every node and edge with its kind. Elements are written one by one as they
are read, so that the file is never in memory as a whole. Parquet is for data tools (datasets, pandas, DuckDB): one table for each kind of node,
with its vectors, one for occurrences and one for edges."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graph.export.elements import (
    COLUMNS,
    NODE_KINDS,
    NODE_TABLES,
    Node,
    NodeKind,
    Value,
    edges,
    escape_key,
    nodes,
    occurrences,
)
from graph.index.index import Index
from graph.store.data import VECTOR_FIELDS
from graph.store.vectors import Matrix

_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, even if they are escaped."""
_ESCAPED = {"\r": "&#13;"}
"""XML parsers turn a bare carriage return into a line feed."""
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
"""
NODE_TEXTS = ("kind", "id", "text", "title", "source", "metadata")
NODE_NUMBERS = ("order", "start", "end", "layer")
"""Attributes of nodes, in the order of the file. igraph stores a node's key as its attribute "id", so the id itself is written as "own_id"."""


def write_graphml(index: Index, file: Path) -> dict[str, int]:
    """Write all nodes and edges; return how many of each.

    Characters that XML cannot contain become U+FFFD in texts; in keys, they and U+FFFD itself become U+FFFD followed by
    their code point, so that keys stay unique.
    """
    counts = {"nodes": 0, "edges": 0}
    with file.open("w", encoding="utf-8", newline="\n") as out:
        out.write(_HEAD)
        for field in (*NODE_TEXTS, *NODE_NUMBERS):
            name = "own_id" if field == "id" else field
            value_type = "string" if field in NODE_TEXTS else "long"
            out.write(f'<key id="{field}" for="node" attr.name="{name}" attr.type="{value_type}"/>\n')
        out.write('<key id="relation" for="edge" attr.name="kind" attr.type="string"/>\n')
        out.write('<key id="weight" for="edge" attr.name="weight" attr.type="double"/>\n')
        out.write('<graph edgedefault="directed">\n')
        for kind in NODE_KINDS:
            for node in nodes(index, kind):
                out.write(_node(node))
                counts["nodes"] += 1
        for edge in edges(index):
            ends = f"source={_key(edge.source)} target={_key(edge.target)}"
            out.write(f'<edge {ends}>{_data("relation", edge.kind)}<data key="weight">{edge.weight!r}</data></edge>\n')
            counts["edges"] += 1
        out.write("</graph>\n</graphml>\n")
    return counts


def _node(node: Node) -> str:
    values = "".join(_data(field, value) for field, value in {"kind": node.kind, **node.values}.items())
    return f"<node id={_key(node.key)}>{values}</node>\n"


def _data(field: str, value: Value) -> str:
    text = _FORBIDDEN.sub("\ufffd", str(value))
    return f'<data key="{field}">{escape(text, _ESCAPED)}</data>'


def _key(key: str) -> str:
    """A node's key as a quoted attribute."""
    return quoteattr(escape_key(key, _FORBIDDEN.pattern))


ROWS_AT_ONCE = 10_000
TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}


def write_parquet(index: Index, folder: Path) -> dict[str, int]:
    """Write documents.parquet, …, occurrences.parquet, edges.parquet into the new `folder`; return how many rows were written.

    Nodes with vectors have a column "vector", a list of D floats. Ends of edges are "kind:id"; occurrences name their
    proposition and passage by id. The tables have different columns, so each must be opened separately.
    """
    folder.mkdir()
    counts = {name: _write_tables(tables, folder / f"{name}.parquet") for name, tables in _tables_of(index).items()}
    return {
        "nodes": sum(counts[NODE_TABLES[kind]] for kind in NODE_KINDS),
        "occurrences": counts["occurrences"],
        "edges": counts["edges"],
    }


def index_tables(index: Index) -> dict[str, pa.Table]:
    """The tables of `write_parquet` in memory, by name: documents, …, occurrences, edges."""
    parts = _tables_of(index)
    return {name: pa.concat_tables(list(tables), promote_options="none") for name, tables in parts.items()}


def _tables_of(index: Index) -> dict[str, Iterator[pa.Table]]:
    occurrence_rows = (dict(zip(COLUMNS["occurrences"], each, strict=True)) for each in occurrences(index))
    return {
        **{NODE_TABLES[kind]: _node_tables(index, kind) for kind in NODE_KINDS},
        "occurrences": _tables("occurrences", occurrence_rows),
        "edges": _tables("edges", map(vars, edges(index))),
    }


def _write_tables(tables: Iterator[pa.Table], file: Path) -> int:
    """Write the tables one after another, with one in memory at a time; return how many rows were written."""
    first = next(tables)
    count = 0
    with pq.ParquetWriter(file, first.schema) as out:
        for table in chain([first], tables):
            out.write_table(table)
            count += table.num_rows
    return count


def _node_tables(index: Index, kind: NodeKind) -> Iterator[pa.Table]:
    rows, name = (node.values for node in nodes(index, kind)), NODE_TABLES[kind]
    return _tables(name, rows, getattr(index.data, VECTOR_FIELDS[name][1]) if name in VECTOR_FIELDS else None)


def _tables(name: str, rows: Iterable[Mapping[str, Any]], vectors_ND: Matrix | None = None) -> Iterator[pa.Table]:
    """The rows as tables of up to ROWS_AT_ONCE, each row with its vector if there are vectors; without rows, one empty table."""
    iterator, count = iter(rows), 0
    schema = pa.schema({column: TYPES[kind] for column, kind in COLUMNS[name].items()})
    vector = pa.list_(pa.float32(), 0 if vectors_ND is None else vectors_ND.shape[1])
    parts = iter(lambda: list(islice(iterator, ROWS_AT_ONCE)), [])
    for part in chain(parts, [[]]):
        if part or not count:
            table = pa.Table.from_pylist(part, schema)
            if vectors_ND is not None:
                flat = np.ascontiguousarray(vectors_ND[count : count + len(part)], np.float32).ravel()
                table = table.append_column("vector", pa.FixedSizeListArray.from_arrays(pa.array(flat), type=vector))
            yield table
            count += len(part)
