"""Greedy answers of a model to questions, each from its own excerpts."""

from __future__ import annotations

from collections.abc import Sequence

from data_synth.reading.sets import ReadingQuestion
from graph.answer.prompt import answer_messages
from graph.documents.questions import Question
from graph.errors import UserError
from graph.types import AnswerForm, Completion, CompletionRequest, Excerpt, LanguageModel
from serve.pipeline import NOTHING_FOUND


def greedy_answers(
    model: LanguageModel,
    questions: Sequence[Question | ReadingQuestion],
    contexts: Sequence[Sequence[Excerpt]],
    form: AnswerForm,
    max_answer_tokens: int,
    closed_book: bool,
) -> list[Completion]:
    """The answer to each question. As in `ask`, a question without excerpts gets NOTHING_FOUND, without a call; with `closed_book`, the model answers it.

    UserError for a request that the server refuses.
    """
    answered = [number for number, context in enumerate(contexts) if context or closed_book]
    requests = [
        CompletionRequest(answer_messages(questions[number].text, contexts[number], form), max_answer_tokens)
        for number in answered
    ]
    answers = [NOTHING_FOUND] * len(questions)
    for number, completion in zip(answered, model.complete(requests), strict=True):
        if completion.finish_reason == "refused":
            found = f"question {questions[number].id!r}: the server refused the request ({completion.text})"
            remedy = "use fewer or shorter passages (top_k, max_context_tokens, --distractors)"
            raise UserError(found, "a request that the server accepts", remedy)
        answers[number] = completion
    return answers
