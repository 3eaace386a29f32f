"""Paths over an index: from a document that the question names, over entities that it does not, to what is asked for.

Every hop goes through another document. It is taken only if nothing else could be meant: the entity that leads on is
the only one that its sentence names so, and a way back from an entity to a document only if no other document names it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from data_synth.questions.mentions import Mentions
from data_synth.questions.phrases import Kind, kind_by_name
from data_synth.questions.reading import IndexStatements, Place, RelationStatement
from data_synth.questions.types import Step, named_in
from data_synth.questions.values import Value
from graph.extract.entities import entity_key

MAX_SHARING = 6
"""An entity in more documents than these says little about two of them."""
T = TypeVar("T")


@dataclass(frozen=True)
class PathEnd:
    """Where a path has come to: an entity, the document that is called so (if one is), and how the question describes it
    ("" where no words would).

    `chains` are the ways there: none, one, or two that meet; `documents` are those that they went through.
    """

    name: str
    document: int | None
    described: str
    chains: tuple[tuple[Step, ...], ...] = ((),)
    documents: tuple[int, ...] = ()

    @property
    def bridges(self) -> tuple[str, ...]:
        """The entities that lead on."""
        return tuple(dict.fromkeys(step.found for chain in self.chains for step in chain))

    def and_then(self, step: Step) -> tuple[tuple[Step, ...], ...]:
        """The chains, each one step longer."""
        return tuple((*chain, step) for chain in self.chains)


def walks(readings: IndexStatements, start: PathEnd, hops: int, rng: Random) -> Iterator[PathEnd]:
    """Paths of so many hops from `start` on, each hop once in every order that chance gives."""
    if hops == 0:
        yield start
        return
    onward = [*_ahead(readings, start), *_back(readings, start)]
    rng.shuffle(onward)
    for reached in onward:
        yield from walks(readings, reached, hops - 1, rng)


def ties_ahead(readings: IndexStatements, reached: PathEnd) -> Iterator[RelationStatement]:
    """What the document that a path has come to names, unless the path has been there."""
    if reached.document is not None and reached.document not in reached.documents:
        for tie in readings.ties.get(reached.document, ()):
            target = readings.mentions.document_of(tie.key)
            if tie.relation.ahead and target not in reached.documents and entity_key(reached.name) != tie.key:
                yield tie


def ties_back(readings: IndexStatements, reached: PathEnd) -> Iterator[RelationStatement]:
    """The statement of another document about the entity that a path has come to, if only one other document names it."""
    key = entity_key(reached.name)
    naming = readings.mentions.documents_naming(key) - {*reached.documents, reached.document}
    found = [tie for tie in readings.named.get(key, ()) if tie.place.document in naming]
    if len(naming) == 1 and len(found) == 1:
        yield found[0]


def step_ahead(readings: IndexStatements, reached: PathEnd, tie: RelationStatement) -> Step:
    """The hop from a document's subject to what it names."""
    return _step(readings.mentions, tie.place, reached.name, tie.name)


def step_back(readings: IndexStatements, reached: PathEnd, tie: RelationStatement) -> Step:
    """The hop from an entity to the subject of the document that names it."""
    return _step(readings.mentions, tie.place, reached.name, readings.title(tie.place.document))


def step_to_entity(readings: IndexStatements, document: int, key: str) -> Step | None:
    """The hop from a document to an entity that it mentions; None unless one statement alone does, in so many words."""
    mentions = readings.mentions
    places = [place for place in readings.statements.get(document, ()) if named_in(key, place.quote)]
    written = re.search(re.escape(key), places[0].quote, re.IGNORECASE) if len(places) == 1 else None
    return _step(mentions, places[0], readings.title(document), written[0]) if written else None


def values_at(readings: IndexStatements, reached: PathEnd) -> list[tuple[Value, Step]]:
    """The values of the document that a path has come to, unless the path has been there, and the hops to them."""
    if reached.document is None or reached.document in reached.documents:
        return []
    given = readings.values.get(reached.document, ())
    return [(each.value, _step(readings.mentions, each.place, reached.name, each.value.text)) for each in given]


