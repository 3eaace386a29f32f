"""Parquet, for data tools (datasets, pandas, DuckDB): a table for each kind of node, with its vectors, one of statements, one of edges."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graph.export.parts import NODE_KINDS, NodeKind, edges, nodes, statements
from graph.index.index import Index
from graph.shared.types import Floats
from graph.store.data import VECTOR_FIELDS

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
STATEMENT_COLUMNS = {"proposition": TEXT, "passage": TEXT, "start": WHOLE, "end": WHOLE}
EDGE_COLUMNS = {"kind": TEXT, "source": TEXT, "target": TEXT, "weight": pa.float64()}


def write_parquet(index: Index, folder: Path) -> dict[str, int]:
    """Write documents.parquet, …, statements.parquet, edges.parquet into the new `folder`; how many rows were written.

    Tables of what has vectors have a column "vector", a list of D floats. Ends of edges are "kind:id", those of
    statements ids. Tables have columns of their own, so a reader opens them one by one.
    """
    folder.mkdir()
    written = [_write_nodes(index, kind, folder / f"{TABLES[kind]}.parquet") for kind in NODE_KINDS]
    return {
        "nodes": sum(written),
        "statements": _write_rows(map(vars, statements(index)), STATEMENT_COLUMNS, folder / "statements.parquet"),
        "edges": _write_rows(map(vars, edges(index)), EDGE_COLUMNS, folder / "edges.parquet"),
    }


def _write_nodes(index: Index, kind: NodeKind, file: Path) -> int:
    rows = (node.values for node in nodes(index, kind))
    if TABLES[kind] not in VECTOR_FIELDS:
        return _write_rows(rows, COLUMNS[kind], file)
    return _write_rows(rows, COLUMNS[kind], file, getattr(index.data, VECTOR_FIELDS[TABLES[kind]][1]))


def _write_rows(
    rows: Iterable[Mapping[str, Any]], columns: dict[str, pa.DataType], file: Path, vectors_ND: Floats | None = None
) -> int:
    """Write the rows, ROWS_AT_ONCE in memory at a time, each with its vector if there are any; how many there were."""
    found, schema, count = iter(rows), pa.schema(columns), 0
    vector = pa.list_(pa.float32(), 0 if vectors_ND is None else vectors_ND.shape[1])
    with pq.ParquetWriter(file, schema if vectors_ND is None else schema.append(pa.field("vector", vector))) as out:
        for part in _parts(found):
            table = pa.Table.from_pylist(part, schema)
            if vectors_ND is not None:
                flat = np.ascontiguousarray(vectors_ND[count : count + len(part)], np.float32).ravel()
                table = table.append_column("vector", pa.FixedSizeListArray.from_arrays(pa.array(flat), type=vector))
            out.write_table(table)
            count += len(part)
    return count


def _parts(rows: Iterator[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    while part := list(islice(rows, ROWS_AT_ONCE)):
        yield part
