"""Candidate questions that need several documents, from paths through an index: bridges, comparisons, and entities that two documents mention.

A path leads from a document that the question names, through entities that it does not name, to the answer. Every hop goes to another
document and is unambiguous. The names on the way are its bridges. The two subjects of a comparison, and those of two documents that share an entity,
are of the same type."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from random import Random
from typing import TypeVar

from data_synth.questions.index_statements import IndexStatements, Mentions, Occurrence, RelationStatement
from data_synth.questions.phrases import Kind, Value, kind_by_name
from data_synth.questions.question_form import Step, named_in
from graph.extract.entities import entity_key

MAX_SHARING = 6
"""An entity in more documents than this is not a specific link between two of them."""
T = TypeVar("T")


@dataclass(frozen=True)
class PathEnd:
    """The end of a path: an entity, the document whose title is its name (if any), and the question's description of it ("" for none).

    `chains` lead there: one (empty at the start of a path), or two that meet; `documents` are those that they passed through.
    """

    name: str
    document: int | None
    description: str
    chains: tuple[tuple[Step, ...], ...] = ((),)
    documents: tuple[int, ...] = ()

    @property
    def bridges(self) -> tuple[str, ...]:
        """The entities between the start and the answer."""
        return tuple(dict.fromkeys(step.found for chain in self.chains for step in chain))

    def extended(self, step: Step) -> tuple[tuple[Step, ...], ...]:
        """The chains, each extended by a step."""
        return tuple((*chain, step) for chain in self.chains)


def paths_from(statements: IndexStatements, start: PathEnd, hops: int, rng: Random) -> Iterator[PathEnd]:
    """The ends of all paths of `hops` hops from `start`, in random order."""
    if hops == 0:
        yield start
        return
    next_ends = [*_forward(statements, start), *_backward(statements, start)]
    rng.shuffle(next_ends)
    for end in next_ends:
        yield from paths_from(statements, end, hops - 1, rng)


def forward_relations(statements: IndexStatements, end: PathEnd) -> Iterator[RelationStatement]:
    """The relations stated in the document at the end of a path, unless the path has passed through it."""
    if end.document is not None and end.document not in end.documents:
        for statement in statements.relations.get(end.document, ()):
            target = statements.mentions.document_of(statement.key)
            if statement.relation.forward and target not in end.documents and entity_key(end.name) != statement.key:
                yield statement


def backward_relations(statements: IndexStatements, end: PathEnd) -> Iterator[RelationStatement]:
    """The relation of another document to the entity at the end of a path, if only one other document mentions it."""
    key = entity_key(end.name)
    documents = statements.mentions.documents_mentioning(key) - {*end.documents, end.document}
    found = [one for one in statements.relations_to.get(key, ()) if one.occurrence.document in documents]
    if len(documents) == 1 and len(found) == 1:
        yield found[0]


def forward_step(statements: IndexStatements, end: PathEnd, statement: RelationStatement) -> Step:
    """The hop from a document's subject to the entity that it is related to."""
    return step_at(statements.mentions, statement.occurrence, end.name, statement.name)


def backward_step(statements: IndexStatements, end: PathEnd, statement: RelationStatement) -> Step:
    """The hop from an entity to the subject of the document that is related to it."""
    title = statements.title(statement.occurrence.document)
    return step_at(statements.mentions, statement.occurrence, end.name, title)


def step_to_entity(statements: IndexStatements, document: int, key: str) -> Step | None:
    """The hop from a document to an entity that it mentions; None unless exactly one statement mentions it literally."""
    mentions = statements.mentions
    occurrences = [one for one in statements.occurrences.get(document, ()) if named_in(key, one.quote)]
    match = re.search(re.escape(key), occurrences[0].quote, re.IGNORECASE) if len(occurrences) == 1 else None
    return step_at(mentions, occurrences[0], statements.title(document), match[0]) if match else None


def values_at(statements: IndexStatements, end: PathEnd) -> list[tuple[Value, Step]]:
    """The values in the document at the end of a path, unless the path has passed through it, and the hops to them."""
    if end.document is None or end.document in end.documents:
        return []
    values = statements.values.get(end.document, ())
    return [(one.value, step_at(statements.mentions, one.occurrence, end.name, one.value.text)) for one in values]


def fill_slots(phrase: str, *descriptions: str) -> str:
    """A phrase with descriptions filled into its "{}" slots, in order.

    >>> fill_slots("Which is older, {} or {}?", "the yard", "Quill {}")
    'Which is older, the yard or Quill {}?'
    """
    parts = phrase.split("{}")
    return "".join(text for pair in zip(parts, (*descriptions, ""), strict=True) for text in pair)