def put_in(phrase: str, *described: str) -> str:
    """A phrase with descriptions in the places of "{}", in order.

    >>> put_in("Which is older, {} or {}?", "the yard", "Quill {}")
    'Which is older, the yard or Quill {}?'
    """
    parts = phrase.split("{}")
    return "".join(text for pair in zip(parts, (*described, ""), strict=True) for text in pair)


def shuffled(items: Sequence[T], rng: Random) -> list[T]:
    """The items in an order that chance gives."""
    return rng.sample(items, len(items))


def starts(readings: IndexStatements, rng: Random) -> Iterator[PathEnd]:
    """Every document as the start of a path, in an order that chance gives."""
    return (_start(readings, document) for document in shuffled(sorted(readings.ties), rng))


def joint_starts(readings: IndexStatements, rng: Random) -> Iterator[tuple[PathEnd, str]]:
    """Two hops side by side, from two documents to the one thing that both mention, and the question that asks for it.

    The documents are about things of one kind: two films have something in common that is worth a question, two topics have not.
    """
    mentions = readings.mentions
    for key in shuffled(mentions.shared_entities(MAX_SHARING), rng):
        target = mentions.document_of(key)
        kind = kind_by_name(key) if target is None else readings.kinds.get(target, Kind())
        naming = sorted(mentions.documents_naming(key) - {target})
        if len(naming) < 2:
            continue
        first, second = rng.sample(naming, 2)
        both = [_start(readings, document) for document in (first, second)]
        if kind_at(readings, both[0]) != kind_at(readings, both[1]) or kind_at(readings, both[0]) == Kind():
            continue
        if mentions.common_entities(first, second, and_frequent=not kind.noun) != {key}:
            continue
        steps = [step_to_entity(readings, document, key) for document in (first, second)]
        told = [(step,) for step in steps if step is not None]
        if len(told) == 2:
            mentioned = put_in("is mentioned in the documents on both {} and {}", *(start.described for start in both))
            reached = PathEnd(told[0][0].found, target, kind.described(mentioned), tuple(told), (first, second))
            yield reached, f"{kind.asked if kind.noun else 'Who or what'} {mentioned}?"


def kind_at(readings: IndexStatements, reached: PathEnd) -> Kind:
    """What the thing is that a path has come to: by the document that is about it, or else by its name. `Kind()` if neither says so.

    A document whose sentences do not open with its title is about a topic, and of no kind.
    """
    if reached.document is None or not readings.kinds.get(reached.document, Kind()).noun:
        return kind_by_name(reached.name)
    return readings.kinds[reached.document] if reached.document in readings.openings else Kind()


def _start(readings: IndexStatements, document: int) -> PathEnd:
    title = readings.mentions.index.data.document_titles[document]
    return PathEnd(readings.title(document), document, " ".join(title.split()))


def _ahead(readings: IndexStatements, reached: PathEnd) -> Iterator[PathEnd]:
    for tie in ties_ahead(readings, reached):
        yield PathEnd(
            tie.name,
            readings.mentions.document_of(tie.key),
            put_in(tie.relation.ahead, reached.described),
            reached.and_then(step_ahead(readings, reached, tie)),
            (*reached.documents, tie.place.document),
        )


def _back(readings: IndexStatements, reached: PathEnd) -> Iterator[PathEnd]:
    for tie in ties_back(readings, reached):
        if tie.relation.back:
            yield PathEnd(
                readings.title(tie.place.document),
                tie.place.document,
                put_in(tie.relation.back, reached.described),
                reached.and_then(step_back(readings, reached, tie)),
                (*reached.documents, tie.place.document),
            )


def _step(mentions: Mentions, place: Place, given: str, found: str) -> Step:
    data = mentions.index.data
    return Step(given, found, data.document_sources[place.document], data.passage_ids[place.passage], place.quote)
