"""Propositions by a language model (ToPG §2.1, HLG §6.2): one structured-output call a passage.

Calls go out in waves, two at a time, so that the model is never idle while one wave's slowest call ends, and nothing is
pulled from the documents before a wave has come back. A passage whose reply is unusable is asked for once more, in the next
wave; then it is a Failure. Every attempt has a seed of its own, so that a ledger of finished calls never answers a new one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

from graph.extract.domain import Domain
from graph.extract.reply import Reply, read_reply
from graph.extract.types import Failure, Reading, Waiting
from graph.shared.ids import content_id
from graph.shared.types import Completion, CompletionRequest, LanguageModel, Message, Passage
from graph.text.prompting import fill, quote, quote_passage, read_prompt
from graph.text.structured import BadReply, plain, strict_schema

READER = "llm"
WAVE_CALLS = 16
WAVES_IN_FLIGHT = 2
RETRY_TEMPERATURE = 0.7
"""Of passages that failed in an earlier run: at 0 the same model would write the same again."""
MAX_REPLY_CHARS = 2000
"""Of an unusable reply, shown to the model when it is asked again and kept in quarantine."""


@dataclass(frozen=True)
class Prompt:
    """What is said to the model besides the passage: few-shot examples, and the longest reply."""

    examples: str
    max_reply_tokens: int

    @property
    def version(self) -> str:
        """Changes with anything in the prompts or the schema."""
        parts = (
            read_prompt("graph/extract.txt"),
            read_prompt("graph/again.txt"),
            self.examples,
            str(strict_schema(Reply)),
        )
        return content_id(*parts)[:12]

    def request(self, passage: Passage, domain: Domain, attempt: int, first: bool) -> CompletionRequest:
        """The call for one passage; `attempt` counts all calls ever made for it, from 0."""
        types, topics = ", ".join(map(quote, domain.entity_types)), ", ".join(map(quote, domain.topics))
        system = fill(
            "graph/extract.txt",
            entity_types=f" (above all: {types})" if types else "",
            topics=f" (such as: {topics})" if topics else "",
            examples=self.examples,
        )
        return CompletionRequest(
            (Message("system", system), Message("user", quote_passage(passage.title, passage.text))),
            max_tokens=self.max_reply_tokens,
            temperature=0.0 if first else RETRY_TEMPERATURE,
            seed=attempt,
            schema=strict_schema(Reply),
        )


@dataclass(frozen=True)
class _Call:
    passage: Passage
    request: CompletionRequest
    attempt: int
    last: bool


def read_by_model(
    waiting: Iterator[Waiting], model: LanguageModel, prompt: Prompt, domain: Callable[[], Domain]
) -> Iterator[list[Reading]]:
    """Readings in groups, as waves of calls come back; `domain` is asked for once something waits. (A `Read` when bound.)

    Raises UserError when the model cannot answer at all; what was yielded before that stands.
    """
    new = (call for group in waiting for call in _first_calls(group, prompt, domain()))
    again: deque[_Call] = deque()
    running: deque[tuple[list[_Call], Future[list[Completion]]]] = deque()
    with ThreadPoolExecutor(WAVES_IN_FLIGHT, thread_name_prefix="wave") as pool:
        try:
            while True:
                while len(running) < WAVES_IN_FLIGHT and (wave := _next_wave(again, new)):
                    running.append((wave, pool.submit(model.complete, [call.request for call in wave])))
                if not running:
                    return
                wave, answers = running.popleft()
                readings: list[Reading] = []
                for call, completion in zip(wave, answers.result(), strict=True):
                    outcome = _outcome(call, completion)
                    again.append(outcome) if isinstance(outcome, _Call) else readings.append(outcome)
                yield readings
        finally:
            pool.shutdown(cancel_futures=True)


def _first_calls(waiting: Waiting, prompt: Prompt, domain: Domain) -> Iterator[_Call]:
    for passage in waiting.passages:
        request = prompt.request(passage, domain, waiting.attempts, first=waiting.attempts == 0)
        yield _Call(passage, request, waiting.attempts, last=False)


def _next_wave(again: deque[_Call], new: Iterator[_Call]) -> list[_Call]:
    """Calls to repeat before new ones."""
    wave = [again.popleft() for _ in range(min(len(again), WAVE_CALLS))]
    return wave + list(islice(new, WAVE_CALLS - len(wave)))


def _outcome(call: _Call, completion: Completion) -> Reading | _Call:
    """What a completed call comes to: occurrences, the call that asks again, or a failure (at once if it was refused)."""
    if completion.finish_reason == "refused":
        return Reading(call.passage, READER, failure=Failure(f"refused: {completion.text}", "", call.attempt + 1))
    try:
        if completion.finish_reason == "length":
            raise BadReply(f"it was cut at {call.request.max_tokens:,} tokens, so write fewer and shorter propositions")
        occurrences, dropped = read_reply(completion.text, call.passage)
    except BadReply as problem:
        reply = plain(completion.text)[:MAX_REPLY_CHARS]
        if call.last:
            return Reading(call.passage, READER, failure=Failure(str(problem), reply, call.attempt + 1))
        return _again(call, reply, str(problem))
    return Reading(call.passage, READER, occurrences, dropped)


def _again(call: _Call, reply: str, problem: str) -> _Call:
    """The same question, followed by the unusable reply and what was wrong with it."""
    turns = (Message("assistant", reply or "(nothing)"), Message("user", fill("graph/again.txt", problem=problem)))
    request = replace(call.request, messages=call.request.messages + turns, seed=call.attempt + 1)
    return _Call(call.passage, request, call.attempt + 1, last=True)
