"""/v1/embeddings in OpenAI's format and /v1/rerank in that of Cohere and Jina, for texts that the client sends.

Vectors come from the index's encoder. Documents are ranked by the server's cross-encoder, or, if there is none or `model` names the encoder, by
the encoder's cosines."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field

from graph.retrieve.learned.rerank import open_reranker
from graph.types import Floats
from serve.engines.child import public_name
from serve.http.encoding import StrictModel, Text
from serve.http.errors import ApiError, not_supported, unknown_model
from serve.server.services import RequestedCollection, Services

MAX_TEXTS = 256


def check_lengths(texts: Sequence[str], limit: int, field: str) -> None:
    """ApiError 400 for a text that is empty or has more than `limit` characters."""
    for number, text in enumerate(texts):
        if not text.strip():
            raise ApiError(400, "empty_text", f"{field}.{number}: the text is empty", field)
        if len(text) > limit:
            message = f"{field}.{number}: the text has {len(text):,} characters; the limit is {limit:,}"
            raise ApiError(400, "long_text", message, field)


class EmbeddingsRequest(StrictModel):
    """Texts to be encoded. Tokens are refused, since their tokenizer is unknown."""

    model: str = Field(min_length=1, max_length=200)
    input: Text | list[Text] | list[int] | list[list[int]] = Field(description=f"a text, or a list of 1 to {MAX_TEXTS}")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: Text | None = None

    def texts(self) -> list[str]:
        """The texts; ApiError 422 for an empty or too long list, 400 for tokens."""
        items = [self.input] if isinstance(self.input, str) else self.input
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            raise not_supported("input", "the server cannot tell which tokenizer produced the tokens; send text")
        if not 1 <= len(texts) <= MAX_TEXTS:
            message = f"input: the list has {len(texts):,} items; a request may have 1 to {MAX_TEXTS}"
            raise ApiError(422, "bad_value", message, "input")
        return texts


class Embedding(BaseModel):
    """The unit vector of one text: numbers, or little-endian float32 in base64."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class TokenUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """The vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: TokenUsage


def embeddings_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["retrieval"])

    @router.post("/embeddings")
    async def embeddings(request: EmbeddingsRequest, view: RequestedCollection) -> Embeddings:
        """Vectors for texts, encoded as queries by the index's encoder, which `model` must name. Works without the language model."""
        index = view.generation.index
        name = public_name(index.settings.encoder)
        if request.model != name:
            raise unknown_model(request.model, (name,))
        texts = request.texts()
        check_lengths(texts, services.settings.max_question_chars, "input")
        vectors_ND, tokens = await services.retriever.in_thread(
            lambda: (index.encode_queries(texts), sum(map(index.count_tokens, texts)))
        )
        dimensions = vectors_ND.shape[1]
        if request.dimensions not in (None, dimensions):
            message = f"dimensions: vectors of {request.model} have {dimensions} dimensions, which cannot be reduced"
            raise ApiError(400, "not_supported", message, "dimensions")
        encoded = [as_base64(row) if request.encoding_format == "base64" else row.tolist() for row in vectors_ND]
        data = [Embedding(index=number, embedding=vector) for number, vector in enumerate(encoded)]
        usage = TokenUsage(prompt_tokens=tokens, total_tokens=tokens)
        return Embeddings(data=data, model=request.model, usage=usage)

    return router


def as_base64(vector_D: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    """A vector in OpenAI's base64 form.

    >>> as_base64(np.array([1.0, -2.0], np.float32))
    'AACAPwAAAMA='
    """
    return base64.b64encode(vector_D.astype("<f4").tobytes()).decode("ascii")


class RerankDocument(StrictModel):
    """A document to rank, as an object with its text."""

    text: Text


class RerankRequest(StrictModel):
    """A query, and documents to rank by their relevance to it."""

    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    query: Text = Field(min_length=1)
    documents: list[Text | RerankDocument] = Field(min_length=1, max_length=MAX_TEXTS)
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False

    def texts(self) -> list[str]:
        """The documents' texts."""
        return [each if isinstance(each, str) else each.text for each in self.documents]


class RerankResult(BaseModel):
    """A document, by its index in the request, and its score: the cross-encoder's, or a cosine."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankResponse(BaseModel):
    """The documents, best first."""

    id: str
    model: str
    results: list[RerankResult]


def rerank_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["retrieval"])
    reranker = services.settings.reranker

    @router.post("/rerank", response_model_exclude_none=True)
    async def rerank(request: RerankRequest, view: RequestedCollection) -> RerankResponse:
        """Documents of the request, ranked by relevance to its query. Works without the language model."""
        index, texts = view.generation.index, request.texts()
        names = tuple(public_name(spec) for spec in (reranker, index.settings.encoder) if spec)
        model = request.model or names[0]
        if model not in names:
            raise unknown_model(model, names)
        query = services.retriever.check_question(request.query)
        check_lengths(texts, services.settings.max_question_chars, "documents")

        def scores() -> Floats:
            """The scores of the cross-encoder, which is loaded at the first call, or the cosines of the index's encoder: float32[N]."""
            if reranker and model == names[0]:
                return open_reranker(reranker)(query, texts)
            cosines_N: Floats = index.encode_texts(texts) @ index.encode_queries([query])[0]
            return cosines_N

        scores_N = await services.retriever.in_thread(scores)
        best = np.argsort(-scores_N, kind="stable")[: request.top_n]
        documents = [RerankDocument(text=text) if request.return_documents else None for text in texts]
        results = [
            RerankResult(index=n, relevance_score=float(scores_N[n]), document=documents[n]) for n in best.tolist()
        ]
        return RerankResponse(id=f"rerank-{uuid4().hex}", model=model, results=results)

    return router
