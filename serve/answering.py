"""Question in, cited answer out: retrieve, number the excerpts, ask the model, and check every citation by program."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graph.answer import NOT_FOUND, answer_messages, check_citations, parse_answer
from graph.context import build_context, token_budget
from graph.errors import UserError
from graph.retrieve import RetrieveSettings, retrieve
from graph.types import Completion, CompletionRequest, Evidence, Excerpt, FinishReason, LanguageModel, Trace
from serve.types import Cost

if TYPE_CHECKING:
    from graph.index import Index


@dataclass(frozen=True)
class Answer:
    """One answer and what it rests on. `citations` maps each number that the text cites to its excerpt.

    `removed` are cited numbers that no excerpt had; their brackets are gone from the text. `finish_reason` is "length"
    when the model was cut at the token limit. `retrieval` is what finding the evidence cost, `writing` the answer from it.
    """

    question: str
    reason: str
    answer: str
    well_formed: bool
    finish_reason: FinishReason
    citations: Mapping[int, Excerpt]
    removed: tuple[int, ...]
    evidence: Evidence
    model: str
    retrieval: Cost
    writing: Cost


def answer_question(
    index: Index, question: str, settings: RetrieveSettings, model: LanguageModel, max_answer_tokens: int
) -> Answer:
    """Answer from what `index` holds; `model` is asked while retrieving, too, where the mode can. UserError for an empty question."""
    evidence = retrieve(index, question, settings, model)
    return answer_from(evidence, settings.top_k, settings.max_context_tokens, model, max_answer_tokens)


def answer_from(
    evidence: Evidence, top_k: int, max_context_tokens: int | None, model: LanguageModel, max_answer_tokens: int
) -> Answer:
    """Answer the query of `evidence` from its best `top_k` excerpts, together at most `max_context_tokens` of the model long."""
    started = time.perf_counter()
    excerpts = build_context(evidence, top_k, token_budget(max_context_tokens, model.count_tokens))
    made = ask_model(model, evidence.query, excerpts, max_answer_tokens)
    return cite(evidence, excerpts, made, model.name, time.perf_counter() - started)


def ask_model(model: LanguageModel, question: str, excerpts: Sequence[Excerpt], max_answer_tokens: int) -> Completion:
    """The model's text over the numbered excerpts; with none of them, "not in the documents" without a call.

    UserError when the model's server refuses the request.
    """
    if not excerpts:
        return Completion(NOT_FOUND, "stop", prompt_tokens=0, completion_tokens=0)
    made = model.complete([CompletionRequest(answer_messages(question, excerpts), max_answer_tokens)])[0]
    if made.finish_reason == "refused":
        raise UserError(
            f"{model.name}: {made.text}", "a request that the server takes", "give fewer passages (--top-k)"
        )
    return made


def cite(evidence: Evidence, excerpts: Sequence[Excerpt], made: Completion, model: str, seconds: float) -> Answer:
    """Take a completion, made in `seconds`, apart; a citation survives only if its number is an excerpt's."""
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
        retrieval=retrieval_cost(evidence.trace),
        writing=Cost(int(bool(excerpts)), made.prompt_tokens, made.completion_tokens, seconds),
    )


def retrieval_cost(trace: Trace) -> Cost:
    """What a retrieval cost, its encoder included."""
    seconds = trace.seconds + trace.encoder_seconds
    return Cost(trace.model_calls, trace.prompt_tokens, trace.completion_tokens, seconds)
