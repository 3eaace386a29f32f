"""`local` (ToPG §2.3.2, Algorithm 1): from the best propositions, a walk drawn to the question brings in others.

Three ways: with a model, rounds in which the selector prunes what the walk suggests and the model answers or names the next questions; with
a trained selector and no model, it judges candidates and links lead on from what it likes; without both, one round of suggestions.
A second round without a model lowered Recall@5 by .02 on two public sets (docs/log.md): the walk drifts.

Legend: P passages, N propositions, n candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from graph.answer.prompt import is_no_answer
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.retrieve.hops.mode import describe_path, find_links, reach
from graph.retrieve.learned.light import Classifier, QuestionView, judge, open_selector, view_of
from graph.retrieve.learned.selectors import SELECTORS, Select, find_selector, list_statements
from graph.retrieve.parts.mentions import named_documents
from graph.retrieve.parts.passage_scores import Scores, own_scores, score_passages
from graph.retrieve.parts.query import ModelUnavailable, Query, RetrieveSettings, SuggestSettings
from graph.retrieve.parts.ranking import expand_rows, top_rows, worth_in_passages, worth_of_propositions
from graph.retrieve.parts.suggest import suggest
from graph.text.prompting import read_prompt
from graph.text.replies import ReplyModel, Sentence, at_most, plain, sound_items
from graph.types import Evidence, Finding, Floats, Ints, Scored, Trace

MAX_ROUNDS = 3
MAX_NEXT_QUESTIONS = 3
MAX_STATEMENTS_SHOWN = 60
NEAREST_OFFERED = 5
"""Propositions nearest to an open question that are offered beside those of the walk: its answer may stand elsewhere."""
MAX_VERDICT_TOKENS = 500


class Verdict(ReplyModel):
    answer: Sentence
    next_questions: Annotated[list[Sentence], sound_items(str), at_most("maxItems", MAX_NEXT_QUESTIONS)] = Field(
        default_factory=list
    )


@dataclass
class Rounds:
    """What the rounds came to. `kept` are rows of propositions in the order in which they were kept."""

    kept: list[int]
    answer: str = ""
    steps: list[str] = field(default_factory=list)
    stopped: str = ""


def run_rounds(
    index: Index,
    query: Query,
    candidates: Ints,
    near_N: Floats,
    select: Select,
    count: int,
    settings: SuggestSettings,
) -> Rounds:
    """Up to three rounds from what is selected of `candidates`, each open question suggesting `count` propositions a round."""
    found = Rounds([])
    asked = [(query, near_N)]
    try:
        pool = select(index, query, candidates)
        found.kept += pool.tolist()
        found.steps.append(f"{len(pool)} propositions to start from")
        for number in range(1, MAX_ROUNDS + 1):
            pool = _explore(index, asked, pool, found.kept, select, count, settings)
            found.kept += pool.tolist()
            found.steps.append(f"round {number}: {len(pool)} more propositions kept")
            verdict = _evaluate(index, query, found.kept)
            answer = plain(verdict.answer) if verdict is not None else ""
            if not is_no_answer(answer):
                found.answer = answer
                found.steps.append(f"round {number}: answered")
                return found
            if number < MAX_ROUNDS and verdict is not None:
                asked = _next_queries(index, query, verdict.next_questions) or asked
                found.steps.append("asks next: " + " · ".join(each.text for each, _ in asked))
            pool = pool if len(pool) else np.array(found.kept, np.int64)
        found.steps.append(f"no answer in {MAX_ROUNDS} rounds")
    except ModelUnavailable as gone:
        found.stopped = str(gone)
    return found


def _explore(
    index: Index,
    asked: Sequence[tuple[Query, Floats]],
    pool: Ints,
    kept: Sequence[int],
    select: Select,
    count: int,
    settings: SuggestSettings,
) -> Ints:
    """What the open questions find around `pool` and nearest to themselves, as the selector keeps it; new rows, each once."""
    known = set(kept)
    new: dict[int, None] = {}
    for query, near_N in asked:
        around = suggest(index, near_N, pool, count + len(known), settings).rows
        nearest = top_rows(near_N, count)
        if len(around):
            nearest = nearest[:NEAREST_OFFERED]
        candidates = [row for row in dict.fromkeys([*around.tolist(), *nearest.tolist()]) if row not in known]
        new |= dict.fromkeys(select(index, query, np.array(candidates[: count + NEAREST_OFFERED], np.int64)).tolist())
    return np.array(list(new), np.int64)


def _evaluate(index: Index, query: Query, kept: Sequence[int]) -> Verdict | None:
    """The model's verdict on what is kept, the latest of it if there is too much to show; None if it gave no usable one."""
    if query.model is None:
        return None
    texts = [index.data.proposition_texts[row] for row in kept[-MAX_STATEMENTS_SHOWN:]]
    return query.model.ask(
        Verdict, read_prompt("graph/evaluate.txt"), [list_statements(query.text, texts)], MAX_VERDICT_TOKENS
    )[0]


