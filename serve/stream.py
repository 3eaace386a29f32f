"""A model's text as it is written: reasoning and answer apart, the citations of both checked before they are shown.

`MessageParts` takes the text of one choice piece by piece, for HTTP, MCP and Python. `stream_answer` is what pipeline.py does at once,
over an engine that streams. Needs the extra `serve`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple

from graph.answer.citations import CitationGate, Mark, check_citations
from graph.answer.context import rank_excerpts, token_budget
from graph.answer.prompt import NOT_FOUND, FormSplitter, Part, with_title
from graph.answer.support import Handling, SupportChecker, SupportGate, Unsupported
from graph.answer.verifier import Verifier
from graph.errors import UserError
from graph.text.prompting import quote
from graph.types import Completion, Evidence, Excerpt, LanguageModel
from serve.citations import citation, url_citation
from serve.conversation.prompt import Prompt, fit_prompt, standalone_prompt
from serve.engines.chat_backend import TOO_LONG, ChatBackend
from serve.http.errors import ApiError
from serve.pipeline import Answer, cite

REASONING = "reasoning_content"
REASONING_FIELDS = (REASONING, "reasoning")
"""What engines call the thinking that they took out of a text themselves."""
NO_ANSWER = "The model wrote no answer."
QUOTED_CHARS = 600
"""How much of a passage stands in for an answer."""
_SECTION_GAP = "\n\n"
_BY_ENGINE = -1


class MessageDelta(NamedTuple):
    """What can be shown now; `marks` are the citations in `content`, their places those in the whole of it."""

    reasoning: str
    content: str
    marks: tuple[Mark, ...] = ()

    def then(self, later: MessageDelta) -> MessageDelta:
        """Both, one behind the other."""
        return MessageDelta(self.reasoning + later.reasoning, self.content + later.content, self.marks + later.marks)


class MessageParts:
    """Takes the text of one choice piece by piece. Without `form` all of it is content: a client's own format.

    `handling` says what is done with sentences that the passages do not support; the verifier reads them as they end where they are
    dropped, and else at the end. With `stand_in` a text without an answer gets one at its end: that there is none, and the best passage.
    """

    def __init__(
        self,
        excerpts: Sequence[Excerpt],
        form: bool,
        handling: Handling = "mark",
        verifier: Verifier | None = None,
        stand_in: bool = False,
    ) -> None:
        self._excerpts = excerpts
        self._stand_in = stand_in and form
        self._splitter = FormSplitter() if form else None
        reading = SupportChecker(excerpts, None if handling == "ignore" else verifier)
        self._reasoning, self._content = (
            _Field(name, len(excerpts), reading, handling == "drop") for name in (REASONING, "content")
        )
        self._told = 0

    @property
    def answered(self) -> bool:
        """Whether the model wrote an answer so far; where it did not, another text stands in its place."""
        return self._content.has_words

    @property
    def removed(self) -> tuple[int, ...]:
        """The numbers that the text cited and no passage has, in order of first use."""
        return _union(self._reasoning.gate.removed, self._content.gate.removed)

    def unsupported(self) -> list[dict[str, Any]]:
        """The sentences that the passages do not seem to say, once the text has ended: `part` is the field of the message."""
        return [asdict(sentence) for field in (self._reasoning, self._content) for sentence in field.unsupported()]

    def fields(self, base: str) -> dict[str, Any]:
        """The extra fields of a message: its citations with their places, those of the content as annotations, what was removed, the
        sentences that the passages do not support, and whether the model wrote an answer.
        """
        marks = (*self._reasoning.marks, *self._content.marks)
        return {
            "citations": [
                citation(number, self._excerpts[number - 1]) for number in _union([mark.number for mark in marks])
            ],
            "annotations": [url_citation(mark, self._excerpts[mark.number - 1], base) for mark in self._content.marks],
            "removed": list(self.removed),
            "unsupported": self.unsupported(),
            "answered": self.answered,
        }

    def feed(self, said: Mapping[str, Any]) -> MessageDelta:
        """What can be shown of the text up to the next piece: a message or a delta as the engine gave it."""
        self._stand_in = self._stand_in and not (said.get("tool_calls") or said.get("function_call"))
        thought, text = reasoning_and_text(said)
        parts = [Part(_BY_ENGINE, "thinking", thought)] if thought else []
        if text:
            parts += self._splitter.feed(text) if self._splitter is not None else [Part(0, "text", text)]
        return self._show(parts)

    def finish(self) -> MessageDelta:
        """The rest, at the end of the text."""
        shown = self._show(self._splitter.finish() if self._splitter is not None else [])
        shown = shown.then(self._marked(self._reasoning.finish(), self._content.finish()))
        if not self._stand_in or self.answered:
            return shown
        self._stand_in = False
        return shown.then(self._marked("", self._content.stand_in(stand_in(self._excerpts))))

    def _show(self, parts: Sequence[Part]) -> MessageDelta:
        reasoning, content = "", ""
        for part in parts:
            if part.is_reasoning:
                content += self._content.finish()
                reasoning += self._reasoning.feed(part)
            else:
                reasoning += self._reasoning.finish()
                content += self._content.feed(part)
        return self._marked(reasoning, content)

    def _marked(self, reasoning: str, content: str) -> MessageDelta:
        """Texts with the citations that are new in the content."""
        marks = self._content.marks[self._told :]
        self._told += len(marks)
        return MessageDelta(reasoning, content, marks)


def stand_in(excerpts: Sequence[Excerpt]) -> str:
    """What is shown in place of an answer that is empty: the beginning of the best passage, which comes first."""
    if not excerpts:
        return NO_ANSWER
    words = quote(check_citations(with_title(excerpts[0]), 0).text)
    passage = words if len(words) <= QUOTED_CHARS else f"{words[:QUOTED_CHARS].rpartition(' ')[0]} …"
    return f"{NO_ANSWER} The passage that is nearest to the question: {passage} [1]"


class PlainParts:
    """As MessageParts for a text that was not written from passages: it is shown as it comes."""

    removed: tuple[int, ...] = ()
    answered = True

    def unsupported(self) -> list[dict[str, Any]]:
        """There is nothing to hold it to."""
        return []

    def feed(self, said: Mapping[str, Any]) -> MessageDelta:
        """The next piece."""
        return MessageDelta(*reasoning_and_text(said))

    def finish(self) -> MessageDelta:
        """Nothing was held back."""
        return MessageDelta("", "")


def reasoning_and_text(said: Mapping[str, Any]) -> tuple[str, str]:
    """The thinking that an engine took out itself, and the text, of a message or a delta."""
    thought = next((said[name] for name in REASONING_FIELDS if said.get(name)), "")
    return thought, said.get("content") or ""


def uses_our_form(body: Mapping[str, Any]) -> bool:
    """Whether a request leaves the form of the answer to us: it asks for no format of its own."""
    wanted = body.get("response_format") or {}
    return wanted.get("type", "text") == "text" and not body.get("structured_outputs")


class _Field:
    """One field of a message: the sections that go to it, an empty line between two, through the gates."""

    def __init__(self, name: str, passages: int, reading: SupportChecker, drops: bool) -> None:
        self.gate = CitationGate(passages)
        self._name, self._passages, self._reading = name, passages, reading
        self._support = SupportGate(name, reading) if drops else None
        self._cited = 0
        self._section: int | None = None
        self.has_words = False
        """Whether the model wrote any, beside citations of nothing."""
        self._shown_chars = 0
        self._stand_in_marks: tuple[Mark, ...] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The citations in what was shown."""
        return self._stand_in_marks or (self.gate.marks if self._support is None else self._support.marks)

    def unsupported(self) -> list[Unsupported]:
        """The sentences that the passages do not seem to say."""
        if self._support is not None:
            return self._support.dropped
        return self._reading.unsupported(self._name, self.gate.shown)

    def feed(self, part: Part) -> str:
        if not part.text:
            return ""
        first = self._section in (None, part.section)
        self._section = part.section
        return self._shown(self._kept(self.gate.feed(part.text if first else _SECTION_GAP + part.text)))

    def finish(self) -> str:
        rest = self._kept(self.gate.finish())
        return self._shown(rest if self._support is None else rest + self._support.finish())

    def stand_in(self, text: str) -> str:
        """A text behind all that was shown, which is not the model's: no verifier reads it."""
        gate = CitationGate(self._passages)
        checked = gate.feed(text) + gate.finish()
        self._stand_in_marks = tuple(mark.later(self._shown_chars) for mark in gate.marks)
        return self._shown(checked)

    def _shown(self, text: str) -> str:
        self._shown_chars += len(text)
        return text

    def _kept(self, checked: str) -> str:
        self.has_words = self.has_words or bool(checked.strip())
        if self._support is None:
            return checked
        marks = self.gate.marks[self._cited :]
        self._cited += len(marks)
        return self._support.feed(checked, marks)


