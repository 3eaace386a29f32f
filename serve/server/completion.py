"""The steps of a chat request up to the model's text: read the last turn, find the evidence, build the prompt, call the engine.

`prepare` builds the prompt; `complete`, `open_stream` and `stream_text` get the answer: complete, as the engine's chunks, or as the text of
one choice, each part once it can be shown. If there are no passages to give to the model, the answer is "not in the documents" and the model is
not called, unless the client sets the format or offers tools. If the engine finds the prompt too long, the call is repeated with about half of
the prompt's optional parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

from graph.answer.context import rank_excerpts, token_budget
from graph.answer.support import Handling
from graph.errors import ModelUnavailable, UserError
from graph.types import Evidence, Excerpt, LanguageModel
from serve.conversation.prompt import (
    Exchange,
    Prompt,
    PromptTooLong,
    Task,
    exchanges_of,
    fit_prompt,
    fit_task,
    halvings,
    read_task,
)
from serve.conversation.rewrite import Question, read_turn
from serve.engines.chat_backend import TOO_LONG, call_until_it_fits, not_found_chunks, not_found_completion
from serve.http.errors import ApiError, model_unavailable, not_supported
from serve.http.keys import Access
from serve.http.telemetry import MODEL, Span, usage_values
from serve.server.chat_request import ChatRequest, ChatRetrieval
from serve.server.collections import STORE_FIELD, CollectionView
from serve.server.evidence import trace_response
from serve.server.services import Services
from serve.stream import MessageDelta, MessageParts, PlainParts, UnmarkedCitation, uses_our_form, with_messages

UNSUPPORTED_FIELD = "retrieval.unsupported"


@dataclass(frozen=True)
class PreparedRequest:
    """A request ready for the engine: its body, and, unless retrieval is off, its prompt and the search metadata for the client.

    For a task of the chat client (`Task`), `task` is set instead of `prompt`, and `view` is None. `unsupported` is the
    handling of sentences that the excerpts do not support. `key` is the name of the request's key.
    """

    body: dict[str, Any]
    prompt: Prompt | None = None
    search_metadata: dict[str, Any] | None = None
    task: Task | None = None
    view: CollectionView | None = None
    unsupported: Handling = "ignore"
    key: str = ""

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """The excerpts that can be cited, in the order of their numbers."""
        return self.prompt.excerpts if self.prompt is not None else ()

    @property
    def retrieval(self) -> dict[str, Any] | None:
        """The field `retrieval` of the response; None for a task, or if retrieval is off."""
        if self.prompt is None or self.search_metadata is None:
            return None
        counts = {"excerpts": len(self.prompt.ranked), "left_out": self.prompt.left_out}
        return {**self.search_metadata, **counts, "context_ids": [excerpt.id for excerpt in self.prompt.excerpts]}

    @property
    def needs_no_model(self) -> bool:
        """Whether the answer is "not in the documents" without a call of the model."""
        return self.prompt is not None and _needs_no_model(self.prompt, self.body)

    def halved(self) -> PreparedRequest | None:
        """The request with about half of the optional parts of its prompt; None when nothing can be left out."""
        whole = self.task or self.prompt
        part = whole.halved() if whole is not None else None
        if part is None:
            return None
        body = with_messages(self.body, part.messages())
        return replace(self, body=body, task=part) if isinstance(part, Task) else replace(self, body=body, prompt=part)


async def prepare(
    services: Services, request: ChatRequest, access: Access, collection: str | None = None, field: str = STORE_FIELD
) -> PreparedRequest:
    """Search for the question of a request, and build the prompt as in training. Without retrieval, only escape special tokens; for a task of the
    chat client, also shorten it to fit the window.

    The collection is named by `collection`, the value of the request's field `field`, or by the model's name; ApiError 400 if the two differ.
    """
    name, model_collection = services.resolve_model(access, request.model)
    request = request.model_copy(update={"model": name})
    backend, options = services.backend, request.retrieval
    fields = request.engine_fields(services.settings.max_answer_tokens)
    unsupported = _unsupported_handling(services, options, uses_our_form(fields))
    if not options.enabled:
        return PreparedRequest(
            {**fields, "messages": [message.for_engine(backend.escape_special_tokens) for message in request.messages]},
            key=access.key,
        )
    task = read_task([message.text() for message in request.messages if message.role == "user"], request.instructions())
    if task is not None and len(request.history()) == 0:
        return replace(await _prepare_task(services, fields, task), key=access.key)
    if collection is not None and model_collection not in (None, collection):
        named = f"{model_collection!r} and {collection[:80]!r}"
        raise ApiError(400, "bad_value", f"model and {field} name different collections: {named}", field)
    view = await services.collections.view(access, collection or model_collection, field if collection else "model")
    retriever = services.retriever
    turn = retriever.check_question(request.question())
    settings = retriever.settings_of(options)
    history = exchanges_of(request.history())
    model = backend.language_model(request.model)
    if history or options.use_model:
        await backend.check()
    question = await _read_turn(services, history, turn, model)
    evidence = Evidence("")
    if question.text:
        is_store = collection is not None and field == STORE_FIELD
        find = retriever.find_in_store if is_store else retriever.find
        evidence = await find(question.text, settings, model if options.use_model else None, view.generation)
    try:
        budget = token_budget(settings.max_context_tokens, model.count_tokens)
        ranked = await retriever.in_thread(partial(rank_excerpts, evidence, settings.top_k, budget))
    except UserError as problem:
        raise ApiError(400, "bad_value", f"retrieval: {problem}") from None
    prompt = Prompt(
        question.intent, turn, request.instructions(), evidence, ranked, history, backend.escape_special_tokens
    )
    limit = _limit_field(fields)
    answer_tokens = fields[limit]
    if not _needs_no_model(prompt, fields):
        try:
            prompt, answer_tokens = await retriever.in_thread(partial(fit_prompt, prompt, model, answer_tokens))
        except UserError as problem:
            code = TOO_LONG if isinstance(problem, PromptTooLong) else "refused_by_model"
            raise ApiError(400, code, str(problem), "messages") from None
    body = with_messages({**fields, limit: answer_tokens}, prompt.messages())
    search_metadata = {
        "intent": question.intent,
        "question": question.text,
        "rewritten_by": question.by,
        **trace_response(evidence).model_dump(),
        "absence": asdict(evidence.absence) if evidence.absence else None,
    }
    return PreparedRequest(body, prompt, search_metadata, view=view, unsupported=unsupported, key=access.key)


def _needs_no_model(prompt: Prompt, body: Mapping[str, Any]) -> bool:
    """Whether there are no excerpts for the question, and the client expects neither a format of its own nor a call of its tools."""
    return prompt.found_nothing and uses_our_form(body) and not body.get("tools")


def _unsupported_handling(services: Services, options: ChatRetrieval, in_our_form: bool) -> Handling:
    """How to handle sentences that the passages do not support; ApiError 400 for an impossible request.

    A server that drops them by default only marks them if the client sets the format of the answer.
    """
    requested = options.unsupported
    if requested in ("mark", "drop") and not options.enabled:
        raise not_supported(UNSUPPORTED_FIELD, "without retrieval there are no passages to check the answer against")
    if requested == "drop" and not in_our_form:
        reason = "dropping a sentence may break the format that the request asks for; use mark"
        raise not_supported(UNSUPPORTED_FIELD, reason)
    handling = requested or services.settings.unsupported
    return "mark" if handling == "drop" and not in_our_form else handling


async def _prepare_task(services: Services, fields: Mapping[str, Any], task: Task) -> PreparedRequest:
    """A task of the client, ready for the engine: unchanged except that special tokens are escaped and the part that does not fit the window is left out."""
    escape, model = services.backend.escape_special_tokens, services.backend.language_model(fields["model"])
    limit = _limit_field(fields)
    escaped = Task(escape(task.system), escape(task.before), escape(task.history), escape(task.after))
    fitted, answer_tokens = await services.retriever.in_thread(partial(fit_task, escaped, model, fields[limit]))
    body = with_messages({**fields, limit: answer_tokens}, fitted.messages())
    return PreparedRequest(body, task=fitted)


def _limit_field(fields: Mapping[str, Any]) -> str:
    return "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"


async def _read_turn(services: Services, history: Sequence[Exchange], turn: str, model: LanguageModel) -> Question:
    try:
        question = await services.retriever.in_thread(partial(read_turn, history, turn, model))
    except ModelUnavailable:
        raise model_unavailable("the model's server stopped answering while it rewrote the question") from None
    if history:
        services.metrics.rewritten.labels(question.by).inc()
    return question


T = TypeVar("T")
Chunks = AsyncIterator[dict[str, Any]]


@dataclass(frozen=True)
class TextEnd:
    """The end of a text: OpenAI's finish reason, token counts, checks (those of `MessageParts.checks`), and unmarked citations."""

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    checks: dict[str, Any]
    unmarked_citations: Sequence[UnmarkedCitation]


