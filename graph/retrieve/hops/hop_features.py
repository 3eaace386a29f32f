"""The features of the trained hop: one row for each way from a question to a passage, computed from the index alone.

A way is a bridge (one of the passages that `hops` ranks best) and an entity that the bridge mentions. Its composed question is a vector,
in which the entity replaces the bridge: question − bridge's title + entity (Mikolov et al. 2013). A way leads to the passages of documents
named like the entity, to passages that share the entity, and to the passages nearest to the composed question. Every candidate passage also
has a row of its own, without a way.

Legend: P passages, N propositions, E entities, U documents, D dimensions, W words of a question, B bridges, K ways, C candidates,
Y propositions in bridges or candidates, Z their entities, R some passages, J pairs of a way and a candidate, X rows (a pair,
or a candidate alone), F features."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from graph.extract.entities import title_keys
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to, pair_similarity
from graph.models.encoder import unit_rows
from graph.retrieve.parts.passage_scores import OwnScores
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.ranking import entries_in, expand_rows, top_rows
from graph.store.columns.moved import cells
from graph.store.columns.strings import Strings
from graph.text.bm25 import content_terms, idf, terms_of
from graph.text.word_forms import form_of
from graph.types import Floats, Ints

PREFIX_LENGTH = 3
"""All forms of a word share at least this many initial letters."""


class QuestionWords:
    """The content words of a question and their idf `weight_W`. `named_W` marks those in `names`; `unnamed_W` are the weights, 0 for those words."""

    def __init__(self, index: Index, question: str, names: Sequence[str]) -> None:
        data = index.data
        self._rows_of = {form_of(word): rows_of_form(data.term_texts, word) for word in content_terms(question)}
        self._column_of = {form: column for column, form in enumerate(self._rows_of)}
        self._count_WP = data.term_count_WP
        unknown = float(idf(np.array([0]), len(data.passage_ids))[0])
        weights = [float(data.term_idf_W[rows].min()) if rows else unknown for rows in self._rows_of.values()]
        in_names = {form_of(term) for name in names for term in terms_of(name)}
        self.weight_W = np.array(weights, np.float32)
        self.named_W = np.array([form in in_names for form in self._rows_of], np.bool_)
        self.unnamed_W = np.where(self.named_W, 0, self.weight_W)

    def in_passages(self, rows_C: Ints) -> Floats:
        """1 where a passage contains a word: [W, C]."""
        has_WC = np.zeros((len(self._rows_of), len(rows_C)), np.float32)
        for row, term_rows in enumerate(self._rows_of.values()):
            has_WC[row] = (cells(self._count_WP, np.array(term_rows, np.int64), rows_C) > 0).any(axis=0)
        return has_WC

    def in_texts(self, texts: Sequence[str]) -> Floats:
        """1 where a text contains a word: [texts, W]."""
        has_XW = np.zeros((len(texts), len(self._column_of)), np.float32)
        for row, text in enumerate(texts):
            has_XW[row, [self._column_of[form] for form in forms_of(text) if form in self._column_of]] = 1
        return has_XW

    def share_in_question(self, texts: Sequence[str]) -> Floats:
        """The share of each text's words that are content words of the question: [texts]."""
        forms = map(forms_of, texts)
        shares = [sum(f in self._column_of for f in each) / len(each) if each else 0 for each in forms]
        return np.array(shares, np.float32)


@lru_cache(maxsize=65_536)
def forms_of(text: str) -> tuple[str, ...]:
    """The words of a text, as forms (`form_of`). Cached, because titles recur from question to question."""
    return tuple(form_of(term) for term in terms_of(text))


def rows_of_form(terms: Strings | Sequence[str], word: str) -> list[int]:
    """The rows of the terms that are forms of a word; `terms` are sorted.

    >>> rows_of_form(["founder", "founders", "fountain"], "founders")
    [0, 1]
    """
    start, form = word[:PREFIX_LENGTH], form_of(word)
    low = bisect_left(terms, start)
    high = bisect_right(terms, start, low, key=lambda term: term[:PREFIX_LENGTH])
    return [row for row in range(low, high) if form_of(terms[row]) == form]


