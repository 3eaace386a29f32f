"""`plan` (PankRAG): a model splits the question, sub-questions are answered in the order of their dependencies, and the results are fused by rank.

One call makes the plan (§3.2), which is validated before any other call; sub-questions are answered level by level, and the results of each
are reranked by the answers on which it depends (§3.3). If one of these answers is missing, the sub-question is skipped. Without a model, with an
invalid plan, or with one that does not split the question, `hops` searches with the whole question.

Legend: P passages, S summaries, X nodes (passages, then summaries), k nodes found, Q questions, D dimensions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np

from graph.answer.context import build_context, token_budget
from graph.answer.prompt import NOT_FOUND, answer_messages, is_no_answer
from graph.errors import ModelUnavailable
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.retrieve.hops.mode import retrieve_hops
from graph.retrieve.modes.baselines import fuse_ranks, matching_rows
from graph.retrieve.modes.hierarchy import node_scores, nodes_in
from graph.retrieve.modes.paths import min_max
from graph.retrieve.parts.query import Caller, Query, RetrieveSettings
from graph.retrieve.parts.ranking import top_rows
from graph.text.bm25 import content_terms, terms_of
from graph.text.prompting import quote, read_prompt
from graph.text.replies import ReplyModel, Sentence, as_one_line, at_most, number_up_to, sound_items
from graph.text.word_forms import is_caseless, is_name
from graph.types import Evidence, Excerpt, Finding, Floats, Ints, Trace

MAX_SUB_QUESTIONS = 8
_PLACEHOLDER = re.compile(r"\{\s*([\w.]+)\s*\}")

QuestionKind = Literal["specific", "abstract"]


class SubQuestion(ReplyModel):
    """One step: `{n}` in `text` stands for the answer of step n."""

    text: Sentence
    kind: QuestionKind = "specific"

    @property
    def depends_on(self) -> list[int]:
        """The numbers of the steps whose answers `text` needs."""
        return [int(name) for name in placeholders_of(self.text) if name.isdecimal()]


class Plan(ReplyModel):
    """A model's plan; its steps are numbered from 1."""

    sub_questions: Annotated[list[SubQuestion], at_most("maxItems", MAX_SUB_QUESTIONS)]


def find_fault(plan: Plan) -> str | None:
    """The first fault of a plan, and where it is; None if the plan can be executed."""
    steps = plan.sub_questions
    if not steps:
        return "no sub-questions (at least one is needed)"
    if len(steps) > MAX_SUB_QUESTIONS:
        return f"more than {MAX_SUB_QUESTIONS} sub-questions ({len(steps)})"
    numbers = [str(number) for number in range(1, len(steps) + 1)]
    for number, step in enumerate(steps, 1):
        if not as_one_line(step.text):
            return f"an empty sub-question ({number})"
        if missing := [name for name in placeholders_of(step.text) if name not in numbers]:
            return f"a dependency that is not in the plan (sub-question {number}: {', '.join(missing)})"
        if number in step.depends_on:
            return f"a sub-question that depends on itself ({number})"
    ordered = {str(number) for level in levels_of(steps) for number in level}
    if waiting := [number for number in numbers if number not in ordered]:
        return f"sub-questions that are in a cycle or depend on one ({', '.join(waiting)})"
    return None


def levels_of(steps: Sequence[SubQuestion]) -> list[list[int]]:
    """The numbers of the steps by level: each level depends only on earlier ones. Within a level, steps keep the plan's order; steps in a cycle, and
    steps that depend on one, are left out."""
    levels: list[list[int]] = []
    done: set[int] = set()
    waiting = dict(enumerate(steps, 1))
    while ready := [number for number, step in waiting.items() if done.issuperset(step.depends_on)]:
        levels.append(ready)
        done.update(ready)
        waiting = {number: step for number, step in waiting.items() if number not in done}
    return levels


def fill_placeholders(text: str, answers: Mapping[int, str]) -> str:
    """The text with its placeholders replaced by answers; braces in an answer stay as they are.

    >>> fill_placeholders("When was { 1 } built by {2}?", {1: "the {2}", 2: "Ada"})
    'When was the {2} built by Ada?'
    """
    named = {str(each): answer for each, answer in answers.items()}
    return _PLACEHOLDER.sub(lambda match: named[match[1]], text)


