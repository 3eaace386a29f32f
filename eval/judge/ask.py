"""Asking the judge: every pair in both orders, one structured reply for all criteria; what cannot be read is kept as invalid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import create_model

from eval.judge.types import CRITERIA, AnswerPair, Judgement, Word
from graph.shared.console import track
from graph.shared.types import Completion, CompletionRequest, LanguageModel, Message
from graph.text.prompting import fill, quote
from graph.text.structured import BadReply, ReplyModel, at_most, parse_object, strict_schema

MAX_REPLY_TOKENS = 200
PAIRS_PER_CALL = 8
Verdict = Annotated[str, at_most("maxLength", 12)]
WORDS: dict[str, Word] = {"1": "1", "2": "2", "tie": "tie"}


def judge_pairs(pairs: Sequence[AnswerPair], model: LanguageModel) -> list[Judgement]:
    """Both orders of every pair. Raises UserError when the model goes away; a refused or unreadable reply is an invalid verdict."""
    return list(track(_judged(pairs, model), "judge: pairs", len(pairs)))


def request_of(pair: AnswerPair, swapped: bool) -> CompletionRequest:
    """The judge's prompt; `swapped` shows B as answer 1."""
    shown = (pair.second, pair.first) if swapped else (pair.first, pair.second)
    text = fill("eval/judge.txt", question=quote(pair.question), first=quote(shown[0]), second=quote(shown[1]))
    return CompletionRequest((Message("user", text),), MAX_REPLY_TOKENS, seed=0, schema=SCHEMA)


def read_verdicts(completion: Completion) -> tuple[dict[str, Word], tuple[str, ...]]:
    """The word on every criterion, "invalid" where there is none of 1, 2 and tie; and the problems, in words."""
    if completion.finish_reason != "stop":
        why = "cut at the token limit" if completion.finish_reason == "length" else "refused by the server"
        return dict.fromkeys(CRITERIA, "invalid"), (why,)
    try:
        reply = parse_object(completion.text)
    except BadReply as problem:
        return dict.fromkeys(CRITERIA, "invalid"), (str(problem),)
    words = {name: WORDS.get(str(reply.get(name)).strip().casefold(), "invalid") for name in CRITERIA}
    wrong = [name for name, word in words.items() if word == "invalid"]
    return words, tuple(f"{name}: {reply.get(name)!r}" for name in wrong)  # type: ignore[return-value, unused-ignore]


def _judged(pairs: Sequence[AnswerPair], model: LanguageModel) -> Iterator[Judgement]:
    for start in range(0, len(pairs), PAIRS_PER_CALL):
        asked = pairs[start : start + PAIRS_PER_CALL]
        replies = model.complete([request_of(pair, swapped) for pair in asked for swapped in (False, True)])
        for row, pair in enumerate(asked):
            (a_first, wrong), (b_first, wrong_too) = map(read_verdicts, replies[2 * row : 2 * row + 2])
            yield Judgement(pair, a_first, b_first, wrong + wrong_too)


SCHEMA = strict_schema(
    create_model("Verdicts", __base__=ReplyModel, **{name: (Verdict, ...) for name in CRITERIA})  # type: ignore[call-overload]
)
