"""Summaries of chunks and communities: a few of their own sentences, or text written by a language model (GraphMPA §3.1).

Sentences are selected by maximal marginal relevance (Carbonell & Goldstein 1998) around the centroid. A model summarises long communities
as a tree: parts under a token limit, then a summary of summaries. Complete replies are stored in the ledger, so that their calls are not repeated."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from pydantic_core import from_json

from graph.shared.console import say, track
from graph.text.prompting import fill, quote
from graph.text.replies import (
    MAX_SENTENCE_CHARS,
    BadReply,
    ReplyModel,
    Sentence,
    as_one_line,
    at_most,
    copies_example,
    parse_reply,
    sound_items,
    strict_schema,
    without_thinking,
)
from graph.text.sentences import is_complete, split_units
from graph.types import Completion, CompletionRequest, Floats, LanguageModel, Message, T

RELEVANCE_WEIGHT = 0.7
"""The weight of a sentence's relevance; 1 minus it is the weight of its similarity to the sentences already chosen."""
REPEAT_COSINE = 0.95
"""The lowest cosine at which a sentence counts as a repetition of a chosen one."""
MAX_CANDIDATES = 200
"""How many of the most relevant sentences are considered."""


def choose_sentences(vectors_SD: Floats, count_tokens: Callable[[int], int], max_tokens: int) -> list[int]:
    """Rows of the chosen sentences, ascending, together at most `max_tokens` long; at least one, whatever its length.

    `count_tokens(row)` is the length of a sentence. A sentence that is longer than the remaining budget, or repeats a chosen one, is skipped;
    selection continues. Ties go to the more relevant sentence, then to the earlier row.
    """
    centre_D = vectors_SD.mean(axis=0)
    centre_D /= np.linalg.norm(centre_D) or 1.0
    relevance_S = vectors_SD @ centre_D
    candidates = np.argsort(-relevance_S, kind="stable")[:MAX_CANDIDATES]
    vectors_CD, relevance_C = vectors_SD[candidates], relevance_S[candidates]
    nearest_C = np.zeros(len(candidates), np.float32)
    eligible_C = np.ones(len(candidates), bool)
    chosen: list[int] = []
    budget = max_tokens
    while eligible_C.any():
        gain_C = np.where(eligible_C, RELEVANCE_WEIGHT * relevance_C - (1 - RELEVANCE_WEIGHT) * nearest_C, -np.inf)
        best = int(gain_C.argmax())
        eligible_C[best] = False
        length = count_tokens(int(candidates[best]))
        if chosen and length > budget:
            continue
        chosen.append(int(candidates[best]))
        budget -= length
        if budget <= 0:
            break
        nearest_C = np.maximum(nearest_C, vectors_CD @ vectors_CD[best])
        eligible_C &= nearest_C < REPEAT_COSINE
    return sorted(chosen)


def join_sentences(sentences: Sequence[str]) -> str:
    """Sentences joined into one text, each ending with punctuation."""
    return " ".join(text if is_complete(text) else text + "." for text in sentences)


WriteSummaries = Callable[[Sequence[Sequence[str]]], list[str]]
"""A function from groups of texts to one summary per group; "" for a group without a summary."""

MAX_INPUT_TOKENS = 3_000
CALLS_PER_BATCH = 64
WORDS_PER_TOKEN = 0.75
MAX_LENGTH_FACTOR = 2
"""A reply is truncated at this many times the requested length."""
SENTENCE_WORDS, MAX_SENTENCES = 15, 50
"""Assumed words per sentence, to limit the number of sentences of a summary; and the upper bound on that number."""


class SummaryReply(ReplyModel):
    """A summary as a list of sentences, so that an engine can limit their length and number; a reply in prose is also accepted."""

    sentences: Annotated[list[Sentence], sound_items(str), at_most("maxItems", MAX_SENTENCES)]


