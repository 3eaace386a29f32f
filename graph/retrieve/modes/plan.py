"""`plan` (PankRAG): a model breaks the question up, its parts are answered in the order of their needs, and all lists are fused by rank.

One call makes the plan (§3.2), which is checked as a whole before any other; sub-questions are answered level by level, and reranked by the
answers that they rest on (§3.3). An answer that is not there is a NoAnswer, never text. Without a model, and where a plan is refused, `hops`
answers the whole question.

Legend: P passages, S summaries, X nodes (passages, then summaries), k nodes found, D dimensions."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, Literal

import numpy as np

from graph.answer.context import build_context, token_budget
from graph.answer.prompt import NOT_FOUND, answer_messages, is_no_answer
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.retrieve.hops.mode import retrieve_hops
from graph.retrieve.modes.baselines import fuse_ranks, matching_rows
from graph.retrieve.modes.hierarchy import node_scores, nodes_in
from graph.retrieve.modes.paths import min_max
from graph.retrieve.parts.passage_scores import passages_of
from graph.retrieve.parts.query import Caller, ModelUnavailable, Query, RetrieveSettings
from graph.retrieve.parts.ranking import top_rows
from graph.text.prompting import quote, read_prompt
from graph.text.replies import ReplyModel, Sentence, at_most, one_of, plain, sound_items
from graph.types import Evidence, Excerpt, Finding, Floats, Ints, Passage, Trace

MAX_SUB_QUESTIONS, MAX_ID = 8, 99
_PLACEHOLDER = re.compile(r"\{\s*([\w.]+)\s*\}")

QuestionKind = Literal["specific", "abstract"]
_Id = Annotated[int, one_of(MAX_ID)]


class SubQuestion(ReplyModel):
    """One step: `text` holds `{id}` where an answer of a step in `depends_on` belongs."""

    id: _Id
    text: Sentence
    depends_on: Annotated[list[_Id], at_most("maxItems", MAX_SUB_QUESTIONS)]
    kind: QuestionKind


class Plan(ReplyModel):
    """What a model plans. `final_question` is the whole question, with placeholders for any answers."""

    sub_questions: Annotated[list[SubQuestion], at_most("maxItems", MAX_SUB_QUESTIONS)]
    final_question: str


class PlanFault(Enum):
    """What can be wrong with a plan."""

    NO_SUB_QUESTIONS = "no sub-questions"
    TOO_MANY = f"more than {MAX_SUB_QUESTIONS} sub-questions"
    EMPTY_TEXT = "an empty sub-question"
    REPEATED_ID = "an id that appears twice"
    SELF_DEPENDENCY = "a sub-question that depends on itself"
    MISSING_DEPENDENCY = "a dependency that is not in the plan"
    UNDECLARED_PLACEHOLDER = "a placeholder that is no declared dependency"
    CYCLE = "sub-questions that wait for each other"


@dataclass(frozen=True)
class PlanRefusal:
    """Why a plan is not executed, and where it is wrong."""

    fault: PlanFault
    where: str

    def __str__(self) -> str:
        return f"{self.fault.value} ({self.where})"


def find_fault(plan: Plan) -> PlanRefusal | None:
    """The first thing that is wrong with a plan; None for one that can be executed."""
    steps = plan.sub_questions
    ids = [step.id for step in steps]
    if not steps:
        return PlanRefusal(PlanFault.NO_SUB_QUESTIONS, "at least one is needed")
    if len(steps) > MAX_SUB_QUESTIONS:
        return PlanRefusal(PlanFault.TOO_MANY, str(len(steps)))
    if twice := [each for each in dict.fromkeys(ids) if ids.count(each) > 1]:
        return PlanRefusal(PlanFault.REPEATED_ID, _listed(twice))
    for step in steps:
        if fault := _fault_of_step(step, ids):
            return fault
    if undeclared := undeclared_placeholders(plan.final_question, ids):
        return PlanRefusal(PlanFault.UNDECLARED_PLACEHOLDER, f"{_listed(undeclared)} in the final question")
    ordered = {step.id for level in levels_of(steps) for step in level}
    if waiting := [each for each in ids if each not in ordered]:
        return PlanRefusal(PlanFault.CYCLE, _listed(waiting))
    return None


def levels_of(steps: Sequence[SubQuestion]) -> list[list[SubQuestion]]:
    """Sub-questions by the level at which all they depend on is answered, in the plan's order; those in a cycle are left out."""
    levels: list[list[SubQuestion]] = []
    done: set[int] = set()
    waiting = list(steps)
    while ready := [step for step in waiting if done.issuperset(step.depends_on)]:
        levels.append(ready)
        done |= {step.id for step in ready}
        waiting = [step for step in waiting if step.id not in done]
    return levels