def names_nothing(text: str, question: str) -> bool:
    """Whether a sub-question of `question` cannot be searched for alone, such as "Who directed the film?": it has no placeholder, and no name or
    number, though the question has some (`is_name`, from the second word on). Its first word is a name if it is one in the question, or is the
    question's own first word, capitalised, and a content word. False in scripts without case.

    >>> names_nothing("Which film is older?", "Which is older, Ogro or Jaws?"), names_nothing("When was Ogro made?", "Which is older, Ogro or Jaws?")
    (True, False)
    >>> names_nothing("When was {1} made?", "Is Ogro older?"), names_nothing("Who wrote it?", "who wrote the book on kelp?")
    (False, False)
    >>> names_nothing("Jaws came out when?", "Jaws or Ogro: which is older?"), names_nothing("監督は誰ですか", "1975年の Jaws の監督は誰ですか")
    (False, False)
    """
    if placeholders_of(text) or is_caseless(text) or is_caseless(question):
        return False
    names = content_terms(" ".join(filter(is_name, question.split())))
    opens_with_name = not set(terms_of(text)[:1]).isdisjoint(names)
    return bool(_names_in(question)) and not opens_with_name and not _names_in(text)


def _names_in(text: str) -> list[str]:
    return [word for word in text.split()[1:] if is_name(word)]


def placeholders_of(text: str) -> list[str]:
    """The distinct names in a text's placeholders, in order.

    >>> placeholders_of("Did {2} marry {1} or {2}?")
    ['2', '1']
    """
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


QUALITY_WEIGHT: dict[QuestionKind, float] = {"specific": 0.6, "abstract": 0.75}
"""α: the weight of the retrieval score; 1 − α is the weight of the similarity to earlier answers."""


@dataclass(frozen=True)
class FoundNodes:
    """The nodes found for a question, best first: rows of X, their scores, and the path to each in words."""

    question: str
    rows_k: Ints
    scores_k: Floats
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SubQuery:
    """A sub-question of a plan with its placeholders replaced by answers, and the findings that contain these answers."""

    text: str
    kind: QuestionKind
    depends_on: tuple[Finding, ...]


def search_all(index: Index, queries: Sequence[SubQuery], settings: RetrieveSettings) -> dict[SubQuery, FoundNodes]:
    """The `settings.top_k` best nodes for each question; reranked by the findings on which the question depends, if any."""
    vectors_QD = index.encode_queries([query.text for query in queries])
    nodes_of = {}
    for query, vector_D in zip(queries, vectors_QD, strict=True):
        nodes = find_nodes(index, Query(query.text, vector_D), query.kind, settings)
        if query.depends_on:
            resolved = " ".join(f"{finding.question} {finding.answer}" for finding in query.depends_on)
            nodes = rerank_nodes(index, nodes, query.kind, index.encode_queries([resolved])[0])
        nodes_of[query] = nodes
    return nodes_of


def find_nodes(index: Index, query: Query, kind: QuestionKind, settings: RetrieveSettings) -> FoundNodes:
    """The best nodes: passages by `hops` for a specific question, passages and summaries by cosine for an abstract one."""
    if kind == "abstract":
        scores_X = node_scores(index, query.vector_D)
        rows_k = top_rows(scores_X, settings.top_k)
        return FoundNodes(query.text, rows_k, scores_X[rows_k], (("similar to it",),) * len(rows_k))
    evidence = retrieve_hops(index, query, settings)
    rows_k = index.rows_of([each.item for each in evidence.passages])
    scores = [each.score for each in evidence.passages]
    return FoundNodes(query.text, rows_k, np.array(scores, np.float32), evidence.paths)


def rerank_nodes(index: Index, found: FoundNodes, kind: QuestionKind, resolved_D: Floats) -> FoundNodes:
    """The same nodes by descending `dependency_scores`, ties in their previous order. `resolved_D` is the unit vector of the findings' text."""
    similarity_k = normalised_similarity_to(index, resolved_D, node_scores(index, resolved_D)[found.rows_k])
    scores_k = dependency_scores(found.scores_k, similarity_k, QUALITY_WEIGHT[kind])
    order = np.argsort(-scores_k, kind="stable")
    paths = tuple(found.paths[int(place)] for place in order)
    return FoundNodes(found.question, found.rows_k[order], scores_k[order], paths)


