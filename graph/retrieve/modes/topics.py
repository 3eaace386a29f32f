"""`topics` (HLG §4.2, TopicGraphRAG): a beam that starts from topics similar to the question (top down) and from the question's keywords (bottom up).

The model that extracts propositions names the topics; the similarity of a topic to the question is the mean similarity of its propositions. After
extraction by rules, which names no topics, each document counts as a topic: in the paper, too, most topics belong to one document. Here the
mean score of a path's statements guides the beam; in the published method, a reranker does.

Legend: K topics, N propositions, F paths of the frontier, L propositions of a path, X pairs of a path and a next proposition.
"""

from functools import partial

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.retrieve.modes.statements import INITIAL_PROPOSITIONS, rank_statements, worth_of_statements
from graph.retrieve.parts.mentions import keyword_propositions, keywords_of
from graph.retrieve.parts.passage_scores import score_all_propositions
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import expand_rows, top_rows
from graph.types import Evidence, Floats, Ints

TOPICS = 50
PER_TOPIC = 8
"""At most this many propositions of each topic, those most similar to the question, may start a path."""


def retrieve_topics(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages (or propositions), ranked as in `statements`, but with other starting propositions and another path score."""
    similarity_N = score_all_propositions(index, query.vector_D)
    proposition_KN = topic_blocks(index)
    chosen = top_rows((proposition_KN @ similarity_N) / np.diff(proposition_KN.indptr), TOPICS)
    topic, rows = expand_rows(proposition_KN, chosen)
    order = np.lexsort((rows, -similarity_N[rows], topic))
    rank_in_topic = np.arange(len(order)) - np.searchsorted(topic[order], topic[order])
    by_topic = np.unique(rows[order][rank_in_topic < PER_TOPIC])
    by_keyword = keyword_propositions(index, keywords_of(index, query.text), similarity_N, INITIAL_PROPOSITIONS)
    starts = np.union1d(by_keyword, by_topic)
    worth_N = worth_of_statements(index, query, similarity_N)
    first_step = f"{len(chosen)} topics, {len(starts)} propositions to start from"
    return rank_statements(index, query, settings, starts, worth_N, partial(judge_by_worth, worth_N), first_step)


def judge_by_worth(worth_N: Floats, steps_FL: Ints, path_X: Ints, next_X: Ints) -> Floats:
    """A PathScore: the mean score (`worth_N`) of the propositions on each extended path: [X]."""
    sum_F = worth_N[steps_FL].sum(axis=1)
    return np.asarray((sum_F[path_X] + worth_N[next_X]) / (steps_FL.shape[1] + 1), np.float32)


def topic_blocks(index: Index) -> sp.csr_array:
    """The propositions of each topic that has any, or of each document if no topic has: CSR[K, N] of ones."""
    data = index.data
    if data.topic_proposition_KN.nnz:
        block = data.topic_proposition_KN.copy()
    else:
        passages, documents = len(data.passage_ids), len(data.document_sources)
        membership = (np.ones(passages, np.float32), (data.passage_document_P, np.arange(passages)))
        block = sp.csr_array(sp.csr_array(membership, (documents, passages)) @ data.passage_proposition_PN)
    block.data[:] = 1
    return block[np.diff(block.indptr) > 0, :]
