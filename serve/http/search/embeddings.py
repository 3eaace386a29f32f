"""/v1/embeddings: vectors of texts by the index's own encoder, in OpenAI's form."""

from __future__ import annotations

import base64
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from graph.index.index import Index
from graph.shared.types import Floats
from serve.http.routes.services import SeenCollection, Services
from serve.http.search.texts import MAX_TEXTS, called, check_lengths, check_name
from serve.http.shared.encoding import Text
from serve.http.shared.errors import ApiError, not_supported

Tokens = Annotated[list[int] | list[list[int]], Field(min_length=1)]


class EmbeddingsRequest(BaseModel):
    """Texts to be encoded. Tokens are refused: whose they are cannot be known."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1, max_length=200)
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] | Tokens
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: Text | None = None

    def texts(self) -> list[str]:
        """The texts; ApiError 400 for tokens."""
        given = [self.input] if isinstance(self.input, str) else self.input
        if not all(isinstance(each, str) for each in given):
            raise not_supported("input", "tokens of another model's; send texts")
        return [each for each in given if isinstance(each, str)]


class Embedding(BaseModel):
    """The vector of one text, of length 1: numbers, or float32 in base64, the lowest byte first."""

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
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["retrieval"])

    @router.post("/embeddings")
    async def embeddings(request: EmbeddingsRequest, seen: SeenCollection) -> Embeddings:
        """Vectors of texts by the index's encoder, which `model` names. Works while the model is away."""
        index = seen.generation.index
        check_name(request.model, [called(index.settings.encoder)])
        texts = request.texts()
        check_lengths(texts, services.settings.max_question_chars, "input")
        vectors_ND, tokens = await services.retriever.in_thread(partial(encoded, index, texts))
        if request.dimensions not in (None, vectors_ND.shape[1]):
            told = f"dimensions: {request.model} has {vectors_ND.shape[1]}, and they cannot be cut"
            raise ApiError(400, "not_supported", told, "dimensions")
        written = [as_base64(row) if request.encoding_format == "base64" else row.tolist() for row in vectors_ND]
        data = [Embedding(index=number, embedding=each) for number, each in enumerate(written)]
        usage = TokenUsage(prompt_tokens=tokens, total_tokens=tokens)
        return Embeddings(data=data, model=request.model, usage=usage)

    return router


def encoded(index: Index, texts: list[str]) -> tuple[Floats, int]:
    """Unit vectors [N, D] of N texts by the encoder of an index, and how many tokens the texts have."""
    return index.encode_queries(texts), sum(index.count_tokens(text) for text in texts)


def as_base64(vector_D: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    """A vector in OpenAI's short form.

    >>> as_base64(np.array([1.0, -2.0], np.float32))
    'AACAPwAAAMA='
    """
    return base64.b64encode(vector_D.astype("<f4").tobytes()).decode("ascii")
