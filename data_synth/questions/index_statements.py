"""What an index says in sentences that the templates can use: relations of documents to entities, and values.

A statement counts only when it stands in one place of the index and opens with its document's subject; passages that mention an entity are
found first. Legend: U documents, P passages, N propositions, E entities."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from data_synth.questions.phrases import (
    Kind,
    Relation,
    Value,
    kind_by_name,
    kind_of,
    plain_title,
    predicate_of,
    relate,
    values_of,
)
from data_synth.questions.question_form import named_in
from graph.extract.entities import entity_key
from graph.index.index import Index
from graph.types import Ints

MAX_LINKING_DOCUMENTS = 10
"""An entity in more documents than these ("American") ties nothing to anything."""


class Mentions:
    """Look-ups over one index; keys are `entity_key`s."""

    def __init__(self, index: Index) -> None:
        self.index = index

    @cached_property
    def _entity_passage_EP(self) -> sp.csr_array:
        data = self.index.data
        return sp.csr_array((data.passage_proposition_PN @ data.proposition_entity_NE).T)

    @cached_property
    def documents_called(self) -> dict[str, tuple[int, ...]]:
        """The documents of each title, by its key."""
        called: dict[str, tuple[int, ...]] = {}
        titles = self.index.data.document_titles
        for row in range(len(titles)):
            key = entity_key(titles[row])
            called[key] = (*called.get(key, ()), row)
        return called

    @cached_property
    def passage_rows(self) -> dict[str, int]:
        """The row of each passage, by its id."""
        ids = self.index.data.passage_ids
        return {ids[row]: row for row in range(len(ids))}

    def document_of(self, key: str) -> int | None:
        """The one document that is called so; None if there are others, or brackets in its title tell it from others."""
        rows = self.documents_called.get(key, ())
        return rows[0] if len(rows) == 1 and "(" not in self.index.data.document_titles[rows[0]] else None

    def documents_naming(self, key: str) -> frozenset[int]:
        """The documents whose text mentions the entity (one that is only called so is none)."""
        of_passage = self.index.data.passage_document_P
        return frozenset(int(of_passage[row]) for row in self._mentioning(key))

    def shared_entities(self, most: int) -> list[str]:
        """Names of several words that 2 to `most` documents mention, sorted.

        None that opens with a frequent entity ("French DJ") or holds a digit.
        """
        texts = self.index.data.entity_texts
        keys = (texts[int(row)] for row in np.flatnonzero((self._documents_E >= 2) & (self._documents_E <= most)))
        plain = (key for key in keys if " " in key and not any(map(str.isdigit, key)))
        return sorted(key for key in plain if not self._is_frequent(key.split()[0]))

    def common_entities(self, first: int, second: int, and_frequent: bool) -> set[str]:
        """The entities that two documents both mention; frequent ones ("American") only if wanted."""
        entities = [set(columns_of(self._entity_document_UE, document)) for document in (first, second)]
        common = {self.index.data.entity_texts[row] for row in entities[0] & entities[1]}
        return {key for key in common if and_frequent or not self._is_frequent(key)}

    def passages_telling(self, key: str) -> frozenset[int]:
        """The passages that mention the entity, and those of the documents that are called so."""
        own = [self._passages_of[document] for document in self.documents_called.get(key, ())]
        return frozenset(self._mentioning(key)).union(*own)

    def linking_entities(self, passage: int) -> frozenset[str]:
        """Keys of the entities that tie a passage to few others: those it mentions, and what its document is called."""
        data = self.index.data
        entities = columns_of(self._passage_entity_PE, passage)
        keys = {data.entity_texts[row] for row in entities if self._documents_E[row] <= MAX_LINKING_DOCUMENTS}
        return frozenset({*keys, entity_key(data.document_titles[int(data.passage_document_P[passage])])})

    def stands_in(self, text: str, passage: int) -> bool:
        """Whether an entity, date or number stands in a passage, word for word (case aside)."""
        return named_in(text, self._folded_P[passage])

    @cached_property
    def _folded_P(self) -> list[str]:
        texts = self.index.data.passage_texts
        return [texts[row].casefold() for row in range(len(texts))]

    @cached_property
    def _passage_entity_PE(self) -> sp.csr_array:
        return sp.csr_array(self._entity_passage_EP.T)

    @cached_property
    def _entity_document_UE(self) -> sp.csr_array:
        data = self.index.data
        passages = np.arange(len(data.passage_ids))
        shape = (len(data.document_sources), len(passages))
        passage_UP = sp.csr_array((np.ones(len(passages)), (data.passage_document_P, passages)), shape=shape)
        return sp.csr_array(passage_UP @ self._passage_entity_PE)

    @cached_property
    def _documents_E(self) -> Ints:
        """How many documents mention each entity."""
        return np.bincount(self._entity_document_UE.indices, minlength=len(self.index.data.entity_texts))

    @cached_property
    def _passages_of(self) -> list[tuple[int, ...]]:
        data = self.index.data
        rows: list[list[int]] = [[] for _ in range(len(data.document_sources))]
        for passage, document in enumerate(data.passage_document_P):
            rows[int(document)].append(passage)
        return [tuple(row) for row in rows]

    def _is_frequent(self, key: str) -> bool:
        (row,) = self.index.entity_rows([key]).tolist()
        return row >= 0 and int(self._documents_E[row]) > MAX_LINKING_DOCUMENTS

    def _mentioning(self, key: str) -> list[int]:
        (row,) = self.index.entity_rows([key]).tolist()
        return [] if row < 0 else columns_of(self._entity_passage_EP, row)


def columns_of(block: sp.csr_array, row: int) -> list[int]:
    """The columns of a row's entries."""
    columns: list[int] = block.indices[block.indptr[row] : block.indptr[row + 1]].tolist()
    return columns


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
