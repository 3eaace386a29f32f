"""`paths` (PropRAG): explore by PageRank, search proposition paths with a beam, then run PageRank around the entities on them.

No language model is called. The published method embeds the joined text of every candidate path; here, a path's score is the normalised
similarity of the question to the mean of its propositions' unit vectors, which needs no further encoding and puts paths of all lengths on the same
scale.

Legend: P passages, N propositions, E entities, V vertices (entities, then passages), k passages or propositions chosen for this query,
F paths of the beam, m entities of the chosen passages, R pairs of a chosen proposition and an entity, L propositions of a path, D dimensions.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.index.normalised_similarity import square_of_sum, usual_cosine
from graph.random_walk import personalised_pagerank, row_normalised
from graph.retrieve.parts.passage_scores import score_all_propositions
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import expand_rows, passages_at, top_rows
from graph.types import Evidence, Floats, Ints, Trace

EXPLORE_PROPOSITIONS, EXPLORE_ENTITIES, EXPLORE_PASSAGES = 20, 40, 50
EXPLORE_DAMPING, EXPLOIT_DAMPING = 0.75, 0.45
EXPLORE_TOLERANCE = 0.03
"""The first walk only chooses passages to explore; a rough result chooses the same passages."""
PRIOR_WEIGHT = 0.05
BEAM_WIDTH, MAX_PATH, RESTARTS = 4, 3, 3
BEST_PATHS, BEST_SINGLES = 5, 4


@dataclass(frozen=True)
class Path:
    """A path and its score. Each proposition after the first is linked to its predecessor, or is one of the RESTARTS best.

    `propositions` are rows of the index; during `beam_search`, positions in its `propositions_k`.
    """

    propositions: tuple[int, ...]
    score: float


def retrieve_paths(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, with the paths that explain their ranks."""
    data = index.data
    scores_N = score_all_propositions(index, query.vector_D)
    prior_P = min_max(data.passage_vectors_PD @ query.vector_D)
    passages_k = explore(index, scores_N, prior_P, max(EXPLORE_PASSAGES, settings.top_k))
    propositions_k = np.unique(expand_rows(data.passage_proposition_PN, passages_k)[1])
    paths = beam_search(index, propositions_k, scores_N)
    mass_k = exploit(index, passages_k, paths, scores_N, propositions_k, prior_P)
    order = top_rows(mass_k, settings.top_k)
    rows = passages_k[order]
    return Evidence(
        query=query.text,
        passages=passages_at(index, rows, mass_k[order]),
        paths=tuple(describe_path(index, row, paths[:BEST_PATHS]) for row in rows.tolist()),
        trace=Trace("paths", (f"{len(passages_k)} passages explored", f"{len(paths)} paths found")),
    )


def explore(index: Index, scores_N: Floats, prior_P: Floats, count: int) -> Ints:
    """The `count` passages with the most PageRank mass around the entities of the best propositions, as ascending rows; none in an empty index."""
    entities = len(index.data.entity_ids)
    best = top_rows(scores_N, EXPLORE_PROPOSITIONS)
    from_R, entity_R = expand_rows(index.data.proposition_entity_NE, best)
    weights_E = np.zeros(entities, np.float32)
    np.maximum.at(weights_E, entity_R, scores_N[best[from_R]])
    seeds = top_rows(weights_E, min(EXPLORE_ENTITIES, int((weights_E > 0).sum())))
    restart_V = np.concatenate([np.zeros(entities, np.float32), PRIOR_WEIGHT * prior_P])
    restart_V[seeds] = 1
    if not restart_V.any():
        return np.zeros(0, np.int64)
    chain = index.association_chain
    mass_V1 = personalised_pagerank(chain, restart_V[:, None], EXPLORE_DAMPING, EXPLORE_TOLERANCE)
    return np.sort(top_rows(mass_V1[entities:, 0], count))


def beam_search(index: Index, propositions_k: Ints, scores_N: Floats) -> list[Path]:
    """All paths of up to MAX_PATH propositions that were in the beam, best first, ties by rows."""
    vectors_kD = index.data.proposition_vectors_ND[propositions_k]
    scores_k, usual = scores_N[propositions_k], usual_cosine(index)
    named_kE = sp.csr_array(index.data.proposition_entity_NE[propositions_k, :])
    starts = top_rows(scores_k, BEAM_WIDTH).tolist()
    beam = [Path((position,), float(scores_k[position])) for position in starts]
    paths = list(beam)
    for _ in range(MAX_PATH - 1):
        extended: dict[tuple[int, ...], Path] = {}
        near_Fk = neighbours(index, named_kE, np.array([path.propositions[-1] for path in beam], np.int64))
        for row, path in enumerate(beam):
            linked = set(near_Fk.indices[near_Fk.indptr[row] : near_Fk.indptr[row + 1]].tolist())
            for position in sorted((linked | set(starts[:RESTARTS])) - set(path.propositions)):
                longer = (*path.propositions, position)
                extended[longer] = Path(longer, path_score(vectors_kD[list(longer)], scores_k[list(longer)], usual))
        beam = sorted(extended.values(), key=lambda path: (-path.score, path.propositions))[:BEAM_WIDTH]
        paths += beam
    paths.sort(key=lambda path: (-path.score, path.propositions))
    return [Path(tuple(int(propositions_k[position]) for position in path.propositions), path.score) for path in paths]


