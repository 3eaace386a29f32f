"""What a light selector knows of a proposition and a question: one row of numbers each, milliseconds for a whole candidate list.

Made at query time from the index alone, no model: `data_synth` writes these columns into training rows, a trained selector reads the
same columns. Everything is measured against the question's best propositions, the seeds, of which a relevant proposition of a
multi-hop question often continues one.

Legend: N propositions, P passages, U documents, S seeds, W keywords, n candidates, X and Y pairs,
F features.
"""

from dataclasses import dataclass

import numpy as np

from graph.index.index import Index
from graph.index.nearness import nearness, nearness_to
from graph.retrieve.learned.seed_ties import (
    called_by_seeds,
    entity_counts,
    hops_from,
    pair_scores,
    shared_entities,
    tied,
)
from graph.retrieve.parts.gather import expand_rows, worth_of_propositions
from graph.retrieve.parts.keywords import keywords_of
from graph.retrieve.parts.links import find_links
from graph.retrieve.parts.passage_scores import UNSEEN, own_scores, score_passages, score_propositions
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import SuggestSettings
from graph.retrieve.parts.suggest import SUBGRAPH_PROPOSITIONS, suggest
from graph.retrieve.parts.titles import named_documents
from graph.shared.types import Floats, Ints

FEATURES = (
    "nearness",
    "log_rank",
    "lead_in_passage",
    "passage_score",
    "hops_score",
    "seed_similarity",
    "seed_path_score",
    "title_in_seeds",
    "document_named",
    "question_entities",
    "shared_entities",
    "walk_mass",
    "hops",
    "log_place",
    "log_length",
)
"""The columns, in order. `passage_score` and `hops_score` are of the best passage that a proposition stands in, by itself and
with what leads to it; `seed_…`, `title_in_seeds`, `shared_entities`, `walk_mass` and `hops` tell how it hangs together with the seeds;
`document_named` and `question_entities` what the question calls by name; `log_…` are ln(1 + value).
"""
SEEDS = 5
WALK = SuggestSettings(damping=0.85, structure_weight=0.5)
"""The walk that trained selectors have learned from: theirs whatever a query sets."""


@dataclass(frozen=True)
class View:
    """A question's look at the whole index, shared by all its candidates. `own_P` and `reached_P` are `hops`'s scores without the
    question's words: those that trained selectors have learned from."""

    near_N: Floats
    own_P: Floats
    reached_P: Floats
    mass_N: Floats
    seeds_S: Ints
    named_U: Ints
    keywords_W: Ints


def features(index: Index, query: Query, rows_n: Ints) -> Floats:
    """The FEATURES of each proposition in `rows_n`, whatever their order: float32[n, F], all finite."""
    return measure(index, query, look(index, query), rows_n)


def look(index: Index, query: Query) -> View:
    """Everything about the question that does not depend on the candidates."""
    near_P = score_passages(index, query.vector_D)
    near_N = score_propositions(index, near_P, query.vector_D)
    named = [document for _, document in named_documents(index, query.text)]
    own_P = own_scores(index, near_P, near_N, named)
    links = find_links(index, own_P, near_N, query.vector_D)
    reached_P = own_P.copy()
    np.maximum.at(reached_P, links.to_passage_X, links.worth_X)
    seeds_S = top_rows(worth_of_propositions(index, near_N, own_P), SEEDS)
    return View(
        near_N=near_N,
        own_P=own_P,
        reached_P=reached_P,
        mass_N=walk_mass(index, near_N, seeds_S),
        seeds_S=seeds_S,
        named_U=np.unique(np.array(named, np.int64)),
        keywords_W=keywords_of(index, query.text),
    )


