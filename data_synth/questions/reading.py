"""What an index says in sentences that the templates can tell: ties of documents to entities, and values.

A statement counts only when it stands in one place of the index and opens with what its document is about.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from data_synth.questions.mentions import Mentions, columns_of
from data_synth.questions.phrases import Kind, Relation, kind_by_name, kind_of, plain_title, predicate_of, relate
from data_synth.questions.values import Value, values_of
from graph.extract.entities import entity_key
from graph.index.index import Index


@dataclass(frozen=True)
class Place:
    """Where a statement stands, and the very words there."""

    document: int
    passage: int
    quote: str


@dataclass(frozen=True)
class RelationStatement:
    """A statement about a document's subject that names something else: `name` as written, its `key`, how to tell it."""

    place: Place
    name: str
    key: str
    relation: Relation


@dataclass(frozen=True)
class ValueStatement:
    """A statement that gives a date or quantity of a document's subject."""

    place: Place
    value: Value


@dataclass(frozen=True)
class IndexStatements:
    """What an index says, by document row; `named` are the ties by the key of the entity.

    `openings` are of the documents about one thing: how their first sentence calls it ("the Brandt Yard"). `splits` are train, dev or
    test of each document; where there are none, all are in one.
    """

    mentions: Mentions
    kinds: dict[int, Kind]
    statements: dict[int, tuple[Place, ...]]
    ties: dict[int, tuple[RelationStatement, ...]]
    named: dict[str, tuple[RelationStatement, ...]]
    values: dict[int, tuple[ValueStatement, ...]]
    openings: dict[int, str]
    splits: dict[int, str] = field(default_factory=dict)

    def title(self, document: int) -> str:
        """What a document is called, brackets left out."""
        return plain_title(self.mentions.index.data.document_titles[document])


def read_index(index: Index, splits: Mapping[str, str] | None = None) -> IndexStatements:
    """Read every proposition of the index once; `splits` are those of the documents, by source."""
    mentions = Mentions(index)
    titles = index.data.document_titles
    statements: dict[int, list[tuple[Place, int]]] = defaultdict(list)
    for place, proposition in _single_statements(index):
        statements[place.document].append((place, proposition))
    kinds = {document: _kind(index, document, told) for document, told in statements.items()}
    ties, values = {}, {}
    for document, told in statements.items():
        predicates = [
            (place, row, predicate_of(index.data.proposition_texts[row], titles[document], kinds[document]))
            for place, row in told
        ]
        ties[document] = tuple(_ties(mentions, kinds, document, predicates))
        values[document] = tuple(_values(index, kinds[document], predicates))
    named: dict[str, list[RelationStatement]] = defaultdict(list)
    for of_document in ties.values():
        for tie in of_document:
            named[tie.key].append(tie)
    places = {document: tuple(place for place, _ in told) for document, told in statements.items()}
    openings = {document: opening_of(of[0].quote, titles[document]) for document, of in places.items()}
    return IndexStatements(
        mentions,
        kinds,
        places,
        ties,
        {key: tuple(found) for key, found in named.items()},
        values,
        {document: opening for document, opening in openings.items() if opening},
        {row: splits[source] for row, source in enumerate(index.data.document_sources)} if splits else {},
    )


def opening_of(sentence: str, title: str) -> str:
    """How a document's first sentence calls the one thing that its title names; "" if it does not open with it.

    >>> opening_of("The Lantern works the sound.", "Lantern (ferry)"), opening_of("Wages are monthly.", "Pay")
    ('the Lantern', '')
    """
    name = re.sub(r"^The ", "", plain_title(title))
    found = re.match(rf"(?P<the>The )?{re.escape(name)}(?=[ ,(])", sentence) if name else None
    return f"the {name}" if found and found["the"] else name if found else ""


def _single_statements(index: Index) -> Iterator[tuple[Place, int]]:
    """(place, proposition row) of every proposition that stands in one place, in the order of the documents."""
    data = index.data
    rows = data.occurrence_proposition_M
    found = []
    for at, row in enumerate(rows):
        alone = (at == 0 or rows[at - 1] != row) and (at + 1 == len(rows) or rows[at + 1] != row)
        if alone:
            passage = int(data.occurrence_passage_M[at])
            offset = int(data.passage_start_P[passage])
            start, end = int(data.occurrence_start_M[at]) - offset, int(data.occurrence_end_M[at]) - offset
            place = Place(int(data.passage_document_P[passage]), passage, data.passage_texts[passage][start:end])
            found.append((passage, start, place, int(row)))
    yield from ((place, row) for _, _, place, row in sorted(found, key=lambda each: each[:2]))


def _kind(index: Index, document: int, told: list[tuple[Place, int]]) -> Kind:
    """What a document is about, by the first of its statements that says so."""
    title, text = index.data.document_titles[document], " ".join(place.quote for place, _ in told)
    for _, row in told:
        predicate = predicate_of(index.data.proposition_texts[row], title, Kind())
        if predicate is not None and re.match(r"(?:is|was|are|were) (?:an?|the|one of) ", predicate):
            return kind_of(predicate, text)
    return kind_of(told[0][0].quote, text)


def _ties(
    mentions: Mentions, kinds: dict[int, Kind], document: int, predicates: list[tuple[Place, int, str | None]]
) -> Iterator[RelationStatement]:
    data = mentions.index.data
    own = entity_key(data.document_titles[document])
    for place, row, predicate in predicates:
        for entity in columns_of(data.proposition_entity_NE, row) if predicate else ():
            key = data.entity_texts[entity]
            target = mentions.document_of(key)
            worthy = target is not None or (" " in key and not any(map(str.isdigit, key)))
            if key == own or not worthy or len(mentions.documents_called.get(key, ())) > 1:
                continue
            other = kind_by_name(key) if target is None else kinds.get(target, Kind())
            relation = relate(predicate or "", key, kinds[document], other)
            written = re.search(re.escape(key), place.quote, re.IGNORECASE)
            if relation is not None and written is not None and written[0][0].isupper():
                yield RelationStatement(place, written[0], key, relation)


def _values(index: Index, kind: Kind, predicates: list[tuple[Place, int, str | None]]) -> Iterator[ValueStatement]:
    """The values of a document, each attribute once; none of an attribute that it gives two values of."""
    found: dict[str, list[ValueStatement]] = defaultdict(list)
    for place, row, predicate in predicates:
        for value in values_of(index.data.proposition_texts[row], predicate, kind):
            found[value.attribute].append(ValueStatement(place, value))
    for given in found.values():
        if len({each.value.text for each in given}) == 1 and given[0].value.text in given[0].place.quote:
            yield given[0]
