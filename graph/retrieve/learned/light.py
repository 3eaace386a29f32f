"""The light selector: the features of a proposition and a question, and the boosted trees that score them. No language model is called.

Features are computed from the index alone, by the same functions for the training rows that `data_synth` writes and for a selector at query time.
The features compare a proposition with the question's best propositions, the seeds: a relevant proposition of a multi-hop question often continues
one of them. `modegraph train selector` writes the file with `save_selector`.

Legend: N propositions, P passages, E entities, U documents, S seeds, W keywords, n candidates, X and Y pairs, F features."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graph.errors import UserError
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity, normalised_similarity_to, pair_similarity
from graph.models.encoder import find_model
from graph.retrieve.hops.mode import find_links, names_few, reach
from graph.retrieve.hops.trained_hop import HOP_FILE
from graph.retrieve.parts.mentions import keywords_of, named_documents
from graph.retrieve.parts.passage_scores import (
    NOT_SCORED,
    Scores,
    add_names,
    score_passages,
    score_propositions,
    with_best_proposition,
)
from graph.retrieve.parts.query import SELECTOR_FILE, Query, SuggestSettings
from graph.retrieve.parts.ranking import entries_in, expand_rows, top_rows, worth_of_propositions
from graph.retrieve.parts.suggest import SUBGRAPH_PROPOSITIONS, suggest
from graph.trees import Forest, check_encoder, forest_logits, probabilities, read_forest, save_forest, trained_file
from graph.types import Floats, Ints

FARTHEST_HOPS = 3


def shares_entity(index: Index, rows_n: Ints, seeds_S: Ints) -> NDArray[np.bool_]:
    """Which candidates share an entity with which seeds; a seed with entities shares them with itself: [n, S]."""
    block_NE = index.data.proposition_entity_NE
    return np.asarray((block_NE[rows_n, :] @ block_NE[seeds_S, :].T).toarray() > 0)


def pair_scores(similarity_n: Floats, near_S: Floats, similarity_nS: Floats, shared_nS: NDArray[np.bool_]) -> Floats:
    """The `pair_similarity` of each candidate with the best seed that shares an entity with it, or its own similarity if that is higher: [n]."""
    scores_nS = pair_similarity(similarity_n[:, None], near_S[None, :], similarity_nS)
    return np.asarray(np.maximum(similarity_n, np.where(shared_nS, scores_nS, -np.inf).max(axis=1, initial=-np.inf)))


def named_by_seeds(index: Index, seeds_S: Ints, near_S: Floats) -> Floats:
    """For each passage, the highest similarity of a seed in another document that names the passage's document and few others; 0 without one: [P]."""
    data, documents = index.data, len(index.data.document_sources)
    from_X, entity_X = expand_rows(data.proposition_entity_NE, seeds_S)
    few_X = names_few(data.entity_document_EU, entity_X)
    pair_X, document_X = expand_rows(data.entity_document_EU, entity_X[few_X])
    from_X = from_X[few_X][pair_X]
    occurrence_X, passage_X = expand_rows(index.proposition_passage_NP, seeds_S)
    own_X = occurrence_X * documents + data.passage_document_P[passage_X]
    elsewhere_X = ~np.isin(from_X * documents + document_X, own_X)
    best_U = np.zeros(documents, np.float32)
    np.maximum.at(best_U, document_X[elsewhere_X], near_S[from_X[elsewhere_X]])
    return best_U[data.passage_document_P]


def entity_counts(index: Index, rows_n: Ints, entities_W: Ints) -> Floats:
    """How many of the given entities each candidate mentions: [n]."""
    from_X, entity_X = expand_rows(index.data.proposition_entity_NE, rows_n)
    return np.bincount(from_X[np.isin(entity_X, entities_W)], minlength=len(rows_n)).astype(np.float32)


def shared_entities(index: Index, rows_n: Ints, seeds_S: Ints) -> Floats:
    """Σ 1 / (1 + ln m) over the entities that each candidate shares with a seed other than itself; m propositions mention the entity: [n]."""
    data = index.data
    _, seed_entity_X = expand_rows(data.proposition_entity_NE, seeds_S)
    seeds_E = np.bincount(seed_entity_X, minlength=len(data.entity_ids))
    from_X, entity_X = expand_rows(data.proposition_entity_NE, rows_n)
    shared_X = seeds_E[entity_X] > np.isin(rows_n, seeds_S)[from_X]
    mentions_X = entries_in(index.entity_proposition_EN, entity_X[shared_X])
    weights_X = 1 / (1 + np.log(mentions_X))
    return np.bincount(from_X[shared_X], weights_X, minlength=len(rows_n)).astype(np.float32)


