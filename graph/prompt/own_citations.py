"""The citations of a response that are its own: none from its thinking, and none that repeats the prompt's example of one.

Rewards and measures count these. A small model that is tuned for a short time may write the prompt itself, "the reasoning, citing passages by
number like [1]", which cites nothing.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from graph.prompt.answer import PROMPTS
from graph.prompt.citations import CitationGate
from graph.prompt.cited_numbers import MAX_NUMBER
from graph.text.prompting import read_prompt
from graph.text.thinking import without_thinking

REPEATED_WORDS = 4
"""A citation behind so many words of the prompt, in their order, is the prompt's; so is one behind fewer, from two on, where a text begins with them."""
_WORD = re.compile(r"[^\W\d_]+")
_JOINED_CITATION = re.compile(r"\[\d+\](?:[\s,;&/]|and|or)*\Z")
"""A citation with nothing but a joint between it and the next."""
_BEFORE_CHARS = 300


class Citations(NamedTuple):
    """Numbers of passages in the prompt, and numbers that none of them has; each once."""

    existing: tuple[int, ...]
    missing: tuple[int, ...]


def own_citations(response: str, passages: int) -> Citations:
    """What a response cites of `passages` numbered ones.

    >>> own_citations("The ferry sank [2], says [7].", 2)
    Citations(existing=(2,), missing=(7,))
    >>> own_citations("###Reason: The reasoning, citing passages by number like [1] and [2]. ###Answer: Tarn [2]", 2)
    Citations(existing=(2,), missing=())
    """
    gate = CitationGate(MAX_NUMBER)
    text = gate.feed(without_thinking(response)) + gate.finish()
    own = [
        mark.number for mark in gate.marks if not _repeats_prompt(text[max(0, mark.start - _BEFORE_CHARS) : mark.start])
    ]
    numbers = tuple(dict.fromkeys((*own, *gate.removed)))
    existing = tuple(number for number in numbers if 1 <= number <= passages)
    return Citations(existing, tuple(number for number in numbers if number not in existing))


def _repeats_prompt(before: str) -> bool:
    """Whether the words before a citation are the prompt's."""
    while joined := _JOINED_CITATION.search(before):
        before = before[: joined.start()]
    words = _words(before.rpartition("]")[2])[-REPEATED_WORDS:]
    return len(words) > 1 and f" {' '.join(words)} " in _form_in_words()


@cache
def _form_in_words() -> str:
    """The words of the prompts' lines that show a citation, a space around each."""
    lines = [line for prompt in PROMPTS.values() for line in read_prompt(prompt).splitlines()]
    return "".join(f" {' '.join(_words(line))} " for line in lines if "[1]" in line)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
