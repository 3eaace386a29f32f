"""Which passages tell of an entity: those that mention it, and all of a document that is called so.

Legend: U documents, P passages, N propositions, E entities.
"""

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from data_synth.questions.types import named_in
from graph.extract.entities import entity_key
from graph.index.index import Index
from graph.shared.types import Ints

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
