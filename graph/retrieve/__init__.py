"""Every retrieval strategy behind one signature: (index, query, settings) -> Evidence. Scoring belongs to eval/."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from graph.index.index import Index
from graph.retrieve.absence import judge_absence
from graph.retrieve.auto import retrieve_auto
from graph.retrieve.learned.rerank import RERANK_DEPTH, open_reranker, rerank
from graph.retrieve.parts.caller import Caller, Spent
from graph.retrieve.parts.paged import with_pages
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.strategies import DIRECT_STRATEGIES, Strategy
from graph.shared.errors import UserError
from graph.shared.modes import Mode
from graph.shared.types import Evidence, LanguageModel, Trace

STRATEGIES: dict[Mode, Strategy] = {**DIRECT_STRATEGIES, "auto": retrieve_auto}
MODES: tuple[Mode, ...] = get_args(Mode)

__all__ = ["MODES", "RetrieveSettings", "retrieve", "retrieve_many"]


def retrieve(index: Index, query: str, settings: RetrieveSettings, model: LanguageModel | None = None) -> Evidence:
    """Evidence for `query`, best first; the same query, index, settings (and model replies) always give the same evidence.

    `model` is asked by the modes that can use one; without it all modes run by their own rules. Raises UserError for an empty
    query and for a filter that no document meets. When the model goes away half-way, the evidence holds what was found until
    then and its trace says why it stopped.
    """
    return retrieve_many(index, [query], settings, model)[0]


def retrieve_many(
    index: Index, queries: Sequence[str], settings: RetrieveSettings, model: LanguageModel | None = None
) -> list[Evidence]:
    """`retrieve` for each query, all encoded in one go (each is billed its share of the encoder's seconds).

    With a reranker, the mode finds RERANK_DEPTH times as many items, of which the reranker chooses. With `abstain`, the evidence tells
    how likely it is that the documents hold nothing on the question (graph/retrieve/absence.py).
    """
    stripped = [query.strip() for query in queries]
    if not all(stripped):
        raise UserError("the question is empty", "some words", 'ask, for example: "Who built the lighthouse?"')
    started = time.perf_counter()
    queries_QD = index.encode_queries(stripped)
    encoder_seconds = (time.perf_counter() - started) / max(len(stripped), 1)
    scope = index.where(settings.conditions)
    score = open_reranker(settings.reranker) if settings.reranker else None
    wanted = settings.model_copy(update={"top_k": settings.top_k * RERANK_DEPTH}) if score is not None else settings
    found = []
    for text, query_D in zip(stripped, queries_QD, strict=True):
        started = time.perf_counter()
        query = Query(text, query_D, Caller(model) if model is not None else None)
        evidence = STRATEGIES[settings.mode](scope, query, wanted)
        if score is not None:
            evidence = rerank(evidence, score, settings.top_k)
        if settings.abstain is not None:
            evidence = replace(evidence, absence=judge_absence(scope, query, evidence, settings.abstain))
        evidence = with_pages(evidence, scope.data)
        seconds = time.perf_counter() - started
        found.append(replace(evidence, trace=_billed(evidence.trace, query, settings.mode, seconds, encoder_seconds)))
    return found


def _billed(trace: Trace, query: Query, mode: Mode, seconds: float, encoder_seconds: float) -> Trace:
    """The trace with what the question cost; calls answered from a ledger as if they had been made."""
    spent = query.model.spent if query.model is not None else Spent()
    return replace(
        trace,
        mode=mode,
        seconds=seconds + spent.replayed_seconds,
        encoder_seconds=encoder_seconds,
        model_calls=spent.calls,
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        replayed_calls=spent.replayed,
        untimed_calls=spent.untimed,
    )