def shuffled(items: Sequence[T], rng: Random) -> list[T]:
    return rng.sample(items, len(items))


def in_turn(lists: Iterable[Iterable[T]]) -> Iterator[T]:
    """The first item of each list, then the second of each, and so on.

    >>> list(in_turn(["ad", "b", "ce"]))
    ['a', 'b', 'c', 'd', 'e']
    """
    return (item for items in zip_longest(*lists) for item in items if item is not None)


def starts(statements: IndexStatements, rng: Random) -> Iterator[PathEnd]:
    """Every document as the start of a path, in random order."""
    return (_start(statements, document) for document in shuffled(sorted(statements.relations), rng))


def joint_starts(statements: IndexStatements, rng: Random) -> Iterator[tuple[PathEnd, str]]:
    """Two parallel hops, from two documents to the one entity that both mention, and the question that asks for it.

    The documents are about subjects of the same type: an entity that two films share is worth asking for; an entity that two topics share is not.
    """
    mentions = statements.mentions
    for key in shuffled(mentions.shared_entities(MAX_SHARING), rng):
        target = mentions.document_of(key)
        kind = kind_by_name(key) if target is None else statements.kinds.get(target, Kind())
        documents = sorted(mentions.documents_mentioning(key) - {target})
        if len(documents) < 2:
            continue
        first, second = rng.sample(documents, 2)
        both = [_start(statements, document) for document in (first, second)]
        kinds = {kind_at(statements, start) for start in both}
        if len(kinds) > 1 or Kind() in kinds:
            continue
        if mentions.common_entities(first, second, and_frequent=not kind.noun) != {key}:
            continue
        steps = [step_to_entity(statements, document, key) for document in (first, second)]
        chains = [(step,) for step in steps if step is not None]
        if len(chains) == 2:
            names = (start.description for start in both)
            mentioned = fill_slots("is mentioned both in the document on {} and in the document on {}", *names)
            end = PathEnd(chains[0][0].found, target, kind.describe(mentioned), tuple(chains), (first, second))
            yield end, f"{kind.question_word if kind.noun else 'Who or what'} {mentioned}?"


def kind_at(statements: IndexStatements, end: PathEnd) -> Kind:
    """The type of the entity at the end of a path: by the document about it, or else by its name; `Kind()` if unknown.

    A document whose first sentence does not open with its title is about a topic, which has no type.
    """
    if end.document is None or not statements.kinds.get(end.document, Kind()).noun:
        return kind_by_name(end.name)
    return statements.kinds[end.document] if end.document in statements.subject_names else Kind()


def _start(statements: IndexStatements, document: int) -> PathEnd:
    title = statements.mentions.index.data.document_titles[document]
    return PathEnd(statements.title(document), document, " ".join(title.split()))


def _forward(statements: IndexStatements, end: PathEnd) -> Iterator[PathEnd]:
    for statement in forward_relations(statements, end):
        yield PathEnd(
            statement.name,
            statements.mentions.document_of(statement.key),
            fill_slots(statement.relation.forward, end.description),
            end.extended(forward_step(statements, end, statement)),
            (*end.documents, statement.occurrence.document),
        )


def _backward(statements: IndexStatements, end: PathEnd) -> Iterator[PathEnd]:
    for statement in backward_relations(statements, end):
        document = statement.occurrence.document
        if statement.relation.backward:
            yield PathEnd(
                statements.title(document),
                document,
                fill_slots(statement.relation.backward, end.description),
                end.extended(backward_step(statements, end, statement)),
                (*end.documents, document),
            )


def step_at(mentions: Mentions, occurrence: Occurrence, given: str, found: str) -> Step:
    """The hop that an occurrence states."""
    data = mentions.index.data
    source, passage_id = data.document_sources[occurrence.document], data.passage_ids[occurrence.passage]
    return Step(given, found, source, passage_id, occurrence.quote)


MAX_PATHS_PER_START = 8
"""Paths tried from one start: a document, or an entity that two documents share."""
MIN_GAP = 1.0
"""Two values are compared only if they differ by at least this much (a year, for dates)."""