def fill_placeholders(text: str, answers: Mapping[int, str]) -> str:
    """A text with the answers in their places; braces in an answer are left as they are.

    >>> fill_placeholders("When was { 1 } built by {2}?", {1: "the {2}", 2: "Ada"})
    'When was the {2} built by Ada?'
    """
    named = {str(each): answer for each, answer in answers.items()}
    return _PLACEHOLDER.sub(lambda match: named[match[1]], text)


def placeholders_of(text: str) -> list[str]:
    """The names in a text's placeholders, each once, in order.

    >>> placeholders_of("Did {2} marry {1} or {2}?")
    ['2', '1']
    """
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def undeclared_placeholders(text: str, declared: Sequence[int]) -> list[str]:
    """The placeholders of a text that name none of `declared`."""
    return [name for name in placeholders_of(text) if name not in map(str, declared)]


def _fault_of_step(step: SubQuestion, ids: Sequence[int]) -> PlanRefusal | None:
    if not plain(step.text):
        return PlanRefusal(PlanFault.EMPTY_TEXT, str(step.id))
    if step.id in step.depends_on:
        return PlanRefusal(PlanFault.SELF_DEPENDENCY, str(step.id))
    if missing := [each for each in step.depends_on if each not in ids]:
        return PlanRefusal(PlanFault.MISSING_DEPENDENCY, f"{_listed(missing)} of {step.id}")
    if undeclared := undeclared_placeholders(step.text, step.depends_on):
        return PlanRefusal(PlanFault.UNDECLARED_PLACEHOLDER, f"{_listed(undeclared)} in {step.id}")
    return None


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


QUALITY_WEIGHT: dict[QuestionKind, float] = {"specific": 0.6, "abstract": 0.75}
"""α: what the retrieval's own score counts, the rest being nearness to the answers before."""


@dataclass(frozen=True)
class FoundNodes:
    """Nodes found for a question, best first: rows of X, their scores, and how each was reached, in words."""

    question: str
    rows_k: Ints
    scores_k: Floats
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SubQuery:
    """A sub-question of a plan with the answers that it needs filled in, and the findings that it rests on."""

    text: str
    kind: QuestionKind
    rests_on: tuple[Finding, ...]


def search_all(index: Index, queries: Sequence[SubQuery], settings: RetrieveSettings) -> dict[str, FoundNodes]:
    """The `settings.top_k` best nodes for each question, by its text, reranked by the findings that it rests on, if there are any."""
    vectors_QD = index.encode_queries([each.text for each in queries])
    found = {}
    for each, vector_D in zip(queries, vectors_QD, strict=True):
        nodes = find_nodes(index, Query(each.text, vector_D), each.kind, settings)
        if each.rests_on:
            resolved = " ".join(f"{finding.question} {finding.answer}" for finding in each.rests_on)
            nodes = rerank_nodes(index, nodes, each.kind, index.encode_queries([resolved])[0])
        found[each.text] = nodes
    return found


def find_nodes(index: Index, query: Query, kind: QuestionKind, settings: RetrieveSettings) -> FoundNodes:
    """The best nodes: passages by `hops` for a specific question, passages and summaries for an abstract one."""
    if kind == "abstract":
        scores_X = node_scores(index, query.vector_D)
        rows_k = top_rows(scores_X, settings.top_k)
        return FoundNodes(query.text, rows_k, scores_X[rows_k], (("near to it by itself",),) * len(rows_k))
    found = retrieve_hops(index, query, settings)
    rows = [passage_row(index, each.item) for each in found.passages]
    scores = [each.score for each in found.passages]
    return FoundNodes(query.text, np.array(rows, np.int64), np.array(scores, np.float32), found.paths)


