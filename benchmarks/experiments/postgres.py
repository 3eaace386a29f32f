"""The recall of the dense query in a PostgreSQL export: the share of the ten nearest passages, and of the ten nearest propositions, that it finds.

Run: python -P benchmarks/experiments/postgres.py my-index --postgres DSN --questions FILE [--schema NAME] [--json]. The database contains an export of
the same index (modegraph export). The nearest rows are found by exact search in the index. On a small table PostgreSQL would scan all rows, which is
exact; sequential scans are turned off, so that its HNSW index is measured.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from psycopg import sql

from benchmarks.report import new_parser
from graph.documents.questions import read_questions
from graph.export.postgres import SCHEMA
from graph.index.index import open_index
from graph.postgres.connect import transaction
from graph.retrieve.parts.ranking import top_rows
from graph.store.columns.strings import Strings
from graph.store.data import VECTOR_FIELDS
from graph.store.vectors import Matrix
from graph.types import Floats

K = 10
TABLES = ("passages", "propositions")
DENSE = "SELECT id FROM {} ORDER BY vector <=> %s::halfvec LIMIT %s"
EF_SEARCHES = (K, 40, 100, 400)
"""Values of hnsw.ef_search, the size of the search's candidate list; pgvector's default is 40."""


def recall_at_k(ids: Strings, vectors_ND: Matrix, vectors_QD: Floats, results: list[list[str]]) -> float:
    """Recall@K: the mean share of the K exact nearest neighbours in the results."""
    exact = [{ids[row] for row in top_rows(vectors_ND @ vector_D, K).tolist()} for vector_D in vectors_QD]
    return sum(len(best & set(result)) for best, result in zip(exact, results, strict=True)) / (K * len(exact))


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--schema", default=SCHEMA)
    arguments = parser.parse_args()
    index = open_index(arguments.index)
    vectors_QD = index.encode_queries([question.text for question in read_questions(arguments.questions)])
    recall: dict[str, dict[int, float]] = {}
    with transaction(arguments.postgres) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        for table in TABLES:
            ids, vectors_ND = (getattr(index.data, field) for field in VECTOR_FIELDS[table])
            query = sql.SQL(DENSE).format(sql.Identifier(arguments.schema, table))
            recall[f"{table} ({len(ids):,})"] = {}
            for ef_search in EF_SEARCHES:
                connection.execute(sql.SQL("SET LOCAL hnsw.ef_search = {}").format(ef_search))
                results = [
                    [str(identity) for (identity,) in connection.execute(query, (str(vector_D.tolist()), K))]
                    for vector_D in vectors_QD
                ]
                recall[f"{table} ({len(ids):,})"][ef_search] = recall_at_k(ids, vectors_ND, vectors_QD, results)
    report = {"questions": len(vectors_QD), f"recall@{K} by ef_search": recall}
    print(json.dumps(report) if arguments.json else report)


if __name__ == "__main__":
    main()