@dataclass(frozen=True)
class Candidate:
    """A question with its answer and the chains of steps that lead to it, not yet checked.

    `others` are further accepted answers; `attribute` is what a comparison compares ("" for other kinds).
    """

    kind: str
    text: str
    answer: str
    chains: tuple[tuple[Step, ...], ...]
    bridges: tuple[str, ...]
    others: tuple[str, ...] = ()
    attribute: str = ""


Template = Callable[[IndexStatements, int, Random], Iterator[Candidate]]
"""Maps statements, a number of hops and a random generator to candidates, in random order."""


def bridge_questions(statements: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Questions of `hops` steps (2 or more) to a value, a related entity, or the subject of a document related to the last entity.

    The steps start at one document, or at two that have one entity in common.
    """
    if hops < 2:
        return
    first_ends = [(start, hops - 1) for start in starts(statements, rng)]
    if hops > 2:
        first_ends += [(start, hops - 3) for start, _ in joint_starts(statements, rng) if start.description]
    for start, remaining in shuffled(first_ends, rng):
        for end in islice(paths_from(statements, start, remaining, rng), MAX_PATHS_PER_START):
            yield from shuffled(list(_bridges_at(statements, end)), rng)


def _bridges_at(statements: IndexStatements, end: PathEnd) -> Iterator[Candidate]:
    for value, step in values_at(statements, end):
        yield _bridge(end, value.question, step)
    for statement in forward_relations(statements, end):
        if question := statement.relation.forward_question:
            yield _bridge(end, question, forward_step(statements, end, statement))
    for statement in backward_relations(statements, end):
        yield _bridge(end, statement.relation.backward_question, backward_step(statements, end, statement))


def _bridge(end: PathEnd, question: str, last: Step) -> Candidate:
    return Candidate("bridge", fill_slots(question, end.description), last.found, end.extended(last), end.bridges)


@dataclass(frozen=True)
class _Side:
    """One of the two entities that a question compares: the end of a path, a value in its document, and the hop to that value."""

    end: PathEnd
    value: Value
    step: Step

    @property
    def chain(self) -> tuple[Step, ...]:
        return self.end.extended(self.step)[0]


def comparison_questions(statements: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Questions that ask which of two entities of one type has the smaller or larger value of an attribute; each is named, or described by a path to it.

    The two chains have `hops` steps (2 or more) in total, as equally as possible.
    """
    if hops < 2:
        return
    left, right = (_comparable_sides(statements, steps, rng) for steps in ((hops + 1) // 2, hops // 2))
    pairs = [(left[group], right[group]) for group in left if group in right]
    while pairs := [(firsts, seconds) for firsts, seconds in pairs if firsts and seconds]:
        for firsts, seconds in pairs:
            first = firsts.pop()
            second = next((side for side in seconds if _differ(first, side)), None)
            if second is not None:
                seconds.remove(second)
                pair = (first, second) if rng.random() < 0.5 else (second, first)
                yield _comparison(*pair, larger=rng.random() < 0.5)


def intersection_questions(statements: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Questions that ask for the one entity that two documents have in common. They have two steps, so there are none for other `hops`."""
    for end, question in joint_starts(statements, rng) if hops == 2 else ():
        yield Candidate("intersection", question, end.name, end.chains, ())


def _comparable_sides(
    statements: IndexStatements, steps: int, rng: Random
) -> dict[tuple[str, Kind, str | None], list[_Side]]:
    """The sides that can be compared, by attribute, type of the entity and split of its document; entities of unknown type are left out."""
    found: dict[tuple[str, Kind, str | None], list[_Side]] = defaultdict(list)
    for start in starts(statements, rng):
        for end in islice(paths_from(statements, start, steps - 1, rng), 1):
            kind = kind_at(statements, end)
            for value, step in values_at(statements, end) if kind != Kind() else ():
                split = statements.splits.get(end.document or 0)
                found[value.attribute, kind, split].append(_Side(end, value, step))
    return found


def _differ(first: _Side, second: _Side) -> bool:
    """Whether two sides are different entities with values at least MIN_GAP apart."""
    return first.end.name != second.end.name and abs(first.value.order - second.value.order) >= MIN_GAP


def _comparison(first: _Side, second: _Side, larger: bool) -> Candidate:
    ordered = sorted((first, second), key=lambda side: side.value.order)
    question = first.value.larger if larger else first.value.smaller
    return Candidate(
        "comparison",
        fill_slots(question, first.end.description, second.end.description),
        ordered[-1 if larger else 0].end.name,
        (first.chain, second.chain),
        (*first.end.bridges, *second.end.bridges),
        attribute=first.value.attribute,
    )
