"""Abstract questions over a whole collection by LightRAG's recipe (Guo et al. 2025, after Edge et al. 2024): users × tasks × questions.

A model reads a description of the collection and invents users, their tasks and, for each user and task, questions that need the complete collection.
There are no gold answers: systems are compared by `modegraph eval judge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from eval.tasks.sets.base import Task, read_native
from graph.documents.questions import Question
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.text.prompting import fill, quote
from graph.text.replies import BadReply, ReplyModel, Sentence, at_most, parse_reply, sound_items, strict_schema
from graph.types import CompletionRequest, LanguageModel, Message

MAX_REPLY_TOKENS = 2048
R = TypeVar("R", bound=ReplyModel)


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
    """Up to users × tasks × questions distinct abstract questions, and how many fewer these are than requested.

    `description` is a list of texts that describe the collection. UserError when the model names no users.
    """
    description_text = "\n".join(f"- {quote(text)}" for text in description)
    first = _request(
        Users, fill("eval/abstract_users.txt", description=description_text, users=str(users), tasks=str(tasks))
    )
    reply = _read(Users, model, [first])[0]
    if reply is None or not reply.users:
        raise UserError(
            f"{model.name}: named no users of the collection", "a JSON reply with users", "try another model"
        )
    pairs = [(user_tasks.user, task) for user_tasks in reply.users[:users] for task in user_tasks.tasks[:tasks]]
    requests = [
        _request(
            GeneratedQuestions,
            fill(
                "eval/abstract_questions.txt",
                description=description_text,
                user=quote(user),
                task=quote(task),
                questions=str(questions),
            ),
        )
        for user, task in pairs
    ]
    by_id: dict[str, Question] = {}
    for (user, task), reply_questions in zip(pairs, _read(GeneratedQuestions, model, requests), strict=True):
        for text in reply_questions.questions[:questions] if reply_questions is not None else ():
            key = content_id("abstract", text.strip())
            by_id.setdefault(
                key, Question(id=key, text=text.strip(), answers=(), kind="abstract", reasoning=f"{user}: {task}")
            )
    nonempty = [question for question in by_id.values() if question.text]
    return nonempty, users * tasks * questions - len(nonempty)


def _request(kind: type[ReplyModel], text: str) -> CompletionRequest:
    return CompletionRequest((Message("user", text),), MAX_REPLY_TOKENS, seed=0, schema=strict_schema(kind))


def _read(kind: type[R], model: LanguageModel, requests: Sequence[CompletionRequest]) -> list[R | None]:
    replies: list[R | None] = []
    for completion in model.complete(requests):
        try:
            replies.append(parse_reply(kind, completion.text, []) if completion.finish_reason == "stop" else None)
        except BadReply:
            replies.append(None)
    return replies


TASK = Task(
    name="abstract",
    title="abstract questions (as in UltraDomain)",
    size="users × tasks × questions, 125 by LightRAG's recipe",
    licence="that of the collection",
    metrics=(),
    get="`modegraph eval abstract INDEX --model SPEC --out questions.jsonl`; UltraDomain's books: TommyChien/UltraDomain on the hub",
    read=read_native,
)
