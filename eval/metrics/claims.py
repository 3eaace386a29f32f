"""The variant of eval/metrics/grounding.py that asks a language model: claims, written questions and relevant statements by structured replies.

Four calls an answer: claims of the answer, claims of the gold answer, questions from the answer, relevant statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import BaseModel

from eval.metrics.grounding import (
    Grounding,
    answer_relevance,
    claims_of,
    context_precision,
    relevant_passages,
    share,
)
from graph.prompt.citations import check_citations
from graph.retrieve.selection.select import list_statements
from graph.shared.types import CompletionRequest, Encode, LanguageModel, Message
from graph.text.prompting import fill, quote
from graph.text.structured import BadReply, ReplyModel, Sentence, at_most, parse_reply, sound_items, strict_schema

MAX_REPLY_TOKENS = 1024
QUESTIONS_WRITTEN = 3

R = TypeVar("R", bound=BaseModel)


class Claim(ReplyModel):
    claim: Sentence
    supported: bool


class Claims(ReplyModel):
    claims: Annotated[list[Claim], sound_items(Claim), at_most("maxItems", 40)]


class WrittenQuestions(ReplyModel):
    questions: Annotated[list[str], sound_items(str), at_most("maxItems", 10)]


class Relevant(ReplyModel):
    relevant: Annotated[list[int], sound_items(int), at_most("maxItems", 200)]


def grounding_by_model(
    question: str, answer: str, golds: Sequence[str], passages: Sequence[str], encode: Encode, model: LanguageModel
) -> Grounding:
    """All five by a model's word; a figure whose reply cannot be used is None, to be counted and not averaged.

    Answer relevance still needs the encoder (Eq. 6). Raises UserError when the model goes away.
    """
    units = [claims_of(passage) for passage in passages]
    sentences = [sentence for unit in units for sentence in unit]
    told = check_citations(answer, 0).text
    statements, asked = list_statements(question, sentences), quote(f"{question} {golds[0]}" if golds else "")
    prompts: list[tuple[type[BaseModel], str]] = [
        (Claims, fill("eval/claims.txt", statements=statements, text=quote(told))),
        (Claims, fill("eval/claims.txt", statements=statements, text=asked)),
        (WrittenQuestions, fill("eval/written_questions.txt", count=str(QUESTIONS_WRITTEN), answer=quote(told))),
        (Relevant, fill("eval/relevant.txt", statements=statements)),
    ]
    replies = model.complete([_request(kind, text) for kind, text in prompts])
    claims, gold, written, relevant = (
        _read(kind, reply.text) if reply.finish_reason == "stop" else None
        for (kind, _), reply in zip(prompts, replies, strict=True)
    )
    relevant_N = None
    if isinstance(relevant, Relevant):
        relevant_N = np.isin(np.arange(1, len(sentences) + 1), relevant.relevant)
    return Grounding(
        faithfulness=_share_supported(claims),
        answer_relevance=_relevance(question, written, encode),
        context_precision=None if relevant_N is None else context_precision(relevant_passages(relevant_N, units)),
        context_recall=None if relevant_N is None else share(relevant_N),
        claim_recall=_share_supported(gold) if golds else None,
    )


def _request(kind: type[BaseModel], text: str) -> CompletionRequest:
    return CompletionRequest((Message("user", text),), MAX_REPLY_TOKENS, seed=0, schema=strict_schema(kind))


def _read(kind: type[R], text: str) -> R | None:
    try:
        return parse_reply(kind, text, [])
    except BadReply:
        return None


def _share_supported(claims: BaseModel | None) -> float | None:
    return share([claim.supported for claim in claims.claims]) if isinstance(claims, Claims) else None


def _relevance(question: str, written: BaseModel | None, encode: Encode) -> float | None:
    if not isinstance(written, WrittenQuestions) or not written.questions:
        return None
    vectors = encode([question, *written.questions])
    return answer_relevance(vectors[0], vectors[1:])
