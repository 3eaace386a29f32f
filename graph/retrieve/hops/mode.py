"""`hops`: multi-hop retrieval without a language model, designed in this project for small encoders.

A question about the builder of Port Ellery's ferry names the ferry; only the ferry's passage names the builder. So:
1. Every passage gets its own score (parts/passage_scores.py): the mean of its similarity and that of its best proposition, raised if it contains
   words of the question or if the question names its document.
2. Links lead from the best passages, the seeds, to documents whose title is an entity that a seed mentions (unless many documents have that
   title), and to propositions that share a rare entity with a seed.
3. A link through a shared entity scores higher if the passage that it leads to contains words of the question, and higher still if the title of
   that passage's document combines the entity with words of the question.
4. A passage ranks by its own score or by its best link's, whichever is higher. A trained hop, if there is one, then reranks the passages by its log odds.

Legend: P passages, N propositions, E entities, U documents, S seeds, X links, Y links that may gain, R distinct rows."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity, pair_similarity
from graph.retrieve.hops.trained_hop import HopRanking, find_hop, rank_by_hop
from graph.retrieve.parts.passage_scores import NOT_SCORED, OwnScores, Scores, passages_in, passages_of, score_alone
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import entries_in, expand_rows, passages_at, top_rows
from graph.retrieve.parts.words import best_terms, describe_terms
from graph.text.bm25 import content_terms
from graph.text.word_forms import form_of
from graph.types import Evidence, Floats, Ints, Trace

SEEDS = 5
STEP = 0.9
"""A link passes on this share of the mean of two scores: its seed's, and its proposition's (for a link through a shared entity, the joint score of
both propositions)."""
TARGET_WEIGHT, TARGET_LEVEL = 0.6, 0.3
"""A link by title scores higher if its target's own score is above TARGET_LEVEL, and lower if it is below."""
CROWD_LOSS = 0.1
"""A seed that names many documents is not specific: its links by title lose this much times the logarithm of the number of documents."""
MENTION_LOSS = 0.15
RARITY_LOSS = 0.05
"""A link through a shared entity loses MENTION_LOSS, and this much times the logarithm of the number of propositions with that entity."""
MAX_MENTIONS = 150
"""Entities in more propositions than this link almost everything, so no link goes through them, except by title."""
MAX_NAMESAKES = 150
"""An entity that names more documents than this identifies none of them, so no link by title goes through it."""


@dataclass(frozen=True)
class Links:
    """Links from seed propositions to passages, their scores (`worth_X`), and whether they lead to a document by its title (`title_X`)."""

    to_passage_X: Ints
    worth_X: Floats
    proposition_X: Ints
    entity_X: Ints
    title_X: Ints


def find_links(scores: Scores) -> Links:
    """All links from the propositions of the best passages. Adds the scores of their targets to `scores`."""
    return links_from(scores, top_rows(scores.own_P, SEEDS))


def links_from(scores: Scores, seeds_S: Ints) -> Links:
    """All links from the propositions of the passages in `seeds_S`. Adds the scores of their targets to `scores`."""
    data = scores.index.data
    seed_X, proposition_X = expand_rows(data.passage_proposition_PN, seeds_S)
    scores.add_propositions(proposition_X)
    from_X, entity_X = expand_rows(data.proposition_entity_NE, proposition_X)
    seed_X, proposition_X = seeds_S[seed_X[from_X]], proposition_X[from_X]
    few_X = names_few(data.entity_document_EU, entity_X)
    named_U = np.unique(expand_rows(data.entity_document_EU, entity_X[few_X])[1])
    scores.add_passages(passages_in(data.passage_document_P, named_U.tolist()))
    titled = _title_links(scores, seed_X[few_X], proposition_X[few_X], entity_X[few_X])
    shared = _mention_links(scores, seed_X, proposition_X, entity_X)
    scores.add_passages(shared.to_passage_X)
    return Links(*(np.concatenate(both) for both in zip(vars(titled).values(), vars(shared).values(), strict=True)))


def names_few(entity_document_EU: sp.csr_array, entity_X: Ints) -> NDArray[np.bool_]:
    """Whether each entity names at most MAX_NAMESAKES documents: [X]."""
    return np.asarray(entries_in(entity_document_EU, entity_X) <= MAX_NAMESAKES)


def raise_by_words(links: Links, lift_P: Floats) -> Links:
    """The links; those through a shared entity gain STEP / 2 times their target's `lift_P`. Those by title already contain TARGET_WEIGHT times it."""
    lift_X = np.where(links.title_X, 0, STEP / 2 * lift_P[links.to_passage_X])
    return replace(links, worth_X=(links.worth_X + lift_X).astype(np.float32))


def mention_loss(mentions_X: Ints) -> Floats:
    """The loss of a link through a shared entity, given the number of propositions that mention it."""
    return np.asarray(MENTION_LOSS + RARITY_LOSS * np.log(mentions_X))