def share(weight_W: Floats, has_WX: Floats) -> Floats:
    """Σ weight of the words that each column contains / Σ weight of all words; 0 without words: [X].

    >>> share(np.array([3.0, 1.0]), np.array([[1, 0], [0, 1]])).tolist()
    [0.75, 0.25]
    """
    return np.asarray(weight_W @ has_WX / max(float(weight_W.sum()), 1e-6), np.float32)


WAYS, NEAREST = 48, 3
"""The maximum number of ways, and the number of passages nearest to each composed question that become candidates."""
MAX_SEARCHED = 20_000
"""In an index with more passages, only those that mention an entity of a way, at most this many, are compared with the composed questions."""
TITLE_WEIGHT = 0.5
"""The weight of the bridge's title in a composed question: of .3, .5 and .7 the best on 2wiki_train500 and hotpotqa_train together."""


@dataclass(frozen=True)
class Ways:
    """At most WAYS ways: the position of the bridge among the candidates, the proposition that mentions the entity, and the entity."""

    bridge_K: Ints
    proposition_K: Ints
    entity_K: Ints


def find_ways(index: Index, bridges_B: Ints, own_scores: OwnScores, reached_P: Floats) -> Ways:
    """The ways with the highest sums of proposition score and bridge score; each entity once per bridge."""
    data = index.data
    bridge_Y, proposition_Y = expand_rows(data.passage_proposition_PN, bridges_B)
    own_scores.add_propositions(proposition_Y)
    from_Y, entity_Y = expand_rows(data.proposition_entity_NE, proposition_Y)
    bridge_Y, proposition_Y = bridge_Y[from_Y], proposition_Y[from_Y]
    score_Y = own_scores.scores_N[proposition_Y] + reached_P[bridges_B[bridge_Y]]
    order_Y = np.lexsort((proposition_Y, entity_Y, -score_Y))
    key_Y = bridge_Y[order_Y] * np.int64(len(data.entity_ids)) + entity_Y[order_Y]
    first = np.sort(np.unique(key_Y, return_index=True)[1])[:WAYS]
    best_Y = order_Y[first]
    return Ways(bridge_Y[best_Y], proposition_Y[best_Y], entity_Y[best_Y])


def compose(index: Index, query_D: Floats, bridges_B: Ints, ways: Ways) -> Floats:
    """question − TITLE_WEIGHT · bridge's title + entity, of length 1: [K, D]. The title counts as 0 if no entity has its name."""
    data = index.data
    titles = [data.document_titles[row] for row in data.passage_document_P[bridges_B].tolist()]
    title_BD = np.zeros((len(titles), len(query_D)), np.float32)
    for bridge, title in enumerate(titles):
        rows = index.entity_rows(list(title_keys(title)))
        entities = rows[rows >= 0]
        if len(entities):
            title_BD[bridge] = data.entity_vectors_ED[entities].mean(axis=0)
    return unit_rows(query_D - TITLE_WEIGHT * title_BD[ways.bridge_K] + data.entity_vectors_ED[ways.entity_K])


def beyond_pool(index: Index, pool: Ints, ways: Ways, composed_KD: Floats) -> Ints:
    """The rows of passages outside the pool that are among the NEAREST to a composed question, ascending."""
    vectors_PD = index.data.passage_vectors_PD
    if not len(composed_KD):
        return np.zeros(0, np.int64)
    if len(vectors_PD) <= MAX_SEARCHED:
        return np.setdiff1d(highest(vectors_PD @ composed_KD.T, NEAREST), pool)
    shared = np.unique(expand_rows(index.entity_proposition_EN, np.unique(ways.entity_K))[1])
    scope = np.setdiff1d(expand_rows(index.proposition_passage_NP, shared)[1], pool)[:MAX_SEARCHED]
    return scope[np.unique(highest(vectors_PD[scope] @ composed_KD.T, NEAREST))] if len(scope) else scope


