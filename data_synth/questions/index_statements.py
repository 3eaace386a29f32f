"""The statements of an index that the templates can use: relations of documents to entities, and values.

A statement counts only if it occurs exactly once in the index, and as a relation only if it opens with its document's subject.
`Mentions` finds the passages that mention an entity. Legend: U documents, P passages, N propositions, M occurrences, E entities."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from data_synth.questions.phrases import (
    Kind,
    Relation,
    Value,
    is_about_person,
    kind_by_name,
    kind_of,
    opens_with_subject,
    plain_title,
    predicate_of,
    relate,
    values_of,
)
from data_synth.questions.question_form import named_in
from graph.extract.entities import entity_key
from graph.index.index import Index
from graph.store.data import IndexData
from graph.types import Ints

MAX_LINKING_DOCUMENTS = 10
"""An entity in more documents than this ("American") does not link passages."""


class Mentions:
    """Look-ups of entities, passages and documents in one index; keys are `entity_key`s."""

    def __init__(self, index: Index) -> None:
        self.index = index

    @cached_property
    def _entity_passage_EP(self) -> sp.csr_array:
        data = self.index.data
        return sp.csr_array((data.passage_proposition_PN @ data.proposition_entity_NE).T)

    @cached_property
    def documents_by_title(self) -> dict[str, list[int]]:
        """The documents with each title, by its `title_key`."""
        documents: dict[str, list[int]] = {}
        for row, title in enumerate(self.index.data.document_titles):
            documents.setdefault(title_key(title), []).append(row)
        return documents

    @cached_property
    def passage_rows(self) -> dict[str, int]:
        """The row of each passage by id."""
        return {passage_id: row for row, passage_id in enumerate(self.index.data.passage_ids)}

    def document_of(self, key: str) -> int | None:
        """The only document with this title; None if there is none or several, or if brackets in its title distinguish it from others."""
        rows = self.documents_by_title.get(key, ())
        titles = [self.index.data.document_titles[row].strip() for row in rows]
        return rows[0] if len(rows) == 1 and plain_title(titles[0]) == titles[0] else None

    def documents_mentioning(self, key: str) -> frozenset[int]:
        """The documents whose text mentions the entity; a mention in a document's title alone does not count."""
        document_P = self.index.data.passage_document_P
        return frozenset(int(document_P[row]) for row in self._passages_mentioning(key))

    def shared_entities(self, max_documents: int) -> list[str]:
        """Names of several words, without digits, that 2 to `max_documents` documents mention, sorted; none opens with a frequent entity ("French DJ")."""
        texts = self.index.data.entity_texts
        rows = np.flatnonzero((self._documents_E >= 2) & (self._documents_E <= max_documents))
        keys = (texts[int(row)] for row in rows)
        plain = (key for key in keys if " " in key and not any(map(str.isdigit, key)))
        return sorted(key for key in plain if not self._is_frequent(key.split()[0]))

    def common_entities(self, first: int, second: int, and_frequent: bool) -> set[str]:
        """The entities that two documents both mention; frequent ones ("American") only with `and_frequent`."""
        entities = [set(columns_of(self._entity_document_UE, document)) for document in (first, second)]
        common = {self.index.data.entity_texts[row] for row in entities[0] & entities[1]}
        return {key for key in common if and_frequent or not self._is_frequent(key)}

    def passages_about(self, key: str) -> frozenset[int]:
        """The passages that mention the entity, and those of the documents that have it as their title."""
        titled = [self._passages_of[document] for document in self.documents_by_title.get(key, ())]
        return frozenset(self._passages_mentioning(key)).union(*titled)

    def linking_entities(self, passage: int) -> frozenset[str]:
        """Keys of the entities that link a passage to others: those it mentions that are not frequent, and its document's title."""
        data = self.index.data
        entities = columns_of(self._passage_entity_PE, passage)
        keys = {data.entity_texts[row] for row in entities if self._documents_E[row] <= MAX_LINKING_DOCUMENTS}
        return frozenset({*keys, title_key(data.document_titles[int(data.passage_document_P[passage])])})

    def occurs_in(self, text: str, passage: int) -> bool:
        """Whether a passage contains an entity, date or number word for word, ignoring case."""
        return named_in(text, self._folded_P[passage])

    @cached_property
    def _folded_P(self) -> list[str]:
        return [text.casefold() for text in self.index.data.passage_texts]

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
        """The number of documents that mention each entity."""
        return np.bincount(self._entity_document_UE.indices, minlength=len(self.index.data.entity_texts))

    @cached_property
    def _passages_of(self) -> list[list[int]]:
        data = self.index.data
        rows: list[list[int]] = [[] for _ in range(len(data.document_sources))]
        for passage, document in enumerate(data.passage_document_P):
            rows[int(document)].append(passage)
        return rows

    def _is_frequent(self, key: str) -> bool:
        (row,) = self.index.entity_rows([key]).tolist()
        return row >= 0 and int(self._documents_E[row]) > MAX_LINKING_DOCUMENTS

    def _passages_mentioning(self, key: str) -> list[int]:
        (row,) = self.index.entity_rows([key]).tolist()
        return [] if row < 0 else columns_of(self._entity_passage_EP, row)