def measure(index: Index, query: Query, view: View, rows_n: Ints) -> Floats:
    """The features of candidates, given the question's view."""
    data, seeds_S = index.data, view.seeds_S
    vectors_nD = data.proposition_vectors_ND[rows_n]
    near_n = view.near_N[rows_n]
    unseen_n = near_n == UNSEEN
    near_n[unseen_n] = nearness_to(index, query.vector_D, vectors_nD[unseen_n] @ query.vector_D)
    likeness_nS = nearness(index, vectors_nD @ data.proposition_vectors_ND[seeds_S].T)
    other_nS = rows_n[:, None] != seeds_S[None, :]
    near_S = nearness_to(index, query.vector_D, data.proposition_vectors_ND[seeds_S] @ query.vector_D)
    named_P = np.isin(data.passage_document_P, view.named_U).astype(np.float32)
    place_n, length_n = first_span(index, rows_n)
    columns = {
        "nearness": near_n,
        "log_rank": log_ranks(view.near_N, near_n),
        "lead_in_passage": lead_in_passage(index, view.near_N, near_n, rows_n),
        "passage_score": best_standing(index, view.own_P, rows_n),
        "hops_score": best_standing(index, view.reached_P, rows_n),
        "seed_similarity": np.where(other_nS, likeness_nS, 0).max(axis=1, initial=0),
        "seed_path_score": pair_scores(near_n, near_S, likeness_nS, tied(index, rows_n, seeds_S)),
        "title_in_seeds": best_standing(index, called_by_seeds(index, seeds_S, near_S), rows_n),
        "document_named": best_standing(index, named_P, rows_n),
        "question_entities": entity_counts(index, rows_n, view.keywords_W),
        "shared_entities": shared_entities(index, rows_n, seeds_S),
        "walk_mass": view.mass_N[rows_n],
        "hops": hops_from(index, seeds_S, rows_n),
        "log_place": np.log1p(place_n),
        "log_length": np.log1p(length_n),
    }
    return np.stack([columns[name] for name in FEATURES], axis=1).astype(np.float32)


def walk_mass(index: Index, near_N: Floats, seeds_S: Ints) -> Floats:
    """√(mass ÷ largest) of ToPG's query-aware walk from the seeds (Eq. 3–8), which have 1 themselves: float32[N]."""
    mass_N = np.zeros(len(near_N), np.float32)
    found = suggest(index, near_N, seeds_S, SUBGRAPH_PROPOSITIONS, WALK)
    if len(found.rows):
        mass_N[found.rows] = np.sqrt(found.mass / found.mass[0])
    mass_N[seeds_S] = 1
    return mass_N


def log_ranks(near_N: Floats, near_n: Floats) -> Floats:
    """ln(1 + how many propositions of the index are nearer to the question): [n].

    >>> np.exp(log_ranks(np.array([.1, .9, .5, .5]), np.array([.5, .9]))).round().tolist()
    [2.0, 1.0]
    """
    above = np.sort(near_N[near_N > near_n.min(initial=1)])
    return np.log1p(len(above) - np.searchsorted(above, near_n, side="right"))


def lead_in_passage(index: Index, near_N: Floats, near_n: Floats, rows_n: Ints) -> Floats:
    """The candidate's nearness less the best of another proposition in its passages; 0 when it stands alone: [n]."""
    from_X, passage_X = expand_rows(index.proposition_passage_NP, rows_n)
    pair_Y, other_Y = expand_rows(index.data.passage_proposition_PN, passage_X)
    from_Y = from_X[pair_Y]
    beside_Y = (other_Y != rows_n[from_Y]) & (near_N[other_Y] != UNSEEN)
    best_n = np.full(len(rows_n), -np.inf, np.float32)
    np.maximum.at(best_n, from_Y[beside_Y], near_N[other_Y[beside_Y]])
    return np.where(np.isfinite(best_n), near_n - best_n, 0)


def best_standing(index: Index, values_P: Floats, rows_n: Ints) -> Floats:
    """The highest value of a passage that each candidate stands in: [n]."""
    from_X, passage_X = expand_rows(index.proposition_passage_NP, rows_n)
    best_n = np.full(len(rows_n), -np.inf, np.float32)
    np.maximum.at(best_n, from_X, values_P[passage_X])
    return best_n


def first_span(index: Index, rows_n: Ints) -> tuple[Floats, Floats]:
    """Where the first occurrence of each candidate begins in its document, and how long it is, in characters: [n], [n]."""
    data = index.data
    first_n = np.searchsorted(data.occurrence_proposition_M, rows_n)
    start_n = data.occurrence_start_M[first_n]
    return start_n.astype(np.float32), (data.occurrence_end_M[first_n] - start_n).astype(np.float32)
