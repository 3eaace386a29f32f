"""`walk`: multi-hop retrieval without a model, our own; made for small encoders.

A question about Port Ellery's ferry's builder names the ferry; the builder is named only in the ferry's passage. So:
1. Every passage is scored by its own cosine and its best proposition's, and higher if the question calls its document by name.
2. The best of them are seeds. From each proposition of a seed, links lead on: to documents called by a name in it, and to
   propositions elsewhere that share a rare name with it (judged as a pair: the cosine of the question with both together, as
   in PropRAG's paths). A link is worth the mean of its seed and its proposition, less a loss for the step.
3. A passage is ranked by the better of what it is worth itself and the best link to it. All scores are on the cosine's scale.

Legend: P passages, N propositions, E names, U documents, S seeds, X links.
"""

from dataclasses import dataclass

import numpy as np

from graph.index import Index
from graph.retrieve.gather import best_in_passage, expand_rows
from graph.retrieve.query import Query
from graph.retrieve.rank import top_rows
from graph.retrieve.settings import RetrieveSettings
from graph.retrieve.titles import named_documents
from graph.types import Evidence, Floats, Ints, Scored, Trace

SEEDS = 5
NAMED_BONUS = 0.5
OTHER_PASSAGES_SHARE = 0.25
"""A named document's best passage gets the whole bonus, its others this share of it."""
STEP = 0.9
"""What a link is worth of what led to it."""
TARGET_WEIGHT, TARGET_LEVEL = 0.6, 0.3
"""A link by title gains where its passage is nearer to the question than TARGET_LEVEL, and loses where it is farther."""
CROWD_LOSS = 0.1
"""A seed that names many documents singles none of them out: a link loses this much times the logarithm of their number."""
MENTION_LOSS = 0.15
RARITY_LOSS = 0.05
"""A link through a shared name loses this much times the logarithm of the number of propositions with that name."""
MAX_MENTIONS = 150
SCAN_ALL, SCANNED_PASSAGES = 150_000, 5_000
"""Up to so many propositions all are scored; in larger indexes those of so many passages, the nearest to the question."""
UNSEEN = np.float32(-2)
"""The score of a proposition that was not looked at."""


@dataclass(frozen=True)
class Links:
    """Ways from seed propositions on to passages: what each is worth and how it goes (`title`: to a document by its name)."""

    to_passage_X: Ints
    worth_X: Floats
    proposition_X: Ints
    name_X: Ints
    title_X: Ints


