"""Whether what a text says is in the passages that it was written from, sentence by sentence.

A sentence that cites is read against the passages that it cites, any other against all. Fragments of fewer than FEWEST_WORDS words
("Yes", a bare name) or FEWEST_CONTENT_WORDS that say something ("Yes, it is so") are not judged, nor is what is longer than MOST_WORDS:
no verifier has learned from such. That something is not in the documents is no claim of theirs, and not judged either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

from graph.extract.units import split_units
from graph.prompt.answer import NOT_FOUND, parse_answer
from graph.prompt.citations import CitationGate, check_citations
from graph.shared.errors import UserError
from graph.shared.types import Excerpt
from graph.verify.features import Ground, missing_words
from graph.verify.verifier import Verifier, judge, open_verifier
from graph.verify.words import Words

FEWEST_WORDS, FEWEST_CONTENT_WORDS, MOST_WORDS = 4, 2, 200
GROUNDS_KEPT = 256
"""Passages whose words are kept: 11 MB of them where a passage has 120 words."""
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


class Reading:
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
            yield sentence, float(judge(self._verifier, [sentence.claim], self._ground(sentence))[0])

    def _marks(self, probability: float) -> bool:
        return self._verifier is not None and probability >= self._verifier.threshold

    def _ground(self, sentence: _Sentence) -> Ground:
        return Ground.joined([self._grounds[number - 1] for number in sentence.cited] or self._grounds)

    @cached_property
    def _grounds(self) -> list[Ground]:
        return [_ground_of(excerpt.title, excerpt.text) for excerpt in self._excerpts]


@lru_cache(GROUNDS_KEPT)
def _ground_of(title: str, text: str) -> Ground:
    """A passage to read against; those that were read last are kept, as a server shows the same ones often."""
    return Ground.of([(title, text)])


def _sentences(checked: str, passages: int) -> Iterator[_Sentence]:
    for unit in split_units(checked):
        gate = CitationGate(0)
        claim = gate.feed(unit.text) + gate.finish()
        if unit.kind == "heading" or not _can_be_judged(claim):
            continue
        cited = tuple(number for number in gate.removed if 1 <= number <= passages)
        yield _Sentence(unit.text, unit.start, unit.end, claim, cited)


def _can_be_judged(claim: str) -> bool:
    if not FEWEST_WORDS <= len(claim.split()) <= MOST_WORDS or NOT_FOUND in claim.casefold():
        return False
    return len(Words.of(claim).content) >= FEWEST_CONTENT_WORDS
