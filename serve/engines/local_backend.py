"""An engine in this process (transformers or OpenVINO), for small machines: one request at a time, in a thread, streamed token by token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import uuid4

from starlette.responses import Response

from graph.errors import UserError
from graph.types import Completion, CompletionRequest, LanguageModel, Message
from serve.engines.chat_backend import Body
from serve.engines.local import LocalModel, Sampling
from serve.http.errors import ApiError

SAMPLING = tuple(each.name for each in fields(Sampling))
SUPPORTED = frozenset(
    {"model", "messages", "max_tokens", "max_completion_tokens", "seed", "temperature", "n", "stop", *SAMPLING}
)
LOGPROBS = frozenset({"logprobs", "top_logprobs", "return_tokens_as_token_ids"})
"""Fields that a model which gives them heeds, of a whole text that no stop cuts."""
WITHOUT_EFFECT = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
"""Fields that change nothing of what is written; all others are refused."""
NEUTRAL_VALUES: Mapping[str, Any] = {
    "logprobs": False,
    "top_logprobs": 0,
    "return_tokens_as_token_ids": False,
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "include_reasoning": True,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "skip_special_tokens": True,
    "use_beam_search": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "min_tokens": 0,
}
"""Values of those that ask for nothing."""


@dataclass(frozen=True)
class GenerationRequest:
    """A request as this engine takes it: one call for each choice, and the texts that end an answer."""

    choices: tuple[CompletionRequest, ...]
    stops: tuple[str, ...]
    sampling: Sampling

    def reason(self, made: Completion) -> str:
        """Why a text ended."""
        return "stop" if cut_at_stop(made.text, self.stops) != made.text else made.finish_reason


class LocalBackend:
    """`opened` maps the names that clients ask for to models in memory, which break special tokens by themselves."""

    def __init__(self, opened: Mapping[str, LocalModel]) -> None:
        self.models = tuple(opened)
        self._opened = dict(opened)

    async def start(self) -> None:
        """Nothing: the models are in memory."""

    async def close(self) -> None:
        """Nothing: a wanted that still runs is told to end by its request."""

    async def check(self) -> None:
        """Nothing: what is in memory is there."""

    async def complete(self, body: Body) -> dict[str, Any]:
        model = self._opened[body["model"]]
        wanted = read_request(body, model.takes_schema, model.gives_logps)
        made: list[Completion] = []
        choices = []
        for index, request in enumerate(wanted.choices):
            ids: list[int] = []
            async for each in _generate(model, request, wanted.sampling, ids):
                if isinstance(each, Completion):
                    made.append(each)
            choices.append(
                {
                    "index": index,
                    "message": {"role": "assistant", "content": cut_at_stop(made[-1].text, wanted.stops)},
                    "finish_reason": wanted.reason(made[-1]),
                    **({"logprobs": await _logprobs(model, request, ids, body)} if body.get("logprobs") else {}),
                }
            )
        return {**_head(body, "chat.completion"), "choices": choices, "usage": _usage(made)}

    async def stream(self, body: Body) -> AsyncIterator[dict[str, Any]]:
        return self._chunks(read_request(body, self._opened[body["model"]].takes_schema), body)

    async def respond(self, body: Body) -> Response:
        raise ApiError(404, "no_responses", "this engine has no /v1/responses; use /v1/chat/completions")

    def language_model(self, model: str) -> LanguageModel:
        return self._opened[model]

    def escape_special_tokens(self, text: str) -> str:
        return text

    async def _chunks(self, wanted: GenerationRequest, body: Body) -> AsyncIterator[dict[str, Any]]:
        """Choice after choice, each text as far as it is certain."""
        head, made = _head(body, "chat.completion.chunk"), []
        for index, request in enumerate(wanted.choices):
            shown = ""
            yield _chunk(head, index, {"role": "assistant", "content": ""})
            async for each in _generate(self._opened[body["model"]], request, wanted.sampling):
                text = (
                    cut_at_stop(each.text, wanted.stops)
                    if isinstance(each, Completion)
                    else settled_text(each, wanted.stops)
                )
                if text.startswith(shown) and len(text) > len(shown):
                    yield _chunk(head, index, {"content": text[len(shown) :]})
                    shown = text
                if isinstance(each, Completion):
                    made.append(each)
                    yield _chunk(head, index, {}, wanted.reason(each))
        yield {**head, "choices": [], "usage": _usage(made)}


async def _logprobs(model: LocalModel, request: CompletionRequest, ids: list[int], body: Body) -> dict[str, Any]:
    """The log-probabilities of written tokens in OpenAI's form, tokens named by their ids where the request asks for that (vLLM's)."""

    def entry(token: int, logp: float) -> dict[str, Any]:
        text = model.token_text(token)
        name = f"token_id:{token}" if body.get("return_tokens_as_token_ids") else text
        return {"token": name, "logprob": logp, "bytes": list(text.encode())}

    told = await asyncio.to_thread(model.token_logps, request, model.up_to_stop(ids), body.get("top_logprobs", 0))
    return {
        "content": [
            {**entry(each.token, each.logp), "top_logprobs": [entry(*likely) for likely in each.top]} for each in told
        ]
    }


async def _generate(
    model: LocalModel, request: CompletionRequest, sampling: Sampling, written: list[int] | None = None
) -> AsyncIterator[str | Completion]:
    """The text so far, again and again while it is written, and then the completion; closing this ends it.

    The tokens are put into `written`. ApiError 400 when the prompt is too long for the model.
    """
    loop, ended = asyncio.get_running_loop(), False
    texts: asyncio.Queue[str | None] = asyncio.Queue()

    def watch(ids: list[int]) -> bool:
        if written is not None:
            written[:] = ids
        loop.call_soon_threadsafe(texts.put_nowait, model.text_of(ids))
        return ended

    work = asyncio.ensure_future(asyncio.to_thread(model.stream, request, watch, sampling))
    work.add_done_callback(lambda _: texts.put_nowait(None))
    try:
        while (text := await texts.get()) is not None:
            yield text
        yield await work
    except UserError as problem:
        raise ApiError(400, "refused_by_model", str(problem)) from None
    finally:
        ended = True


def read_request(body: Body, takes_schema: bool = False, gives_logps: bool = False) -> GenerationRequest:
    """A chat completion's body as calls of the model; ApiError 400 for what this engine cannot do.

    A schema for the answer is one of these unless the engine `takes_schema`, and so are log-probabilities unless it `gives_logps`.
    """
    schema = _schema_of(body) if takes_schema else None
    heeded = SUPPORTED | WITHOUT_EFFECT | ({"response_format"} if schema is not None else set())
    heeded |= LOGPROBS if gives_logps and not body.get("stop") else set()
    for name in body.keys() - heeded:
        if body[name] != NEUTRAL_VALUES.get(name):
            raise _not_supported(name)
    for number, turn in enumerate(body["messages"]):
        if turn["role"] in ("tool", "function") or turn.get("tool_calls") or turn.get("function_call"):
            raise _not_supported(f"messages.{number}: a call of a tool")
    messages = tuple(Message(_role(turn["role"]), turn.get("content") or "") for turn in body["messages"])
    limit = body.get("max_completion_tokens") or body["max_tokens"]
    seed, temperature = body.get("seed"), body.get("temperature", 1.0)
    requests = tuple(
        CompletionRequest(messages, limit, temperature, None if seed is None else (seed + choice) % 2**63, schema)
        for choice in range(body.get("n", 1))
    )
    stop = body.get("stop", ())
    given = {name: body[name] for name in SAMPLING if name in body}
    return GenerationRequest(
        requests, (stop,) if isinstance(stop, str) else tuple(stop), Sampling(**given | _biases(given))
    )


def _schema_of(body: Body) -> Mapping[str, Any] | None:
    """The schema that the answer must have; None where none is asked for."""
    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema") if form.get("type") == "json_schema" else None
    return schema if isinstance(schema, dict) else None


def _biases(given: Mapping[str, Any]) -> dict[str, Any]:
    """`logit_bias` with the tokens that JSON writes as text as numbers; ApiError 400 for others."""
    biases = given.get("logit_bias", {})
    if not all(token.isdecimal() and len(token) < 10 for token in biases):
        raise ApiError(400, "bad_value", "logit_bias: expected ids of tokens as its keys", "logit_bias")
    return {"logit_bias": {int(token): value for token, value in biases.items()}}


def _not_supported(what: str) -> ApiError:
    name = what.partition(":")[0]
    return ApiError(400, "not_supported", f"{what}: the model on this server cannot follow it; leave it out", name)


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """A text up to the first of `stops` in it.

    >>> cut_at_stop("one. two. three", (". t", "z"))
    'one'
    """
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return text[: min(places)] if places else text


def settled_text(text: str, stops: Sequence[str]) -> str:
    """What of an unfinished text will stay: not the half of a character, outer white space or what may begin a stop.

    >>> settled_text(" one tw", ("two",)), settled_text("caf\\ufffd", ())
    ('one', 'caf')
    """
    whole = cut_at_stop(text.lstrip(), stops).rstrip("\ufffd")
    held = max((n for stop in stops for n in range(1, len(stop)) if whole.endswith(stop[:n])), default=0)
    return whole[: len(whole) - held].rstrip()


def _role(role: str) -> Any:
    return {"developer": "system"}.get(role, role)


def _head(body: Body, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": body["model"]}


def _chunk(head: Body, index: int, delta: Body, reason: str | None = None) -> dict[str, Any]:
    return {**head, "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def _usage(made: Sequence[Completion]) -> dict[str, int]:
    prompt, written = (made[0].prompt_tokens if made else 0), sum(each.completion_tokens for each in made)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
