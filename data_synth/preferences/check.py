"""A second model's word on whether a context supports a reasoning: one structured reply a reasoning."""

from __future__ import annotations

from collections.abc import Sequence

from data_synth.types import Draft
from graph.prompt.answer import answer_messages
from graph.shared.types import Completion, CompletionRequest, LanguageModel, Message
from graph.text.prompting import fill, quote
from graph.text.structured import BadReply, ReplyModel, parse_reply, strict_schema

NOT_SUPPORTED = "the checking model finds it unsupported"
NO_VERDICT = "the checking model gave no verdict"
MAX_VERDICT_TOKENS = 64


class Verdict(ReplyModel):
    """What the checking model replies."""

    supported: bool


def check_by_model(drafts: Sequence[Draft], reasons: Sequence[str], model: LanguageModel) -> list[str]:
    """Why each reasoning is not good enough, in the words of the card; "" for a good one."""
    requests = [_request(draft, reason) for draft, reason in zip(drafts, reasons, strict=True)]
    return [_why_not(completion) for completion in model.complete(requests)]


def _request(draft: Draft, reason: str) -> CompletionRequest:
    asked = answer_messages(draft.question.text, draft.excerpts)[-1].content
    text = fill("data_synth/check.txt", question_over_passages=asked, reason=quote(reason), answer=draft.answer)
    return CompletionRequest((Message("user", text),), MAX_VERDICT_TOKENS, seed=0, schema=strict_schema(Verdict))


def _why_not(completion: Completion) -> str:
    if completion.finish_reason != "stop":
        return NO_VERDICT
    try:
        return "" if parse_reply(Verdict, completion.text, []).supported else NOT_SUPPORTED
    except BadReply:
        return NO_VERDICT
