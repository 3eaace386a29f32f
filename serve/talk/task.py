"""What a chat client asks of the model for itself (a title, tags, follow-up questions), not of the documents.

Open WebUI sends such a task as one message of the user: headings, the first of them "### Task:", and what was said between <chat_history>
marks. It is answered by the model as it stands, without a search and without our form; where it is too long, the oldest of the history goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graph.shared.types import LanguageModel, Message

ANSWER_SHARE = 4
"""A quarter of the window is kept for the reply, or what the request allows it, if that is less."""
MIN_HISTORY_CHARS = 200
HEADING, OPENING, CLOSING = "### Task:\n", "<chat_history>", "</chat_history>"


@dataclass(frozen=True)
class Task:
    """A task: its instructions, before and after the history, and the history. `system` are the client's own system messages."""

    system: str
    before: str
    history: str
    after: str

    def messages(self) -> list[Message]:
        """What the model reads."""
        told = [Message("system", self.system)] if self.system else []
        return [*told, Message("user", self.before + self.history + self.after)]

    def halved(self) -> Task | None:
        """With the later half of the history; None where little of it is left."""
        if len(self.history) < MIN_HISTORY_CHARS:
            return None
        return replace(self, history=self.history[len(self.history) // 2 :])


def read_task(turns: Sequence[str], system: str) -> Task | None:
    """The task that a conversation of the user's `turns` alone is; None for one that asks the documents.

    >>> task = read_task(["### Task:\\nFind a title.\\n<chat_history>\\nUSER: Hi\\n</chat_history>"], "")
    >>> task is not None and task.history, read_task(["What is a ### Task:?"], "")
    ('\\nUSER: Hi\\n', None)
    """
    text = turns[0].lstrip() if len(turns) == 1 else ""
    start, end = text.find(OPENING) + len(OPENING), text.rfind(CLOSING)
    if not text.startswith(HEADING) or not len(OPENING) <= start <= end:
        return None
    return Task(system, text[:start], text[start:end], text[end:])


def fitted_task(task: Task, model: LanguageModel, max_answer_tokens: int) -> tuple[Task, int]:
    """What of a task the window of `model` holds, and how long the reply may be then; all of it where no window is known."""
    window = model.window()
    if window is None:
        return task, max_answer_tokens
    limit = window - min(max_answer_tokens, window // ANSWER_SHARE)
    while model.prompt_tokens(task.messages()) > limit and (less := task.halved()) is not None:
        task = less
    return task, max(1, min(max_answer_tokens, window - model.prompt_tokens(task.messages())))