async def complete(services: Services, prepared: PreparedRequest) -> tuple[PreparedRequest, dict[str, Any]]:
    """The request, shortened if the engine found its prompt too long, and its completion."""
    model = prepared.body["model"]
    if prepared.needs_no_model:
        completion = not_found_completion(prepared.body)
    else:
        time_spent = services.metrics.generation.labels(model).time()
        with time_spent, services.tracing.span("generate", {MODEL: model}) as span:
            prepared, completion = await call_until_it_fits(
                halvings(prepared), lambda part: services.backend.complete(part.body)
            )
            span.set(usage_values(completion.get("usage")))
    services.metrics.count_tokens(model, prepared.key, completion.get("usage"))
    return prepared, completion


async def open_stream(services: Services, prepared: PreparedRequest) -> tuple[PreparedRequest, Chunks]:
    """The request, as in `complete`, and its chunks, the last with the usage; a refusal of the engine is raised here."""
    if prepared.needs_no_model:
        return prepared, not_found_chunks(prepared.body)
    model = prepared.body["model"]
    with ExitStack() as stack:
        stack.enter_context(services.metrics.generation.labels(model).time())
        span = stack.enter_context(services.tracing.span("generate", {MODEL: model}))
        prepared, chunks = await call_until_it_fits(halvings(prepared), lambda part: services.backend.stream(part.body))
        return prepared, _with_metrics(services, chunks, model, prepared.key, span, stack.pop_all())