def highest(values_RK: Floats, count: int) -> Ints:
    """The rows of the `count` highest values of each column (all rows if there are fewer), unordered and possibly repeated.

    Ten times as fast as argpartition.

    >>> sorted(highest(np.array([[1.0], [3.0], [2.0]], np.float32), 2).tolist())
    [1, 2]
    """
    values_KR, columns = np.array(values_RK.T, order="C"), np.arange(values_RK.shape[1])
    found = []
    for _ in range(min(count, len(values_RK))):
        found.append(values_KR.argmax(axis=1))
        values_KR[columns, found[-1]] = -np.inf
    return np.concatenate(found)


POOL, BRIDGES = 40, 6
"""The number of passages to rerank, and how many of the best of them are bridges."""
OF_QUESTION = ("documents_named", "terms", "terms_in_names", "log_length", "asks_for", "best_own", "own_lead")
OF_PASSAGE = (
    *("own", "lift", "reached", "reached_lead", "own_rank", "reached_rank", "similarity", "best_similarity", "words"),
    *("cover", "cover_unnamed", "title_in_question", "title_cover", "named", "log_characters", "order", "bridges_to"),
)
OF_WAY = (
    *("bridge_own", "bridge_reached", "bridge_rank", "bridge_named", "bridge_cover", "bridge_title_in_question"),
    *(
        "link_similarity",
        "link_cover",
        "log_mentions",
        "log_documents_named",
        "entity_similarity",
        "entity_in_question",
        "bridge_titles",
    ),
    *("names_document", "mentions_entity", "cover_gain", "cover_gain_over_link", "cover_both"),
    *("composed", "best_composed", "composed_rank", "composed_lead", "sum", "best_sum"),
    *("entity_cosine", "best_entity_cosine"),
    *("best_pair", "bridge_cosine", "below_best_way"),
)
HOP_FEATURES = (*OF_QUESTION, *OF_PASSAGE, *OF_WAY)
"""The columns, in order. `own` is a passage's score before links, `reached` its score after links, `lift` the part of `own` that the question's words add;
`lead` is the difference between a score and the highest (for the highest itself in `own_lead` and `composed_lead`: the second highest). `similarity` is
normalised similarity to the question; `cover` is the idf-weighted share of the question's words that a text contains, `…_in_question` the share of a text's
words that the question contains. `order` is the passage's position in its document, `bridges_to` the number of bridges with a link to it.

`link` is the proposition in which the bridge mentions the entity. `names_document`: the entity names the candidate's document; `mentions_entity`: the
candidate mentions the entity; `bridge_titles` is the number of candidates whose documents the bridge names. `composed` are cosines with the
composed question, `sum` with question + entity, `entity_cosine` with the entity; `best_…` are those of the candidate's best proposition. `best_pair` is the
cosine of the question with the sum of the link and a proposition of the candidate, `bridge_cosine` that of bridge and candidate; `below_best_way` is
the sum of both composed cosines minus the highest such sum of the candidate. A row without a way has NO_WAY in OF_WAY."""
NO_WAY = -9.0
"""Below all values of the features in OF_WAY."""
ANSWER_KINDS = {
    **dict.fromkeys(("who", "whose", "whom"), 1),
    **dict.fromkeys(("when", "year", "date"), 2),
    **dict.fromkeys(("where", "country", "city", "state", "county", "place"), 3),
    **dict.fromkeys(("how", "many", "population"), 4),
}
"""Words that reveal the kind of answer that a question asks for (a person, a time, a place, a number), as the feature `asks_for`."""
BELOW_ANY_SUM = np.float32(-3)
"""Below the sum of any two cosines."""
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class HopRows:
    """Rows of features to score. `way_X` is −1 in a row without a way."""

    features_XF: Floats
    candidates_C: Ints
    candidate_X: Ints
    way_X: Ints
    ways: Ways


