"""The queries of docs/postgres.md agree with searches of modegraph's index, and use the database's indexes when the tables are large."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from graph.export.postgres import export_index
from graph.index.index import Index, open_index
from graph.retrieve.parts.ranking import top_rows
from graph.types import Floats
from tests.fakes import HashEncoder
from tests.graph.postgres.large import COLOURS, large_index, random_unit_vectors
from tests.places import ROOT

Cursor = psycopg.RawCursor[Any]
DENSE, FILTERED, HOP = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/postgres.md").read_text(), re.DOTALL)
SETTING, FILTERED = FILTERED.split(";\n", 1)
PASSAGES, ENTITIES = 6_000, 1_000
ROUNDING = 1e-3
QUESTIONS = random_unit_vectors(np.random.default_rng(1), 40)


@pytest.fixture(scope="module")
def source_index(hashed_isles: Any) -> Index:
    return large_index(open_index(hashed_isles, lambda spec: HashEncoder()), 400, PASSAGES, ENTITIES)


@pytest.fixture(scope="module")
def export_dsn(source_index: Index, shared_database: str) -> str:
    export_index(source_index, shared_database)
    return shared_database


@pytest.fixture
def cursor(export_dsn: str) -> Iterator[Cursor]:
    """A cursor in a separate transaction, rolled back at the end."""
    with psycopg.connect(export_dsn, prepare_threshold=None) as connection, psycopg.RawCursor(connection) as cursor:
        yield cursor
        connection.rollback()


def vector_literal(vector_D: Floats) -> str:
    return str(vector_D.tolist())


def scans(cursor: Cursor, query: str, *parameters: object) -> dict[str, str]:
    """Each table (by its alias) that a query reads, with the index used to read it; "" where the whole table is read."""
    cursor.execute(f"EXPLAIN (FORMAT JSON) {query}", parameters)
    ((plans,),) = cursor.fetchall()

    def walk(plan: Any) -> Iterator[tuple[str, str]]:
        if "Relation Name" in plan:
            below = plan.get("Plans", [{}])[0]
            yield plan.get("Alias", ""), plan.get("Index Name", below.get("Index Name", ""))
        for inner in plan.get("Plans", []):
            yield from walk(inner)

    return dict(walk(plans[0]["Plan"]))


def test_the_dense_query_uses_its_index_and_agrees_with_exact_search(source_index: Index, cursor: Cursor) -> None:
    assert scans(cursor, DENSE, vector_literal(QUESTIONS[0])) == {"passages": "passages_by_vector"}
    found = 0
    for question in QUESTIONS:
        cosines_P = source_index.data.passage_vectors_PD @ question
        rows = cursor.execute(DENSE, [vector_literal(question)]).fetchall()
        assert np.diff([cosine for *_, cosine in rows]).max() <= ROUNDING
        cosine_of = dict(zip(source_index.data.passage_ids, cosines_P.tolist(), strict=True))
        assert [cosine for *_, cosine in rows] == pytest.approx([cosine_of[id_] for id_, *_ in rows], abs=ROUNDING)
        exact = {source_index.data.passage_ids[row] for row in top_rows(cosines_P, 10).tolist()}
        found += len(exact & {id_ for id_, *_ in rows})
    assert found / (10 * len(QUESTIONS)) >= 0.95


def test_a_query_with_another_cast_does_not_use_the_index(cursor: Cursor) -> None:
    cast = DENSE.replace("ORDER BY vector <=> $1::halfvec", "ORDER BY vector::vector <=> $1::vector")
    assert cast != DENSE and scans(cursor, cast, vector_literal(QUESTIONS[0])) == {"passages": ""}


def test_the_filtered_query_continues_until_it_has_ten_rows(source_index: Index, cursor: Cursor) -> None:
    condition, colour = '{"colour": 3}', 3
    short = [len(cursor.execute(FILTERED, [vector_literal(question), condition]).fetchall()) for question in QUESTIONS]
    assert sum(short) < 5 * len(QUESTIONS), (
        "without SETTING, a filter that one document in twenty passes should leave about two of the forty candidates"
    )
    cursor.execute(SETTING)
    plan = scans(cursor, FILTERED, vector_literal(QUESTIONS[0]), condition)
    assert plan == {"p": "passages_by_vector", "d": "documents_pkey"}
    allowed_P = source_index.data.passage_document_P % COLOURS == colour
    found = 0
    for question in QUESTIONS:
        rows = cursor.execute(FILTERED, [vector_literal(question), condition]).fetchall()
        distances = [distance for *_, distance in rows]
        assert len(rows) == 10 and distances == sorted(distances)
        best = top_rows(np.where(allowed_P, source_index.data.passage_vectors_PD @ question, -2), 10)
        found += len({source_index.data.passage_ids[row] for row in best.tolist()} & {id_ for id_, *_ in rows})
        sources = {
            source_index.data.document_sources[row] for row in np.flatnonzero(np.arange(400) % COLOURS == colour)
        }
        assert {source for _, source, *_ in rows} <= sources
    assert found / (10 * len(QUESTIONS)) >= 0.9


def test_one_hop_uses_indexes_and_counts_shared_entities(source_index: Index, cursor: Cursor) -> None:
    start = [5, 17, 900]
    ids = [source_index.data.proposition_ids[row] for row in start]
    assert scans(cursor, HOP, ids) == {
        "here": "edges_by_source",
        "back": "edges_by_target",
        "there": "propositions_pkey",
    }
    block = source_index.data.proposition_entity_NE
    shared: Counter[str] = Counter()
    for row in start:
        for entity in block[[row], :].indices.tolist():
            shared.update(
                source_index.data.proposition_ids[other]
                for other in source_index.entity_proposition_EN[[entity], :].indices.tolist()
                if other not in start
            )
    best = sorted(shared.items(), key=lambda item: (-item[1], item[0]))[:20]
    assert [(id_, count) for id_, _, count in cursor.execute(HOP, [ids]).fetchall()] == best and best[0][1] >= 1
