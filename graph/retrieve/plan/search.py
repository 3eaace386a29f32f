"""What `plan` finds for one sub-question, and its order once the answers that it rests on are known (PankRAG §3.3).

Legend: P passages, S summaries, X nodes (passages, then summaries), k nodes found, D dimensions.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graph.index.index import Index
from graph.index.nearness import nearness_to
from graph.retrieve.modes.hierarchy import node_scores, nodes_in
from graph.retrieve.modes.hops import retrieve_hops
from graph.retrieve.modes.paths import min_max
from graph.retrieve.parts.passage_scores import passages_of
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.plan.graph import Kind
from graph.shared.types import Evidence, Finding, Floats, Ints, Passage

QUALITY_WEIGHT: dict[Kind, float] = {"specific": 0.6, "abstract": 0.75}
"""α: what the retrieval's own score counts, the rest being nearness to the answers before."""


@dataclass(frozen=True)
class Found:
    """Nodes found for a question, best first: rows of X, their scores, and how each was reached, in words."""

    question: str
    rows_k: Ints
    scores_k: Floats
    told: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SubQuery:
    """A sub-question of a plan with the answers that it needs filled in, and the findings that it rests on."""

    text: str
    kind: Kind
    rests_on: tuple[Finding, ...]


def search_all(index: Index, queries: Sequence[SubQuery], settings: RetrieveSettings) -> dict[str, Found]:
    """The `settings.top_k` best nodes for each question, by its text, reranked by the findings that it rests on, if there are any."""
    vectors_QD = index.encode_queries([each.text for each in queries])
    found = {}
    for each, vector_D in zip(queries, vectors_QD, strict=True):
        nodes = find_nodes(index, Query(each.text, vector_D), each.kind, settings)
        if each.rests_on:
            resolved = " ".join(f"{finding.question} {finding.answer}" for finding in each.rests_on)
            nodes = rerank_nodes(index, nodes, each.kind, index.encode_queries([resolved])[0])
        found[each.text] = nodes
    return found


def find_nodes(index: Index, query: Query, kind: Kind, settings: RetrieveSettings) -> Found:
    """The best nodes: passages by `hops` for a specific question, passages and summaries for an abstract one."""
    if kind == "abstract":
        scores_X = node_scores(index, query.vector_D)
        rows_k = top_rows(scores_X, settings.top_k)
        return Found(query.text, rows_k, scores_X[rows_k], (("near to it by itself",),) * len(rows_k))
    found = retrieve_hops(index, query, settings)
    rows = [passage_row(index, each.item) for each in found.passages]
    scores = [each.score for each in found.passages]
    return Found(query.text, np.array(rows, np.int64), np.array(scores, np.float32), found.paths)


def rerank_nodes(index: Index, found: Found, kind: Kind, resolved_D: Floats) -> Found:
    """The same nodes in the order of `dependency_scores` to what was resolved (unit vector [D]), ties as they were."""
    similarity_k = nearness_to(index, resolved_D, node_scores(index, resolved_D)[found.rows_k])
    scores_k = dependency_scores(found.scores_k, similarity_k, QUALITY_WEIGHT[kind])
    order = np.argsort(-scores_k, kind="stable")
    return Found(found.question, found.rows_k[order], scores_k[order], tuple(found.told[int(place)] for place in order))


def dependency_scores(scores_k: Floats, similarity_k: Floats, quality_weight: float) -> Floats:
    """α R_i + (1 − α) M_i (PankRAG Eq. 4–5), R the list's own scores scaled to [0, 1], M the nearness to what was resolved.

    >>> dependency_scores(np.array([3.0, 1.0]), np.array([0.0, 1.0]), 0.75).tolist()
    [0.75, 0.25]
    """
    return np.asarray(quality_weight * min_max(scores_k) + (1 - quality_weight) * similarity_k, np.float32)


def evidence_of(index: Index, found: Found, count: int) -> Evidence:
    """The best `count` nodes as evidence for the question that they were found for."""
    passages, summaries = nodes_in(index, found.rows_k[:count], found.scores_k[:count])
    return Evidence(query=found.question, passages=passages, summaries=summaries)


def passage_row(index: Index, passage: Passage) -> int:
    """The row of a passage of the index: documents are sorted by source, their passages by order."""
    sources = index.data.document_sources
    document = bisect_left(sources, passage.source, 0, len(sources))
    return passages_of(index.data.passage_document_P, document)[0] + passage.order
