"""A checked plan executed level by level: retrieve, answer, and fill the answers into the questions that need them.

An answer that is not there is a Failure, never text: what needs it is not asked, and the trace says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from graph.index.index import Index
from graph.prompt.answer import NOT_FOUND, answer_messages, is_no_answer
from graph.prompt.context import build_context, token_budget
from graph.retrieve.parts.caller import Caller
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.plan.graph import Kind, Plan, SubQuestion, fill_placeholders, levels_of, placeholders_of
from graph.retrieve.plan.search import Found, SubQuery, evidence_of, search_all
from graph.shared.types import Excerpt, Finding
from graph.text.prompting import read_prompt
from graph.text.structured import ReplyModel, at_most, one_of, plain, sound_items

READ = 5
"""Passages and summaries that the model reads to answer one sub-question."""
MAX_ANSWER_TOKENS = 256


class Resolution(ReplyModel):
    answer: Annotated[str, at_most("maxLength", 200)]
    passages: Annotated[list[Annotated[int, one_of(READ)]], sound_items(int), at_most("maxItems", READ)]


class Failure(Enum):
    """Why a sub-question has no answer."""

    UNUSABLE = "no usable reply"
    NOT_FOUND = NOT_FOUND
    NOT_ASKED = "not asked"


@dataclass
class Run:
    """What an execution has come to. Grows as it goes, so that a model that goes away leaves what was found.

    `found` has one list for each question that was looked for, by its text, but not those in which the model found no answer.
    """

    found: dict[str, Found] = field(default_factory=dict)
    outcomes: dict[int, Finding | Failure] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    @property
    def findings(self) -> dict[int, Finding]:
        """The answers, by the id of their sub-question."""
        return {each: outcome for each, outcome in self.outcomes.items() if isinstance(outcome, Finding)}


def execute(index: Index, model: Caller, plan: Plan, settings: RetrieveSettings, run: Run) -> None:
    """Answer the sub-questions level by level, then look for what the final question asks. Raises ModelGone."""
    for level in levels_of(plan.sub_questions):
        _answer_level(index, model, level, settings, run)
    needed = [step.id for step in plan.sub_questions if str(step.id) in placeholders_of(plan.final_question)]
    if lacking := _lacking(needed, run):
        run.steps.append(f"final question {Failure.NOT_ASKED.value}: {lacking} has no answer")
    elif plain(plan.final_question):
        final = _fill(plan.final_question, needed, "specific", run)
        run.found |= search_all(index, [final], settings)
        run.steps.append(f"final question: {final.text}")


def _answer_level(
    index: Index, model: Caller, level: Sequence[SubQuestion], settings: RetrieveSettings, run: Run
) -> None:
    """Search for all sub-questions of a level that have what they need, and ask for their answers together."""
    ready: list[SubQuestion] = []
    for step in level:
        if lacking := _lacking(step.depends_on, run):
            run.outcomes[step.id] = Failure.NOT_ASKED
            run.steps.append(f"{{{step.id}}} {Failure.NOT_ASKED.value}: {lacking} has no answer")
        else:
            ready.append(step)
    queries = [_fill(step.text, step.depends_on, step.kind, run) for step in ready]
    found = search_all(index, queries, settings)
    run.found |= found
    budget = token_budget(settings.max_context_tokens, model.count_tokens)
    read = [build_context(evidence_of(index, found[each.text], READ), READ, budget) for each in queries]
    users = [answer_messages(each.text, excerpts)[1].content for each, excerpts in zip(queries, read, strict=True)]
    replies = model.ask(Resolution, read_prompt("graph/resolve.txt"), users, MAX_ANSWER_TOKENS)
    for step, each, excerpts, reply in zip(ready, queries, read, replies, strict=True):
        outcome = judge_reply(reply, each.text, excerpts)
        run.outcomes[step.id] = outcome
        run.steps.append(f"{{{step.id}}} {each.text} {_told(outcome)}")
        if outcome is Failure.NOT_FOUND:
            run.found.pop(each.text, None)


def judge_reply(reply: Resolution | None, question: str, excerpts: Sequence[Excerpt]) -> Finding | Failure:
    """A reply as a finding from the passages that it names (all that it read, if it names none), or why it is none."""
    if reply is None:
        return Failure.UNUSABLE
    answer = plain(reply.answer)
    if is_no_answer(answer):
        return Failure.NOT_FOUND
    named = [excerpts[number - 1] for number in reply.passages if 1 <= number <= len(excerpts)] or excerpts
    passages = dict.fromkeys(passage for each in named for passage in (each.members or (each.id,)))
    return Finding(question, answer, tuple(passages), 1.0)


def _fill(text: str, needed: Sequence[int], kind: Kind, run: Run) -> SubQuery:
    """A question with the answers that it needs; all of them must be there."""
    findings = {each: run.findings[each] for each in needed}
    answers = {each: finding.answer for each, finding in findings.items()}
    return SubQuery(plain(fill_placeholders(text, answers)), kind, tuple(findings.values()))


def _told(outcome: Finding | Failure) -> str:
    return f"→ {outcome.answer}" if isinstance(outcome, Finding) else f"· {outcome.value}"


def _lacking(needed: Sequence[int], run: Run) -> str:
    """The ids among `needed` without an answer, as the plan writes them; "" when all have one."""
    return ", ".join(f"{{{each}}}" for each in needed if each not in run.findings)
