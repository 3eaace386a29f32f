"""`plan` (PankRAG): a model breaks the question up, its parts are answered in the order of their needs, and all lists are fused.

Plan (one call, checked by plan_graph.py before any other) → level by level: retrieve (plan_search.py), rerank by the answers that
a sub-question rests on, answer; the calls of a level are made together → the final question, with its answers filled in →
reciprocal rank fusion with what `walk` finds for the whole question. Without a model, and where the plan is refused, `walk` stands.

Legend: X nodes (passages, then summaries), L lists, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np

from graph.answer import NOT_FOUND, answer_messages, quote
from graph.context import build_context, token_budget
from graph.index import Index
from graph.prompting import read_prompt
from graph.retrieve.caller import Caller, ModelGone
from graph.retrieve.hierarchy import nodes_in
from graph.retrieve.hybrid import fuse_ranks
from graph.retrieve.lexical import matching_rows
from graph.retrieve.plan_graph import (
    Kind,
    Plan,
    SubQuestion,
    fill_placeholders,
    find_fault,
    levels_of,
    needed_by,
)
from graph.retrieve.plan_search import Found, evidence_of, find_nodes, rerank_nodes
from graph.retrieve.query import Query
from graph.retrieve.settings import RetrieveSettings
from graph.retrieve.walk import retrieve_walk
from graph.structured import ReplyModel, plain, sound_items
from graph.types import Evidence, Excerpt, Finding, Floats, Trace

DEPTH, READ = 20, 5
"""Nodes that are found for a sub-question, and those of them that the model reads to answer it."""
MAX_PLAN_TOKENS, MAX_ANSWER_TOKENS = 800, 200

Failure = Literal["no usable reply", "not in the documents", "nothing found"]
"""Why a sub-question that was asked has no answer."""


class Resolution(ReplyModel):
    answer: str
    passages: Annotated[list[int], sound_items(int)]


@dataclass
class Run:
    """What the execution of a plan has come to. Grows level by level, so that a model that goes away leaves it whole."""

    found: list[Found] = field(default_factory=list)
    resolved: dict[int, Finding] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    stopped: str = ""


def retrieve_plan(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k nodes over the lists of all sub-questions, the final and the whole question; the sub-questions' answers as findings."""
    run = Run()
    if query.model is not None:
        try:
            plan = make_plan(query.model, query.text, run)
            if plan is not None:
                execute(index, query.model, plan, settings, run)
        except ModelGone as gone:
            run.stopped = str(gone)
    trace = Trace("plan", tuple(run.steps), stopped=run.stopped)
    if not run.found:
        whole = retrieve_walk(index, query, settings)
        return replace(whole, trace=replace(trace, steps=(*trace.steps, *whole.trace.steps)))
    lists = [find_nodes(index, query, "specific", max(DEPTH, settings.top_k)), *run.found]
    scores_X = fuse_ranks([each.rows_k for each in lists], len(index.data.passage_ids) + len(index.data.summary_ids))
    passages, summaries = nodes_in(index, matching_rows(scores_X, settings.top_k), scores_X)
    ...
