"""All retrieval modes with the same signature, (index, query, settings) -> Evidence; `auto`, which chooses a mode; and the table of all modes.

`auto` follows a rule: a question that contains a word such as "themes" or "overall" and names no document is about the whole collection and
goes to `hierarchy`; all others go to `hops`. `auto` calls no language model."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from graph.errors import UserError
from graph.index.index import Index, row_of
from graph.retrieve.absence import judge_absence
from graph.retrieve.hops.mode import retrieve_hops
from graph.retrieve.learned.rerank import RERANK_FACTOR, open_reranker, rerank
from graph.retrieve.modes.baselines import retrieve_dense, retrieve_hybrid, retrieve_lexical, retrieve_naive
from graph.retrieve.modes.global_mode import retrieve_global
from graph.retrieve.modes.hierarchy import check_layers, retrieve_hierarchy
from graph.retrieve.modes.local import retrieve_local
from graph.retrieve.modes.paths import retrieve_paths
from graph.retrieve.modes.plan import retrieve_plan
from graph.retrieve.modes.statements import retrieve_statements
from graph.retrieve.modes.topics import retrieve_topics
from graph.retrieve.parts.mentions import broad_words
from graph.retrieve.parts.query import Caller, ModelUsage, Query, RetrieveSettings
from graph.shared.modes import Mode
from graph.shared.pages import page_at
from graph.store.data import IndexData
from graph.types import Evidence, LanguageModel, Passage, Proposition, Scored, Span, Trace

Strategy = Callable[[Index, Query, RetrieveSettings], Evidence]


def with_pages(evidence: Evidence, data: IndexData) -> Evidence:
    """The evidence with the page of each passage and span; unchanged if none of its documents has pages."""
    sources = {scored.item.source for scored in evidence.passages}
    sources |= {span.source for scored in evidence.propositions for span in scored.item.spans}
    rows = {source: row_of(data, "document", source) for source in sources}
    metadata_of = {source: json.loads(data.document_metadata[row]) for source, row in rows.items() if row is not None}
    paged = {source: metadata for source, metadata in metadata_of.items() if page_at(metadata, 0) is not None}
    if not paged:
        return evidence

    def page_of(part: Passage | Span) -> int | None:
        return page_at(paged.get(part.source, {}), part.start)

    def with_span_pages(proposition: Proposition) -> Proposition:
        return replace(proposition, spans=tuple(replace(span, page=page_of(span)) for span in proposition.spans))

    passages = tuple(Scored(replace(each.item, page=page_of(each.item)), each.score) for each in evidence.passages)
    propositions = tuple(Scored(with_span_pages(each.item), each.score) for each in evidence.propositions)
    return replace(evidence, passages=passages, propositions=propositions)


def retrieve_auto(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """The evidence of `hierarchy` for a broad question, of `hops` for any other; the trace names the mode and the reason."""
    mode: Mode = "hops"
    reason = "the question asks for something specific"
    if words := broad_words(index, query.text):
        mode, reason = "hierarchy", f"“{words}” marks a question about the whole collection"
    evidence = STRATEGIES[mode](index, query, settings)
    return replace(evidence, trace=replace(evidence.trace, steps=(f"{mode}, because {reason}", *evidence.trace.steps)))


STRATEGIES: dict[Mode, Strategy] = {
    "dense": retrieve_dense,
    "lexical": retrieve_lexical,
    "hybrid": retrieve_hybrid,
    "naive": retrieve_naive,
    "hierarchy": retrieve_hierarchy,
    "hops": retrieve_hops,
    "paths": retrieve_paths,
    "local": retrieve_local,
    "global": retrieve_global,
    "statements": retrieve_statements,
    "topics": retrieve_topics,
    "plan": retrieve_plan,
    "auto": retrieve_auto,
}


def retrieve(index: Index, query: str, settings: RetrieveSettings, model: LanguageModel | None = None) -> Evidence:
    """Evidence for `query`, best first; the same query, index and settings (and the same model replies) always give the same evidence.

    The modes that can use a `model` call it; without one, they retrieve by rules. Raises UserError for an empty query, for half a character and
    for a filter that no document matches. If the model becomes unavailable halfway, the evidence contains the results up to that
    point, and its trace gives the reason.
    """
    return retrieve_many(index, [query], settings, model)[0]


def retrieve_many(
    index: Index, queries: Sequence[str], settings: RetrieveSettings, model: LanguageModel | None = None
) -> list[Evidence]:
    """`retrieve` for each query. All queries are encoded in one batch, and each is charged an equal share of the encoder's seconds.

    With a reranker, the mode returns RERANK_FACTOR · `top_k` items, and the reranker keeps the best `top_k`. With `abstain`, the evidence
    includes the probability of absence (graph/retrieve/absence.py).
    """
    stripped = [query.strip() for query in queries]
    if not all(stripped):
        raise UserError("the question is empty", "some words", 'ask, for example: "Who built the lighthouse?"')
    if any("\ud800" <= character <= "\udfff" for text in stripped for character in text):
        found = "the question contains half a character (a lone surrogate)"
        raise UserError(found, "whole characters", "write the question in UTF-8")
    started = time.perf_counter()
    queries_QD = index.encode_queries(stripped)
    encoder_seconds = (time.perf_counter() - started) / max(len(stripped), 1)
    if settings.layers and settings.mode in ("hierarchy", "auto"):
        check_layers(index, settings.layers)
    scope = index.where(settings.conditions)
    score = open_reranker(settings.reranker) if settings.reranker else None
    depth = settings.top_k * (1 if score is None else RERANK_FACTOR)
    mode_settings = settings.model_copy(update={"top_k": depth})
    results = []
    for text, query_D in zip(stripped, queries_QD, strict=True):
        started = time.perf_counter()
        query = Query(text, query_D, Caller(model) if model is not None else None)
        evidence = STRATEGIES[settings.mode](scope, query, mode_settings)
        if score is not None:
            evidence = rerank(evidence, score, settings.top_k)
        no_layer_left = settings.mode == "hierarchy" and settings.layers and not evidence.passages
        if settings.abstain is not None and not no_layer_left:
            evidence = replace(evidence, absence=judge_absence(scope, query, evidence, settings.abstain))
        evidence = with_pages(evidence, scope.data)
        seconds = time.perf_counter() - started
        trace = _with_costs(evidence.trace, query, settings.mode, seconds, encoder_seconds)
        results.append(replace(evidence, trace=trace))
    return results


def _with_costs(trace: Trace, query: Query, mode: Mode, seconds: float, encoder_seconds: float) -> Trace:
    """The trace with the cost of the question; calls replayed from a ledger count as calls."""
    spent = query.model.spent if query.model is not None else ModelUsage()
    return replace(
        trace,
        mode=mode,
        seconds=seconds + spent.replayed_seconds,
        encoder_seconds=encoder_seconds,
        model_calls=spent.calls,
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        replayed_calls=spent.replayed,
    )
