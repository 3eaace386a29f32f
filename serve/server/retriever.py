"""Retrieval for routes and tools: completes the settings of a request, searches the current index in a thread, caches results and records metrics."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import Field, StringConstraints

from graph.config import Settings, parse_settings
from graph.errors import Unavailable, UserError
from graph.index.filters import Condition as DocumentCondition
from graph.index.filters import NoDocumentMeets
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import Mode
from graph.types import Evidence, LanguageModel
from serve.http.encoding import Text
from serve.http.errors import ApiError, model_unavailable
from serve.http.settings import ServerSettings
from serve.http.telemetry import CACHED, GENERATION, MODE, PASSAGES, K, Metrics, Tracing
from serve.server.collections import Generation

T = TypeVar("T")
CacheKey = tuple[str, tuple[DocumentCondition, ...], str, RetrieveSettings]
"""The key of cached evidence: the index, the part of it visible to the caller, the question and the settings."""
CACHE_SIZE = 256
MAX_K = 100
MAX_CONDITIONS = 16
Condition = Annotated[Text, StringConstraints(min_length=1, max_length=2000)]
"""A condition on documents, long enough for a source of 500 characters, all of them escaped (`[*]`)."""


class RetrievalOptions(Settings):
    """How to search for evidence; `mode`, `k`, `abstain` and `max_context_tokens` default to the server's settings."""

    mode: Mode | None = Field(None, description="retrieval method")
    k: int | None = Field(None, ge=1, le=MAX_K, description="passages to find")
    where: tuple[Condition, ...] = Field(
        (), max_length=MAX_CONDITIONS, description="conditions on documents, such as year>=1990 or source=reports/*"
    )
    selector: Literal["threshold", "llm", "none", "trained"] = Field(
        "threshold", description="what selects propositions, in modes with a selector"
    )
    reranker: bool = Field(False, description="whether the server's cross-encoder reranks the results of the mode")
    abstain: float | None = Field(
        None,
        ge=0,
        le=1,
        description="answer “not in the documents”, without calling a model, if the documents lack the answer with at least this probability",
    )
    max_context_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="longest context of an answer, in tokens of the model in use"
    )
    use_model: bool = Field(
        False, description="whether modes may call the model while searching (local, global, plan): slower"
    )


class Retriever:
    """Finds evidence. Evidence found without a model is cached by `CacheKey`; the cache contains the `CACHE_SIZE` most recently used entries."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, tracing: Tracing) -> None:
        self._settings, self._metrics, self._tracing = settings, metrics, tracing
        self._threads = ThreadPoolExecutor(settings.capacity, thread_name_prefix="retrieve")
        self._cache: OrderedDict[CacheKey, Evidence] = OrderedDict()

    def settings_of(self, options: RetrievalOptions) -> RetrieveSettings:
        """The options completed with the server's defaults; ApiError 400 for unavailable ones, UserError (also answered with 400) for invalid values."""
        defaults = self._settings
        if options.selector == "trained" and not defaults.selector:
            message = "retrieval.selector: the server was started without --selector; choose another selector"
            raise ApiError(400, "no_selector", message)
        if options.selector == "llm" and not options.use_model:
            raise ApiError(400, "bad_value", "retrieval.selector: llm calls the model, so set use_model too")
        if options.reranker and not defaults.reranker:
            message = "retrieval.reranker: the server was started without --reranker; leave the field out"
            raise ApiError(400, "no_reranker", message)
        values = {
            "mode": options.mode or defaults.mode,
            "top_k": options.k or defaults.top_k,
            "where": options.where,
            "selector": defaults.selector if options.selector == "trained" else options.selector,
            "reranker": defaults.reranker if options.reranker else "",
            "abstain": options.abstain if options.abstain is not None else defaults.abstain,
            "max_context_tokens": options.max_context_tokens or defaults.max_context_tokens,
        }
        return parse_settings(RetrieveSettings, values, "retrieval")

    def check_question(self, question: str) -> str:
        """The question without leading and trailing white space; ApiError 400 if it is empty or too long."""
        if not question.strip():
            raise ApiError(400, "empty_question", "the question is empty")
        limit = self._settings.max_question_chars
        if len(question) > limit:
            message = f"the question has {len(question):,} characters; the limit is {limit:,}"
            raise ApiError(400, "long_question", message)
        return question.strip()

    async def find(
        self, question: str, settings: RetrieveSettings, model: LanguageModel | None, generation: Generation
    ) -> Evidence:
        """The evidence for a question in a generation; some modes call `model`.

        ApiError 503 when the model stops answering, 400 for settings that the search refuses; NoDocumentMeets (also answered with 400).
        """
        attributes = {MODE: settings.mode, K: settings.top_k, GENERATION: generation.number}
        with self._tracing.span("retrieve", attributes) as span:
            evidence, cached = await self._find(generation, question, settings, model)
            span.set({CACHED: cached, PASSAGES: len(evidence.passages)})
        return evidence

    async def find_in_store(
        self, question: str, settings: RetrieveSettings, model: LanguageModel | None, generation: Generation
    ) -> Evidence:
        """As `find`, but no evidence if no document meets the conditions, as clients of OpenAI's vector stores expect."""
        try:
            return await self.find(question, settings, model, generation)
        except NoDocumentMeets:
            return Evidence(question)

    async def _find(
        self, generation: Generation, question: str, settings: RetrieveSettings, model: LanguageModel | None
    ) -> tuple[Evidence, bool]:
        """The evidence, and whether it comes from the cache."""
        key = (generation.index.manifest.identity, generation.where, question, settings)
        if model is None and key in self._cache:
            self._metrics.cache.labels("hit").inc()
            self._cache.move_to_end(key)
            return self._cache[key], True
        self._metrics.cache.labels("miss").inc()
        evidence = await self.in_thread(partial(_search, generation, question, settings, model))
        self._metrics.retrieval.labels(settings.mode).observe(evidence.trace.seconds + evidence.trace.encoder_seconds)
        if evidence.trace.stopped:
            raise model_unavailable("the model's server stopped answering during the search")
        if model is None:
            self._cache[key] = evidence
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return evidence, False

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of `work`, run in one of the retrieval threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _search(generation: Generation, question: str, settings: RetrieveSettings, model: LanguageModel | None) -> Evidence:
    if not len(generation.index.data.passage_ids):
        return Evidence(question)
    try:
        return retrieve(generation.index, question, settings, model)
    except (NoDocumentMeets, Unavailable):
        raise
    except UserError as problem:
        raise ApiError(400, "bad_value", str(problem)) from None
