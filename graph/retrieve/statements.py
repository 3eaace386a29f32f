"""`statements` (HLG §4.1, StatementGraphRAG): keywords and nearness give the first propositions, a beam over shared names more.

Where the published method reranks statements by a cross-encoder, a statement is worth its own cosine here, or the score of the best
path that it is on; `--reranker` adds a cross-encoder. Twins are dropped (diversity.py). Passages are ranked by the best statement
in them (the "chunk variant"), or statements are returned themselves with `--as propositions`.

Legend: P passages, N propositions.
"""

import numpy as np

from graph.index import Index
from graph.retrieve.beam import Frontier, best_path_scores, search_paths
from graph.retrieve.diversity import diverse_rows
from graph.retrieve.keywords import keyword_propositions, keywords_of
from graph.retrieve.query import Query
from graph.retrieve.rank import top_rows
from graph.retrieve.settings import RetrieveSettings
from graph.retrieve.titles import named_documents
from graph.retrieve.walk import own_scores
from graph.types import Evidence, Floats, Ints, Passage, Scored, Trace

INITIAL = 100
"""Propositions by keywords, and as many by nearness, that paths start from."""


def retrieve_statements(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages (or propositions), each with the path of propositions that led to it."""
    cosines_N = index.data.proposition_vectors_ND @ query.vector_D
    keywords = keywords_of(index, query.text)
    by_keyword = keyword_propositions(index, keywords, cosines_N, INITIAL)
    starts = np.union1d(by_keyword, top_rows(cosines_N, INITIAL))
    first = f"{len(keywords)} keywords, {len(starts)} propositions to start from"
    return rank_statements(index, query, settings, starts, cosines_N, ("statements", first))


def rank_statements(
    index: Index, query: Query, settings: RetrieveSettings, starts: Ints, cosines_N: Floats, told: tuple[str, str]
) -> Evidence:
    """Search paths from `starts` and rank what they visit; `told` are the mode and its first step in words."""
    data = index.data
    frontiers = search_paths(index, starts, cosines_N)
    worth_N = best_path_scores(frontiers, cosines_N)
    visited = np.unique(np.concatenate([starts, *(frontier.steps_FL.ravel() for frontier in frontiers)]))
    order = visited[top_rows(worth_N[visited], max(INITIAL, settings.top_k))]
    kept = order[diverse_rows([data.proposition_texts[row] for row in order])]
    trace = Trace(told[0], (told[1], f"{len(visited)} visited, {len(order) - len(kept)} twins dropped"))
    if settings.unit == "propositions":
        rows = kept[: settings.top_k]
        found = tuple(Scored(index.proposition(int(row)), float(worth_N[row])) for row in rows)
        return Evidence(query=query.text, passages=_passages_of(index, rows, worth_N), propositions=found, trace=trace)
    worth_N[np.setdiff1d(order, kept)] = cosines_N.min(initial=-1.0)
    named = [document for _, document in named_documents(index, query.text)]
    scores_P = own_scores(index, data.passage_vectors_PD @ query.vector_D, worth_N, named)
    rows = top_rows(scores_P, settings.top_k)
    passages = tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows)
    paths = tuple(tell_path(index, int(row), frontiers) for row in rows)
    return Evidence(query=query.text, passages=passages, paths=paths, trace=trace)


def tell_path(index: Index, passage: int, frontiers: list[Frontier]) -> tuple[str, ...]:
    """The best path that ends in a passage, in words; longer than one proposition where there is one."""
    standing = index.data.passage_proposition_PN[[passage], :].indices
    best: tuple[float, tuple[int, ...]] = (-2.0, ())
    for frontier in frontiers:
        for place in np.flatnonzero(np.isin(frontier.steps_FL[:, -1], standing)):
            best = max(best, (float(frontier.scores_F[place]), tuple(frontier.steps_FL[place].tolist())))
    return tuple(f"“{index.data.proposition_texts[row]}”" for row in best[1]) or ("near to the question by itself",)


def _passages_of(index: Index, rows: Ints, worth_N: Floats) -> tuple[Scored[Passage], ...]:
    best: dict[int, float] = {}
    for row in rows:
        for passage in index.proposition_passage_NP[[int(row)], :].indices.tolist():
            best.setdefault(passage, float(worth_N[row]))
    return tuple(Scored(index.passage(passage), score) for passage, score in best.items())
