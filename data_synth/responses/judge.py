"""A judging model's reward of a response: a mark from 1 to 5 by structured output, scaled to 0 … 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from data_synth.responses.responses import Judge
from data_synth.types import Draft
from graph.prompt.answer import answer_messages
from graph.shared.types import Completion, CompletionRequest, LanguageModel, Message
from graph.text.prompting import fill, quote
from graph.text.structured import BadReply, ReplyModel, parse_reply, strict_schema

MAX_MARK_TOKENS = 32
HIGHEST = 5


class JudgeMark(ReplyModel):
    """What the judging model replies."""

    mark: Literal[1, 2, 3, 4, 5]


def judge_by(model: LanguageModel) -> Judge:
    """Rewards by `model`."""
    return partial(judge_responses, model=model)


def judge_responses(draft: Draft, responses: Sequence[str], model: LanguageModel) -> list[float]:
    """(mark − 1) / 4 of each response; 0 where the model gave no mark, so that silence never helps."""
    requests = [_request(draft, response) for response in responses]
    return [_reward(completion) for completion in model.complete(requests)]


def _request(draft: Draft, response: str) -> CompletionRequest:
    asked = answer_messages(draft.question.text, draft.excerpts)[-1].content
    text = fill("data_synth/judge.txt", question_over_passages=asked, answer=draft.answer, response=quote(response))
    return CompletionRequest((Message("user", text),), MAX_MARK_TOKENS, seed=0, schema=strict_schema(JudgeMark))


def _reward(completion: Completion) -> float:
    if completion.finish_reason != "stop":
        return 0.0
    try:
        return (parse_reply(JudgeMark, completion.text, []).mark - 1) / (HIGHEST - 1)
    except BadReply:
        return 0.0