def reach(own_P: Floats, links: Links) -> tuple[Floats, dict[int, int]]:
    """Each passage's own score or its best link's, whichever is higher: float32[P]; and the best link to each passage that it raises."""
    order_X = np.lexsort((links.entity_X, links.proposition_X, -links.worth_X))
    best_X = order_X[np.unique(links.to_passage_X[order_X], return_index=True)[1]]
    reached_P = own_P.copy()
    np.maximum.at(reached_P, links.to_passage_X[best_X], links.worth_X[best_X])
    link_to = {int(links.to_passage_X[x]): int(x) for x in best_X if links.worth_X[x] > own_P[links.to_passage_X[x]]}
    return reached_P, link_to


def describe_path(
    index: Index, row: int, links: Links, link_to: dict[int, int], name_of: dict[int, str]
) -> tuple[str, ...]:
    """How the passage in `row` was reached, in words."""
    data = index.data
    if row in link_to:
        link = link_to[row]
        relation = "is the document of that name" if links.title_X[link] else "says more about it"
        mention = describe_mention(index, int(links.proposition_X[link]), int(links.entity_X[link]))
        return (*mention, f"and this {relation}")
    document = int(data.passage_document_P[row])
    if document in name_of:
        return (f"the question names “{name_of[document]}”",)
    return ("similar to the question",)


def _title_links(scores: Scores, seed_X: Ints, proposition_X: Ints, entity_X: Ints) -> Links:
    """Links to the best passage of each other document named like an entity of a seed."""
    data, own_P, scores_N = scores.index.data, scores.own_P, scores.scores_N
    from_X, document_X = expand_rows(data.entity_document_EU, entity_X)
    documents_R, at_X = np.unique(document_X, return_inverse=True)
    best_R = [_best_passage(data.passage_document_P, own_P, document) for document in documents_R.tolist()]
    to_X = np.array(best_R, np.int64)[at_X]
    new_X = (to_X >= 0) & (document_X != data.passage_document_P[seed_X[from_X]])
    from_X, to_X = from_X[new_X], to_X[new_X]
    crowd_P = np.bincount(np.unique(np.stack([seed_X[from_X], to_X]), axis=1)[0], minlength=len(own_P))
    worth_X = STEP * (own_P[seed_X[from_X]] + scores_N[proposition_X[from_X]]) / 2
    worth_X += TARGET_WEIGHT * (own_P[to_X] - TARGET_LEVEL) - CROWD_LOSS * np.log(crowd_P[seed_X[from_X]])
    return Links(to_X, worth_X, proposition_X[from_X], entity_X[from_X], np.ones(len(to_X), np.int64))


def _mention_links(scores: Scores, seed_X: Ints, proposition_X: Ints, entity_X: Ints) -> Links:
    """Links to passages of other documents with a proposition that shares a rare entity with a seed's proposition."""
    index, own_P, scores_N = scores.index, scores.own_P, scores.scores_N
    data, block_EN = index.data, index.entity_proposition_EN
    mentions_X = entries_in(block_EN, entity_X)
    rare_X = np.flatnonzero((mentions_X > 1) & (mentions_X <= MAX_MENTIONS))
    from_X, other_X = expand_rows(block_EN, entity_X[rare_X])
    from_X = rare_X[from_X]
    scores.add_propositions(other_X)
    others_R, other_at_X = np.unique(other_X, return_inverse=True)
    seeds_R, seed_at_X = np.unique(proposition_X[from_X], return_inverse=True)
    vectors_ND = data.proposition_vectors_ND
    similarity_RR = normalised_similarity(index, vectors_ND[others_R] @ vectors_ND[seeds_R].T)
    similarity_X = similarity_RR[other_at_X, seed_at_X]
    together_X = pair_similarity(scores_N[proposition_X[from_X]], scores_N[other_X], similarity_X)
    worth_X = STEP * (own_P[seed_X[from_X]] + np.maximum(together_X, 0)) / 2 - mention_loss(mentions_X[from_X])
    occurrence_X, to_X = expand_rows(index.proposition_passage_NP, other_X)
    from_X, worth_X = from_X[occurrence_X], worth_X[occurrence_X]
    away_X = data.passage_document_P[to_X] != data.passage_document_P[seed_X[from_X]]
    from_X, to_X = from_X[away_X], to_X[away_X]
    worth = worth_X[away_X].astype(np.float32)
    return Links(to_X, worth, proposition_X[from_X], entity_X[from_X], np.zeros(len(to_X), np.int64))


def _best_passage(passage_document_P: Ints, own_P: Floats, document: int) -> int:
    first, last = passages_of(passage_document_P, document)
    return first + int(own_P[first:last].argmax()) if first < last else -1


TITLE_GAIN = 0.05
"""A link that is raised by its target's title regains its `mention_loss`, and gains this much more."""
QUESTION_SHARE = 0.5
"""The minimum share of the title's words, apart from the entity's, that the question must contain."""
RAISE_DEPTH = 50
"""Only links that could raise their target to this rank or a better one are checked."""


