"""Question in, cited answer out: retrieve, number the excerpts, ask the model, and check every citation by program."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from graph.answer import NOT_FOUND, answer_messages, check_citations, parse_answer
from graph.context import build_context
from graph.retrieve import RetrieveSettings, retrieve
from graph.types import Completion, CompletionRequest, Evidence, Excerpt, LanguageModel

if TYPE_CHECKING:
    from graph.index import Index


@dataclass(frozen=True)
class Answer:
    """One answer and what it rests on. `citations` maps each number that the text cites to its excerpt.

    `removed` are cited numbers that no excerpt had; their brackets are gone from the text. `finish_reason` is "length"
    when the model was cut at the token limit. `seconds` cover retrieval, encoder and model.
    """

    question: str
    reason: str
    answer: str
    well_formed: bool
    finish_reason: Literal["stop", "length"]
    citations: Mapping[int, Excerpt]
    removed: tuple[int, ...]
    evidence: Evidence
    model: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


def answer_question(
    index: Index, question: str, settings: RetrieveSettings, model: LanguageModel, max_answer_tokens: int
) -> Answer:
    """Answer from what `index` holds; UserError for an empty question."""
    return answer_from(retrieve(index, question, settings), settings.top_k, model, max_answer_tokens)


def answer_from(evidence: Evidence, top_k: int, model: LanguageModel, max_answer_tokens: int) -> Answer:
    """Answer the query of `evidence` from its best `top_k` excerpts."""
    started = time.perf_counter()
    excerpts = build_context(evidence, top_k)
    made = ask_model(model, evidence.query, excerpts, max_answer_tokens)
    spent = evidence.trace.seconds + evidence.trace.encoder_seconds + time.perf_counter() - started
    return cite(evidence, excerpts, made, model.name, spent)


def ask_model(model: LanguageModel, question: str, excerpts: Sequence[Excerpt], max_answer_tokens: int) -> Completion:
    """The model's text over the numbered excerpts; with none of them, "not in the documents" without a call."""
    if not excerpts:
        return Completion(NOT_FOUND, "stop", prompt_tokens=0, completion_tokens=0)
    return model.complete([CompletionRequest(answer_messages(question, excerpts), max_answer_tokens)])[0]


def cite(evidence: Evidence, excerpts: Sequence[Excerpt], made: Completion, model: str, seconds: float) -> Answer:
    """Take a completion apart; a citation survives only if its number is an excerpt's."""
    checked = check_citations(made.text, len(excerpts))
    parsed = parse_answer(checked.text)
    return Answer(
        question=evidence.query,
        reason=parsed.reason,
        answer=parsed.answer,
        well_formed=parsed.well_formed,
        finish_reason=made.finish_reason,
        citations={number: excerpts[number - 1] for number in checked.cited},
        removed=checked.removed,
        evidence=evidence,
        model=model,
        prompt_tokens=made.prompt_tokens,
        completion_tokens=made.completion_tokens,
        seconds=seconds,
    )
