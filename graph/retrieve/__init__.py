"""Every retrieval strategy behind one signature: (index, query, settings) -> Evidence. Scoring belongs to eval/."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import get_args

from graph.errors import UserError
from graph.index import Index
from graph.retrieve.dense import retrieve_dense
from graph.retrieve.hierarchy import retrieve_hierarchy
from graph.retrieve.local import retrieve_local
from graph.retrieve.naive import retrieve_naive
from graph.retrieve.paths import retrieve_paths
from graph.retrieve.query import Query
from graph.retrieve.settings import Mode, RetrieveSettings
from graph.retrieve.walk import retrieve_walk
from graph.types import Evidence

Strategy = Callable[[Index, Query, RetrieveSettings], Evidence]

STRATEGIES: dict[Mode, Strategy] = {
    "dense": retrieve_dense,
    "naive": retrieve_naive,
    "hierarchy": retrieve_hierarchy,
    "walk": retrieve_walk,
    "paths": retrieve_paths,
    "local": retrieve_local,
}
MODES: tuple[Mode, ...] = get_args(Mode)

__all__ = ["MODES", "RetrieveSettings", "retrieve", "retrieve_many"]


def retrieve(index: Index, query: str, settings: RetrieveSettings) -> Evidence:
    """Evidence for `query`, best first; the same query, index and settings always give the same evidence.

    Raises UserError for an empty query.
    """
    return retrieve_many(index, [query], settings)[0]


def retrieve_many(index: Index, queries: Sequence[str], settings: RetrieveSettings) -> list[Evidence]:
    """`retrieve` for each query, all encoded in one go (each is billed its share of the encoder's seconds)."""
    stripped = [query.strip() for query in queries]
    if not all(stripped):
        raise UserError("the question is empty", "some words", 'ask, for example: "Who built the lighthouse?"')
    started = time.perf_counter()
    queries_QD = index.encode_queries(stripped)
    encoder_seconds = (time.perf_counter() - started) / max(len(stripped), 1)
    found = []
    for query, query_D in zip(stripped, queries_QD, strict=True):
        started = time.perf_counter()
        evidence = STRATEGIES[settings.mode](index, Query(query, query_D), settings)
        seconds = time.perf_counter() - started
        trace = replace(evidence.trace, mode=settings.mode, seconds=seconds, encoder_seconds=encoder_seconds)
        found.append(replace(evidence, trace=trace))
    return found
