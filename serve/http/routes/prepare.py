"""From a request to what the engine is asked: what the last turn wants, the evidence for it, and a prompt that the engine can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from graph.prompt.context import rank_excerpts, token_budget
from graph.retrieve.parts.caller import ModelGone
from graph.shared.errors import UserError
from graph.shared.types import Evidence, Excerpt, LanguageModel
from serve.http.backends.backend import TOO_LONG
from serve.http.routes.chat_request import ChatRequest
from serve.http.routes.services import Services
from serve.http.shared.errors import ApiError
from serve.talk.prompt import Prompt, PromptTooLong, fitted
from serve.talk.rewrite import Question, read_turn
from serve.talk.turns import Exchange, exchanges
from serve.views.evidence import spending


@dataclass(frozen=True)
class PreparedRequest:
    """A request ready for the engine: its body, and, unless retrieval is off, its prompt and what the client is told of the search."""

    body: dict[str, Any]
    prompt: Prompt | None = None
    told: dict[str, Any] | None = None

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """What may be cited, by number."""
        return self.prompt.excerpts if self.prompt is not None else ()

    @property
    def retrieval(self) -> dict[str, Any] | None:
        """What the client is told; None where retrieval is off."""
        if self.prompt is None or self.told is None:
            return None
        return {**self.told, "excerpts": len(self.prompt.ranked), "left_out": self.prompt.left_out}

    @property
    def is_empty_handed(self) -> bool:
        """Whether a search found nothing, so that there is nothing to ask the model."""
        return self.prompt is not None and self.prompt.intent != "remark" and not self.prompt.ranked

    def shorter(self) -> PreparedRequest | None:
        """With about half of what can be left out of the prompt; None when nothing can."""
        less = self.prompt.halved() if self.prompt is not None else None
        return None if less is None else replace(self, body={**self.body, "messages": as_json(less)}, prompt=less)


async def prepare(services: Services, request: ChatRequest) -> PreparedRequest:
    """Search for what the request asks, and build the prompt that the models were trained on; without retrieval, only escape special tokens."""
    backend, options = services.backend, request.retrieval
    fields = request.engine_fields(services.settings.max_answer_tokens)
    if not options.enabled:
        return PreparedRequest(
            {**fields, "messages": [turn.passed_on(backend.escape_special_tokens) for turn in request.messages]}
        )
    retriever = services.retriever
    asked = retriever.check_question(request.question())
    settings = retriever.settings_of(options)
    history = exchanges(request.history())
    model = backend.language_model(request.model)
    if history or options.use_model:
        await backend.check()
    question = await _read(services, history, asked, model)
    evidence = Evidence("")
    if question.text:
        evidence = await retriever.find(question.text, settings, model if options.use_model else None)
    try:
        budget = token_budget(settings.max_context_tokens, model.count_tokens)
        ranked = rank_excerpts(evidence, settings.top_k, budget)
    except UserError as problem:
        raise ApiError(400, "bad_value", f"retrieval: {problem}") from None
    whole = Prompt(
        question.intent, asked, request.instructions(), evidence, ranked, history, backend.escape_special_tokens
    )
    limit = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    try:
        prompt, answer_tokens = await retriever.in_thread(partial(fitted, whole, model, fields[limit]))
    except UserError as problem:
        code = TOO_LONG if isinstance(problem, PromptTooLong) else "refused_by_model"
        raise ApiError(400, code, str(problem), "messages") from None
    body = {"temperature": 0.0, **fields, limit: answer_tokens, "messages": as_json(prompt)}
    told = {"intent": question.intent, "question": question.text, "rewritten_by": question.by}
    return PreparedRequest(body, prompt, {**told, **spending(evidence).model_dump()})


def as_json(prompt: Prompt) -> list[dict[str, str]]:
    """The messages of a prompt in OpenAI's form."""
    return [{"role": turn.role, "content": turn.content} for turn in prompt.messages()]


async def _read(services: Services, history: Sequence[Exchange], asked: str, model: LanguageModel) -> Question:
    try:
        question = await services.retriever.in_thread(partial(read_turn, history, asked, model))
    except ModelGone:
        message = "the model's server went away while the question was read"
        raise ApiError(503, "model_gone", message, headers={"Retry-After": "5"}) from None
    if history:
        services.metrics.rewritten.labels(question.by).inc()
    return question