def title_key(title: str) -> str:
    """The key of a title without its parts in brackets.

    >>> title_key("Fares [2023]") == title_key("Fares [2024]") == title_key("The Fares (old)")
    True
    """
    return entity_key(plain_title(title))


def columns_of(block: sp.csr_array, row: int) -> list[int]:
    """The columns of a row's entries."""
    columns: list[int] = block.indices[block.indptr[row] : block.indptr[row + 1]].tolist()
    return columns


def occurrence_text(data: IndexData, row: int) -> str:
    """The text of an occurrence of a proposition."""
    passage = data.occurrence_passage_M[row]
    offset = int(data.passage_start_P[passage])
    start, end = int(data.occurrence_start_M[row]) - offset, int(data.occurrence_end_M[row]) - offset
    return data.passage_texts[passage][start:end]


@dataclass(frozen=True)
class Occurrence:
    """Where a statement occurs: document, passage and the exact words there."""

    document: int
    passage: int
    quote: str


@dataclass(frozen=True)
class RelationStatement:
    """A statement that relates a document's subject to another entity: its `name` as written, its `key`, and the relation in words."""

    occurrence: Occurrence
    name: str
    key: str
    relation: Relation


@dataclass(frozen=True)
class ValueStatement:
    """A statement of a date or quantity of a document's subject."""

    occurrence: Occurrence
    value: Value


@dataclass(frozen=True)
class IndexStatements:
    """The statements of an index by document row; `relations_to` are the relations by the key of the entity.

    `subject_names` maps each document whose first sentence opens with the subject of its title to the subject's name there ("the Brandt Yard").
    `splits` maps each document to its split: train, dev or test.
    """

    mentions: Mentions
    kinds: dict[int, Kind]
    occurrences: dict[int, tuple[Occurrence, ...]]
    relations: dict[int, tuple[RelationStatement, ...]]
    relations_to: dict[str, tuple[RelationStatement, ...]]
    values: dict[int, tuple[ValueStatement, ...]]
    subject_names: dict[int, str]
    splits: dict[int, str]

    def title(self, document: int) -> str:
        """A document's title without parts in brackets."""
        return plain_title(self.mentions.index.data.document_titles[document])

    def is_qualified(self, document: int) -> bool:
        """Whether a document's title has parts in brackets, which may distinguish it from others."""
        return self.title(document) != self.mentions.index.data.document_titles[document].strip()

    def has_own_title(self, document: int) -> bool:
        """Whether no other document has the same title, not counting parts in brackets."""
        return len(self.mentions.documents_by_title[title_key(self.mentions.index.data.document_titles[document])]) == 1


def read_index(index: Index, splits: Mapping[str, str]) -> IndexStatements:
    """Extract the statements of an index from the propositions that occur once; `splits` maps the source of each document to its split."""
    mentions = Mentions(index)
    titles = index.data.document_titles
    statements: dict[int, list[tuple[Occurrence, int]]] = defaultdict(list)
    for occurrence, proposition in _single_statements(index):
        statements[occurrence.document].append((occurrence, proposition))
    kinds = {document: _kind(index, document, pairs) for document, pairs in statements.items()}
    relations, values = {}, {}
    for document, pairs in statements.items():
        predicates = [
            (occurrence, row, predicate_of(index.data.proposition_texts[row], titles[document], kinds[document]))
            for occurrence, row in pairs
        ]
        relations[document] = tuple(_relations(mentions, kinds, document, predicates))
        values[document] = tuple(_values(index, titles[document], kinds[document], predicates))
    relations_to: dict[str, list[RelationStatement]] = defaultdict(list)
    for of_document in relations.values():
        for statement in of_document:
            relations_to[statement.key].append(statement)
    occurrences = {document: tuple(occurrence for occurrence, _ in pairs) for document, pairs in statements.items()}
    names = {document: subject_name_of(first.quote, titles[document]) for document, (first, *_) in occurrences.items()}
    return IndexStatements(
        mentions,
        kinds,
        occurrences,
        relations,
        {key: tuple(group) for key, group in relations_to.items()},
        values,
        {document: name for document, name in names.items() if name},
        {row: splits[source] for row, source in enumerate(index.data.document_sources)},
    )


