"""Abstract questions over a whole collection by LightRAG's recipe (Guo et al. 2025, after Edge et al. 2024): users × tasks × questions.

A model reads a description of the collection and invents users, their tasks and, for each user and task, questions that need the complete collection.
There are no gold answers: systems are compared with `modegraph eval judge`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from eval.tasks.sets.base import Task
from graph.documents.questions import Question
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.text.prompting import fill, quote
from graph.text.replies import ReplyModel, Sentence, at_most, replies_of, sound_items
from graph.types import LanguageModel

MAX_REPLY_TOKENS = 2048


class User(ReplyModel):
    user: Sentence
    tasks: Annotated[list[Sentence], sound_items(str), at_most("maxItems", 20)]


class Users(ReplyModel):
    users: Annotated[list[User], sound_items(User), at_most("maxItems", 20)]


class GeneratedQuestions(ReplyModel):
    questions: Annotated[list[Sentence], sound_items(str), at_most("maxItems", 20)]


def generate_questions(
    description: Sequence[str], model: LanguageModel, users: int, tasks: int, questions: int
) -> tuple[list[Question], int]:
    """Up to users × tasks × questions distinct abstract questions, and how many are missing.

    `description` is a list of texts that describe the collection. UserError when the model's reply is invalid or names no users.
    """
    description_text = "\n".join(f"- {quote(text)}" for text in description)
    text = fill("eval/abstract_users.txt", description=description_text, users=str(users), tasks=str(tasks))
    (reply,) = replies_of(model, Users, [text], MAX_REPLY_TOKENS)
    if reply is None or not reply.users:
        found = f"{model.name}: named no users of the collection"
        raise UserError(found, "a JSON reply with users", "try another model")
    pairs = [(user_tasks.user, task) for user_tasks in reply.users[:users] for task in user_tasks.tasks[:tasks]]
    prompt = partial(fill, "eval/abstract_questions.txt", description=description_text, questions=str(questions))
    texts = [prompt(user=quote(user), task=quote(task)) for user, task in pairs]
    replies = replies_of(model, GeneratedQuestions, texts, MAX_REPLY_TOKENS)
    by_id: dict[str, Question] = {}
    for (user, task), reply_questions in zip(pairs, replies, strict=True):
        for text in map(str.strip, reply_questions.questions[:questions] if reply_questions is not None else ()):
            if text:
                key = content_id("abstract", text)
                by_id.setdefault(key, Question(key, text, answers=(), kind="abstract", reasoning=f"{user}: {task}"))
    return list(by_id.values()), users * tasks * questions - len(by_id)


TASK = Task(
    name="abstract",
    title="abstract questions (as in UltraDomain)",
    size="users × tasks × questions, 125 by LightRAG's recipe",
    licence="that of the collection",
    metrics=(),
    get="questions.jsonl from `modegraph eval abstract INDEX --model SPEC --out questions.jsonl`; UltraDomain's books: TommyChien/UltraDomain on the hub",
)