def rerank_nodes(index: Index, found: FoundNodes, kind: QuestionKind, resolved_D: Floats) -> FoundNodes:
    """The same nodes in the order of `dependency_scores` to what was resolved (unit vector [D]), ties as they were."""
    similarity_k = normalised_similarity_to(index, resolved_D, node_scores(index, resolved_D)[found.rows_k])
    scores_k = dependency_scores(found.scores_k, similarity_k, QUALITY_WEIGHT[kind])
    order = np.argsort(-scores_k, kind="stable")
    return FoundNodes(
        found.question, found.rows_k[order], scores_k[order], tuple(found.paths[int(place)] for place in order)
    )


def dependency_scores(scores_k: Floats, similarity_k: Floats, quality_weight: float) -> Floats:
    """α R_i + (1 − α) M_i (PankRAG Eq. 4–5), R the list's own scores scaled to [0, 1], M the nearness to what was resolved.

    >>> dependency_scores(np.array([3.0, 1.0]), np.array([0.0, 1.0]), 0.75).tolist()
    [0.75, 0.25]
    """
    return np.asarray(quality_weight * min_max(scores_k) + (1 - quality_weight) * similarity_k, np.float32)


def evidence_of(index: Index, found: FoundNodes, count: int) -> Evidence:
    """The best `count` nodes as evidence for the question that they were found for."""
    passages, summaries = nodes_in(index, found.rows_k[:count], found.scores_k[:count])
    return Evidence(query=found.question, passages=passages, summaries=summaries)


def passage_row(index: Index, passage: Passage) -> int:
    """The row of a passage of the index: documents are sorted by source, their passages by order."""
    sources = index.data.document_sources
    document = bisect_left(sources, passage.source, 0, len(sources))
    return passages_of(index.data.passage_document_P, document)[0] + passage.order


EXCERPTS_READ = 5
"""Passages and summaries that the model reads to answer one sub-question."""
MAX_ANSWER_TOKENS = 256


class Resolution(ReplyModel):
    answer: Annotated[str, at_most("maxLength", 200)]
    passages: Annotated[
        list[Annotated[int, one_of(EXCERPTS_READ)]], sound_items(int), at_most("maxItems", EXCERPTS_READ)
    ]


class NoAnswer(Enum):
    """Why a sub-question has no answer."""

    UNUSABLE = "no usable reply"
    NOT_FOUND = NOT_FOUND
    NOT_ASKED = "not asked"


@dataclass
class PlanRun:
    """What an execution has come to. Grows as it goes, so that a model that goes away leaves what was found.

    `found` has one list for each question that was looked for, by its text, but not those in which the model found no answer.
    """

    found: dict[str, FoundNodes] = field(default_factory=dict)
    outcomes: dict[int, Finding | NoAnswer] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    @property
    def findings(self) -> dict[int, Finding]:
        """The answers, by the id of their sub-question."""
        return {each: outcome for each, outcome in self.outcomes.items() if isinstance(outcome, Finding)}


def execute(index: Index, model: Caller, plan: Plan, settings: RetrieveSettings, run: PlanRun) -> None:
    """Answer the sub-questions level by level, then look for what the final question asks. Raises ModelGone."""
    for level in levels_of(plan.sub_questions):
        _answer_level(index, model, level, settings, run)
    needed = [step.id for step in plan.sub_questions if str(step.id) in placeholders_of(plan.final_question)]
    if lacking := _unanswered(needed, run):
        run.steps.append(f"final question {NoAnswer.NOT_ASKED.value}: {lacking} has no answer")
    elif plain(plan.final_question):
        final = _fill(plan.final_question, needed, "specific", run)
        run.found |= search_all(index, [final], settings)
        run.steps.append(f"final question: {final.text}")