def parts_of(services: Services, prepared: PreparedRequest) -> MessageParts:
    """The parser for the text of one choice of this request."""
    form = uses_our_form(prepared.body)
    question = prepared.prompt.evidence.query if prepared.prompt is not None else ""
    return MessageParts(prepared.excerpts, form, prepared.unsupported, services.verifier, True, question)


async def feed_parts(prepared: PreparedRequest, work: Callable[[], T]) -> T:
    """The result of `work`, run in a thread if unsupported sentences are dropped, because checking sentences would block other requests."""
    return await asyncio.to_thread(work) if prepared.unsupported == "drop" else work()


async def stream_text(
    services: Services, prepared: PreparedRequest, chunks: Chunks, arrived_s: float
) -> AsyncIterator[MessageDelta | TextEnd]:
    """The text of `chunks`, which have one choice: each part once it can no longer change, with checked citations; finally a TextEnd."""
    parts = parts_of(services, prepared) if prepared.prompt is not None else PlainParts()
    model, began, reason, usage = prepared.body["model"], False, "stop", dict[str, int]()
    async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
        async for chunk in open_chunks:
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                reason = choice.get("finish_reason") or reason
                shown = await feed_parts(prepared, partial(parts.feed, choice.get("delta") or {}))
                if not began and (shown.reasoning or shown.content):
                    began = True
                    services.metrics.first_token.labels(model).observe(time.perf_counter() - arrived_s)
                yield shown
    yield await feed_parts(prepared, parts.finish)
    services.metrics.removed.inc(len(parts.removed))
    tokens = (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
    checks = await asyncio.to_thread(parts.checks)
    yield TextEnd(reason, *tokens, checks, await asyncio.to_thread(parts.unmarked_citations, checks))


async def _with_metrics(
    services: Services, chunks: Chunks, model: str, key: str, span: Span, measured: ExitStack
) -> Chunks:
    """The engine's chunks, unchanged; their tokens are recorded as metrics and in `span`, and the contexts in `measured` end with them."""
    with measured:
        async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
            async for chunk in open_chunks:
                span.set(usage_values(chunk.get("usage")))
                services.metrics.count_tokens(model, key, chunk.get("usage"))
                yield chunk