def _union(*numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for each in numbers for number in each))


class AnswerDelta(NamedTuple):
    """Some text of the reason or of the answer."""

    part: Literal["reason", "answer"]
    text: str


async def stream_answer(
    evidence: Evidence,
    top_k: int,
    max_context_tokens: int | None,
    backend: ChatBackend,
    max_answer_tokens: int,
    verifier: Verifier | None = None,
) -> AsyncIterator[AnswerDelta | Answer]:
    """The text over the best `top_k` excerpts as it comes, then the answer. Closing this ends the generation.

    UserError when the engine refuses or goes away.
    """
    name = backend.models[0]
    started = time.perf_counter()
    prompt, limit = await asyncio.to_thread(
        _fitted_prompt, evidence, top_k, max_context_tokens, backend, backend.language_model(name), max_answer_tokens
    )
    said, parts = StreamedReply(), MessageParts(prompt.excerpts, form=True)
    if not prompt.ranked:
        said.text, said.finish_reason = NOT_FOUND, "stop"
        shown = parts.feed({"content": NOT_FOUND})
        for written in (*_answer_deltas(shown), *_answer_deltas(parts.finish())):
            yield written
    else:
        try:
            prompt, chunks = await _open_chunks(backend, name, prompt, limit)
            parts = MessageParts(prompt.excerpts, form=True)
            async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
                async for chunk in open_chunks:
                    for delta in said.take(chunk):
                        for written in _answer_deltas(parts.feed(delta)):
                            yield written
        except ApiError as problem:
            raise UserError(f"{name}: {problem}", "", "") from None
        for written in _answer_deltas(parts.finish()):
            yield written
    seconds = time.perf_counter() - started
    yield cite(prompt, said.completion(), name, seconds, verifier)


