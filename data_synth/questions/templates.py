"""Candidates of questions over several documents, from paths over an index: bridges, comparisons, and what two documents both name.

A path leads from a document that the question names, over entities that it does not name, to the answer. Every hop goes to another
document, and only where nothing else could be meant. A bridge is a path to a thing that is described, not named; comparisons and joint
names are of things of one kind."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TypeVar

from data_synth.questions.index_statements import IndexStatements, Mentions, Place, RelationStatement
from data_synth.questions.phrases import Kind, Value, kind_by_name
from data_synth.questions.question_form import Step, named_in
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


MAX_TRIES_A_START = 8
"""Paths that are tried from one document before the next one's turn."""
MIN_GAP = 1.0
"""Two values compare only if they are as far apart as this (a year, for dates)."""


@dataclass(frozen=True)
class Candidate:
    """A question with its answer and the chains of steps that lead there, not yet checked.

    `others` are further accepted answers; `attribute` is what a comparison compares.
    """

    kind: str
    text: str
    answer: str
    chains: tuple[tuple[Step, ...], ...]
    bridges: tuple[str, ...]
    others: tuple[str, ...] = ()
    attribute: str = ""


Template = Callable[[IndexStatements, int, Random], Iterator[Candidate]]
"""(readings, hops, chance) to candidates, in an order that chance gives."""


def bridge_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Chains of `hops` steps (2 or more), the last one to what is asked for: a value, a name, or a document that names the last.

    They begin at one document, or at two that have one name in common.
    """
    if hops < 2:
        return
    begun = [(start, hops - 1) for start in starts(readings, rng)]
    begun += [(start, hops - 3) for start, _ in joint_starts(readings, rng) if start.described] if hops > 2 else []
    for start, left in shuffled(begun, rng):
        for reached in islice(walks(readings, start, left, rng), MAX_TRIES_A_START):
            yield from shuffled(list(_ends(readings, reached)), rng)


def _ends(readings: IndexStatements, reached: PathEnd) -> Iterator[Candidate]:
    for value, step in values_at(readings, reached):
        yield _bridge(reached, value.asked, value.text, step)
    for tie in ties_ahead(readings, reached):
        if tie.relation.ahead_asked:
            yield _bridge(reached, tie.relation.ahead_asked, tie.name, step_ahead(readings, reached, tie))
    for tie in ties_back(readings, reached):
        title = readings.title(tie.place.document)
        yield _bridge(reached, tie.relation.back_asked, title, step_back(readings, reached, tie))


def _bridge(reached: PathEnd, asked: str, answer: str, last: Step) -> Candidate:
    return Candidate("bridge", put_in(asked, reached.described), answer, reached.and_then(last), reached.bridges)


@dataclass(frozen=True)
class _Side:
    reached: PathEnd
    value: Value
    step: Step

    @property
    def chain(self) -> tuple[Step, ...]:
        return self.reached.and_then(self.step)[0]


def comparison_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Which of two things of one kind has the smaller or larger value of an attribute; each is named, or described over a bridge.

    Two chains of `hops` steps (2 or more) together, as even as can be.
    """
    if hops < 2:
        return
    left, right = (_by_attribute(readings, steps, rng) for steps in ((hops + 1) // 2, hops // 2))
    pairs = [(left[attribute], right[attribute]) for attribute in left if attribute in right]
    while pairs := [(firsts, seconds) for firsts, seconds in pairs if firsts and seconds]:
        for firsts, seconds in pairs:
            first = firsts.pop()
            second = next((side for side in seconds if _compare_well(readings, first, side)), None)
            if second is not None:
                seconds.remove(second)
                pair = (first, second) if rng.random() < 0.5 else (second, first)
                yield _compared(*pair, larger=rng.random() < 0.5)


def intersection_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """What two documents name: the one name that both have in common. Two steps, so none for more `hops`."""
    for reached, asked in joint_starts(readings, rng) if hops == 2 else ():
        yield Candidate("intersection", asked, reached.name, reached.chains, ())


def _by_attribute(readings: IndexStatements, steps: int, rng: Random) -> dict[str, list[_Side]]:
    found: dict[str, list[_Side]] = defaultdict(list)
    for start in starts(readings, rng):
        for reached in islice(walks(readings, start, steps - 1, rng), 1):
            for value, step in values_at(readings, reached):
                found[value.attribute].append(_Side(reached, value, step))
    return found


def _compare_well(readings: IndexStatements, first: _Side, second: _Side) -> bool:
    """Whether two things are of one kind and their documents in one split, and their values apart."""
    splits = {readings.splits.get(side.reached.document or 0) for side in (first, second)}
    kinds = [kind_at(readings, side.reached) for side in (first, second)]
    apart = abs(first.value.order - second.value.order) >= MIN_GAP
    return first.reached.name != second.reached.name and apart and len(splits) == 1 and kinds[0] == kinds[1] != Kind()


def _compared(first: _Side, second: _Side, larger: bool) -> Candidate:
    ordered = sorted((first, second), key=lambda side: side.value.order)
    asked = first.value.larger if larger else first.value.smaller
    return Candidate(
        "comparison",
        put_in(asked, first.reached.described, second.reached.described),
        ordered[1 if larger else 0].reached.name,
        (first.chain, second.chain),
        (*first.reached.bridges, *second.reached.bridges),
        attribute=first.value.attribute,
    )
