"""A plan as `plan` executes it (PankRAG §3.2): sub-questions that need each other's answers, checked as a whole before any is asked.

Pure code: what a model planned comes in, levels of sub-questions and texts with their answers filled in come out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from graph.text.structured import ReplyModel, Sentence, at_most, one_of, plain

MAX_SUB_QUESTIONS, MAX_ID = 8, 99
_PLACEHOLDER = re.compile(r"\{\s*([\w.]+)\s*\}")

Kind = Literal["specific", "abstract"]
_Id = Annotated[int, one_of(MAX_ID)]


class SubQuestion(ReplyModel):
    """One step: `text` holds `{id}` where an answer of a step in `depends_on` belongs."""

    id: _Id
    text: Sentence
    depends_on: Annotated[list[_Id], at_most("maxItems", MAX_SUB_QUESTIONS)]
    kind: Kind


class Plan(ReplyModel):
    """What a model plans. `final_question` is the whole question, with placeholders for any answers."""

    sub_questions: Annotated[list[SubQuestion], at_most("maxItems", MAX_SUB_QUESTIONS)]
    final_question: str


class Fault(Enum):
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
class Refusal:
    """Why a plan is not executed, and where it is wrong."""

    fault: Fault
    where: str

    def __str__(self) -> str:
        return f"{self.fault.value} ({self.where})"


def find_fault(plan: Plan) -> Refusal | None:
    """The first thing that is wrong with a plan; None for one that can be executed."""
    steps = plan.sub_questions
    ids = [step.id for step in steps]
    if not steps:
        return Refusal(Fault.NO_SUB_QUESTIONS, "at least one is needed")
    if len(steps) > MAX_SUB_QUESTIONS:
        return Refusal(Fault.TOO_MANY, str(len(steps)))
    if twice := [each for each in dict.fromkeys(ids) if ids.count(each) > 1]:
        return Refusal(Fault.REPEATED_ID, _listed(twice))
    for step in steps:
        if fault := _fault_of_step(step, ids):
            return fault
    if undeclared := undeclared_placeholders(plan.final_question, ids):
        return Refusal(Fault.UNDECLARED_PLACEHOLDER, f"{_listed(undeclared)} in the final question")
    ordered = {step.id for level in levels_of(steps) for step in level}
    if waiting := [each for each in ids if each not in ordered]:
        return Refusal(Fault.CYCLE, _listed(waiting))
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


def _fault_of_step(step: SubQuestion, ids: Sequence[int]) -> Refusal | None:
    if not plain(step.text):
        return Refusal(Fault.EMPTY_TEXT, str(step.id))
    if step.id in step.depends_on:
        return Refusal(Fault.SELF_DEPENDENCY, str(step.id))
    if missing := [each for each in step.depends_on if each not in ids]:
        return Refusal(Fault.MISSING_DEPENDENCY, f"{_listed(missing)} of {step.id}")
    if undeclared := undeclared_placeholders(step.text, step.depends_on):
        return Refusal(Fault.UNDECLARED_PLACEHOLDER, f"{_listed(undeclared)} in {step.id}")
    return None


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))
