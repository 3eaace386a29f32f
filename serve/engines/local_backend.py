"""An engine in this process (transformers or OpenVINO), for small machines: one request at a time, in a thread, streamed token by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from typing import Any

from starlette.responses import Response

from graph.errors import UserError
from graph.types import Completion, CompletionRequest, LanguageModel, Message
from serve.engines.chat_backend import Body, ChatBackend, head_of
from serve.engines.engine_fields import NEUTRAL_VALUES
from serve.engines.local import LocalModel, Sampling
from serve.http.errors import ApiError

SAMPLING_FIELDS = tuple(field.name for field in fields(Sampling))
SUPPORTED = frozenset(
    {"model", "messages", "max_tokens", "max_completion_tokens", "seed", "temperature", "n", "stop", *SAMPLING_FIELDS}
)
LOGPROBS = frozenset({"logprobs", "top_logprobs", "return_tokens_as_token_ids"})
"""Fields supported only for models that return log-probabilities, in requests that are not streamed and have no stop string."""
WITHOUT_EFFECT = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
"""Fields that are accepted and ignored, since they have no effect on the text."""


@dataclass(frozen=True)
class GenerationRequest:
    """A request in this engine's form: a call for each choice, the stop strings, and the sampling parameters.

    `opening` is the beginning of every reply, which is part of the prompt; no stop string is sought in it.
    """

    choices: tuple[CompletionRequest, ...]
    stops: tuple[str, ...]
    sampling: Sampling
    opening: str

    def cut(self, text: str) -> str:
        """The reply up to the first stop string."""
        return cut_at_stop(text, self.stops, len(self.opening))

    def finish_reason(self, completion: Completion) -> str:
        """The finish reason of a completion: "stop" also if a stop string ends it."""
        return "stop" if self.cut(completion.text) != completion.text else completion.finish_reason


class LocalBackend(ChatBackend):
    """`models` maps each name that a client can request to a model in memory; these models escape special tokens themselves."""

    def __init__(self, models: Mapping[str, LocalModel]) -> None:
        self.models = tuple(models)
        self._models_by_name = dict(models)

    async def complete(self, body: Body) -> dict[str, Any]:
        model = self._models_by_name[body["model"]]
        generation = read_request(body, model.reply_opening, model.takes_schema, model.gives_logps)
        completions: list[Completion] = []
        choices = []
        for index, request in enumerate(generation.choices):
            ids: list[int] = []
            async for output in _generate(model, request, generation, ids):
                if isinstance(output, Completion):
                    completions.append(output)
            choices.append(
                {
                    "index": index,
                    "message": {"role": "assistant", "content": generation.cut(completions[-1].text)},
                    "finish_reason": generation.finish_reason(completions[-1]),
                    **({"logprobs": await _logprobs(model, request, ids, body)} if body.get("logprobs") else {}),
                }
            )
        return {**head_of(body, "chat.completion"), "choices": choices, "usage": _usage(completions)}

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        model = self._models_by_name[body["model"]]
        chunks = self._chunks(read_request(body, model.reply_opening, model.takes_schema), body)
        return _preceded_by(await anext(chunks), chunks)

    async def respond(self, body: Body) -> Response:
        raise ApiError(404, "no_responses", "this engine has no /v1/responses; use /v1/chat/completions")

    def language_model(self, model: str) -> LanguageModel:
        return self._models_by_name[model]

    async def _chunks(self, generation: GenerationRequest, body: Body) -> AsyncGenerator[dict[str, Any]]:
        """The chunks of one choice after another, the first after the model has accepted the request; text is sent as soon as it can no longer change."""
        model = self._models_by_name[body["model"]]
        head, completions = head_of(body, "chat.completion.chunk"), []
        for index, request in enumerate(generation.choices):
            sent: str | None = None
            async for output in _generate(model, request, generation):
                if sent is None:
                    sent = ""
                    yield _chunk(head, index, {"role": "assistant", "content": ""})
                text = generation.cut(output.text if isinstance(output, Completion) else output)
                if not isinstance(output, Completion):
                    text = settled_text(text, generation.stops)
                if text.startswith(sent) and len(text) > len(sent):
                    yield _chunk(head, index, {"content": text[len(sent) :]})
                    sent = text
                if isinstance(output, Completion):
                    completions.append(output)
                    yield _chunk(head, index, {}, generation.finish_reason(output))
        yield {**head, "choices": [], "usage": _usage(completions)}


async def _preceded_by(first: dict[str, Any], rest: AsyncGenerator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    async with aclosing(rest):
        yield first
        async for chunk in rest:
            yield chunk


async def _logprobs(model: LocalModel, request: CompletionRequest, ids: list[int], body: Body) -> dict[str, Any]:
    """The log-probabilities of generated tokens in OpenAI's form; tokens are named by their ids with `return_tokens_as_token_ids`, as in vLLM."""

    def entry(token: int, logp: float) -> dict[str, Any]:
        text = model.token_text(token)
        name = f"token_id:{token}" if body.get("return_tokens_as_token_ids") else text
        return {"token": name, "logprob": logp, "bytes": list(text.encode())}

    logps = await asyncio.get_running_loop().run_in_executor(
        model.thread, model.token_logps, request, model.up_to_stop(ids), body.get("top_logprobs", 0)
    )
    content = [
        {**entry(each.token, each.logp), "top_logprobs": [entry(*candidate) for candidate in each.top]}
        for each in logps
    ]
    return {"content": content}