def hops_from(index: Index, seeds_S: Ints, rows_n: Ints) -> Floats:
    """Steps from the nearest seed, each through a shared entity or passage; 0 for seeds, at most FARTHEST_HOPS: [n]."""
    propositions = len(index.data.proposition_ids)
    from_X, hub_X = expand_rows(index.incidence_NB, rows_n)
    hops_n = np.full(len(rows_n), FARTHEST_HOPS, np.float32)
    reached = seeds_S
    for hop in range(1, FARTHEST_HOPS):
        hubs = np.unique(expand_rows(index.incidence_NB, reached)[1])
        near_X = from_X[np.isin(hub_X, hubs)]
        hops_n[near_X] = np.minimum(hops_n[near_X], hop)
        if hop + 1 < FARTHEST_HOPS:
            reached = np.unique(expand_rows(index.hub_graph_VV, propositions + hubs)[1])
    hops_n[np.isin(rows_n, seeds_S)] = 0
    return hops_n


FEATURES = (
    "similarity",
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
"""The columns, in order. `similarity` is the proposition's normalised similarity to the question, and `log_rank` its rank by that similarity.
`passage_score` and `hops_score` belong to the best passage with the proposition, before and after links are followed; `seed_…`,
`title_in_seeds`, `shared_entities`, `walk_mass` and `hops` measure the connection with the seeds; `document_named` and `question_entities`
measure the overlap with the documents and entities that the question names; `log_…` are ln(1 + value).
"""
SEEDS = 5
WALK = SuggestSettings(damping=0.85, structure_weight=0.5)
"""The walk of the training data: trained selectors always use it, whatever the settings of the query."""


@dataclass(frozen=True)
class QuestionView:
    """The data that all candidates of a question share. `own_P` and `reached_P` are the scores of `hops` without the gain for the question's words,
    as in the training data."""

    similarity_N: Floats
    own_P: Floats
    reached_P: Floats
    mass_N: Floats
    seeds_S: Ints
    named_U: Ints
    keywords_W: Ints


def view_of(index: Index, query: Query) -> QuestionView:
    """The inputs of a question's features that do not depend on the candidates."""
    similarity_P = score_passages(index, query.vector_D)
    similarity_N = score_propositions(index, similarity_P, query.vector_D)
    named = [document for _, document in named_documents(index, query.text)]
    own_P = add_names(index, with_best_proposition(index, similarity_P, similarity_N), named)
    reached_P, _ = reach(own_P, find_links(Scores(index, query.vector_D, similarity_N, own_P)))
    seeds_S = top_rows(worth_of_propositions(index, similarity_N, own_P), SEEDS)
    return QuestionView(
        similarity_N=similarity_N,
        own_P=own_P,
        reached_P=reached_P,
        mass_N=walk_mass(index, similarity_N, seeds_S),
        seeds_S=seeds_S,
        named_U=np.unique(np.array(named, np.int64)),
        keywords_W=keywords_of(index, query.text),
    )


def features_of(index: Index, query: Query, view: QuestionView, rows_n: Ints) -> Floats:
    """The FEATURES of candidates in any order, given the question's view: float32[n, F], all finite."""
    data, seeds_S = index.data, view.seeds_S
    vectors_nD = data.proposition_vectors_ND[rows_n]
    similarity_n = view.similarity_N[rows_n]
    unscored_n = similarity_n == NOT_SCORED
    similarity_n[unscored_n] = normalised_similarity_to(index, query.vector_D, vectors_nD[unscored_n] @ query.vector_D)
    similarity_nS = normalised_similarity(index, vectors_nD @ data.proposition_vectors_ND[seeds_S].T)
    other_nS = rows_n[:, None] != seeds_S[None, :]
    near_S = normalised_similarity_to(index, query.vector_D, data.proposition_vectors_ND[seeds_S] @ query.vector_D)
    named_P = np.isin(data.passage_document_P, view.named_U).astype(np.float32)
    start_n, length_n = first_span(index, rows_n)
    columns = {
        "similarity": similarity_n,
        "log_rank": log_ranks(view.similarity_N, similarity_n),
        "lead_in_passage": lead_in_passage(index, view.similarity_N, similarity_n, rows_n),
        "passage_score": best_of_passages(index, view.own_P, rows_n),
        "hops_score": best_of_passages(index, view.reached_P, rows_n),
        "seed_similarity": np.where(other_nS, similarity_nS, 0).max(axis=1, initial=0),
        "seed_path_score": pair_scores(similarity_n, near_S, similarity_nS, shares_entity(index, rows_n, seeds_S)),
        "title_in_seeds": best_of_passages(index, named_by_seeds(index, seeds_S, near_S), rows_n),
        "document_named": best_of_passages(index, named_P, rows_n),
        "question_entities": entity_counts(index, rows_n, view.keywords_W),
        "shared_entities": shared_entities(index, rows_n, seeds_S),
        "walk_mass": view.mass_N[rows_n],
        "hops": hops_from(index, seeds_S, rows_n),
        "log_place": np.log1p(start_n),
        "log_length": np.log1p(length_n),
    }
    return np.stack([columns[name] for name in FEATURES], axis=1).astype(np.float32)


def walk_mass(index: Index, similarity_N: Floats, seeds_S: Ints) -> Floats:
    """√(mass ÷ largest mass) of ToPG's query-aware walk from the seeds (Eq. 3–8); 1 for the seeds themselves: float32[N]."""
    mass_N = np.zeros(len(similarity_N), np.float32)
    suggestion = suggest(index, similarity_N, seeds_S, SUBGRAPH_PROPOSITIONS, WALK)
    mass_N[suggestion.rows] = suggestion.root_share
    mass_N[seeds_S] = 1
    return mass_N


def log_ranks(similarity_N: Floats, similarity_n: Floats) -> Floats:
    """ln(1 + the number of propositions in the index that are more similar to the question): [n].

    >>> np.exp(log_ranks(np.array([.1, .9, .5, .5]), np.array([.5, .9]))).round().tolist()
    [2.0, 1.0]
    """
    above = np.sort(similarity_N[similarity_N > similarity_n.min(initial=1)])
    return np.log1p(len(above) - np.searchsorted(above, similarity_n, side="right"))


def lead_in_passage(index: Index, similarity_N: Floats, similarity_n: Floats, rows_n: Ints) -> Floats:
    """The candidate's similarity minus the highest similarity among the other scored propositions of its passages; 0 without any: [n]."""
    from_X, passage_X = expand_rows(index.proposition_passage_NP, rows_n)
    pair_Y, other_Y = expand_rows(index.data.passage_proposition_PN, passage_X)
    from_Y = from_X[pair_Y]
    scored_Y = (other_Y != rows_n[from_Y]) & (similarity_N[other_Y] != NOT_SCORED)
    best_n = np.full(len(rows_n), -np.inf, np.float32)
    np.maximum.at(best_n, from_Y[scored_Y], similarity_N[other_Y[scored_Y]])
    return np.where(np.isfinite(best_n), similarity_n - best_n, 0)


def best_of_passages(index: Index, values_P: Floats, rows_n: Ints) -> Floats:
    """The highest value among the passages of each candidate: [n]."""
    from_X, passage_X = expand_rows(index.proposition_passage_NP, rows_n)
    best_n = np.full(len(rows_n), -np.inf, np.float32)
    np.maximum.at(best_n, from_X, values_P[passage_X])
    return best_n


def first_span(index: Index, rows_n: Ints) -> tuple[Floats, Floats]:
    """Of each candidate's first occurrence, the start in the document and the length, in characters: [n], [n]."""
    data = index.data
    first_n = np.searchsorted(data.occurrence_proposition_M, rows_n)
    start_n = data.occurrence_start_M[first_n]
    return start_n.astype(np.float32), (data.occurrence_end_M[first_n] - start_n).astype(np.float32)


FORMAT = "modegraph selector, light, 2"
HEADER = "selector"
"""The only key of the file's metadata. Its value is one JSON object with everything but the arrays, so that equal selectors give equal bytes."""


@dataclass(frozen=True)
class Classifier:
    """A forest that predicts logits, the temperature that makes them probabilities, the lowest probability that counts as relevant, and the fingerprint
    of the training encoder."""

    forest: Forest
    temperature: float
    threshold: float
    encoder: str


def relevance(classifier: Classifier, features_nF: Floats) -> NDArray[np.float64]:
    """The probability that each proposition is relevant, given its FEATURES: [n]."""
    return probabilities(forest_logits(classifier.forest, features_nF), classifier.temperature)


def judge(classifier: Classifier, index: Index, query: Query, view: QuestionView, rows_n: Ints) -> NDArray[np.float64]:
    """The probability that each proposition is relevant: [n]. UserError if the encoder of the index is not the classifier's."""
    check_encoder("selector", classifier.encoder, index, "data of `modegraph synth relevance`")
    return relevance(classifier, features_of(index, query, view, rows_n))


def save_selector(folder: Path, classifier: Classifier) -> None:
    """Write SELECTOR_FILE into `folder`."""
    metadata = {
        "format": FORMAT,
        "features": FEATURES,
        "encoder": classifier.encoder,
        "temperature": classifier.temperature,
        "threshold": classifier.threshold,
    }
    save_forest(folder / SELECTOR_FILE, HEADER, metadata, classifier.forest)


def open_selector(spec: str) -> Classifier:
    """The selector in a folder or on the hub, cached until its file changes; UserError if there is none, also for the folder of a hop."""
    file = find_model(spec, "selector") / SELECTOR_FILE
    if not file.is_file():
        if file.with_name(HOP_FILE).is_file():
            found = f"selector {spec!r}: a hop, which only mode hops uses"
            remedy = "use it in mode hops, or train one with --size light"
            raise UserError(found, f"a folder with {SELECTOR_FILE}", remedy)
        trained_file(spec, "selector", SELECTOR_FILE)
    return _load_selector(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load_selector(file: Path, changed_ns: int) -> Classifier:
    del changed_ns
    with read_forest(file, HEADER, FORMAT, FEATURES) as (forest, header, _):
        return Classifier(forest, float(header["temperature"]), float(header["threshold"]), str(header["encoder"]))