def hop_rows(index: Index, query: Query, own_scores: OwnScores, reached_P: Floats) -> HopRows:
    """All rows of a question, given the scores of passages before and after links. Adds the missing scores of candidates to `own_scores`."""
    pool = top_rows(reached_P, POOL)
    ways = find_ways(index, pool[:BRIDGES], own_scores, reached_P)
    composed_KD = compose(index, query.vector_D, pool[:BRIDGES], ways)
    candidates = np.concatenate([pool, beyond_pool(index, pool, ways, composed_KD)])
    own_scores.add_passages(candidates)
    features = _Features(index, query, own_scores, reached_P, candidates, ways, composed_KD)
    way_J, candidate_J = np.nonzero(features.pairs_KC())
    count = len(candidates)
    of_way = features.of_way(way_J, candidate_J)
    no_way = np.full((count, len(OF_WAY)), NO_WAY, np.float32)
    candidate_X = np.concatenate([candidate_J, np.arange(count)])
    of_question = np.repeat(features.of_question()[None], len(candidate_X), axis=0)
    columns = [of_question, features.of_passage()[candidate_X], np.concatenate([of_way, no_way])]
    way_X = np.concatenate([way_J, np.full(count, -1, np.int64)])
    return HopRows(np.concatenate(columns, axis=1).astype(np.float32), candidates, candidate_X, way_X, ways)


