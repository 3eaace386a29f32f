"""The prompt of a conversation's last turn, and how much of it the model's window holds.

Passages matter more than what was said, but a follow-up means nothing without the turn before: earlier turns may take a quarter of the room,
then the best passages come, and then as many more turns as there is room for. What does not fit is left out: the oldest turns, the
worst passages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graph.prompt.answer import answer_messages
from graph.prompt.context import arranged, fit_excerpts, most
from graph.shared.errors import UserError
from graph.shared.types import AnswerForm, Evidence, Excerpt, LanguageModel, Message
from graph.text.prompting import read_prompt
from serve.talk.intent import Intent
from serve.talk.turns import Exchange

ANSWER_SHARE = 4
"""A quarter of the window is kept for the answer, or what the request allows it, if that is less."""
TURNS_SHARE = 4


class PromptTooLong(UserError):
    """Even the least of a prompt is longer than the model's window."""


@dataclass(frozen=True)
class Prompt:
    """What the engine reads. `ranked` are excerpts, best first, `exchanges` earlier turns, oldest first; `left_out` did not fit.

    Where no earlier turn is shown the question is asked as it was searched for, which stands alone.
    """

    intent: Intent
    asked: str
    instructions: str
    evidence: Evidence
    ranked: tuple[Excerpt, ...]
    exchanges: tuple[Exchange, ...]
    escape: Callable[[str], str]
    left_out: int = 0
    form: AnswerForm = "reasoned"

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """In the order of their numbers."""
        return arranged(self.ranked, self.evidence)

    def messages(self) -> list[Message]:
        """System, earlier turns, and the question after its passages in the form of training; special tokens are broken in all."""
        shown = self.asked if self.exchanges or self.intent == "request" else self.evidence.query
        system, user = answer_messages(shown, self.excerpts, self.form)
        if self.intent == "remark":
            system, user = Message("system", read_prompt("serve/remark.txt")), Message("user", self.asked)
        told = [system.content, *([read_prompt("serve/request.txt")] if self.intent == "request" else [])]
        told += [self.instructions] if self.instructions else []
        turns = [turn for exchange in self.exchanges for turn in exchange.messages()]
        whole = [Message("system", "\n\n".join(told)), *turns, user]
        return [replace(turn, content=self.escape(turn.content)) for turn in whole]

    def with_less(self, exchanges: int, ranked: Sequence[Excerpt]) -> Prompt:
        """With so many of the latest turns, and these excerpts."""
        kept = self.exchanges[len(self.exchanges) - exchanges :]
        return replace(
            self, exchanges=kept, ranked=tuple(ranked), left_out=self.left_out + len(self.ranked) - len(ranked)
        )

    def halved(self) -> Prompt | None:
        """With half of the passages and of the turns; None where that is all the same."""
        half = self.with_less(len(self.exchanges) // 2, self.ranked[: -(-len(self.ranked) // 2)])
        return half if (half.exchanges, half.ranked) != (self.exchanges, self.ranked) else None


def prompt_of(evidence: Evidence, ranked: tuple[Excerpt, ...]) -> Prompt:
    """The prompt of a question that stands alone; its special tokens are the engine's care."""
    return Prompt("question", evidence.query, "", evidence, ranked, (), str)


def fitted(prompt: Prompt, model: LanguageModel, max_answer_tokens: int) -> tuple[Prompt, int]:
    """What of a prompt the window of `model` holds, in the form of its answers, and how long one may be; all of it where no window is known.

    PromptTooLong when not even the shortest passage fits, or, where none was found, the question alone.
    """
    prompt = replace(prompt, form=model.form)
    window = model.window()
    if window is None:
        return prompt, max_answer_tokens
    limit = window - min(max_answer_tokens, window // ANSWER_SHARE)

    def length(exchanges: int, ranked: tuple[Excerpt, ...]) -> int:
        return model.prompt_tokens(prompt.with_less(exchanges, ranked).messages())

    exchanges, ranked = len(prompt.exchanges), prompt.ranked
    if (whole := length(exchanges, ranked)) > limit:
        alone = length(0, ())
        share = alone + max(limit - alone, 0) // TURNS_SHARE
        exchanges = most(exchanges, lambda last: length(last, ()) <= share)
        ranked = fit_excerpts(ranked, lambda first: length(exchanges, first) <= limit)
        if ranked == prompt.ranked:
            exchanges = most(len(prompt.exchanges), lambda last: length(last, ranked) <= limit)
        if (whole := length(exchanges, ranked)) > limit or len(ranked) < min(len(prompt.ranked), 1):
            least = min((length(0, (each,)) for each in prompt.ranked), default=alone)
            raise PromptTooLong(
                f"a prompt of {least:,} tokens at least, {alone:,} of them the question and its instructions",
                f"{limit:,} of the model's window of {window:,}, the rest being for the answer",
                "ask in fewer words, use a model with a larger window, or index with a smaller max_passage_tokens",
            )
    return prompt.with_less(exchanges, ranked), min(max_answer_tokens, window - whole)
