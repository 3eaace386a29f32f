"""/v1/rerank: a client's own documents in the order of a query, as Cohere's and Jina's clients ask for it.

By the cross-encoder that the server was started with, or, without one, by cosines of the index's encoder.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated
from uuid import uuid4

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from graph.index.index import Index
from graph.retrieve.learned.rerank import open_reranker
from graph.shared.types import Floats
from serve.http.routes.services import SeenCollection, Services
from serve.http.search.texts import MAX_TEXTS, called, check_lengths, check_name
from serve.http.shared.encoding import Text


class RankedDocument(BaseModel):
    """A document to be ranked: its text."""

    model_config = ConfigDict(extra="forbid")

    text: Text


class RerankRequest(BaseModel):
    """A query, and documents to put in its order."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    query: Text = Field(min_length=1)
    documents: list[Text | RankedDocument] = Field(min_length=1, max_length=MAX_TEXTS)
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False

    def texts(self) -> list[str]:
        """The documents' texts."""
        return [each if isinstance(each, str) else each.text for each in self.documents]


class Ranked(BaseModel):
    """A document by its place in the request; the score is the cross-encoder's, or a cosine."""

    index: int
    relevance_score: float
    document: RankedDocument | None = None


class Reranked(BaseModel):
    """The documents, best first."""

    id: str
    model: str
    results: list[Ranked]


def rerank_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["retrieval"])
    reranker = services.settings.reranker

    @router.post("/rerank", response_model_exclude_none=True)
    async def rerank(request: RerankRequest, seen: SeenCollection) -> Reranked:
        """Documents of the request in the order of its query, by cross-encoder or encoder. Works while the model is away."""
        index, texts = seen.generation.index, request.texts()
        names = [called(each) for each in (reranker, index.settings.encoder) if each]
        model = request.model or names[0]
        check_name(model, names)
        query = services.retriever.check_question(request.query)
        check_lengths(texts, services.settings.max_question_chars, "documents")
        score = partial(cosines, index) if model == names[-1] else partial(scores_by, reranker)
        scores_N = await services.retriever.in_thread(partial(score, query, texts))
        best = np.argsort(-scores_N, kind="stable")[: request.top_n]
        kept = [RankedDocument(text=text) if request.return_documents else None for text in texts]
        results = [Ranked(index=n, relevance_score=float(scores_N[n]), document=kept[n]) for n in best.tolist()]
        return Reranked(id=f"rerank-{uuid4().hex}", model=model, results=results)

    return router


def scores_by(reranker: str, query: str, texts: list[str]) -> Floats:
    """float32[N] of the cross-encoder that a spec names, loaded at the first call."""
    return open_reranker(reranker)(query, texts)


def cosines(index: Index, query: str, texts: list[str]) -> Floats:
    """float32[N]: how near N texts are to a query by the encoder of an index."""
    similarities_N: Floats = index.encode_texts(texts) @ index.encode_queries([query])[0]
    return similarities_N
