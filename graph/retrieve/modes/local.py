"""`local` (ToPG §2.3.2, Algorithm 1): from the best propositions, a walk drawn to the question brings in others.

With a model, see rounds.py; without one but with a trained selector, judged.py. Without both, the seeds are the few propositions that are near to the question and stand in a
passage that is, and one round of suggestions is made. A second round from the suggested ones lowered Recall@5 by .02 on two public sets
(docs/log.md): without a model to prune it, the walk drifts.

Legend: P passages, N propositions.
"""

from dataclasses import replace

import numpy as np

from graph.index.index import Index
from graph.index.nearness import nearness_to
from graph.retrieve.learned.cross import open_trained
from graph.retrieve.learned.judged import retrieve_judged
from graph.retrieve.parts.gather import expand_rows, worth_in_passages, worth_of_propositions
from graph.retrieve.parts.passage_scores import own_scores, score_passages
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.parts.suggest import suggest
from graph.retrieve.parts.titles import named_documents
from graph.retrieve.selection.rounds import Rounds, run_rounds
from graph.retrieve.selection.select import SELECTORS, find_selector
from graph.shared.types import Evidence, Finding, Floats, Ints, Scored, Trace

SEEDS, SUGGESTED = 3, 20
WALK_GAIN = 0.6
"""What the passage of a kept proposition gains; of one that was only suggested, times the root of its mass over the largest."""


def retrieve_local(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, ranked by their own score, raised by the propositions in them that the walk brought in."""
    if query.model is None and settings.selector not in SELECTORS:
        return retrieve_judged(index, query, open_trained(settings.selector), settings.top_k)
    data = index.data
    select = find_selector(settings.selector, query)
    near_N = nearness_to(index, query.vector_D, data.proposition_vectors_ND @ query.vector_D)
    named = [document for _, document in named_documents(index, query.text)]
    own_P = own_scores(index, score_passages(index, query.vector_D), near_N, named)
    worth_N = worth_of_propositions(index, near_N, own_P)
    seeds = top_rows(worth_N, SEEDS if settings.selector == "threshold" else SUGGESTED)
    if query.model is None:
        return _by_walk(index, query, own_P, near_N, select(index, query, seeds), settings)
    rounds = run_rounds(index, query, seeds, near_N, select, SUGGESTED, settings.suggestions)
    return _by_rounds(index, query, own_P, rounds, settings.top_k)


def _by_walk(
    index: Index, query: Query, own_P: Floats, near_N: Floats, seeds: Ints, settings: RetrieveSettings
) -> Evidence:
    """One round of suggestions, none of them judged."""
    found = suggest(index, near_N, seeds, SUGGESTED, settings.suggestions)
    steps = (f"{len(seeds)} propositions to start from", f"{len(found.rows)} suggested by the walk")
    share = np.sqrt(found.mass / found.mass[0]) if len(found.rows) else found.mass
    return _ranked(
        index, query, own_P, worth_in_passages(index, found.rows, share), settings.top_k, Trace("local", steps)
    )


def _by_rounds(index: Index, query: Query, own_P: Floats, rounds: Rounds, top_k: int) -> Evidence:
    """What was kept in every round counts alike, and the model's answer, if it gave one, is a finding."""
    kept = np.array(rounds.kept, np.int64)
    trace = Trace("local", tuple(rounds.steps), stopped=rounds.stopped)
    evidence = _ranked(
        index, query, own_P, worth_in_passages(index, kept, np.ones(len(kept), np.float32)), top_k, trace
    )
    if not rounds.answer:
        return evidence
    _, standing = expand_rows(index.proposition_passage_NP, kept)
    ids = tuple(index.data.passage_ids[row] for row in dict.fromkeys(standing.tolist()))
    return replace(evidence, findings=(Finding(query.text, rounds.answer, ids, 1.0),))


def _ranked(index: Index, query: Query, own_P: Floats, worth_P: Floats, top_k: int, trace: Trace) -> Evidence:
    """The best passages by their own score and what was brought in."""
    scores_P = own_P + WALK_GAIN * worth_P
    rows = top_rows(scores_P, top_k)
    passages = tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows)
    return Evidence(query=query.text, passages=passages, trace=trace)
