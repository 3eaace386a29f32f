"""Links from the propositions of the best passages, the seeds, to passages that the question itself does not lead to.

From each proposition of a seed, links lead on: to documents called by an entity in it, and to propositions elsewhere that share a rare
entity with it (judged as a pair: the nearness of the question to both together, as in PropRAG's paths). A link is worth the mean of its
seed and its proposition, less a loss for the step. All scores are on the scale of nearness (graph/index/nearness.py).

Legend: P passages, N propositions, E entities, U documents, S seeds, X links, R distinct rows.
"""

from dataclasses import dataclass, replace

import numpy as np

from graph.index.index import Index
from graph.index.nearness import nearness
from graph.retrieve.parts.gather import entries_in, expand_rows
from graph.retrieve.parts.passage_scores import LookAt, all_seen, look_at, passages_in, passages_of
from graph.retrieve.parts.rank import top_rows
from graph.shared.types import Floats, Ints

SEEDS = 5
STEP = 0.9
"""What a link is worth of what led to it."""
TARGET_WEIGHT, TARGET_LEVEL = 0.6, 0.3
"""A link by title gains where its passage is nearer to the question than TARGET_LEVEL, and loses where it is farther."""
CROWD_LOSS = 0.1
"""A seed that names many documents singles none of them out: a link loses this much times the logarithm of their number."""
MENTION_LOSS = 0.15
RARITY_LOSS = 0.05
"""A link through a shared entity loses this much times the logarithm of the number of propositions with that entity."""
MAX_MENTIONS = 150


@dataclass(frozen=True)
class Links:
    """Ways from seed propositions on to passages: what each is worth and how it goes (`title`: to a document by its name)."""

    to_passage_X: Ints
    worth_X: Floats
    proposition_X: Ints
    entity_X: Ints
    title_X: Ints


def find_links(index: Index, own_P: Floats, scores_N: Floats, query_D: Floats, look: LookAt = all_seen) -> Links:
    """All links from the propositions of the best passages. Scores that are needed and UNSEEN are filled in: passages' by `look`."""
    return links_from(index, top_rows(own_P, SEEDS), own_P, scores_N, query_D, look)


def links_from(
    index: Index, seeds_S: Ints, own_P: Floats, scores_N: Floats, query_D: Floats, look: LookAt = all_seen
) -> Links:
    """All links from the propositions of the passages in `seeds_S`."""
    data = index.data
    seed_X, proposition_X = expand_rows(data.passage_proposition_PN, seeds_S)
    look_at(index, proposition_X, scores_N, query_D)
    from_X, entity_X = expand_rows(data.proposition_entity_NE, proposition_X)
    seed_X, proposition_X = seeds_S[seed_X[from_X]], proposition_X[from_X]
    called_U = np.unique(expand_rows(data.entity_document_EU, entity_X)[1])
    look(passages_in(data.passage_document_P, called_U.tolist()))
    titled = _title_links(index, own_P, scores_N, seed_X, proposition_X, entity_X)
    shared = _mention_links(index, own_P, scores_N, query_D, seed_X, proposition_X, entity_X)
    look(shared.to_passage_X)
    return Links(
        to_passage_X=np.concatenate([titled.to_passage_X, shared.to_passage_X]),
        worth_X=np.concatenate([titled.worth_X, shared.worth_X]),
        proposition_X=np.concatenate([titled.proposition_X, shared.proposition_X]),
        entity_X=np.concatenate([titled.entity_X, shared.entity_X]),
        title_X=np.concatenate([titled.title_X, shared.title_X]),
    )


def raise_by_words(links: Links, lift_P: Floats) -> Links:
    """The links with what the question's words make of where they lead: a passage's share in a link through an entity is STEP / 2.

    A link by title has its share already: TARGET_WEIGHT of what its passage is worth by itself.
    """
    lift_X = np.where(links.title_X, 0, STEP / 2 * lift_P[links.to_passage_X])
    return replace(links, worth_X=(links.worth_X + lift_X).astype(np.float32))


def mention_loss(mentions_X: Ints) -> Floats:
    """What links through entities that so many propositions have lose for it."""
    return np.asarray(MENTION_LOSS + RARITY_LOSS * np.log(mentions_X))


