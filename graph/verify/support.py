"""Whether what a text says is in the passages that it was written from, sentence by sentence.

A sentence that cites is read against the passages that it cites, any other against all. Fragments of fewer than FEWEST_WORDS words
("Yes", a bare name) are not judged, nor is what is longer than MOST_WORDS: no verifier has learned from such. That something is not in
the documents is no claim of theirs, and not judged either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from graph.extract.units import split_units
from graph.prompt.answer import NOT_FOUND
from graph.prompt.citations import CitationGate
from graph.shared.errors import UserError
from graph.shared.types import Excerpt
from graph.verify.features import Ground, missing_words
from graph.verify.verifier import Verifier, judge, open_verifier

FEWEST_WORDS, MOST_WORDS = 4, 200
GROUNDS_KEPT = 256
"""Passages whose words are kept: 11 MB of them where a passage has 120 words."""
HANDLING = ("mark", "drop", "ignore")
"""What can be done with an unsupported sentence."""


@dataclass(frozen=True)
class Unsupported:
    """A sentence that its passages do not seem to support: characters start to end of that part of the answer.

    `probability` is the verifier's; `cited` are the passages that the sentence cites; `missing` its names and numbers that stand in none
    of the passages that it was read against.
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
    """The verifier of a `spec`, None to ignore what is not supported; UserError for another word than those of HANDLING."""
    if handling not in HANDLING:
        raise UserError(f"--unsupported {handling}", "mark, drop or ignore", "fix the option")
    return None if handling == "ignore" else open_verifier(spec)


def unsupported_sentences(
    part: str, checked: str, excerpts: Sequence[Excerpt], verifier: Verifier | None
) -> list[Unsupported]:
    """The sentences of a text, its citations checked, that the excerpts which it was written from do not seem to support.

    `part` says which text of an answer it is; without a verifier, or without excerpts, none is judged.
    """
    if verifier is None or not excerpts:
        return []
    found = []
    grounds = [_ground(excerpt.title, excerpt.text) for excerpt in excerpts]
    for sentence in _sentences(checked, len(excerpts)):
        ground = Ground.joined([grounds[number - 1] for number in sentence.cited] or grounds)
        probability = float(judge(verifier, [sentence.claim], ground)[0])
        if probability >= verifier.threshold:
            missing = missing_words(sentence.claim, ground)
            told = (sentence.text, sentence.start, sentence.end)
            found.append(Unsupported(part, *told, round(probability, 3), sentence.cited, missing))
    return found


@lru_cache(GROUNDS_KEPT)
def _ground(title: str, text: str) -> Ground:
    """A passage to read against; those that were read last are kept, as a server shows the same ones often."""
    return Ground.of([(title, text)])


def without_unsupported(checked: str, unsupported: Sequence[Unsupported]) -> str:
    """The text without these sentences.

    >>> without_unsupported("It burned. It sank. It is gone.", [Unsupported("reason", "It sank.", 11, 19, 0.9, (), ())])
    'It burned. It is gone.'
    """
    kept, last = "", 0
    for sentence in unsupported:
        kept += checked[last : sentence.start]
        last = sentence.end + (len(checked[sentence.end :]) - len(checked[sentence.end :].lstrip(" ")))
    return (kept + checked[last:]).rstrip()


def _sentences(checked: str, passages: int) -> Iterator[_Sentence]:
    for unit in split_units(checked):
        gate = CitationGate(0)
        claim = gate.feed(unit.text) + gate.finish()
        too_short_or_long = not FEWEST_WORDS <= len(claim.split()) <= MOST_WORDS
        if unit.kind == "heading" or too_short_or_long or NOT_FOUND in claim.casefold():
            continue
        cited = tuple(number for number in gate.removed if 1 <= number <= passages)
        yield _Sentence(unit.text, unit.start, unit.end, claim, cited)
