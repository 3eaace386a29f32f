"""What leads to a passage in `hops`: links from others that mention what it is about, whether or not they stand high enough.

`hops` follows links from the few passages that are best by themselves. Here the same links are worked out from every passage that could have
one to the passage explained: where the best of these stands too low, that is why the passage was not found.

Legend: P passages, N propositions, E entities, S passages that could lead, X links.
"""

import numpy as np

from graph.explain.types import Lead
from graph.index.index import Index
from graph.retrieve.hop.titled import raise_by_titles
from graph.retrieve.parts.gather import expand_rows
from graph.retrieve.parts.links import MAX_MENTIONS, SEEDS, links_from, raise_by_words
from graph.retrieve.parts.passage_scores import ByItself
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import rank_of, top_rows
from graph.shared.types import Floats, Ints

COULD_LEAD = 50
"""Passages whose links are worked out: the best by themselves of those that could lead."""


def leads_to(index: Index, query: Query, alone: ByItself, row: int, count: int) -> tuple[Lead, ...]:
    """The links to the passage in `row` that are worth most, at most `count`, the best from each passage."""
    seeds_S = could_lead(index, row, alone.own_P)
    found = [_best_lead(index, query, alone, row, int(seed)) for seed in seeds_S]
    leads = [lead for lead in found if lead is not None]
    return tuple(sorted(leads, key=lambda lead: (-lead.worth, lead.rank))[:count])


def could_lead(index: Index, row: int, own_P: Floats) -> Ints:
    """Passages of other documents with an entity that calls this one's document by name, or a rare one that this one has, too."""
    data = index.data
    document = int(data.passage_document_P[row])
    calling_E = np.flatnonzero(np.diff(data.entity_document_EU[:, [document]].indptr))
    _, stated = expand_rows(data.passage_proposition_PN, np.array([row]))
    _, mentioned_E = expand_rows(data.proposition_entity_NE, stated)
    rare_E = mentioned_E[np.diff(index.entity_proposition_EN.indptr)[mentioned_E] <= MAX_MENTIONS]
    _, propositions = expand_rows(index.entity_proposition_EN, np.union1d(calling_E, rare_E))
    passages = np.unique(expand_rows(index.proposition_passage_NP, np.unique(propositions))[1])
    others: Ints = passages[data.passage_document_P[passages] != document]
    return others[top_rows(own_P[others], COULD_LEAD)]


def _best_lead(index: Index, query: Query, alone: ByItself, row: int, seed: int) -> Lead | None:
    found = links_from(index, np.array([seed]), alone.own_P, alone.scores_N, query.vector_D)
    links = raise_by_titles(index, raise_by_words(found, alone.lift_P), query.text, alone.own_P)
    mine_X = np.flatnonzero(links.to_passage_X == row)
    if not len(mine_X):
        return None
    best = int(mine_X[top_rows(links.worth_X[mine_X], 1)[0]])
    rank = rank_of(alone.own_P, seed)
    return Lead(
        passage=index.passage(seed),
        rank=rank,
        proposition=index.data.proposition_texts[int(links.proposition_X[best])],
        entity=index.data.entity_texts[int(links.entity_X[best])],
        by_title=bool(links.title_X[best]),
        worth=float(links.worth_X[best]),
        followed=rank <= SEEDS,
    )
