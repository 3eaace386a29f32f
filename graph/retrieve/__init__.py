"""Every retrieval strategy behind one signature: (index, query, settings) -> Evidence. Scoring belongs to eval/."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from graph.errors import UserError
from graph.index import Index
from graph.retrieve.dense import retrieve_dense
from graph.retrieve.hierarchy import retrieve_hierarchy
from graph.retrieve.naive import retrieve_naive
from graph.retrieve.settings import Mode, RetrieveSettings
from graph.types import Evidence, Floats

Strategy = Callable[[Index, Floats, RetrieveSettings], Evidence]

STRATEGIES: dict[Mode, Strategy] = {
    "dense": retrieve_dense,
    "naive": retrieve_naive,
    "hierarchy": retrieve_hierarchy,
}
MODES: tuple[Mode, ...] = get_args(Mode)

__all__ = ["MODES", "RetrieveSettings", "retrieve"]


def retrieve(index: Index, query: str, settings: RetrieveSettings) -> Evidence:
    """Evidence for `query`, best first; the same query, index and settings always give the same evidence.

    Raises UserError for an empty query.
    """
    if not query.strip():
        raise UserError("the question is empty", "some words", 'ask, for example: "Who built the lighthouse?"')
    started = time.perf_counter()
    query_D = index.encode_query(query.strip())
    encoded = time.perf_counter()
    evidence = STRATEGIES[settings.mode](index, query_D, settings)
    seconds = time.perf_counter() - encoded
    trace = replace(evidence.trace, mode=settings.mode, seconds=seconds, encoder_seconds=encoded - started)
    return replace(evidence, query=query, trace=trace)
