"""`local` (ToPG §2.3.2, Algorithm 1): from the best propositions, a walk attracted by the question suggests others.

Three variants: with a model, rounds in which the selector prunes the walk's suggestions and the model answers or asks further questions; with
a trained selector and no model, the selector's scores raise the scores of passages, and links lead from the best passages to others; with
neither, one round of suggestions, because the walk would drift in a second round without a model (docs/log.md).

Legend: P passages, N propositions, n candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from graph.answer.prompt import is_no_answer
from graph.errors import ModelUnavailable
from graph.index.index import Index
from graph.retrieve.hops.mode import describe_path, find_links, reach
from graph.retrieve.learned.light import Classifier, QuestionView, judge, open_selector, view_of
from graph.retrieve.learned.selectors import SELECTORS, Select, find_selector, further_queries, list_statements
from graph.retrieve.parts.mentions import named_documents
from graph.retrieve.parts.passage_scores import Scores, score_all_propositions, scores_without_words
from graph.retrieve.parts.query import Query, RetrieveSettings, SuggestSettings
from graph.retrieve.parts.ranking import first_passages, passages_at, top_rows, worth_in_passages, worth_of_propositions
from graph.retrieve.parts.suggest import suggest
from graph.text.prompting import read_prompt
from graph.text.replies import ReplyModel, Sentence, as_one_line, at_most, sound_items
from graph.types import Evidence, Finding, Floats, Ints, Trace

MAX_ROUNDS = 3
MAX_NEXT_QUESTIONS = 3
MAX_STATEMENTS_SHOWN = 60
NEAREST_OFFERED = 5
"""How many propositions nearest to an open question are offered to the selector in addition to the walk's, which may miss the answer."""
MAX_VERDICT_TOKENS = 500


class Verdict(ReplyModel):
    answer: Sentence
    next_questions: Annotated[list[Sentence], sound_items(str), at_most("maxItems", MAX_NEXT_QUESTIONS)] = Field(
        default_factory=list
    )


@dataclass
class Rounds:
    """The result of the rounds. `selected` are rows of propositions in the order of their selection."""

    selected: list[int]
    answer: str = ""
    steps: list[str] = field(default_factory=list)
    stopped: str = ""


def run_rounds(
    index: Index,
    query: Query,
    candidates: Ints,
    similarity_N: Floats,
    select: Select,
    count: int,
    settings: SuggestSettings,
) -> Rounds:
    """Select among `candidates`, then run at most MAX_ROUNDS rounds, until the model answers or is unavailable.

    Each round suggests about `count` propositions per open question.
    """
    rounds = Rounds([])
    open_queries = [(query, similarity_N)]
    try:
        pool = select(index, query, candidates)
        rounds.selected += pool.tolist()
        rounds.steps.append(f"{len(pool)} propositions to start from")
        for number in range(1, MAX_ROUNDS + 1):
            pool = _explore(index, open_queries, pool, rounds.selected, select, count, settings)
            rounds.selected += pool.tolist()
            rounds.steps.append(f"round {number}: {len(pool)} more propositions selected")
            verdict = judge_statements(index, query, rounds.selected)
            answer = as_one_line(verdict.answer) if verdict is not None else ""
            if not is_no_answer(answer):
                rounds.answer = answer
                rounds.steps.append(f"round {number}: answered")
                return rounds
            if number < MAX_ROUNDS and verdict is not None:
                open_queries = _next_queries(index, query, verdict.next_questions) or open_queries
                rounds.steps.append("next questions: " + " · ".join(open_query.text for open_query, _ in open_queries))
            pool = pool if len(pool) else np.array(rounds.selected, np.int64)
        rounds.steps.append(f"no answer in {MAX_ROUNDS} rounds")
    except ModelUnavailable as problem:
        rounds.stopped = str(problem)
    return rounds


def _explore(
    index: Index,
    open_queries: Sequence[tuple[Query, Floats]],
    pool: Ints,
    selected: Sequence[int],
    select: Select,
    count: int,
    settings: SuggestSettings,
) -> Ints:
    """New rows, each once: for every open question, the walk from `pool` suggests propositions, similarity adds others, and the selector prunes them."""
    known = set(selected)
    new: dict[int, None] = {}
    for query, similarity_N in open_queries:
        walked = suggest(index, similarity_N, pool, count + len(known), settings).rows.tolist()
        suggested = [row for row in walked if row not in known][:count]
        nearest = top_rows(similarity_N, NEAREST_OFFERED if suggested else count).tolist()
        candidates = dict.fromkeys([*suggested, *(row for row in nearest if row not in known)])
        new |= dict.fromkeys(select(index, query, np.array(list(candidates), np.int64)).tolist())
    return np.array(list(new), np.int64)


def judge_statements(index: Index, query: Query, selected: Sequence[int]) -> Verdict | None:
    """The model's verdict on the selected propositions (only the latest, if there are too many to show); None without a usable reply, a model or a proposition."""
    if query.model is None or not selected:
        return None
    texts = [index.data.proposition_texts[row] for row in selected[-MAX_STATEMENTS_SHOWN:]]
    prompt = list_statements(query.text, texts)
    return query.model.ask(Verdict, read_prompt("graph/evaluate.txt"), [prompt], MAX_VERDICT_TOKENS)[0]