def retrieve_walk(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, each with the path that led to it."""
    data = index.data
    cosines_P = data.passage_vectors_PD @ query.vector_D
    scores_N = score_propositions(index, cosines_P, query.vector_D)
    named = named_documents(index, query.text)
    own_P = own_scores(index, cosines_P, scores_N, [document for _, document in named])
    links = find_links(index, own_P, scores_N, query.vector_D)
    reached_P, led = reach(own_P, links)
    rows = [int(row) for row in top_rows(reached_P, settings.top_k)]
    called = {document: name for name, document in named}
    steps = (f"{len(named)} documents named by the question", f"{len(links.worth_X):,} links from {SEEDS} passages")
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), float(reached_P[row])) for row in rows),
        paths=tuple(tell_path(index, row, links, led, called) for row in rows),
        trace=Trace("walk", steps),
    )


def score_propositions(index: Index, cosines_P: Floats, query_D: Floats) -> Floats:
    """The question's cosine to every proposition: float32[N].

    In an index of more than SCAN_ALL only those of the nearest SCANNED_PASSAGES are looked at; others are UNSEEN.
    """
    data = index.data
    if len(data.proposition_ids) <= SCAN_ALL:
        return np.asarray(data.proposition_vectors_ND @ query_D, np.float32)
    scores_N = np.full(len(data.proposition_ids), UNSEEN, np.float32)
    look_at(
        index, expand_rows(data.passage_proposition_PN, top_rows(cosines_P, SCANNED_PASSAGES))[1], scores_N, query_D
    )
    return scores_N


def look_at(index: Index, rows: Ints, scores_N: Floats, query_D: Floats) -> None:
    """Fill in the scores of those of the given propositions that are UNSEEN."""
    unseen = np.unique(rows[scores_N[rows] == UNSEEN])
    scores_N[unseen] = index.data.proposition_vectors_ND[unseen] @ query_D


def own_scores(index: Index, cosines_P: Floats, scores_N: Floats, named: list[int]) -> Floats:
    """What each passage is worth by itself: float32[P]."""
    data = index.data
    best_P = best_in_passage(scores_N, data.passage_proposition_PN, cosines_P)
    own_P = (cosines_P + np.where(best_P == UNSEEN, cosines_P, best_P)) / 2
    for document in dict.fromkeys(named):
        first, last = passages_of(data.passage_document_P, document)
        if first < last:
            best = first + int(own_P[first:last].argmax())
            own_P[first:last] += NAMED_BONUS * OTHER_PASSAGES_SHARE
            own_P[best] += NAMED_BONUS * (1 - OTHER_PASSAGES_SHARE)
    return np.asarray(own_P, np.float32)


def find_links(index: Index, own_P: Floats, scores_N: Floats, query_D: Floats) -> Links:
    """All links from the propositions of the best passages. Scores that are needed and UNSEEN are filled in."""
    data = index.data
    seeds_S = top_rows(own_P, SEEDS)
    seed_X, proposition_X = expand_rows(data.passage_proposition_PN, seeds_S)
    look_at(index, proposition_X, scores_N, query_D)
    from_X, name_X = expand_rows(data.proposition_name_NE, proposition_X)
    seed_X, proposition_X = seeds_S[seed_X[from_X]], proposition_X[from_X]
    titled = _title_links(index, own_P, scores_N, seed_X, proposition_X, name_X)
    shared = _mention_links(index, own_P, scores_N, query_D, seed_X, proposition_X, name_X)
    return Links(
        to_passage_X=np.concatenate([titled.to_passage_X, shared.to_passage_X]),
        worth_X=np.concatenate([titled.worth_X, shared.worth_X]),
        proposition_X=np.concatenate([titled.proposition_X, shared.proposition_X]),
        name_X=np.concatenate([titled.name_X, shared.name_X]),
        title_X=np.concatenate([titled.title_X, shared.title_X]),
    )


def reach(own_P: Floats, links: Links) -> tuple[Floats, dict[int, int]]:
    """What each passage is worth by itself or by the best link to it: float32[P]; and that link, where it is worth more."""
    best_X = best_links(links)
    reached_P = own_P.copy()
    np.maximum.at(reached_P, links.to_passage_X[best_X], links.worth_X[best_X])
    led = {int(links.to_passage_X[x]): int(x) for x in best_X if links.worth_X[x] > own_P[links.to_passage_X[x]]}
    return reached_P, led


def best_links(links: Links) -> Ints:
    """The best link to each passage that has one."""
    order_X = np.lexsort((links.name_X, links.proposition_X, -links.worth_X))
    _, first = np.unique(links.to_passage_X[order_X], return_index=True)
    return order_X[first]


def tell_path(index: Index, row: int, links: Links, led: dict[int, int], called: dict[int, str]) -> tuple[str, ...]:
    """How the passage in `row` was reached, in words."""
    data = index.data
    if row in led:
        link = led[row]
        name, proposition = (
            data.name_texts[int(links.name_X[link])],
            data.proposition_texts[int(links.proposition_X[link])],
        )
        how = "is the document called so" if links.title_X[link] else "says more of that name"
        return (f"“{proposition}”", f"names “{name}”", f"and this {how}")
    document = int(data.passage_document_P[row])
    if document in called:
        return (f"the question names “{called[document]}”",)
    return ("near to the question by itself",)


def passages_of(passage_document_P: Ints, document: int) -> tuple[int, int]:
    """The rows of a document's passages: first, and one past the last."""
    first, last = np.searchsorted(passage_document_P, [document, document + 1])
    return int(first), int(last)


def _title_links(
    index: Index, own_P: Floats, scores_N: Floats, seed_X: Ints, proposition_X: Ints, name_X: Ints
) -> Links:
    """Links to the best passage of each document that a seed's name calls."""
    data = index.data
    from_X, document_X = expand_rows(data.name_document_EU, name_X)
    to_X = np.array([_best_passage(data.passage_document_P, own_P, int(u)) for u in document_X], np.int64)
    new_X = (to_X >= 0) & (document_X != data.passage_document_P[seed_X[from_X]])
    from_X, to_X = from_X[new_X], to_X[new_X]
    crowd_P = np.bincount(np.unique(np.stack([seed_X[from_X], to_X]), axis=1)[0], minlength=len(own_P))
    worth_X = STEP * (own_P[seed_X[from_X]] + scores_N[proposition_X[from_X]]) / 2
    worth_X += TARGET_WEIGHT * (own_P[to_X] - TARGET_LEVEL) - CROWD_LOSS * np.log(crowd_P[seed_X[from_X]])
    return Links(to_X, worth_X, proposition_X[from_X], name_X[from_X], np.ones(len(to_X), np.int64))


def _mention_links(
    index: Index, own_P: Floats, scores_N: Floats, query_D: Floats, seed_X: Ints, proposition_X: Ints, name_X: Ints
) -> Links:
    """Links to passages with a proposition that shares a rare name with a seed's."""
    data, block_EN = index.data, index.name_proposition_EN
    mentions_X = np.diff(block_EN.indptr)[name_X]
    rare_X = np.flatnonzero((mentions_X > 1) & (mentions_X <= MAX_MENTIONS))
    from_X, other_X = expand_rows(block_EN, name_X[rare_X])
    from_X = rare_X[from_X]
    look_at(index, other_X, scores_N, query_D)
    near_R, near_X = np.unique(other_X, return_inverse=True)
    seeds_R, seeds_X = np.unique(proposition_X[from_X], return_inverse=True)
    likeness_RR = data.proposition_vectors_ND[near_R] @ data.proposition_vectors_ND[seeds_R].T
    likeness_X = np.maximum(likeness_RR[near_X, seeds_X], -0.9)
    together_X = (scores_N[proposition_X[from_X]] + scores_N[other_X]) / np.sqrt(2 + 2 * likeness_X)
    loss_X = MENTION_LOSS + RARITY_LOSS * np.log(mentions_X[from_X])
    worth_X = STEP * (own_P[seed_X[from_X]] + np.maximum(together_X, 0)) / 2 - loss_X
    stands_X, to_X = expand_rows(index.proposition_passage_NP, other_X)
    from_X, worth_X = from_X[stands_X], worth_X[stands_X]
    away_X = data.passage_document_P[to_X] != data.passage_document_P[seed_X[from_X]]
    from_X, to_X = from_X[away_X], to_X[away_X]
    worth = worth_X[away_X].astype(np.float32)
    return Links(to_X, worth, proposition_X[from_X], name_X[from_X], np.zeros(len(to_X), np.int64))


def _best_passage(passage_document_P: Ints, own_P: Floats, document: int) -> int:
    first, last = passages_of(passage_document_P, document)
    return first + int(own_P[first:last].argmax()) if first < last else -1