class StreamedReply:
    """The text of the one choice of a stream, why it ended, and its tokens."""

    def __init__(self) -> None:
        self.text = ""
        self.finish_reason = "length"
        self._usage: dict[str, int] = {}

    def take(self, chunk: dict[str, Any]) -> list[dict[str, Any]]:
        """The deltas of a chunk."""
        self._usage = chunk.get("usage") or self._usage
        deltas = []
        for choice in chunk["choices"]:
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            deltas.append(delta)
        return deltas

    def completion(self) -> Completion:
        """What came back, as a whole."""
        reason: Literal["stop", "length"] = "length" if self.finish_reason == "length" else "stop"
        tokens = (self._usage.get("prompt_tokens", 0), self._usage.get("completion_tokens", 0))
        return Completion(self.text.strip(), reason, *tokens)


def _fitted_prompt(
    evidence: Evidence,
    top_k: int,
    max_context_tokens: int | None,
    backend: ChatBackend,
    model: LanguageModel,
    max_answer_tokens: int,
) -> tuple[Prompt, int]:
    ranked = rank_excerpts(evidence, top_k, token_budget(max_context_tokens, model.count_tokens))
    return fit_prompt(
        replace(standalone_prompt(evidence, ranked), escape=backend.escape_special_tokens), model, max_answer_tokens
    )


async def _open_chunks(
    backend: ChatBackend, name: str, prompt: Prompt, max_answer_tokens: int
) -> tuple[Prompt, AsyncIterator[dict[str, Any]]]:
    """The engine's chunks, and of which prompt: where it finds it too long, it is asked again with half of it."""
    while True:
        messages = [{"role": turn.role, "content": turn.content} for turn in prompt.messages()]
        body = {"model": name, "messages": messages, "max_tokens": max_answer_tokens, "temperature": 0.0}
        try:
            return prompt, await backend.stream(body)
        except ApiError as problem:
            less = prompt.halved() if problem.code == TOO_LONG else None
            if less is None:
                raise
            prompt = less


def _answer_deltas(shown: MessageDelta) -> list[AnswerDelta]:
    both = (AnswerDelta("reason", shown.reasoning), AnswerDelta("answer", shown.content))
    return [each for each in both if each.text]