def _answer_level(
    index: Index, model: Caller, level: Sequence[SubQuestion], settings: RetrieveSettings, run: PlanRun
) -> None:
    """Search for all sub-questions of a level that have what they need, and ask for their answers together."""
    ready: list[SubQuestion] = []
    for step in level:
        if lacking := _unanswered(step.depends_on, run):
            run.outcomes[step.id] = NoAnswer.NOT_ASKED
            run.steps.append(f"{{{step.id}}} {NoAnswer.NOT_ASKED.value}: {lacking} has no answer")
        else:
            ready.append(step)
    queries = [_fill(step.text, step.depends_on, step.kind, run) for step in ready]
    found = search_all(index, queries, settings)
    run.found |= found
    budget = token_budget(settings.max_context_tokens, model.count_tokens)
    read = [
        build_context(evidence_of(index, found[each.text], EXCERPTS_READ), EXCERPTS_READ, budget) for each in queries
    ]
    users = [answer_messages(each.text, excerpts)[1].content for each, excerpts in zip(queries, read, strict=True)]
    replies = model.ask(Resolution, read_prompt("graph/resolve.txt"), users, MAX_ANSWER_TOKENS)
    for step, each, excerpts, reply in zip(ready, queries, read, replies, strict=True):
        outcome = judge_reply(reply, each.text, excerpts)
        run.outcomes[step.id] = outcome
        run.steps.append(f"{{{step.id}}} {each.text} {_outcome_in_words(outcome)}")
        if outcome is NoAnswer.NOT_FOUND:
            run.found.pop(each.text, None)


def judge_reply(reply: Resolution | None, question: str, excerpts: Sequence[Excerpt]) -> Finding | NoAnswer:
    """A reply as a finding from the passages that it names (all that it read, if it names none), or why it is none."""
    if reply is None:
        return NoAnswer.UNUSABLE
    answer = plain(reply.answer)
    if is_no_answer(answer):
        return NoAnswer.NOT_FOUND
    named = [excerpts[number - 1] for number in reply.passages if 1 <= number <= len(excerpts)] or excerpts
    passages = dict.fromkeys(passage for each in named for passage in (each.members or (each.id,)))
    return Finding(question, answer, tuple(passages), 1.0)


def _fill(text: str, needed: Sequence[int], kind: QuestionKind, run: PlanRun) -> SubQuery:
    """A question with the answers that it needs; all of them must be there."""
    findings = {each: run.findings[each] for each in needed}
    answers = {each: finding.answer for each, finding in findings.items()}
    return SubQuery(plain(fill_placeholders(text, answers)), kind, tuple(findings.values()))


def _outcome_in_words(outcome: Finding | NoAnswer) -> str:
    return f"→ {outcome.answer}" if isinstance(outcome, Finding) else f"· {outcome.value}"


def _unanswered(needed: Sequence[int], run: PlanRun) -> str:
    """The ids among `needed` without an answer, as the plan writes them; "" when all have one."""
    return ", ".join(f"{{{each}}}" for each in needed if each not in run.findings)


DEPTH = 20
"""Nodes that each list of a plan has at least."""
RANK_CONSTANT = 5
"""Of the fusion, lower than the usual 60: each list is short and about another part, so that its first places count most."""
MAX_PLAN_TOKENS = 800


def retrieve_plan(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k nodes by the lists of the whole, the final and all sub-questions together; the answers to these are findings."""
    run, stopped = PlanRun(), ""
    deep = settings.model_copy(update={"top_k": max(DEPTH, settings.top_k)})
    if query.model is not None:
        try:
            plan = make_plan(query.model, query.text, run)
            if plan is not None:
                execute(index, query.model, plan, deep, run)
        except ModelUnavailable as gone:
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
        paths=tuple(describe_path(int(row), lists) for row in rows if row < len(index.data.passage_ids)),
        findings=tuple(run.findings.values()),
        trace=trace,
    )


def make_plan(model: Caller, question: str, run: PlanRun) -> Plan | None:
    """The model's plan; None, with the reason in the steps of `run`, when there is none that can be executed."""
    plan = model.ask(Plan, read_prompt("graph/plan.txt"), [f"Question: {quote(question)}"], MAX_PLAN_TOKENS)[0]
    refused = "no usable reply" if plan is None else find_fault(plan)
    if plan is None or refused is not None:
        run.steps.append(f"plan refused: {refused}; the question is taken whole")
        return None
    levels = levels_of(plan.sub_questions)
    run.steps.append(f"{len(plan.sub_questions)} sub-questions in {len(levels)} levels")
    return plan


def describe_path(row: int, lists: Sequence[FoundNodes]) -> tuple[str, ...]:
    """How a node was reached, in words: by the question in whose list it stands highest, and how it came there."""
    ranked = [(each.rows_k.tolist().index(row), number) for number, each in enumerate(lists) if row in each.rows_k]
    place, number = min(ranked)
    return (f"no. {place + 1:,} for “{lists[number].question}”", *lists[number].paths[place])