def describe_path(index: Index, passage: int, paths: list[Path]) -> tuple[str, ...]:
    """How a passage was reached, in words: the first of `paths` that contains one of its propositions, up to that proposition;
    a general phrase if no path does."""
    _, in_passage = expand_rows(index.data.passage_proposition_PN, np.array([passage]))
    for path in paths:
        ranks = [rank for rank, row in enumerate(path.propositions, start=1) if row in in_passage]
        if ranks:
            return tuple(f"“{index.data.proposition_texts[row]}”" for row in path.propositions[: ranks[0]])
    return ("near the entities that the best paths lead to",)


def path_score(vectors_LD: Floats, scores_L: Floats, usual: float) -> float:
    """The question's similarity to the mean of a path's L unit vectors; `scores_L` are its similarities to each."""
    square = np.square(vectors_LD.sum(axis=0)).sum()
    return float(scores_L.sum() / np.sqrt(square_of_sum(square, float(len(scores_L)), usual)))


def neighbours(index: Index, named_kE: sp.csr_array, last_F: Ints) -> sp.csr_array:
    """CSR[F, k]: which of the chosen propositions share an entity, or a synonym of one, with those at the positions `last_F`; each also with itself.

    `named_kE` contains the entities of the chosen propositions.
    """
    named_FE = named_kE[last_F, :]
    return sp.csr_array((named_FE + named_FE @ index.data.synonym_EE) @ named_kE.T)


def exploit(
    index: Index, passages_k: Ints, paths: list[Path], scores_N: Floats, propositions_k: Ints, prior_P: Floats
) -> Floats:
    """PageRank mass of the explored passages around the entities of the best paths and best single propositions; `prior_P` if nothing has weight: [k]."""
    by_path = entity_weights(index, [(row, path.score) for path in paths[:BEST_PATHS] for row in path.propositions])
    singles = propositions_k[top_rows(scores_N[propositions_k], BEST_SINGLES)]
    by_single = entity_weights(index, [(int(row), float(scores_N[row])) for row in singles])
    weights_E = np.maximum(by_path, by_single)
    data = index.data
    passage_entity_kE = sp.csr_array(data.passage_proposition_PN[passages_k, :] @ data.proposition_entity_NE)
    entities_m = np.unique(passage_entity_kE.indices)
    vertices = np.concatenate([entities_m, len(data.entity_ids) + passages_k])
    local_VV = row_normalised(sp.csr_array(index.association_VV[vertices, :][:, vertices]))
    restart_V = np.concatenate([weights_E[entities_m], PRIOR_WEIGHT * prior_P[passages_k]])
    if not restart_V.any():
        return prior_P[passages_k]
    return personalised_pagerank(local_VV, restart_V[:, None], EXPLOIT_DAMPING)[len(entities_m) :, 0]


def entity_weights(index: Index, scored: list[tuple[int, float]]) -> Floats:
    """Each entity's best score among the propositions that mention it, min-max scaled over those entities, at least PRIOR_WEIGHT; 0 for others: float32[E]."""
    weights_E = np.full(len(index.data.entity_ids), -np.inf, np.float32)
    if scored:
        from_R, entity_R = expand_rows(index.data.proposition_entity_NE, np.array([row for row, _ in scored], np.int64))
        np.maximum.at(weights_E, entity_R, np.array([score for _, score in scored], np.float32)[from_R])
    named = np.isfinite(weights_E)
    scaled_E = np.zeros_like(weights_E)
    scaled_E[named] = np.maximum(min_max(weights_E[named]), PRIOR_WEIGHT)
    return scaled_E


def min_max(values: Floats) -> Floats:
    """The values scaled to [0, 1]; equal values become ones (all are the best).

    >>> min_max(np.array([2.0, 4.0, 3.0])).tolist(), min_max(np.array([5.0, 5.0])).tolist()
    ([0.0, 1.0, 0.5], [1.0, 1.0])
    """
    if len(values) == 0:
        return values
    low, high = values.min(), values.max()
    return np.ones_like(values) if high == low else (values - low) / (high - low)
