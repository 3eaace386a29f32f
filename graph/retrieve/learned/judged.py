"""`local` with a trained selector and no model: the selector judges what the walk found, and the walk goes on from what it likes.

1. Candidates are the propositions of the passages that `hops` ranks best, and those that ToPG's suggestion step visits most.
2. A passage's own score gains STEER times the highest probability of a proposition in it. From the best passages by that, links lead
   on again (graph/retrieve/parts/links.py), so a step starts where the selector says that the question is met.
3. A passage is ranked by the better of that score and the best link to it, and gains GAIN times its probability.

Legend: P passages, N propositions, n candidates.
"""

import numpy as np

from graph.index.index import Index
from graph.retrieve.learned.cross import Trained, judge, threshold_of
from graph.retrieve.learned.features import View, look
from graph.retrieve.parts.gather import expand_rows, worth_in_passages
from graph.retrieve.parts.links import find_links, reach, tell_path
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.titles import named_documents
from graph.shared.types import Evidence, Ints, Scored, Trace

JUDGED_PASSAGES, JUDGED_SUGGESTED = 25, 30
"""Passages whose propositions are judged, and propositions that the walk suggests beside them."""
STEER, GAIN = 0.15, 0.5
"""Of the values tried the ones that help most where they help least: of the gold documents of 775 questions of two public sets
(selectors trained on other questions) that are not among the first five, 13 instead of 16 are left, and 63 instead of 72."""


def retrieve_judged(index: Index, query: Query, selector: Trained, top_k: int) -> Evidence:
    """Top k passages, each with the path that led to it; UserError for an index of another encoder."""
    view = look(index, query)
    rows_n = candidates(index, view)
    relevance_n = judge(selector, index, query, view, rows_n)
    judged_P = worth_in_passages(index, rows_n, relevance_n.astype(np.float32))
    own_P = view.own_P + STEER * judged_P
    links = find_links(index, own_P, view.near_N, query.vector_D)
    reached_P, led = reach(own_P, links)
    scores_P = reached_P + GAIN * judged_P
    rows = [int(row) for row in top_rows(scores_P, top_k)]
    called = {document: name for name, document in named_documents(index, query.text)}
    kept = int((relevance_n >= threshold_of(selector)).sum())
    steps = (f"{len(rows_n)} propositions judged, {kept} of them relevant", f"{len(links.worth_X):,} links onwards")
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), float(scores_P[row])) for row in rows),
        paths=tuple((*tell_path(index, row, links, led, called), _told(judged_P[row])) for row in rows),
        trace=Trace("local", steps),
    )


def candidates(index: Index, view: View) -> Ints:
    """The propositions to judge, ascending."""
    passages = top_rows(view.reached_P, JUDGED_PASSAGES)
    standing = expand_rows(index.data.passage_proposition_PN, passages)[1]
    suggested = top_rows(view.mass_N, JUDGED_SUGGESTED)
    return np.unique(np.concatenate([standing, suggested[view.mass_N[suggested] > 0]]))


def _told(probability: float) -> str:
    return f"judged relevant with {probability:.2f}"
