"""A model's text as it is generated: reasoning and answer separated, the citations of both checked before they are shown.

`MessageParts` takes the text of one choice piece by piece, for HTTP, MCP and Python. `stream_answer` is the streaming form of pipeline.py.
Needs the extra `serve`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple

from graph.answer.attribution import Citation, cite_excerpts
from graph.answer.citations import CitationGate, Mark, check_citations
from graph.answer.context import rank_excerpts, token_budget
from graph.answer.prompt import NOT_FOUND, FormSplitter, Part, with_title
from graph.answer.support import (
    Handling,
    NotChecked,
    SupportChecker,
    SupportGate,
    Unsupported,
    lacks_sentences,
    refuses,
    statements_of,
)
from graph.answer.verifier import Verifier
from graph.errors import UserError
from graph.text.prompting import quote
from graph.types import Completion, Evidence, Excerpt, Message
from serve.citations import citation, url_citation
from serve.conversation.prompt import Prompt, fit_prompt, halvings, standalone_prompt
from serve.engines.chat_backend import ChatBackend, call_until_it_fits, not_found_chunks
from serve.http.errors import ApiError
from serve.pipeline import Answer, cite

REASONING = "reasoning_content"
REASONING_FIELDS = (REASONING, "reasoning")
"""Fields in which engines return reasoning that they have already separated from the text."""
NO_ANSWER = "The model wrote no answer."
QUOTED_CHARS = 600
"""The largest number of characters of a passage that is quoted instead of an answer."""
_SECTION_GAP = "\n\n"
_ENGINE_SECTION = -1
"""The section number of reasoning that the engine itself has separated."""


class MessageDelta(NamedTuple):
    """Text that can be shown; `marks` are the citations in `content`, with offsets into the full content."""

    reasoning: str
    content: str
    marks: tuple[Mark, ...] = ()

    def then(self, following: MessageDelta) -> MessageDelta:
        """This delta and the following one, joined."""
        return MessageDelta(
            self.reasoning + following.reasoning, self.content + following.content, self.marks + following.marks
        )


class UnmarkedCitation(NamedTuple):
    """A citation without an [n] in the content: a passage that the reason cites, or a sentence of passage `mark.number` that modegraph found for
    `statement`, a sentence of the content. The mark is empty and lies at the end of the statement, or of the content.
    """

    mark: Mark
    excerpt: Excerpt
    statement: str | None = None


class MessageParts:
    """Takes the text of one choice piece by piece. Without `form`, all of it is content in the client's own format, which is not changed.

    `handling` decides what happens to sentences that the passages do not support. With "drop", the verifier checks each paragraph as it ends,
    and if no sentence of the answer remains, "not in the documents" takes their place; with "mark", the whole text is checked at the end;
    with "ignore", nothing is checked. With `fallback`, a note and the best passage are appended to text without an answer, unless the client set
    the format or the model called a tool. `question` is the question that the text answers. Without `thinking`, a thinking block is
    not shown.
    """

    def __init__(
        self,
        excerpts: Sequence[Excerpt],
        form: bool,
        handling: Handling = "mark",
        verifier: Verifier | None = None,
        fallback: bool = False,
        question: str = "",
        thinking: bool = True,
    ) -> None:
        self._excerpts, self._question, self._thinking = excerpts, question, thinking
        self._fallback = fallback and form
        self._splitter = FormSplitter() if form else None
        checker = SupportChecker(excerpts, None if handling == "ignore" else verifier, question)
        self._reasoning = _Field(REASONING, len(excerpts), checker, handling == "drop")
        self._content = _Field("content", len(excerpts), checker, handling == "drop", unchanged=not form)
        self._sent_marks = 0

    @property
    def answered(self) -> bool:
        """Whether the model has written an answer so far; the fallback does not count."""
        return self._content.has_words

    @property
    def removed(self) -> tuple[int, ...]:
        """The cited numbers without a passage, in order of first use."""
        return tuple(dict.fromkeys((*self._reasoning.gate.removed, *self._content.gate.removed)))

    def checks(self) -> dict[str, Any]:
        """The findings about the text, once it is complete: removed numbers, sentences that the passages do not seem to support and sentences
        that cannot be judged (each with the field of the message that contains it as `part`), how many were judged (None if the check is
        off), and whether the model wrote an answer.
        """
        fields = (self._reasoning, self._content)
        counts = [count for field in fields if (count := field.checked()) is not None]
        return {
            "removed": list(self.removed),
            "unsupported": [asdict(sentence) for field in fields for sentence in field.unsupported()],
            "not_checked": [asdict(sentence) for field in fields for sentence in field.not_checked()],
            "checked": sum(counts) if counts else None,
            "answered": self.answered,
        }

    def fields(self, base: str) -> dict[str, Any]:
        """The extra fields of a message: its citations (attributed ones if the model cites nothing), annotations for the model's own
        citations in the content, and its checks.
        """
        checks = self.checks()
        return {
            "citations": [citation(number, found) for number, found in self._cited(checks).items()],
            "annotations": [url_citation(mark, self._excerpts[mark.number - 1], base) for mark in self._content.marks],
            **checks,
        }

    def unmarked_citations(self, checks: Mapping[str, Any]) -> list[UnmarkedCitation]:
        """The citations of an answer that contains no [n], in the answer's order; none for a refusal. `checks` are the checks of the complete text."""
        content = self._content.shown
        statements = list(statements_of(content, len(self._excerpts), self._question))
        if self._content.marks or all(refuses(statement.words) for statement in statements):
            return []
        ends, last = {statement.text: statement.end for statement in reversed(statements)}, len(content.rstrip())
        found = []
        for number, cited in self._cited(checks).items():
            if not cited.attributed:
                found.append(UnmarkedCitation(Mark(number, last, last), self._excerpts[number - 1]))
                continue
            for quoted in cited.quotes:
                end = ends.get(quoted.statement, last)
                found.append(UnmarkedCitation(Mark(number, end, end), cited.sentence(quoted), quoted.statement))
        return sorted(found, key=lambda each: each.mark.start)

    def _cited(self, checks: Mapping[str, Any]) -> dict[int, Citation]:
        unsupported = {sentence["text"] for sentence in checks["unsupported"]}
        content = self._content.shown if self._splitter is not None else prose_in(self._content.shown)
        return cite_excerpts(self._question, self._reasoning.without_thinking, content, self._excerpts, unsupported)

    def feed(self, piece: Mapping[str, Any]) -> MessageDelta:
        """The text that can be shown after the next piece, a message or a delta of the engine."""
        self._fallback = self._fallback and not (piece.get("tool_calls") or piece.get("function_call"))
        thinking, text = reasoning_and_text(piece)
        parts = [Part(_ENGINE_SECTION, "thinking", thinking)] if thinking else []
        if text:
            parts += self._splitter.feed(text) if self._splitter is not None else [Part(0, "text", text)]
        return self._show(parts)

    def finish(self) -> MessageDelta:
        """The remaining text, at the end; none after the first call."""
        shown = self._show(self._splitter.finish() if self._splitter is not None else [])
        shown = shown.then(self._delta_of(self._reasoning.finish(), self._content.finish()))
        if self._splitter is not None and self._content.is_emptied:
            refusal = _SECTION_GAP + NOT_FOUND if self._content.shown else NOT_FOUND
            shown = shown.then(self._delta_of("", self._content.append(refusal)))
        if not self._fallback or self.answered:
            return shown
        self._fallback = False
        return shown.then(self._delta_of("", self._content.append_fallback(fallback_answer(self._excerpts))))

    def _show(self, parts: Sequence[Part]) -> MessageDelta:
        reasoning, content = "", ""
        for part in parts:
            if part.is_reasoning:
                content += self._content.finish()
                if self._thinking or part.kind != "thinking":
                    reasoning += self._reasoning.feed(part)
            else:
                reasoning += self._reasoning.finish()
                content += self._content.feed(part)
        return self._delta_of(reasoning, content)

    def _delta_of(self, reasoning: str, content: str) -> MessageDelta:
        """A delta of these texts and the citations that are new in the content."""
        marks = self._content.marks[self._sent_marks :]
        self._sent_marks += len(marks)
        return MessageDelta(reasoning, content, marks)


