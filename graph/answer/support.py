"""Whether what a text says is in the passages that it was written from, sentence by sentence, and the text without what is not.

A sentence that cites is read against the passages that it cites, any other against all. Fragments, sentences of more
than MOST_WORDS and those in another script than Latin are not checked: no verifier has learned from such. What is cut
takes its blanks along: an empty list item, the empty line behind a paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, get_args

from graph.answer.citations import CitationGate, Mark, check_citations
from graph.answer.prompt import NOT_FOUND, parse_answer
from graph.answer.verifier import Ground, Verifier, judge_claims, missing_words, open_verifier
from graph.errors import UserError
from graph.text.sentences import HEADING, LIST_ITEM, is_row, split_units
from graph.text.word_forms import Words
from graph.types import Excerpt

FEWEST_WORDS, FEWEST_CONTENT_WORDS, MOST_WORDS = 4, 2, 200
_OTHER_LETTER = re.compile(r"[^\W\d_A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
"""A letter of another script than Latin."""
CACHED_GROUNDS = 256
"""Passages whose words are kept: 19 MB of them where a passage has 120 words."""
Handling = Literal["mark", "drop", "ignore"]
"""What can be done with an unsupported sentence."""
HANDLINGS = get_args(Handling)


@dataclass(frozen=True)
class Unsupported:
    """A sentence that its passages do not seem to support: characters start to end of that part of the answer.

    Once it is dropped, both are the place where it stood. `probability` is the verifier's; `cited` are the passages that the sentence
    cites; `missing` its names and numbers that stand in none of the passages that it was read against.
    """

    part: str
    text: str
    start: int
    end: int
    probability: float
    cited: tuple[int, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Sentence:
    """A sentence as shown, what it says without its citations, and these."""

    text: str
    start: int
    end: int
    claim: str
    cited: tuple[int, ...]


def verifier_for(handling: str, spec: str) -> Verifier | None:
    """The verifier of a `spec`, None to ignore what is not supported; UserError for another word than those of HANDLINGS."""
    if handling not in HANDLINGS:
        raise UserError(f"--unsupported {handling}", "mark, drop or ignore", "fix the option")
    return None if handling == "ignore" else open_verifier(spec)


class SupportChecker:
    """The excerpts that texts are written from, and what reads their sentences against them; without a verifier, or without excerpts,
    none is judged.
    """

    def __init__(self, excerpts: Sequence[Excerpt], verifier: Verifier | None) -> None:
        self._excerpts, self._verifier = excerpts, verifier

    def unsupported(self, part: str, checked: str) -> list[Unsupported]:
        """The sentences of a text, its citations checked, that the excerpts do not seem to support; `part` says which text it is."""
        return [
            Unsupported(
                part,
                sentence.text,
                sentence.start,
                sentence.end,
                round(probability, 3),
                sentence.cited,
                missing_words(sentence.claim, self._ground(sentence)),
            )
            for sentence, probability in self._judged(checked)
            if self._marks(probability)
        ]

    def share_supported(self, response: str) -> float | None:
        """The share of the sentences of a response, reason and answer, that the excerpts support; None where none is judged."""
        parsed = parse_answer(response)
        parts = (check_citations(part, len(self._excerpts)).text for part in (parsed.reason, parsed.answer))
        judged = [probability for part in parts for _, probability in self._judged(part)]
        return sum(not self._marks(probability) for probability in judged) / len(judged) if judged else None

    def _judged(self, checked: str) -> Iterator[tuple[_Sentence, float]]:
        """The sentences of a checked text that can be judged, each with the probability that it is unsupported."""
        if self._verifier is None or not self._excerpts:
            return
        for sentence in _sentences(checked, len(self._excerpts)):
            yield sentence, float(judge_claims(self._verifier, [sentence.claim], self._ground(sentence))[0])

    def _marks(self, probability: float) -> bool:
        return self._verifier is not None and probability >= self._verifier.threshold

    def _ground(self, sentence: _Sentence) -> Ground:
        return Ground.joined([self._grounds[number - 1] for number in sentence.cited] or self._grounds)

    @cached_property
    def _grounds(self) -> list[Ground]:
        return [_ground_of(excerpt.title, excerpt.text) for excerpt in self._excerpts]


@lru_cache(CACHED_GROUNDS)
def _ground_of(title: str, text: str) -> Ground:
    """A passage to read against; those that were read last are kept, as a server shows the same ones often."""
    return Ground.of([(title, text)])


def _sentences(checked: str, passages: int) -> Iterator[_Sentence]:
    for unit in split_units(checked):
        gate = CitationGate(0)
        claim = gate.feed(unit.text) + gate.finish()
        if unit.kind == "heading" or not can_be_checked(claim):
            continue
        cited = tuple(number for number in gate.removed if 1 <= number <= passages)
        yield _Sentence(unit.text, unit.start, unit.end, claim, cited)


def can_be_checked(claim: str) -> bool:
    """Whether a sentence is one that a verifier can judge: no fragment, not endless, and in a script whose words are
    known; else it is not checked, and never marked.

    >>> [can_be_checked(each) for each in ("The ferry sank in 1911.", "In 1911.", "Паром затонул в 1911 году.")]
    [True, False, False]
    """
    if not FEWEST_WORDS <= len(claim.split()) <= MOST_WORDS or NOT_FOUND in claim.casefold():
        return False
    words = Words.of(claim)
    foreign = sum(_OTHER_LETTER.search(words.words[at]) is not None for at in words.content)
    return len(words.content) >= FEWEST_CONTENT_WORDS and 2 * foreign <= len(words.content)


def claim_of(sentence: str, question: str) -> str:
    """What a sentence claims: itself, behind its question where it has fewer than FEWEST_WORDS words.

    >>> claim_of("Marlow", "Who built it?")
    'Who built it? Marlow'
    """
    return f"{question} {sentence}" if question and len(sentence.split()) < FEWEST_WORDS else sentence


Span = tuple[int, int]
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SPACES, _REST, _LINE_ENDS = re.compile(" *"), re.compile(r"[^\n]*"), re.compile(r"\n*")


class SupportGate:
    """Takes a text, its citations checked, piece by piece and gives it back without what `reading` finds unsupported.

    However the text is cut into pieces, what is given back is the same. A sentence is held back until its paragraph or list item has
    ended, a table until it has. `part` is the text's name.
    """

    def __init__(self, part: str, reading: SupportChecker) -> None:
        self._part, self._reading = part, reading
        self._held = self._blank = self._last = ""
        self._taken = self._given = 0
        self._waiting: list[Mark] = []
        self._marks: list[Mark] = []
        self._dropped: list[Unsupported] = []

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The citations in what was given back, in order."""
        return tuple(self._marks)

    @property
    def dropped(self) -> list[Unsupported]:
        """The sentences that were left out, each at the place where it stood."""
        return [replace(each, start=at, end=at) for each in self._dropped for at in [min(each.start, self._given)]]

    def feed(self, text: str, marks: Iterable[Mark] = ()) -> str:
        """What can be given back now; `marks` are the citations in `text`, their places those in all of the text so far."""
        self._held += text
        self._waiting += marks
        return self._release(settled_length(self._held)) if "\n" in text else ""

    def finish(self) -> str:
        """The rest, at the end of the text."""
        return self._release(len(self._held))

    def _release(self, end: int) -> str:
        block, self._held = self._held[:end], self._held[end:]
        found = self._reading.unsupported(self._part, block)
        gone = spans_to_cut(block, found, self._last + self._blank)
        start = self._given + len(self._blank)
        self._dropped += [replace(each, start=start + place_without(each.start, gone)) for each in found]
        decided = [mark for mark in self._waiting if mark.start < self._taken + end]
        self._waiting = self._waiting[len(decided) :]
        for mark in decided:
            at = mark.start - self._taken
            if not any(first <= at < last for first, last in gone):
                self._marks.append(mark.later(start + place_without(at, gone) - mark.start))
        self._taken += end
        text = self._blank + without_spans(block, gone)
        given = text.rstrip()
        self._blank = text[len(given) :]
        self._given += len(given)
        self._last = given[-1:] or self._last
        return given