async def _generate(
    model: LocalModel, request: CompletionRequest, generation: GenerationRequest, generated: list[int] | None = None
) -> AsyncIterator[str | Completion]:
    """The text so far after each token, and finally the completion; a stop string, or closing the iterator, stops the generation.

    `generated` receives the token ids. ApiError 400 when the model refuses the request, for example a prompt that is too long.
    """
    loop, closed, stopped = asyncio.get_running_loop(), False, False
    texts: asyncio.Queue[str | None] = asyncio.Queue()

    def watch(ids: list[int]) -> bool:
        if generated is not None:
            generated[:] = ids
        nonlocal stopped
        text = model.text_of(model.up_to_stop(ids)).lstrip()
        stopped = generation.cut(text) != text
        loop.call_soon_threadsafe(texts.put_nowait, text)
        return closed or stopped

    running = loop.run_in_executor(model.thread, model.stream, request, watch, generation.sampling)
    running.add_done_callback(lambda _: texts.put_nowait(None))
    try:
        while (text := await texts.get()) is not None:
            yield text
        completion = await running
        yield replace(completion, finish_reason="stop") if stopped else completion
    except UserError as problem:
        raise ApiError(400, "refused_by_model", str(problem)) from None
    finally:
        closed = True


def read_request(body: Body, opening: str, takes_schema: bool, gives_logps: bool = False) -> GenerationRequest:
    """The body of a chat completion request as calls to a model whose replies begin with `opening`.

    ApiError 400 for tool calls, for a `logit_bias` whose keys are not token ids, and for an unsupported field with a value that would have
    an effect. Unsupported are, among others, an answer schema unless the engine `takes_schema`, and log-probabilities unless it
    `gives_logps` and the request has no stop string.
    """
    schema = _schema_of(body) if takes_schema else None
    supported = SUPPORTED | WITHOUT_EFFECT | ({"response_format"} if schema is not None else set())
    supported |= LOGPROBS if gives_logps and not body.get("stop") else set()
    for name in body.keys() - supported:
        if body[name] != NEUTRAL_VALUES.get(name):
            raise _not_supported(name)
    for number, turn in enumerate(body["messages"]):
        if turn["role"] in ("tool", "function") or turn.get("tool_calls") or turn.get("function_call"):
            raise _not_supported(f"messages.{number}: a tool call or its result")
    messages = tuple(
        Message("system" if turn["role"] == "developer" else turn["role"], turn.get("content") or "")
        for turn in body["messages"]
    )
    limit = body.get("max_completion_tokens") or body["max_tokens"]
    seed, temperature = body.get("seed"), body.get("temperature", 1.0)
    requests = tuple(
        CompletionRequest(messages, limit, temperature, None if seed is None else (seed + choice) % 2**63, schema)
        for choice in range(body.get("n", 1))
    )
    stop = body.get("stop", ())
    stops: tuple[str, ...] = (stop,) if isinstance(stop, str) else tuple(stop)
    sampling = {name: body[name] for name in SAMPLING_FIELDS if name in body}
    return GenerationRequest(requests, stops, Sampling(**sampling | _biases(sampling)), opening)


def _schema_of(body: Body) -> Mapping[str, Any] | None:
    """The JSON schema of the answer; None if the request has none."""
    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema") if form.get("type") == "json_schema" else None
    return schema if isinstance(schema, dict) else None


def _biases(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """`logit_bias` with token ids as integers instead of JSON's string keys; ApiError 400 for other keys."""
    biases = sampling.get("logit_bias", {})
    for token in biases:
        if not (token.isdecimal() and len(token) < 10):
            raise ApiError(400, "bad_value", f"logit_bias: the key {token[:80]!r} is not a token id", "logit_bias")
    return {"logit_bias": {int(token): value for token, value in biases.items()}}


def _not_supported(what: str) -> ApiError:
    name = what.partition(":")[0]
    return ApiError(
        400,
        "not_supported",
        f"{what}: the model on this server does not support it in this request; leave it out",
        name,
    )


def cut_at_stop(text: str, stops: Sequence[str], start: int = 0) -> str:
    """`text` up to the first occurrence of one of `stops` at or after `start`.

    >>> cut_at_stop("one. two. three", (". t", "z")), cut_at_stop("one. two. three", (". t",), 4)
    ('one', 'one. two')
    """
    positions = [position for position in (text.find(stop, start) for stop in stops) if position >= 0]
    return text[: min(positions)] if positions else text


def settled_text(text: str, stops: Sequence[str]) -> str:
    """The part of an unfinished text that will not change: without an incomplete character, white space at the end or a possible start of a stop string.

    >>> settled_text("one tw", ("two",)), settled_text("caf\\ufffd", ())
    ('one', 'caf')
    """
    complete = text.rstrip("\ufffd")
    withheld = max((n for stop in stops for n in range(1, len(stop)) if complete.endswith(stop[:n])), default=0)
    return complete[: len(complete) - withheld].rstrip()


def _chunk(head: Body, index: int, delta: Body, reason: str | None = None) -> dict[str, Any]:
    return {**head, "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def _usage(completions: Sequence[Completion]) -> dict[str, int]:
    prompt, generated = completions[0].prompt_tokens, sum(each.completion_tokens for each in completions)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