def subject_name_of(sentence: str, title: str) -> str:
    """The name that a document's first sentence gives to the subject of its title; "" if the sentence does not open with that subject.

    >>> subject_name_of("The Lantern works the sound.", "Lantern (ferry)"), subject_name_of("Wages are monthly.", "Pay")
    ('the Lantern', '')
    """
    name = re.sub(r"^The ", "", plain_title(title))
    match = re.match(rf"(?P<the>The )?{re.escape(name)}(?=[ ,(])", sentence) if name else None
    return f"the {name}" if match and match["the"] else name if match else ""


def _single_statements(index: Index) -> Iterator[tuple[Occurrence, int]]:
    """(occurrence, proposition row) of every proposition that occurs once, in the order of the documents."""
    data = index.data
    rows = data.occurrence_proposition_M
    found = []
    for i, row in enumerate(rows):
        single = (i == 0 or rows[i - 1] != row) and (i + 1 == len(rows) or rows[i + 1] != row)
        if single:
            passage = int(data.occurrence_passage_M[i])
            occurrence = Occurrence(int(data.passage_document_P[passage]), passage, occurrence_text(data, i))
            found.append((passage, int(data.occurrence_start_M[i]), occurrence, int(row)))
    yield from ((occurrence, row) for _, _, occurrence, row in sorted(found, key=lambda item: item[:2]))


def _kind(index: Index, document: int, statements: list[tuple[Occurrence, int]]) -> Kind:
    """The type of a document's subject: from the first statement that gives it, or else the first statement, or else a title such as "Lantern (ferry)"."""
    title = index.data.document_titles[document]
    is_person = is_about_person([" ".join(occurrence.quote.split()) for occurrence, _ in statements], title)
    for _, row in statements:
        predicate = predicate_of(index.data.proposition_texts[row], title, Kind())
        if predicate is not None and re.match(r"(?:is|was|are|were) (?:an?|the|one of) ", predicate):
            return kind_of(predicate, is_person)
    kind, in_brackets = kind_of(statements[0][0].quote, is_person), re.search(r"\(([^()]+)\)$", title)
    return kind if in_brackets is None or kind != Kind() else kind_of(f"is a {in_brackets[1]}", False)


def _relations(
    mentions: Mentions, kinds: dict[int, Kind], document: int, predicates: list[tuple[Occurrence, int, str | None]]
) -> Iterator[RelationStatement]:
    data = mentions.index.data
    own_key = title_key(data.document_titles[document])
    for occurrence, row, predicate in predicates:
        for entity in columns_of(data.proposition_entity_NE, row) if predicate else ():
            key = data.entity_texts[entity]
            target = mentions.document_of(key)
            specific = target is not None or (" " in key and not any(map(str.isdigit, key)))
            if key == own_key or not specific or len(mentions.documents_by_title.get(key, ())) > 1:
                continue
            other = kind_by_name(key) if target is None else kinds.get(target, Kind())
            relation = relate(predicate or "", key, kinds[document], other)
            match = re.search(re.escape(key), occurrence.quote, re.IGNORECASE)
            if relation is not None and match is not None and match[0][0].isupper():
                yield RelationStatement(occurrence, match[0], key, relation)


def _values(
    index: Index, title: str, kind: Kind, predicates: list[tuple[Occurrence, int, str | None]]
) -> Iterator[ValueStatement]:
    """The values of a document, each attribute once; attributes with different values, or a value that is not in the quote, are left out."""
    found: dict[str, list[ValueStatement]] = defaultdict(list)
    for at, (occurrence, row, predicate) in enumerate(predicates):
        text = index.data.proposition_texts[row]
        for value in values_of(text, predicate, kind, opens_with_subject(text, title, is_first=at == 0)):
            found[value.attribute].append(ValueStatement(occurrence, value))
    for statements in found.values():
        first = statements[0]
        if len({one.value.text for one in statements}) == 1 and first.value.text in first.occurrence.quote:
            yield first