def write_summaries(model: LanguageModel, max_summary_tokens: int, groups: Sequence[Sequence[str]]) -> list[str]:
    """One summary per group, requested level by level for all trees together; "" for an empty group, where a reply is unusable (`_usable_text`), or where every
    text of a level is so long that it needs a request of its own.

    Truncated and refused replies are not in the ledger, so the next run requests them again.
    """
    levels: list[list[str]] = [list(group) for group in groups]
    summaries = [""] * len(groups)
    waiting = [number for number, texts in enumerate(levels) if texts]
    unusable = 0
    while waiting:
        parts = {number: pack(levels[number], model.count_tokens, MAX_INPUT_TOKENS) for number in waiting}
        requests = [_summary_request(part, max_summary_tokens) for number in waiting for part in parts[number]]
        replies = iter(_write_all(model, requests))
        unfinished = []
        for number in waiting:
            part_summaries = [next(replies) for _ in parts[number]]
            if not all(part_summaries) or 1 < len(levels[number]) == len(part_summaries):
                unusable += 1
            elif len(part_summaries) == 1:
                summaries[number] = part_summaries[0]
            else:
                levels[number] = part_summaries
                unfinished.append(number)
        waiting = unfinished
    if unusable:
        problem = f"{unusable:,} of {len(groups):,} summaries by {model.name} could not be used"
        say(f"{problem}; sentences of the texts replace them")
    return summaries


def pack(items: Sequence[T], length_of: Callable[[T], int], max_length: int) -> list[list[T]]:
    """The items in order, in runs whose lengths sum to at most `max_length`; a longer item is a separate run.

    >>> pack(["a b", "c", "d e f g", "h"], lambda text: len(text.split()), 3)
    [['a b', 'c'], ['d e f g'], ['h']]
    """
    runs: list[list[T]] = []
    budget = -1
    for item in items:
        length = length_of(item)
        if length > budget:
            runs.append([])
            budget = max_length
        runs[-1].append(item)
        budget -= length
    return runs


def _summary_request(texts: Sequence[str], max_summary_tokens: int) -> CompletionRequest:
    words = max(1, int(max_summary_tokens * WORDS_PER_TOKEN))
    lines = "\n".join(f"- {quote(text)}" for text in texts)
    messages = (Message("system", fill("graph/summarise.txt", max_words=str(words))), Message("user", lines))
    max_sentences = min(MAX_SENTENCES, max(1, round(words / SENTENCE_WORDS)))
    schema = strict_schema(SummaryReply, sentences={"minItems": 1, "maxItems": max_sentences})
    return CompletionRequest(messages, MAX_LENGTH_FACTOR * max_summary_tokens, schema=schema)


def _write_all(model: LanguageModel, requests: Sequence[CompletionRequest]) -> list[str]:
    batches = [requests[start : start + CALLS_PER_BATCH] for start in range(0, len(requests), CALLS_PER_BATCH)]
    return [
        _usable_text(request, completion)
        for batch in track(batches, "Summaries by the model", len(requests), size=len)
        for request, completion in zip(batch, model.complete(batch), strict=True)
    ]


def _usable_text(request: CompletionRequest, completion: Completion) -> str:
    """The text of a reply, which may be only the list of sentences; only the complete sentences if it was truncated; "" if it was refused, is broken JSON, or
    copies the prompt's example.
    """
    if completion.finish_reason == "refused" or copies_example(completion.text, request.messages[1].content):
        return ""
    text = _as_object(as_one_line(without_thinking(completion.text)))
    try:
        sentences = [as_one_line(sentence) for sentence in parse_reply(SummaryReply, text, []).sentences]
    except BadReply:
        is_json = text.startswith(("{", "```"))
        return "" if is_json else text if completion.finish_reason == "stop" else complete_sentences(text)
    if completion.finish_reason == "length" or (sentences and len(sentences[-1]) >= MAX_SENTENCE_CHARS):
        return complete_sentences(" ".join(sentences))
    return join_sentences([sentence for sentence in dict.fromkeys(sentences) if sentence])


def _as_object(text: str) -> str:
    """A list in JSON, perhaps cut or in a code fence, as the field `sentences` of an object; other text, such as “[1] The yard …”, is unchanged."""
    bare = text.removeprefix("```json").strip("` ")
    try:
        found = from_json(bare, allow_partial=False if "]" in bare else "trailing-strings")
    except ValueError:
        return text
    return json.dumps({"sentences": found}) if isinstance(found, list) else text


def complete_sentences(text: str) -> str:
    """A truncated text without its incomplete last sentence, and without everything from the first repeated sentence on.

    >>> complete_sentences("The yard built ferries. It burned in 1911. It was reb")
    'The yard built ferries. It burned in 1911.'
    """
    units = list(split_units(text))
    if units and not is_complete(units[-1].text):
        units.pop()
    seen: set[str] = set()
    end = 0
    for unit in units:
        if unit.text in seen:
            break
        seen.add(unit.text)
        end = unit.end
    return text[:end]