def _next_queries(index: Index, query: Query, questions: Sequence[str]) -> list[tuple[Query, Floats]]:
    """The questions to go on with, and how near all propositions are to them."""
    texts = list(dict.fromkeys(text for text in map(plain, questions) if text))[:MAX_NEXT_QUESTIONS]
    if not texts:
        return []
    vectors_QD = index.encode_queries(texts)
    return [
        (
            Query(text, vector_D, query.model),
            normalised_similarity_to(index, vector_D, index.data.proposition_vectors_ND @ vector_D),
        )
        for text, vector_D in zip(texts, vectors_QD, strict=True)
    ]


JUDGED_PASSAGES, JUDGED_SUGGESTED = 25, 30
"""Passages whose propositions are judged, and propositions that the walk suggests beside them."""
STEER, JUDGED_GAIN = 0.15, 0.5
"""Of the values tried the ones that help most where they help least: of the gold documents of 775 questions of two public sets
(selectors trained on other questions) that are not among the first five, 13 instead of 16 are left, and 63 instead of 72."""


def retrieve_by_selector(index: Index, query: Query, selector: Classifier, top_k: int) -> Evidence:
    """Top k passages, each with the path that led to it; UserError for an index of another encoder."""
    view = view_of(index, query)
    rows_n = propositions_to_judge(index, view)
    relevance_n = judge(selector, index, query, view, rows_n)
    judged_P = worth_in_passages(index, rows_n, relevance_n.astype(np.float32))
    own_P = view.own_P + STEER * judged_P
    links = find_links(Scores(index, query.vector_D, view.near_N, own_P))
    reached_P, led = reach(own_P, links)
    scores_P = reached_P + JUDGED_GAIN * judged_P
    rows = [int(row) for row in top_rows(scores_P, top_k)]
    called = {document: name for name, document in named_documents(index, query.text)}
    kept = int((relevance_n >= selector.threshold).sum())
    steps = (f"{len(rows_n)} propositions judged, {kept} of them relevant", f"{len(links.worth_X):,} links onwards")
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), float(scores_P[row])) for row in rows),
        paths=tuple(
            (*describe_path(index, row, links, led, called), _relevance_in_words(judged_P[row])) for row in rows
        ),
        trace=Trace("local", steps),
    )


def propositions_to_judge(index: Index, view: QuestionView) -> Ints:
    """The propositions to judge, ascending."""
    passages = top_rows(view.reached_P, JUDGED_PASSAGES)
    standing = expand_rows(index.data.passage_proposition_PN, passages)[1]
    suggested = top_rows(view.mass_N, JUDGED_SUGGESTED)
    return np.unique(np.concatenate([standing, suggested[view.mass_N[suggested] > 0]]))


def _relevance_in_words(probability: float) -> str:
    return f"judged relevant with {probability:.2f}"


SEEDS, SUGGESTED = 3, 20
WALK_GAIN = 0.6
"""What the passage of a kept proposition gains; of one that was only suggested, times the root of its mass over the largest."""


def retrieve_local(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, ranked by their own score, raised by the propositions in them that the walk brought in."""
    if query.model is None and settings.selector not in SELECTORS:
        return retrieve_by_selector(index, query, open_selector(settings.selector), settings.top_k)
    data = index.data
    select = find_selector(settings.selector, query)
    near_N = normalised_similarity_to(index, query.vector_D, data.proposition_vectors_ND @ query.vector_D)
    named = [document for _, document in named_documents(index, query.text)]
    own_P = own_scores(index, score_passages(index, query.vector_D), near_N, named)
    worth_N = worth_of_propositions(index, near_N, own_P)
    seeds = top_rows(worth_N, SEEDS if settings.selector == "threshold" else SUGGESTED)
    if query.model is None:
        return _retrieve_by_walk(index, query, own_P, near_N, select(index, query, seeds), settings)
    rounds = run_rounds(index, query, seeds, near_N, select, SUGGESTED, settings.suggestions)
    return _retrieve_by_rounds(index, query, own_P, rounds, settings.top_k)


def _retrieve_by_walk(
    index: Index, query: Query, own_P: Floats, near_N: Floats, seeds: Ints, settings: RetrieveSettings
) -> Evidence:
    """One round of suggestions, none of them judged."""
    found = suggest(index, near_N, seeds, SUGGESTED, settings.suggestions)
    steps = (f"{len(seeds)} propositions to start from", f"{len(found.rows)} suggested by the walk")
    share = np.sqrt(found.mass / found.mass[0]) if len(found.rows) else found.mass
    return _ranked(
        index, query, own_P, worth_in_passages(index, found.rows, share), settings.top_k, Trace("local", steps)
    )


def _retrieve_by_rounds(index: Index, query: Query, own_P: Floats, rounds: Rounds, top_k: int) -> Evidence:
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