def dependency_scores(scores_k: Floats, similarity_k: Floats, quality_weight: float) -> Floats:
    """α R_i + (1 − α) M_i (PankRAG Eq. 4–5), R the retrieval scores scaled to [0, 1], M the similarity to the findings that
    the question depends on.

    >>> dependency_scores(np.array([3.0, 1.0]), np.array([0.0, 1.0]), 0.75).tolist()
    [0.75, 0.25]
    """
    return np.asarray(quality_weight * min_max(scores_k) + (1 - quality_weight) * similarity_k, np.float32)


def evidence_of(index: Index, found: FoundNodes, count: int) -> Evidence:
    """The best `count` nodes as evidence for their question."""
    passages, summaries = nodes_in(index, found.rows_k[:count], found.scores_k[:count])
    return Evidence(query=found.question, passages=passages, summaries=summaries)


EXCERPTS_READ = 5
"""Passages and summaries that the model reads to answer one sub-question."""
MAX_ANSWER_TOKENS = 256
NO_REPLY = "no usable reply"


class Resolution(ReplyModel):
    answer: Annotated[str, at_most("maxLength", 200)]
    passages: Annotated[
        list[Annotated[int, number_up_to(EXCERPTS_READ)]], sound_items(int), at_most("maxItems", EXCERPTS_READ)
    ]


@dataclass
class PlanRun:
    """The results of an execution so far. `found` maps each sub-question to its nodes, except for those to which the model found no answer."""

    question: str
    found: dict[SubQuery, FoundNodes] = field(default_factory=dict)
    findings: dict[int, Finding] = field(default_factory=dict)
    """The answers, by the number of their sub-question."""
    steps: list[str] = field(default_factory=list)


def answer_level(
    index: Index, model: Caller, level: Mapping[int, SubQuestion], settings: RetrieveSettings, run: PlanRun
) -> None:
    """Search with the sub-questions of a level (by number) whose dependencies are answered; request the answers in one batch, one for equal sub-questions.

    Raises ModelUnavailable.
    """
    ready: dict[int, SubQuestion] = {}
    for number, step in level.items():
        if missing := [f"{{{each}}}" for each in step.depends_on if each not in run.findings]:
            run.steps.append(f"{{{number}}} skipped: no answer to {', '.join(missing)}")
        else:
            ready[number] = step
    if not ready:
        return
    query_of = {number: _fill(step, run) for number, step in ready.items()}
    queries = list(dict.fromkeys(query_of.values()))
    found = search_all(index, queries, settings)
    run.found |= found
    budget = token_budget(settings.max_context_tokens, model.count_tokens)
    contexts = [
        build_context(evidence_of(index, found[query], EXCERPTS_READ), EXCERPTS_READ, budget) for query in queries
    ]
    prompts = [
        answer_messages(query.text, excerpts)[1].content for query, excerpts in zip(queries, contexts, strict=True)
    ]
    replies = model.ask(Resolution, read_prompt("graph/resolve.txt"), prompts, MAX_ANSWER_TOKENS)
    outcomes = {
        query: judge_reply(reply, query.text, excerpts)
        for query, excerpts, reply in zip(queries, contexts, replies, strict=True)
    }
    for number, query in query_of.items():
        outcome = outcomes[query]
        if isinstance(outcome, Finding):
            run.findings[number] = outcome
            run.steps.append(f"{{{number}}} {query.text} → {outcome.answer}")
        else:
            run.steps.append(f"{{{number}}} {query.text} · {outcome}")
        if outcome == NOT_FOUND:
            run.found.pop(query, None)


def judge_reply(reply: Resolution | None, question: str, excerpts: Sequence[Excerpt]) -> Finding | str:
    """A reply as a finding from the passages that it names (all excerpts, if it names none), or the reason why there is none: NO_REPLY or NOT_FOUND."""
    if reply is None:
        return NO_REPLY
    answer = as_one_line(reply.answer)
    if is_no_answer(answer):
        return NOT_FOUND
    cited = [excerpts[number - 1] for number in reply.passages if 1 <= number <= len(excerpts)] or excerpts
    passages = dict.fromkeys(passage for excerpt in cited for passage in (excerpt.members or (excerpt.id,)))
    return Finding(question, answer, tuple(passages), 1.0)