def _next_queries(index: Index, query: Query, questions: Sequence[str]) -> list[tuple[Query, Floats]]:
    """The questions of the next round, and all propositions' similarity to each."""
    queries = further_queries(index, query, questions, MAX_NEXT_QUESTIONS)
    return [(each, score_all_propositions(index, each.vector_D)) for each in queries]


JUDGED_PASSAGES, JUDGED_SUGGESTED = 25, 30
"""The selector scores all propositions of the best JUDGED_PASSAGES passages, and the best JUDGED_SUGGESTED propositions that the walk suggests."""
STEER, JUDGED_GAIN = 0.15, 0.5
"""The weight of a passage's highest relevance in the score from which links start, and in the final score. Of the values tried, these had the
largest minimum gain on two public sets (775 questions, selectors trained on other sets): 13 gold documents instead of 16, and 63 instead of 72,
are missing from the first five."""


def retrieve_by_selector(index: Index, query: Query, selector: Classifier, top_k: int) -> Evidence:
    """Top k passages by a trained selector, each with the path to it; UserError if the encoder of the index is not the selector's."""
    view = view_of(index, query)
    rows_n = propositions_to_judge(index, view)
    relevance_n = judge(selector, index, query, view, rows_n)
    judged_P = worth_in_passages(index, rows_n, relevance_n.astype(np.float32))
    own_P = view.own_P + STEER * judged_P
    links = find_links(Scores(index, query.vector_D, view.similarity_N, own_P))
    reached_P, link_to = reach(own_P, links)
    scores_P = reached_P + JUDGED_GAIN * judged_P
    rows = top_rows(scores_P, top_k)
    name_of = {document: name for name, document in named_documents(index, query.text)}
    paths = []
    for row in rows.tolist():
        path = describe_path(index, row, links, link_to, name_of)
        judged = judged_P[row] > 0
        paths.append((*path, f"probability of relevance {float(judged_P[row]):.2f}") if judged else path)
    relevant = int((relevance_n >= selector.threshold).sum())
    judgement = f"{len(rows_n)} propositions judged, {relevant} of them relevant"
    trace = Trace("local", (judgement, f"{len(links.worth_X):,} links followed"))
    passages = passages_at(index, rows, scores_P[rows])
    return Evidence(query=query.text, passages=passages, paths=tuple(paths), trace=trace)


def propositions_to_judge(index: Index, view: QuestionView) -> Ints:
    """The rows of the propositions to score, ascending."""
    passages = top_rows(view.reached_P, JUDGED_PASSAGES)
    in_passages = index.data.passage_proposition_PN[passages, :].indices
    suggested = top_rows(view.mass_N, JUDGED_SUGGESTED)
    return np.unique(np.concatenate([in_passages, suggested[view.mass_N[suggested] > 0]]))


SEEDS, SUGGESTED = 3, 20
WALK_GAIN = 0.6
"""The gain of a passage with a proposition selected in the rounds. Without a model, the gain is multiplied by
√(the largest mass of the passage's suggested propositions ÷ the largest mass of all)."""


def retrieve_local(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages: by a trained selector, by rounds with a model, or by one round of the walk."""
    if query.model is None and settings.selector not in SELECTORS:
        return retrieve_by_selector(index, query, open_selector(settings.selector), settings.top_k)
    select = find_selector(settings.selector, query)
    similarity_N = score_all_propositions(index, query.vector_D)
    own_P = scores_without_words(index, query, similarity_N)
    worth_N = worth_of_propositions(index, similarity_N, own_P)
    seeds = top_rows(worth_N, SUGGESTED if settings.selector == "llm" else SEEDS)
    findings: tuple[Finding, ...] = ()
    if query.model is None:
        seeds = select(index, query, seeds)
        suggestion = suggest(index, similarity_N, seeds, SUGGESTED, settings.suggestions)
        selected, share = suggestion.rows, suggestion.root_share
        steps = f"{len(seeds)} propositions to start from", f"{len(selected)} suggested by the walk"
        trace = Trace("local", steps)
    else:
        rounds = run_rounds(index, query, seeds, similarity_N, select, SUGGESTED, settings.suggestions)
        selected, share = np.array(rounds.selected, np.int64), np.ones(len(rounds.selected), np.float32)
        trace = Trace("local", tuple(rounds.steps), stopped=rounds.stopped)
        if rounds.answer:
            ids = tuple(index.data.passage_ids[passage] for passage, _ in first_passages(index, selected))
            findings = (Finding(query.text, rounds.answer, ids, 1.0),)
    scores_P = own_P + WALK_GAIN * worth_in_passages(index, selected, share)
    rows = top_rows(scores_P, settings.top_k)
    passages = passages_at(index, rows, scores_P[rows])
    return Evidence(query=query.text, passages=passages, findings=findings, trace=trace)
