"""From a request to what the engine is asked: what the last turn wants, the evidence for it, and a prompt that the engine can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from graph.prompt.context import rank_excerpts, token_budget
from graph.retrieve.parts.caller import ModelGone
from graph.shared.errors import UserError
from graph.shared.types import Evidence, Excerpt, LanguageModel, Message
from graph.verify.support import Handling
from serve.http.backends.backend import TOO_LONG
from serve.http.routes.chat_request import ChatRequest, ChatRetrieval
from serve.http.routes.collections import STORE, Seen
from serve.http.routes.parts import takes_form
from serve.http.routes.services import Services
from serve.http.shared.access import Access
from serve.http.shared.errors import ApiError, not_supported
from serve.talk.prompt import Prompt, PromptTooLong, fitted
from serve.talk.rewrite import Question, read_turn
from serve.talk.task import Task, fitted_task, read_task
from serve.talk.turns import Exchange, exchanges
from serve.views.evidence import spending

UNSUPPORTED = "retrieval.unsupported"


@dataclass(frozen=True)
class PreparedRequest:
    """A request ready for the engine: its body, and, unless retrieval is off, its prompt and what the client is told of the search.

    What is not asked of the documents has a `task` in place of a prompt, and no collection that was `seen`. `unsupported` is what is done
    with sentences that the excerpts do not support. `key` is the name of the key that it came with.
    """

    body: dict[str, Any]
    prompt: Prompt | None = None
    told: dict[str, Any] | None = None
    task: Task | None = None
    seen: Seen | None = None
    unsupported: Handling = "ignore"
    key: str = ""

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """What may be cited, by number."""
        return self.prompt.excerpts if self.prompt is not None else ()

    @property
    def retrieval(self) -> dict[str, Any] | None:
        """What the client is told; None where retrieval is off."""
        if self.prompt is None or self.told is None:
            return None
        read = {"excerpts": len(self.prompt.ranked), "left_out": self.prompt.left_out}
        return {**self.told, **read, "context_ids": [each.id for each in self.prompt.excerpts]}

    @property
    def is_empty_handed(self) -> bool:
        """Whether a search found nothing, so that there is nothing to ask the model."""
        return self.prompt is not None and self.prompt.intent != "remark" and not self.prompt.ranked

    def shorter(self) -> PreparedRequest | None:
        """With about half of what can be left out of the prompt; None when nothing can."""
        if self.task is not None:
            rest = self.task.halved()
            return None if rest is None else replace(self, body=_with(self.body, rest.messages()), task=rest)
        less = self.prompt.halved() if self.prompt is not None else None
        return None if less is None else replace(self, body=_with(self.body, less.messages()), prompt=less)


async def prepare(
    services: Services, request: ChatRequest, access: Access, collection: str | None = None, place: str = STORE
) -> PreparedRequest:
    """Search for what the request asks, and build the prompt that the models were trained on; without retrieval, only escape special tokens.

    The `collection` may also be told by the model's name; `place` is the field that tells it otherwise.
    """
    name, of_model = services.asked_model(access, request.model)
    request = request.model_copy(update={"model": name})
    backend, options = services.backend, request.retrieval
    fields = request.engine_fields(services.settings.max_answer_tokens)
    unsupported = _handling(services, options, takes_form(fields))
    if not options.enabled:
        return PreparedRequest(
            {**fields, "messages": [turn.passed_on(backend.escape_special_tokens) for turn in request.messages]},
            key=access.key,
        )
    task = read_task([turn.text() for turn in request.messages if turn.role == "user"], request.instructions())
    if task is not None and len(request.history()) == 0:
        return replace(await _task(services, request, task), key=access.key)
    if collection is not None and of_model not in (None, collection):
        raise ApiError(400, "bad_value", f"model and {place} name different collections", place)
    seen = await services.collections.seen(access, collection or of_model, place if collection else "model")
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
        evidence = await retriever.find(question.text, settings, model if options.use_model else None, seen.generation)
    try:
        budget = token_budget(settings.max_context_tokens, model.count_tokens)
        ranked = rank_excerpts(evidence, settings.top_k, budget)
    except UserError as problem:
        raise ApiError(400, "bad_value", f"retrieval: {problem}") from None
    whole = Prompt(
        question.intent, asked, request.instructions(), evidence, ranked, history, backend.escape_special_tokens
    )
    limit = _limit(fields)
    try:
        prompt, answer_tokens = await retriever.in_thread(partial(fitted, whole, model, fields[limit]))
    except UserError as problem:
        code = TOO_LONG if isinstance(problem, PromptTooLong) else "refused_by_model"
        raise ApiError(400, code, str(problem), "messages") from None
    body = _with({"temperature": 0.0, **fields, limit: answer_tokens}, prompt.messages())
    told: dict[str, Any] = {"intent": question.intent, "question": question.text, "rewritten_by": question.by}
    told |= {**spending(evidence).model_dump(), "absence": asdict(evidence.absence) if evidence.absence else None}
    return PreparedRequest(body, prompt, told, seen=seen, unsupported=unsupported, key=access.key)


def _handling(services: Services, options: ChatRetrieval, form: bool) -> Handling:
    """What is done with sentences that the passages do not support; ApiError 400 where that cannot be.

    A server that drops them by itself marks them where the format is the client's.
    """
    asked = options.unsupported
    if asked in ("mark", "drop") and not options.enabled:
        raise not_supported(UNSUPPORTED, "without retrieval there are no passages to read the answer against")
    if asked == "drop" and not form:
        raise not_supported(UNSUPPORTED, "a sentence less may break the format that the request asks for; use mark")
    handling = asked or services.settings.unsupported
    return "mark" if handling == "drop" and not form else handling


async def _task(services: Services, request: ChatRequest, task: Task) -> PreparedRequest:
    """A task of the client's own, ready for the engine: as it came, but for special tokens and what the window does not hold."""
    escape, model = services.backend.escape_special_tokens, services.backend.language_model(request.model)
    fields = request.engine_fields(services.settings.max_answer_tokens)
    limit = _limit(fields)
    safe = Task(escape(task.system), escape(task.before), escape(task.history), escape(task.after))
    fits, answer_tokens = await services.retriever.in_thread(partial(fitted_task, safe, model, fields[limit]))
    body = _with({"temperature": 0.0, **fields, limit: answer_tokens}, fits.messages())
    return PreparedRequest(body, task=fits)


def _limit(fields: Mapping[str, Any]) -> str:
    """The field that limits the answer."""
    return "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"


def _with(body: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    """A body with these messages, in OpenAI's form."""
    return {**body, "messages": [{"role": turn.role, "content": turn.content} for turn in messages]}


async def _read(services: Services, history: Sequence[Exchange], asked: str, model: LanguageModel) -> Question:
    try:
        question = await services.retriever.in_thread(partial(read_turn, history, asked, model))
    except ModelGone:
        message = "the model's server went away while the question was read"
        raise ApiError(503, "model_gone", message, headers={"Retry-After": "5"}) from None
    if history:
        services.metrics.rewritten.labels(question.by).inc()
    return question
