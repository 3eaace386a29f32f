"""Claims over passages: every round takes one sentence of each passage, restates it and breaks what came out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_synth.claims.falsify import Surroundings, falsify, names_in
from data_synth.claims.restate import Place, restate
from data_synth.claims.types import ClaimRow
from data_synth.relevance.split import split_by_hash
from data_synth.types import Dropped
from graph.extract.units import split_units
from graph.shared.ids import content_id

if TYPE_CHECKING:
    from graph.index.index import Index

SHORTEST, LONGEST = 30, 400
"""Characters of a sentence that claims are made of."""
NAMES_KEPT = 5
"""Of each passage, for other passages' claims to borrow."""
NO_SENTENCE, UNBREAKABLE = (
    "a passage without a sentence of 30 to 400 characters",
    "nothing in the claim could be broken",
)


@dataclass(frozen=True)
class Told:
    """A passage, the title that it is known by, and the document that it is of."""

    source: str
    title: str
    text: str


@dataclass(frozen=True)
class _Parts:
    """A passage taken apart."""

    told: Told
    sentences: tuple[str, ...]
    names: tuple[str, ...]


def passages_of(index: Index) -> Iterator[Told]:
    """The passages of an index, in order."""
    data, sources = index.data, index.sources()
    for text, document in zip(data.passage_texts, data.passage_document_P.tolist(), strict=True):
        yield Told(sources[document], data.document_titles[document], text)


def claim_rows(passages: Iterable[Told], rounds: int, seed: int) -> Iterator[ClaimRow | Dropped]:
    """Pairs of a supported claim and its broken twin, at most `rounds` a passage, in the order of the passages."""
    parted = [_parts(told) for told in passages]
    foreign = [name for parts in parted for name in parts.names[:NAMES_KEPT]]
    for parts in parted:
        if not parts.sentences:
            yield Dropped(NO_SENTENCE)
            continue
        told, made = parts.told, set[str]()
        around = Surroundings(told.text, parts.names, foreign)
        for number in range(rounds):
            draw = random.Random(content_id(str(seed), str(number), told.source, told.text))
            place = Place(parts.sentences, draw.randrange(len(parts.sentences)), told.title)
            claim, way = restate(place, draw)
            broken = falsify(claim, around, draw)
            if broken is None:
                yield Dropped(UNBREAKABLE)
            elif claim not in made:
                made.add(claim)
                yield _row(told, claim, True, way, seed)
                yield _row(told, broken[0], False, broken[1], seed)


def _parts(told: Told) -> _Parts:
    units = (unit.text for unit in split_units(told.text) if unit.kind == "sentence")
    sentences = tuple(unit for unit in units if SHORTEST <= len(unit) <= LONGEST)
    return _Parts(told, sentences, tuple(names_in(told.text)))


def _row(told: Told, claim: str, supported: bool, kind: str, seed: int) -> ClaimRow:
    return ClaimRow(
        id=content_id(told.source, told.text, claim)[:16],
        title=told.title,
        passage=told.text,
        claim=claim,
        supported=supported,
        kind=kind,
        split=split_by_hash(seed, told.source),
    )
