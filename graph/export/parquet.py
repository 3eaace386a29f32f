"""Parquet, for data tools (datasets, pandas, DuckDB): a table for each kind of node, with its vectors, and one of all edges."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graph.data import VECTOR_FIELDS
from graph.export.parts import NODE_KINDS, Edge, Node, NodeKind, edges, nodes
from graph.index import Index
from graph.types import Floats

ROWS_AT_ONCE = 10_000
TABLES: dict[NodeKind, str] = {
    "document": "documents",
    "passage": "passages",
    "proposition": "propositions",
    "name": "names",
    "topic": "topics",
    "summary": "summaries",
}
TEXT, WHOLE = pa.string(), pa.int64()
COLUMNS: dict[NodeKind, dict[str, pa.DataType]] = {
    "document": {"id": TEXT, "title": TEXT, "metadata": TEXT},
    "passage": {"id": TEXT, "source": TEXT, "order": WHOLE, "start": WHOLE, "end": WHOLE, "text": TEXT},
    "proposition": {"id": TEXT, "text": TEXT},
    "name": {"id": TEXT, "text": TEXT},
    "topic": {"id": TEXT, "text": TEXT},
    "summary": {"id": TEXT, "layer": WHOLE, "text": TEXT},
}
EDGE_COLUMNS = {"kind": TEXT, "source": TEXT, "target": TEXT, "weight": pa.float64()}


def write_parquet(index: Index, folder: Path) -> dict[str, int]:
    """Write documents.parquet, …, edges.parquet into the new `folder`; how many nodes and edges were written.

    Tables of what has vectors have a column "vector", a list of D floats. Ends of edges are "kind:id".
    """
    folder.mkdir()
    written = {kind: _write_nodes(index, kind, folder / f"{TABLES[kind]}.parquet") for kind in NODE_KINDS}
    return {"nodes": sum(written.values()), "edges": _write_edges(edges(index), folder / "edges.parquet")}


def _write_nodes(index: Index, kind: NodeKind, file: Path) -> int:
    vectors_ND: Floats | None = None
    if TABLES[kind] in VECTOR_FIELDS:
        vectors_ND = getattr(index.data, VECTOR_FIELDS[TABLES[kind]][1])
    columns = dict(COLUMNS[kind])
    if vectors_ND is not None:
        columns["vector"] = pa.list_(pa.float32(), vectors_ND.shape[1])
    found, count = nodes(index, kind), 0
    with pq.ParquetWriter(file, pa.schema(columns)) as out:
        while part := list(islice(found, ROWS_AT_ONCE)):
            out.write_table(_table(part, COLUMNS[kind], vectors_ND, count))
            count += len(part)
    return count


def _table(part: list[Node], columns: dict[str, pa.DataType], vectors_ND: Floats | None, start: int) -> pa.Table:
    arrays = {name: pa.array([node.values[name] for node in part], kind) for name, kind in columns.items()}
    if vectors_ND is not None:
        flat = np.ascontiguousarray(vectors_ND[start : start + len(part)], np.float32).ravel()
        arrays["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors_ND.shape[1])
    return pa.table(arrays)


def _write_edges(found: Iterator[Edge], file: Path) -> int:
    count = 0
    with pq.ParquetWriter(file, pa.schema(EDGE_COLUMNS)) as out:
        while part := list(islice(found, ROWS_AT_ONCE)):
            columns = {
                name: pa.array([getattr(edge, name) for edge in part], kind) for name, kind in EDGE_COLUMNS.items()
            }
            out.write_table(pa.table(columns))
            count += len(part)
    return count