def reach(own_P: Floats, links: Links) -> tuple[Floats, dict[int, int]]:
    """What each passage is worth by itself or by the best link to it: float32[P]; and that link, where it is worth more."""
    best_X = best_links(links)
    reached_P = own_P.copy()
    np.maximum.at(reached_P, links.to_passage_X[best_X], links.worth_X[best_X])
    led = {int(links.to_passage_X[x]): int(x) for x in best_X if links.worth_X[x] > own_P[links.to_passage_X[x]]}
    return reached_P, led


def best_links(links: Links) -> Ints:
    """The best link to each passage that has one."""
    order_X = np.lexsort((links.entity_X, links.proposition_X, -links.worth_X))
    _, first = np.unique(links.to_passage_X[order_X], return_index=True)
    return order_X[first]


def tell_path(index: Index, row: int, links: Links, led: dict[int, int], called: dict[int, str]) -> tuple[str, ...]:
    """How the passage in `row` was reached, in words."""
    data = index.data
    if row in led:
        link = led[row]
        entity, proposition = (
            data.entity_texts[int(links.entity_X[link])],
            data.proposition_texts[int(links.proposition_X[link])],
        )
        how = "is the document called so" if links.title_X[link] else "says more of it"
        return (f"“{proposition}”", f"mentions “{entity}”", f"and this {how}")
    document = int(data.passage_document_P[row])
    if document in called:
        return (f"the question names “{called[document]}”",)
    return ("near to the question by itself",)


def _title_links(
    index: Index, own_P: Floats, scores_N: Floats, seed_X: Ints, proposition_X: Ints, entity_X: Ints
) -> Links:
    """Links to the best passage of each document that a seed's entity calls."""
    data = index.data
    from_X, document_X = expand_rows(data.entity_document_EU, entity_X)
    to_X = np.array([_best_passage(data.passage_document_P, own_P, int(u)) for u in document_X], np.int64)
    new_X = (to_X >= 0) & (document_X != data.passage_document_P[seed_X[from_X]])
    from_X, to_X = from_X[new_X], to_X[new_X]
    crowd_P = np.bincount(np.unique(np.stack([seed_X[from_X], to_X]), axis=1)[0], minlength=len(own_P))
    worth_X = STEP * (own_P[seed_X[from_X]] + scores_N[proposition_X[from_X]]) / 2
    worth_X += TARGET_WEIGHT * (own_P[to_X] - TARGET_LEVEL) - CROWD_LOSS * np.log(crowd_P[seed_X[from_X]])
    return Links(to_X, worth_X, proposition_X[from_X], entity_X[from_X], np.ones(len(to_X), np.int64))


def _mention_links(
    index: Index, own_P: Floats, scores_N: Floats, query_D: Floats, seed_X: Ints, proposition_X: Ints, entity_X: Ints
) -> Links:
    """Links to passages with a proposition that shares a rare entity with a seed's."""
    data, block_EN = index.data, index.entity_proposition_EN
    mentions_X = entries_in(block_EN, entity_X)
    rare_X = np.flatnonzero((mentions_X > 1) & (mentions_X <= MAX_MENTIONS))
    from_X, other_X = expand_rows(block_EN, entity_X[rare_X])
    from_X = rare_X[from_X]
    look_at(index, other_X, scores_N, query_D)
    near_R, near_X = np.unique(other_X, return_inverse=True)
    seeds_R, seeds_X = np.unique(proposition_X[from_X], return_inverse=True)
    likeness_RR = nearness(index, data.proposition_vectors_ND[near_R] @ data.proposition_vectors_ND[seeds_R].T)
    likeness_X = np.maximum(likeness_RR[near_X, seeds_X], -0.9)
    together_X = (scores_N[proposition_X[from_X]] + scores_N[other_X]) / np.sqrt(2 + 2 * likeness_X)
    worth_X = STEP * (own_P[seed_X[from_X]] + np.maximum(together_X, 0)) / 2 - mention_loss(mentions_X[from_X])
    stands_X, to_X = expand_rows(index.proposition_passage_NP, other_X)
    from_X, worth_X = from_X[stands_X], worth_X[stands_X]
    away_X = data.passage_document_P[to_X] != data.passage_document_P[seed_X[from_X]]
    from_X, to_X = from_X[away_X], to_X[away_X]
    worth = worth_X[away_X].astype(np.float32)
    return Links(to_X, worth, proposition_X[from_X], entity_X[from_X], np.zeros(len(to_X), np.int64))


def _best_passage(passage_document_P: Ints, own_P: Floats, document: int) -> int:
    first, last = passages_of(passage_document_P, document)
    return first + int(own_P[first:last].argmax()) if first < last else -1