def without_unsupported(checked: str, unsupported: Sequence[Unsupported]) -> tuple[str, tuple[Unsupported, ...]]:
    """The text without these sentences, and these, each at the place where it stood.

    >>> without_unsupported("It burned. It sank. It is gone.", [Unsupported("reason", "It sank.", 11, 19, 0.9, (), ())])[0]
    'It burned. It is gone.'
    """
    gone = spans_to_cut(checked, unsupported, "")
    kept = without_spans(checked, gone).rstrip()
    places = [min(place_without(each.start, gone), len(kept)) for each in unsupported]
    moved = [replace(each, start=at, end=at) for each, at in zip(unsupported, places, strict=True)]
    return kept, tuple(moved)


def settled_length(text: str) -> int:
    """How many characters of a text that goes on are whole paragraphs, headings, list items, and tables with what follows them.

    The empty lines behind each belong to it.
    """
    end, is_closed, in_table = 0, False, False
    for match in _LINE.finditer(text):
        line = match[0]
        if not line.strip():
            is_closed = is_closed or not in_table
            continue
        end = match.start() if is_closed else end
        is_closed, in_table = bool(LIST_ITEM.match(line) or HEADING.match(line)), is_row(line)
    return end


def spans_to_cut(text: str, sentences: Sequence[Unsupported], before: str) -> list[Span]:
    """What goes with these sentences, characters first to last, in order; `before` is what stands in front of the text."""
    spans: list[Span] = []
    for each in sentences:
        end = _SPACES.match(text, each.end).end()  # type: ignore[union-attr]
        if spans and spans[-1][1] >= each.start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((each.start, end))
    gone: list[Span] = []
    for span in spans:
        gone.append(_widened(text, span, before + without_spans(text[: span[0]], gone)))
    return gone


def without_spans(text: str, gone: Sequence[Span]) -> str:
    """The text without these spans."""
    ends = [0, *(last for _, last in gone)]
    starts = [*(first for first, _ in gone), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def place_without(at: int, gone: Sequence[Span]) -> int:
    """Where the character `at` is once these spans are gone; that where it was, if it is in one."""
    return at - sum(min(last, at) - first for first, last in gone if first < at)


def _widened(text: str, span: Span, ahead: str) -> Span:
    """A span with the rest of its line where nothing else is on it, and without the blanks in front where it ends one; `ahead` is what
    is kept in front of it.
    """
    first, last = span
    line_end = _REST.match(text, last).end()  # type: ignore[union-attr]
    head = ahead[ahead.rfind("\n") + 1 :]
    if text[last:line_end].strip():
        return span
    if head.strip() and not LIST_ITEM.fullmatch(head):
        return max(0, first - (len(head) - len(head.rstrip(" ")))), last
    above = ahead[: len(ahead) - len(head)]
    behind = _LINE_ENDS.match(text, line_end).end()  # type: ignore[union-attr]
    return max(0, first - len(head)), behind if not above or above.endswith("\n\n") else min(line_end + 1, behind)
