"""Evidence, and parts of the graph, in the form that the routes return and the OpenAPI page describes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from graph.index.index import NodeKind
from graph.types import Absence, Evidence, Finding, Span
from serve.server.collections import Generation

EdgeKind = Literal["has", "next", "states", "mentions", "called", "synonym", "sums up", "similar"]


class FoundPassage(BaseModel):
    """A passage, its score and the path to it in words; `start` and `end` are offsets in the document's text, `page` is null in documents without pages."""

    score: float
    id: str
    title: str
    source: str
    order: int
    start: int
    end: int
    text: str
    page: int | None
    path: tuple[str, ...]


class FoundProposition(BaseModel):
    score: float
    id: str
    text: str
    entities: tuple[str, ...]
    spans: tuple[Span, ...]


class FoundSummary(BaseModel):
    """A summary; `members` are the ids of the passages below it."""

    score: float
    id: str
    layer: int
    text: str
    members: tuple[str, ...]


class RetrievalTrace(BaseModel):
    """The steps and cost of a retrieval."""

    mode: str
    steps: tuple[str, ...]
    seconds: float
    encoder_seconds: float
    model_calls: int
    prompt_tokens: int
    completion_tokens: int


class Retrieved(BaseModel):
    """Everything found for a question, each list best first.

    `absence` is null for a question about the whole collection, if only summaries were found, and for an empty index.
    `index` identifies the index; `generation` counts its changes, and another index may have the same number.
    """

    question: str
    index: str
    generation: int
    passages: list[FoundPassage]
    propositions: list[FoundProposition]
    summaries: list[FoundSummary]
    findings: tuple[Finding, ...]
    absence: Absence | None
    trace: RetrievalTrace


class GraphNode(BaseModel):
    """A node of the graph; `key` is unique across all kinds. A passage has its position, a summary its layer."""

    key: str
    kind: NodeKind
    id: str
    label: str
    text: str = ""
    source: str = ""
    start: int = 0
    end: int = 0
    layer: int = 0


class GraphEdge(BaseModel):
    """An edge; `source` and `target` are the keys of its nodes. `weight` is a cosine (synonym, similar) or a number of occurrences."""

    kind: EdgeKind
    source: str
    target: str
    weight: float


class Neighbourhood(BaseModel):
    """A node, its neighbours and the edges to them; `left_out` counts the edges beyond the limit."""

    center: GraphNode
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    left_out: int


class Overview(BaseModel):
    """The best-connected documents and entities, and the strongest mentions in each document. `documents` and `entities` are the totals of the index."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    documents: int
    entities: int


class Layer(BaseModel):
    """A layer of the hierarchy: layer 0 summarises chunks, higher layers summarise communities."""

    layer: int
    summaries: int


def evidence_response(evidence: Evidence, generation: Generation) -> Retrieved:
    """Evidence in the API's form."""
    paths = evidence.paths or ((),) * len(evidence.passages)
    return Retrieved(
        question=evidence.query,
        index=generation.identity,
        generation=generation.number,
        passages=[
            FoundPassage(score=found.score, path=path, **vars(found.item))
            for found, path in zip(evidence.passages, paths, strict=True)
        ],
        propositions=[FoundProposition(score=found.score, **vars(found.item)) for found in evidence.propositions],
        summaries=[FoundSummary(score=found.score, **vars(found.item)) for found in evidence.summaries],
        findings=evidence.findings,
        absence=evidence.absence,
        trace=trace_response(evidence),
    )


def trace_response(evidence: Evidence) -> RetrievalTrace:
    """The trace in the API's form."""
    return RetrievalTrace.model_validate(evidence.trace, from_attributes=True)