def _fill(step: SubQuestion, run: PlanRun) -> SubQuery:
    """A sub-question with its placeholders filled; every step that it depends on must have a finding."""
    findings = {each: run.findings[each] for each in step.depends_on}
    answers = {each: finding.answer for each, finding in findings.items()}
    return SubQuery(as_one_line(fill_placeholders(step.text, answers)), step.kind, tuple(findings.values()))


DEPTH = 20
"""The minimum number of nodes to retrieve for each list of a plan."""
RANK_CONSTANT = 5
"""The constant of the fusion, below the usual 60: lists are short and each covers a different part of the question, so their first ranks count most."""
MAX_PLAN_TOKENS = 800


def retrieve_plan(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """The top k nodes by the fused ranks in the lists of the question and its sub-questions, and the sub-questions' answers as findings.

    If no sub-question has a list, the result is the evidence of `hops`.
    """
    run, stopped = PlanRun(query.text), ""
    deep = settings.model_copy(update={"top_k": max(DEPTH, settings.top_k)})
    if query.model is not None:
        try:
            for level in make_plan(query.model, run):
                answer_level(index, query.model, level, deep, run)
        except ModelUnavailable as problem:
            stopped = str(problem)
    trace = Trace("plan", tuple(run.steps), stopped=stopped)
    if not run.found:
        evidence = retrieve_hops(index, query, settings)
        return replace(evidence, trace=replace(trace, steps=(*trace.steps, *evidence.trace.steps)))
    whole = {SubQuery(query.text, "specific", ()): find_nodes(index, query, "specific", deep)}
    lists = list((whole | run.found).values())
    nodes = len(index.data.passage_ids) + len(index.data.summary_ids)
    scores_X = fuse_ranks([each.rows_k for each in lists], nodes, RANK_CONSTANT)
    rows = matching_rows(scores_X, settings.top_k)
    passages, summaries = nodes_in(index, rows, scores_X[rows])
    return Evidence(
        query=query.text,
        passages=passages,
        summaries=summaries,
        paths=tuple(describe_path(int(row), lists) for row in rows if row < len(index.data.passage_ids)),
        findings=tuple(dict.fromkeys(run.findings.values())),
        trace=trace,
    )


def make_plan(model: Caller, run: PlanRun) -> list[dict[int, SubQuestion]]:
    """The steps of the model's plan that can be searched for, by number and level; none, with the reason in `run.steps`, if the plan cannot be
    executed, or if it does not split the question, which is then left whole to the model that answers it."""
    plan = model.ask(Plan, read_prompt("graph/plan.txt"), [f"Question: {quote(run.question)}"], MAX_PLAN_TOKENS)[0]
    reason = NO_REPLY if plan is None else find_fault(plan)
    if plan is None or reason is not None:
        run.steps.append(f"plan rejected: {reason}; searching with the whole question")
        return []
    steps = dict(enumerate(plan.sub_questions, 1))
    levels = levels_of(plan.sub_questions)
    unnamed = {number for number, step in steps.items() if names_nothing(step.text, run.question)}
    blocked = set(unnamed)
    for level in levels:
        blocked |= {number for number in level if not blocked.isdisjoint(steps[number].depends_on)}
    parts = [step for number, step in steps.items() if number not in blocked]
    if not parts or [step.kind for step in parts] == ["specific"]:
        run.steps.append("the plan does not split the question; searching with the whole question")
        return []
    run.steps.append(f"{len(steps)} sub-questions in {len(levels)} levels")
    run.steps += [
        f"{{{number}}} skipped: “{as_one_line(steps[number].text)}” names nothing" for number in sorted(unnamed)
    ]
    return [{number: steps[number] for number in level if number not in unnamed} for level in levels]


def describe_path(row: int, lists: Sequence[FoundNodes]) -> tuple[str, ...]:
    """How a node was reached, in words: its best rank in a question's list, and the path in that list."""
    ranked = [(nodes.rows_k.tolist().index(row), number) for number, nodes in enumerate(lists) if row in nodes.rows_k]
    rank, number = min(ranked)
    return (f"no. {rank + 1:,} for “{lists[number].question}”", *lists[number].paths[rank])