def fallback_answer(excerpts: Sequence[Excerpt]) -> str:
    """The text that replaces an empty answer: a note and the beginning of the first passage, which is the best; without passages, only the note."""
    if not excerpts:
        return NO_ANSWER
    quotation = quote(check_citations(with_title(excerpts[0]), 0).text)
    if len(quotation) > QUOTED_CHARS:
        end = quotation.rfind(" ", QUOTED_CHARS // 2, QUOTED_CHARS)  # -1 in a language without spaces
        quotation = f"{quotation[: end if end > 0 else QUOTED_CHARS]} …"
    return f"{NO_ANSWER} The passage that best matches the question: {quotation} [1]"


class PlainParts:
    """Like MessageParts, for text that is not based on passages: it is shown unchanged and is not checked."""

    removed: tuple[int, ...] = ()

    def checks(self) -> dict[str, Any]:
        return {"removed": [], "unsupported": [], "not_checked": [], "checked": None, "answered": True}

    def unmarked_citations(self, checks: Mapping[str, Any]) -> list[UnmarkedCitation]:
        return []

    def feed(self, piece: Mapping[str, Any]) -> MessageDelta:
        return MessageDelta(*reasoning_and_text(piece))

    def finish(self) -> MessageDelta:
        return MessageDelta("", "")


def reasoning_and_text(piece: Mapping[str, Any]) -> tuple[str, str]:
    """The reasoning that the engine itself separated, and the text, of a message or a delta."""
    thinking = next((piece[name] for name in REASONING_FIELDS if piece.get(name)), "")
    return thinking, piece.get("content") or ""


def uses_our_form(body: Mapping[str, Any]) -> bool:
    """Whether the answer to a request has modegraph's form: true unless the request sets another format."""
    response_format = body.get("response_format") or {}
    return response_format.get("type", "text") == "text" and not (body.get("structured_outputs") or body.get("grammar"))


def prose_in(text: str) -> str:
    """The strings in a JSON object or list, as paragraphs; any other text unchanged.

    >>> prose_in('{"builder": "the Marlow Yard [1]", "years": [1911]}'), prose_in("1911 [1]")
    ('the Marlow Yard [1]', '1911 [1]')
    """
    try:
        value = json.loads(text)
        return "\n\n".join(_strings_in(value)) if isinstance(value, dict | list) else text
    except (ValueError, RecursionError):
        return text


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings_in(child)


class _Field:
    """One field of a message: its sections, joined by empty lines and passed through the citation gate (unless the text is to be `unchanged`) and,
    to drop sentences, the support gate.
    """

    def __init__(
        self, name: str, passages: int, checker: SupportChecker, drop_unsupported: bool, unchanged: bool = False
    ) -> None:
        self.gate = CitationGate(passages)
        self._name, self._passages, self._checker, self._unchanged = name, passages, checker, unchanged
        self._support = SupportGate(name, checker) if drop_unsupported else None
        self._cited = 0
        self._section: int | None = None
        self._is_thinking = False
        self.has_words = False
        """Whether the model wrote any text other than citations without a passage."""
        self._shown: list[tuple[str, bool]] = []
        """Pieces of text, and whether each belongs to a thinking block."""
        self._fallback_marks: tuple[Mark, ...] = ()

    @property
    def shown(self) -> str:
        """The text shown so far."""
        return "".join(text for text, _ in self._shown)

    @property
    def without_thinking(self) -> str:
        """The text shown so far, without thinking blocks."""
        return "".join(text for text, is_thinking in self._shown if not is_thinking)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The citations in the text shown so far."""
        return self._fallback_marks or (self.gate.marks if self._support is None else self._support.marks)

    @property
    def is_emptied(self) -> bool:
        """Whether sentences were dropped and no other one remains of the complete text."""
        return self._support is not None and bool(self._support.dropped) and lacks_sentences(self.shown)

    def unsupported(self) -> list[Unsupported]:
        """The sentences that the passages do not seem to support."""
        if self._support is not None:
            return self._support.dropped
        return self._checker.unsupported(self._name, self._judged)

    def not_checked(self) -> list[NotChecked]:
        """The sentences that cannot be judged."""
        return self._checker.not_checked(self._name, self._judged)

    def checked(self) -> int | None:
        """The number of sentences that were judged, including dropped sentences; None if the check is off."""
        count = self._checker.count_checked(self._judged)
        return None if count is None else count + len(self._support.dropped if self._support is not None else ())

    @property
    def _judged(self) -> str:
        """The text to judge; none if a passage replaces the answer."""
        return "" if self._fallback_marks else self.shown

    def feed(self, part: Part) -> str:
        if not part.text:
            return ""
        rest, text = "", part.text
        if self._section not in (None, part.section):
            rest, text = self.finish(), _SECTION_GAP + part.text
        self._section, self._is_thinking = part.section, part.kind == "thinking"
        return rest + self.append(self._check_support(text if self._unchanged else self.gate.feed(text)))

    def finish(self) -> str:
        rest = self._check_support(self.gate.finish())
        return self.append(rest if self._support is None else rest + self._support.finish())

    def append_fallback(self, text: str) -> str:
        """Append text that the model did not write; it is not checked for support."""
        gate = CitationGate(self._passages)
        checked = gate.feed(text) + gate.finish()
        self._fallback_marks = tuple(mark.shifted(len(self.shown)) for mark in gate.marks)
        return self.append(checked)

    def append(self, text: str) -> str:
        """Append text unchanged."""
        self._shown.append((text, self._is_thinking))
        return text

    def _check_support(self, checked: str) -> str:
        self.has_words = self.has_words or bool(checked.strip())
        if self._support is None:
            return checked
        marks = self.gate.marks[self._cited :]
        self._cited += len(marks)
        return self._support.feed(checked, marks)


class AnswerDelta(NamedTuple):
    """A piece of the reason or of the answer."""

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
    """The pieces of the answer from the best `top_k` excerpts as they are generated (without excerpts: "not in the documents"), then the complete Answer.

    UserError if the engine refuses or becomes unavailable. Closing the iterator stops the generation.
    """
    name = backend.models[0]
    model = backend.language_model(name)
    started = time.perf_counter()

    def fitted_prompt() -> tuple[Prompt, int]:
        ranked = rank_excerpts(evidence, top_k, token_budget(max_context_tokens, model.count_tokens))
        prompt = replace(standalone_prompt(evidence, ranked), escape=backend.escape_special_tokens)
        return fit_prompt(prompt, model, max_answer_tokens) if ranked else (prompt, max_answer_tokens)

    prompt, limit = await asyncio.to_thread(fitted_prompt)
    text, reason, usage = "", "length", dict[str, int]()
    try:
        if prompt.ranked:
            body = {"model": name, "max_tokens": limit, "temperature": 0.0}
            prompt, chunks = await call_until_it_fits(
                halvings(prompt), lambda part: backend.stream(with_messages(body, part.messages()))
            )
        else:
            chunks = not_found_chunks({"model": name})
        parts = MessageParts(prompt.excerpts, form=True, thinking=False)
        async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
            async for chunk in open_chunks:
                usage = chunk.get("usage") or usage
                for choice in chunk["choices"]:
                    delta = choice.get("delta") or {}
                    text += delta.get("content") or ""
                    reason = choice.get("finish_reason") or reason
                    for answer_delta in _answer_deltas(parts.feed(delta)):
                        yield answer_delta
    except ApiError as problem:
        raise UserError(f"{name}: {problem}", "", "") from None
    for answer_delta in _answer_deltas(parts.finish()):
        yield answer_delta
    tokens = (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
    completion = Completion(text.strip(), "length" if reason == "length" else "stop", *tokens)
    yield cite(prompt, completion, name, time.perf_counter() - started, verifier)


def with_messages(body: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    """The body of a request with these messages, in OpenAI's form."""
    return {**body, "messages": [{"role": turn.role, "content": turn.content} for turn in messages]}


def _answer_deltas(shown: MessageDelta) -> list[AnswerDelta]:
    deltas = (AnswerDelta("reason", shown.reasoning), AnswerDelta("answer", shown.content))
    return [delta for delta in deltas if delta.text]
