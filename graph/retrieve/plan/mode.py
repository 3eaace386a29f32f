"""`plan` (PankRAG): a model breaks the question up, its parts are answered in the order of their needs, and all lists are fused.

One call makes the plan, which graph.py checks before any other; run.py executes it; what was found for the sub-questions,
the final and the whole question is fused by rank. Without a model, and where a plan is refused, `hops` answers the whole question.

Legend: X nodes (passages, then summaries).
"""

from collections.abc import Sequence
from dataclasses import replace

from graph.index.index import Index
from graph.retrieve.modes.hierarchy import nodes_in
from graph.retrieve.modes.hops import retrieve_hops
from graph.retrieve.modes.hybrid import fuse_ranks
from graph.retrieve.modes.lexical import matching_rows
from graph.retrieve.parts.caller import Caller, ModelGone
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.plan.graph import Plan, find_fault, levels_of
from graph.retrieve.plan.run import Run, execute
from graph.retrieve.plan.search import Found, find_nodes
from graph.shared.types import Evidence, Trace
from graph.text.prompting import quote, read_prompt

DEPTH = 20
"""Nodes that each list of a plan has at least."""
RANK_CONSTANT = 5
"""Of the fusion, lower than the usual 60: each list is short and about another part, so that its first places count most."""
MAX_PLAN_TOKENS = 800


def retrieve_plan(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k nodes by the lists of the whole, the final and all sub-questions together; the answers to these are findings."""
    run, stopped = Run(), ""
    deep = settings.model_copy(update={"top_k": max(DEPTH, settings.top_k)})
    if query.model is not None:
        try:
            plan = make_plan(query.model, query.text, run)
            if plan is not None:
                execute(index, query.model, plan, deep, run)
        except ModelGone as gone:
            stopped = str(gone)
    trace = Trace("plan", tuple(run.steps), stopped=stopped)
    if not run.found:
        whole = retrieve_hops(index, query, settings)
        return replace(whole, trace=replace(trace, steps=(*trace.steps, *whole.trace.steps)))
    lists = list(({query.text: find_nodes(index, query, "specific", deep)} | run.found).values())
    nodes = len(index.data.passage_ids) + len(index.data.summary_ids)
    scores_X = fuse_ranks([each.rows_k for each in lists], nodes, RANK_CONSTANT)
    rows = matching_rows(scores_X, settings.top_k)
    passages, summaries = nodes_in(index, rows, scores_X[rows])
    return Evidence(
        query=query.text,
        passages=passages,
        summaries=summaries,
        paths=tuple(tell_path(int(row), lists) for row in rows if row < len(index.data.passage_ids)),
        findings=tuple(run.findings.values()),
        trace=trace,
    )


def make_plan(model: Caller, question: str, run: Run) -> Plan | None:
    """The model's plan; None, with the reason in the steps of `run`, when there is none that can be executed."""
    plan = model.ask(Plan, read_prompt("graph/plan.txt"), [f"Question: {quote(question)}"], MAX_PLAN_TOKENS)[0]
    refused = "no usable reply" if plan is None else find_fault(plan)
    if plan is None or refused is not None:
        run.steps.append(f"plan refused: {refused}; the question is taken whole")
        return None
    levels = levels_of(plan.sub_questions)
    run.steps.append(f"{len(plan.sub_questions)} sub-questions in {len(levels)} levels")
    return plan


def tell_path(row: int, lists: Sequence[Found]) -> tuple[str, ...]:
    """How a node was reached, in words: by the question in whose list it stands highest, and how it came there."""
    ranked = [(each.rows_k.tolist().index(row), number) for number, each in enumerate(lists) if row in each.rows_k]
    place, number = min(ranked)
    return (f"no. {place + 1:,} for “{lists[number].question}”", *lists[number].told[place])