class _Features:
    """A question's candidates and ways, and the features computed from them."""

    def __init__(
        self,
        index: Index,
        query: Query,
        own_scores: OwnScores,
        reached_P: Floats,
        candidates_C: Ints,
        ways: Ways,
        composed_KD: Floats,
    ) -> None:
        data = index.data
        self.index, self.query, self.own_scores, self.ways, self.rows_C = index, query, own_scores, ways, candidates_C
        self.own_C = own_scores.own_P[candidates_C]
        # With an ANN index, `reached_P` lacks the scores of candidates that were scored after the links.
        self.reached_C = np.maximum(reached_P[candidates_C], self.own_C)
        self.document_C = data.passage_document_P[candidates_C]
        self.vectors_CD = data.passage_vectors_PD[candidates_C]
        self.candidate_Y, self.proposition_Y = expand_rows(data.passage_proposition_PN, candidates_C)
        own_scores.add_propositions(self.proposition_Y)
        self.vectors_YD = data.proposition_vectors_ND[self.proposition_Y]
        self.entity_KD = data.entity_vectors_ED[ways.entity_K]
        self.composed_CK, self.best_composed_CK = self._near(composed_KD)
        self.both_CK = np.where(self._elsewhere_CK(), self.composed_CK + self.best_composed_CK, BELOW_ANY_SUM)
        titles = [data.document_titles[row] for row in self.document_C.tolist()]
        self.words = QuestionWords(index, query.text, [name for name, _ in own_scores.named])
        title_CW = self.words.in_texts(titles)
        self.has_WC = np.maximum(self.words.in_passages(candidates_C), title_CW.T)
        self.cover_C = share(self.words.weight_W, self.has_WC)
        self.title_cover_C = share(self.words.weight_W, title_CW.T)
        self.title_asked_C = self.words.share_in_question(titles)
        named_documents = {document for _, document in own_scores.named}
        self.named_C = np.array([document in named_documents for document in self.document_C.tolist()], np.float32)
        self.called_KC, self.shares_KC = self._links()

    def pairs_KC(self) -> Flags:
        """Which ways lead to which candidates: [K, C]."""
        near_CK = ranks(self.both_CK) < NEAREST
        return np.asarray((self.called_KC | self.shares_KC | near_CK.T) & self._elsewhere_CK().T)

    def of_question(self) -> Floats:
        words = terms_of(self.query.text)
        answer_kind = max((ANSWER_KINDS.get(word, 0) for word in words), default=0)
        best = np.sort(self.own_C)[::-1][:2]
        lead = best[0] - best[-1]
        counts = (
            len(self.own_scores.named),
            len(self.words.weight_W),
            int(self.words.named_W.sum()),
            np.log1p(len(words)),
        )
        return np.array([*counts, answer_kind, best[0], lead], np.float32)

    def of_passage(self) -> Floats:
        """The features in OF_PASSAGE of every candidate: [C, …]."""
        data, query_D = self.index.data, self.query.vector_D
        near_C = normalised_similarity_to(self.index, query_D, self.vectors_CD @ query_D)
        near_Y = normalised_similarity_to(self.index, query_D, self.vectors_YD @ query_D)
        most_words = max(float(self.own_scores.words_P.max(initial=0)), 1e-6)
        bridges_to = np.zeros(len(self.rows_C))
        linked_KC = self.called_KC | self.shares_KC
        for bridge in np.unique(self.ways.bridge_K):
            bridges_to += linked_KC[self.ways.bridge_K == bridge].any(axis=0)
        columns = (
            self.own_C,
            self.own_scores.lift_P[self.rows_C],
            self.reached_C,
            self.reached_C - self.reached_C.max(),
            np.log1p(ranks(self.own_C[:, None])[:, 0]),
            np.log1p(ranks(self.reached_C[:, None])[:, 0]),
            near_C,
            self._best_in(near_Y, near_C),
            self.own_scores.words_P[self.rows_C] / most_words,
            self.cover_C,
            share(self.words.unnamed_W, self.has_WC),
            self.title_asked_C,
            self.title_cover_C,
            self.named_C,
            np.log([len(data.passage_texts[row]) + 1 for row in self.rows_C.tolist()]),
            data.passage_order_P[self.rows_C],
            bridges_to,
        )
        return np.stack(columns, axis=1).astype(np.float32)

    def of_way(self, way_X: Ints, to_X: Ints) -> Floats:
        """The features in OF_WAY of each pair of a way and a candidate: [X, …]."""
        index, data, ways = self.index, self.index.data, self.ways
        bridge_K, query_D = ways.bridge_K, self.query.vector_D
        bridge_X = bridge_K[way_X]
        proposition_KW = self.words.in_texts([data.proposition_texts[row] for row in ways.proposition_K.tolist()])
        entity_in_question_K = self.words.share_in_question([data.entity_texts[row] for row in ways.entity_K.tolist()])
        proposition_KD = data.proposition_vectors_ND[ways.proposition_K]
        titles_B = np.array([self.called_KC[bridge_K == bridge].any(axis=0).sum() for bridge in range(BRIDGES)])
        mentions_K = entries_in(index.entity_proposition_EN, ways.entity_K)
        called_K = entries_in(data.entity_document_EU, ways.entity_K)
        of_entity_CK, best_of_entity_CK = self._near(self.entity_KD)
        sum_CK, best_sum_CK = self._near(unit_rows(query_D + self.entity_KD))
        to_query_Y1, to_query_K = (self.vectors_YD @ query_D)[:, None], proposition_KD @ query_D
        best_pair_CK = self._best_in(pair_similarity(to_query_Y1, to_query_K, self.vectors_YD @ proposition_KD.T), 0)
        best_C = self.both_CK.max(axis=1, initial=BELOW_ANY_SUM)
        columns = (
            self.own_C[bridge_X],
            self.reached_C[bridge_X],
            bridge_X,
            self.named_C[bridge_X],
            self.cover_C[bridge_X],
            self.title_asked_C[bridge_X],
            self.own_scores.scores_N[ways.proposition_K][way_X],
            share(self.words.weight_W, proposition_KW.T)[way_X],
            np.log1p(mentions_K)[way_X],
            np.log1p(called_K)[way_X],
            normalised_similarity_to(index, query_D, self.entity_KD @ query_D)[way_X],
            entity_in_question_K[way_X],
            titles_B[bridge_X],
            self.called_KC[way_X, to_X],
            self.shares_KC[way_X, to_X],
            share(self.words.unnamed_W, self.has_WC[:, to_X] * (1 - self.has_WC[:, bridge_X])),
            share(self.words.weight_W, self.has_WC[:, to_X] * (1 - proposition_KW.T[:, way_X])),
            share(self.words.weight_W, np.maximum(self.has_WC[:, to_X], self.has_WC[:, bridge_X])),
            self.composed_CK[to_X, way_X],
            self.best_composed_CK[to_X, way_X],
            np.log1p(ranks(self.both_CK))[to_X, way_X],
            leads(self.both_CK)[to_X, way_X],
            sum_CK[to_X, way_X],
            best_sum_CK[to_X, way_X],
            of_entity_CK[to_X, way_X],
            best_of_entity_CK[to_X, way_X],
            best_pair_CK[to_X, way_X],
            (self.vectors_CD @ self.vectors_CD[:BRIDGES].T)[to_X, bridge_X],
            self.both_CK[to_X, way_X] - best_C[to_X],
        )
        return np.stack(columns, axis=1).astype(np.float32)

    def _near(self, queries_KD: Floats) -> tuple[Floats, Floats]:
        """The cosines of queries with each candidate, and with its best proposition (with the candidate itself, if it has none): both [C, K]."""
        passages_CK = self.vectors_CD @ queries_KD.T
        return passages_CK, self._best_in(self.vectors_YD @ queries_KD.T, passages_CK)

    def _best_in(self, values_Y: Floats, otherwise: Floats | float) -> Floats:
        """The highest value among each candidate's propositions; `otherwise` if there are none: [C, …]."""
        best_C = np.full((len(self.rows_C), *values_Y.shape[1:]), -np.inf, np.float32)
        starts = np.flatnonzero(np.diff(self.candidate_Y, prepend=-1))
        if len(starts):
            best_C[self.candidate_Y[starts]] = np.maximum.reduceat(values_Y, starts, axis=0)
        return np.where(np.isfinite(best_C), best_C, otherwise)

    def _elsewhere_CK(self) -> Flags:
        """Whether a candidate is in a document other than that of a way's bridge: [C, K]."""
        return np.asarray(self.document_C[:, None] != self.document_C[self.ways.bridge_K])

    def _links(self) -> tuple[Flags, Flags]:
        """Whether a way's entity names a candidate's document, and whether the candidate mentions the entity; False in the bridge's document: both [K, C]."""
        data, entities = self.index.data, self.ways.entity_K
        called_KU, elsewhere_KC = data.entity_document_EU[entities, :], self._elsewhere_CK().T
        called_KC = called_KU[:, self.document_C].toarray() > 0
        from_Z, entity_Z = expand_rows(data.proposition_entity_NE, self.proposition_Y)
        distinct, distinct_K = np.unique(entities, return_inverse=True)
        at_Z = np.searchsorted(distinct, entity_Z)
        hit_Z = np.isin(entity_Z, distinct)
        shared = np.zeros((len(distinct), len(self.rows_C)), np.bool_)
        shared[at_Z[hit_Z], self.candidate_Y[from_Z[hit_Z]]] = True
        shares_KC = shared[distinct_K]
        return called_KC & elsewhere_KC, shares_KC & elsewhere_KC


def ranks(scores_CK: Floats) -> Ints:
    """For each score, how many scores of its column rank above it; ties are ranked by row: [C, K].

    >>> ranks(np.array([[1.0], [3.0], [3.0]])).tolist()
    [[2], [0], [1]]
    """
    order_CK = np.argsort(-scores_CK, axis=0, kind="stable")
    rank_CK = np.empty_like(order_CK)
    np.put_along_axis(rank_CK, order_CK, np.arange(len(scores_CK))[:, None], axis=0)
    return rank_CK


def leads(scores_CK: Floats) -> Floats:
    """How far each score is above the best other score of its column: [C, K]; 0 if there is no other.

    >>> leads(np.array([[1.0], [3.0], [2.5]])).round(1).tolist()
    [[-2.0], [0.5], [-0.5]]
    """
    if len(scores_CK) < 2:
        return np.zeros_like(scores_CK)
    best_2K = -np.sort(-scores_CK, axis=0)[:2]
    return np.asarray(scores_CK - np.where(scores_CK >= best_2K[0], best_2K[1], best_2K[0]))