def raise_by_titles(index: Index, links: Links, question: str, own_P: Floats) -> Links:
    """The links, raised where the target's title combines their entity with words of the question."""
    data, question_forms = index.data, content_forms(question)
    raise_X = mention_loss(entries_in(index.entity_proposition_EN, links.entity_X)) + TITLE_GAIN
    least = own_P[top_rows(own_P, RAISE_DEPTH)].min(initial=np.inf)
    checked_Y = np.flatnonzero((links.title_X == 0) & (links.worth_X + raise_X > least))
    documents, document_Y = np.unique(data.passage_document_P[links.to_passage_X[checked_Y]], return_inverse=True)
    entities, entity_Y = np.unique(links.entity_X[checked_Y], return_inverse=True)
    titles = [content_forms(data.document_titles[row]) for row in documents.tolist()]
    names = [content_forms(data.entity_texts[row]) for row in entities.tolist()]
    worth_X = links.worth_X.copy()
    for checked, entity, document in zip(checked_Y.tolist(), entity_Y.tolist(), document_Y.tolist(), strict=True):
        if title_adds_question_words(names[entity], titles[document], question_forms):
            worth_X[checked] += np.float32(raise_X[checked])
    return replace(links, worth_X=worth_X)


def raise_links(links: Links, alone: OwnScores, question: str) -> Links:
    """`raise_by_words`, then `raise_by_titles`."""
    return raise_by_titles(alone.index, raise_by_words(links, alone.lift_P), question, alone.own_P)


def title_adds_question_words(name: frozenset[str], title: frozenset[str], question: frozenset[str]) -> bool:
    """Whether a title contains an entity's name that is not in the question, and other words, at least QUESTION_SHARE of which are in the question.

    >>> question = content_forms("What time does the state where Corran High is stop selling alcohol?")
    >>> [title_adds_question_words(content_forms("Indiana"), content_forms(title), question) for title in ("Alcohol laws of Indiana", "Indiana", "History of Indiana")]
    [True, False, False]
    """
    other_words = title - name
    new_name = bool(name and other_words) and name <= title and not name <= question
    return new_name and len(other_words & question) >= QUESTION_SHARE * len(other_words)


@lru_cache(maxsize=65_536)
def content_forms(text: str) -> frozenset[str]:
    """The content words of a text, as forms (`form_of`). Cached, because titles recur from question to question."""
    return frozenset(map(form_of, content_terms(text)))


@dataclass(frozen=True)
class HopSearch:
    """The scores before links, the links, the scores after links, and the best link to each passage that a link raised (`link_to`)."""

    alone: OwnScores
    links: Links
    reached_P: Floats
    link_to: dict[int, int]


def search_hops(index: Index, query: Query) -> HopSearch:
    """Steps 1 to 4 of this module's description, without the trained hop."""
    alone = score_alone(index, query)
    links = raise_links(find_links(alone), alone, query.text)
    return HopSearch(alone, links, *reach(alone.own_P, links))


def retrieve_hops(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, each with its path; with an ANN index, only those that were scored. With a trained hop, scores are its probabilities.

    UserError for a hop trained for another encoder.
    """
    hop = find_hop(settings.selector, index.encoder_source.fingerprint)
    search = search_hops(index, query)
    alone, links, reached_P = search.alone, search.links, search.reached_P
    ranking = HopRanking(reached_P, {}, 0) if hop is None else rank_by_hop(hop, index, query, alone, reached_P)
    rows = top_rows(ranking.scores_P, settings.top_k)
    rows = rows[ranking.scores_P[rows] != NOT_SCORED]
    scores = ranking.scores_P[rows] if hop is None else expit(ranking.scores_P[rows])
    name_of = {document: name for name, document in alone.named}
    steps = (
        f"documents named by the question: {len(alone.named)}",
        f"other words of the question that are in the index: {len(alone.terms)}",
        f"{len(links.worth_X):,} links from {SEEDS} passages",
        *([f"a trained hop scored {ranking.rows:,} paths to passages"] if hop is not None else []),
    )
    paths = []
    for row, words in zip(rows.tolist(), best_terms(index, alone.terms, rows), strict=True):
        way = ranking.ways.get(row)
        if way is None:
            path = describe_path(index, row, links, search.link_to, name_of)
        else:
            path = (*describe_mention(index, *way), "which links the question to this passage")
        paths.append((*path, *describe_terms(words)) if alone.lift_P[row] > 0 else path)
    passages = passages_at(index, rows, scores)
    return Evidence(query=query.text, passages=passages, paths=tuple(paths), trace=Trace("hops", steps))


def describe_mention(index: Index, proposition: int, entity: int) -> tuple[str, str]:
    """A proposition and its mention of an entity, in words, given their rows."""
    text = index.data.proposition_texts[proposition]
    return f"“{text}”", f"mentions “{index.entity_name(entity, [proposition])}”"
