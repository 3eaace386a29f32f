"""Summaries by a language model (GraphMPA §3.1), long communities in a tree: parts under a token cap, then a summary of summaries.

A model's finished calls are kept by the ledger it comes with, so a group whose texts are the same is never summarised again.
"""

import re
from collections.abc import Callable, Sequence

from graph.extract.units import split_units
from graph.shared.console import say, track
from graph.shared.types import Completion, CompletionRequest, LanguageModel, Message
from graph.text.prompting import fill, quote
from graph.text.structured import plain
from graph.text.thinking import without_thinking

WriteSummaries = Callable[[Sequence[Sequence[str]]], list[str]]
"""The texts of each group to its summary; "" where none could be had."""

MAX_INPUT_TOKENS = 3_000
CALLS_AT_ONCE = 64
WORDS_PER_TOKEN = 0.75
ROOM_FOR_LONGER = 2
"""A reply may be this many times longer than asked for before it is cut."""
_ENDED = re.compile(r"[.!?…。！？｡][\"'”’»)\]」』）]*$")
"""A sentence that is whole."""


def write_summaries(model: LanguageModel, max_summary_tokens: int, groups: Sequence[Sequence[str]]) -> list[str]:
    """One summary a group, each layer of all trees asked together; "" where a reply was refused, empty, or cut in its first sentence.

    What was cut or refused is not in the ledger, so the next run asks for it again.
    """
    levels: list[list[str]] = [list(group) for group in groups]
    summaries = [""] * len(groups)
    waiting = [number for number, texts in enumerate(levels) if texts]
    unusable = 0
    while waiting:
        parts = {number: pack(levels[number], model.count_tokens, MAX_INPUT_TOKENS) for number in waiting}
        requests = [_request(part, max_summary_tokens) for number in waiting for part in parts[number]]
        replies = iter(_ask(model, requests))
        climbing = []
        for number in waiting:
            written = [next(replies) for _ in parts[number]]
            if not all(written) or 1 < len(levels[number]) == len(written):
                unusable += 1
            elif len(written) == 1:
                summaries[number] = written[0]
            else:
                levels[number] = written
                climbing.append(number)
        waiting = climbing
    if unusable:
        say(
            f"{unusable:,} of {len(groups):,} summaries by {model.name} could not be used; sentences of the texts stand in"
        )
    return summaries


def pack(texts: Sequence[str], count_tokens: Callable[[str], int], max_tokens: int) -> list[list[str]]:
    """The texts in order, in runs of at most `max_tokens`; one that is longer makes a run of its own.

    >>> pack(["a b", "c", "d e f g", "h"], lambda text: len(text.split()), 3)
    [['a b', 'c'], ['d e f g'], ['h']]
    """
    runs: list[list[str]] = []
    room = -1
    for text in texts:
        length = count_tokens(text)
        if length > room:
            runs.append([])
            room = max_tokens
        runs[-1].append(text)
        room -= length
    return runs


def _request(texts: Sequence[str], max_summary_tokens: int) -> CompletionRequest:
    words = max(1, int(max_summary_tokens * WORDS_PER_TOKEN))
    lines = "\n".join(f"- {quote(text)}" for text in texts)
    messages = (Message("system", fill("graph/summarise.txt", max_words=str(words))), Message("user", lines))
    return CompletionRequest(messages, ROOM_FOR_LONGER * max_summary_tokens)


def _ask(model: LanguageModel, requests: Sequence[CompletionRequest]) -> list[str]:
    batches = [requests[start : start + CALLS_AT_ONCE] for start in range(0, len(requests), CALLS_AT_ONCE)]
    return [
        _usable(completion)
        for batch in track(batches, "Summaries by the model", len(requests), size=len)
        for completion in model.complete(batch)
    ]


def _usable(completion: Completion) -> str:
    """The text of a reply, of one that was cut its whole sentences, "" of one that was refused."""
    if completion.finish_reason == "refused":
        return ""
    text = plain(without_thinking(completion.text))
    return text if completion.finish_reason == "stop" else whole_sentences(text)


def whole_sentences(text: str) -> str:
    """A text that was cut, without its last sentence unless that is whole, and up to where it begins to say a sentence again.

    >>> whole_sentences("The yard built ferries. It burned in 1911. It was reb")
    'The yard built ferries. It burned in 1911.'
    """
    units = list(split_units(text))
    if units and not _ENDED.search(units[-1].text):
        units.pop()
    said: set[str] = set()
    end = 0
    for unit in units:
        if unit.text in said:
            break
        said.add(unit.text)
        end = unit.end
    return text[:end]
