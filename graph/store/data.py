"""The index in memory: columns, vectors and typed graph blocks, all derived from its rows (graph/store/rows.py).

Legend: U documents, P passages, N propositions, E entities, T names of documents, K topics, M occurrences, S summaries, D dimensions,
W terms, Z quantiles.
Rows are in canonical order: documents by source, passages by (source, order), propositions and entities by id, so that an index has the
same arrays whatever the order in which its documents arrive.
"""

from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.store.columns.moved import AssembledWhenRead, Block
from graph.store.columns.strings import Strings
from graph.store.vectors import Vectors, cosine_quantiles
from graph.types import Floats, Ints


@dataclass(frozen=True)
class DocumentColumns:
    """Documents and their names."""

    document_sources: Strings
    document_titles: Strings
    document_metadata: Strings
    """One JSON object per document."""
    title_keys: Strings
    """Names of documents (`entity_key` of titles and their short forms), sorted, one entry per name and document."""
    title_document_T: Ints


@dataclass(frozen=True)
class PassageColumns:
    """Passages."""

    passage_ids: Strings
    passage_texts: Strings
    passage_document_P: Ints
    passage_order_P: Ints
    passage_start_P: Ints
    passage_end_P: Ints
    passage_vectors_PD: Vectors
    passage_next_PP: sp.csr_array
    """1 from each passage to the next passage of its document."""


@dataclass(frozen=True)
class TermColumns:
    """The terms in passages, and their BM25 statistics."""

    term_texts: Strings
    """Every term of every passage (graph/text/bm25.py), sorted."""
    term_count_WP: Block
    """The number of times that each term occurs in each passage; `take_rows` gives the rows of some terms."""
    term_passages_W: Ints
    """The number of passages with each term."""
    passage_terms_P: Ints
    """The number of terms in each passage, repetitions included."""
    term_idf_W: Floats
    """The BM25 weight of each term, over all passages of the index."""
    term_norm_P: NDArray[np.float64]
    """The BM25 length normalisation of each passage, over all passages of the index."""


@dataclass(frozen=True)
class PropositionColumns:
    """Propositions and their occurrences. An occurrence is one proposition at one position of a passage."""

    proposition_ids: Strings
    proposition_texts: Strings
    proposition_vectors_ND: Vectors
    occurrence_proposition_M: Ints
    """Occurrences are sorted by proposition, then passage, then start."""
    occurrence_passage_M: Ints
    occurrence_start_M: Ints
    occurrence_end_M: Ints
    passage_proposition_PN: sp.csr_array
    """The number of times that each proposition occurs in each passage."""
    cosine_quantiles_Z: Floats
    """The similarity of propositions to each other: quantiles of the cosines of sampled pairs, at the levels of graph/store/vectors.py."""


@dataclass(frozen=True)
class EntityColumns:
    """Entities, the propositions that mention them, and the documents named after them."""

    entity_ids: Strings
    entity_texts: Strings
    entity_vectors_ED: Vectors
    proposition_entity_NE: sp.csr_array
    """The number of occurrences of the proposition that mention the entity."""
    entity_document_EU: sp.csr_array
    """1 where the entity is a name of the document."""
    synonym_EE: sp.csr_array
    """Cosine between entities that are synonyms; symmetric, zero diagonal."""


@dataclass(frozen=True)
class TopicColumns:
    """Topics that a model extracted, and their propositions."""

    topic_ids: Strings
    topic_texts: Strings
    topic_proposition_KN: sp.csr_array
    """The number of occurrences of the proposition that have the topic."""


@dataclass(frozen=True)
class SummaryColumns:
    """The hierarchy above the passages: summaries, and the edges of the similarity graph."""

    summary_ids: Strings
    summary_texts: Strings
    summary_layer_S: Ints
    """0 for the summary of a large chunk, ℓ ≥ 1 for the summary of a community of layer ℓ − 1."""
    summary_vectors_SD: Vectors
    summary_member_SX: sp.csr_array
    """1 where a node (passages, then summaries: X = P + S) is a direct member of the summary."""
    similarity_XX: sp.csr_array
    """Cosines of the similarity graph; edges run within one layer only."""


Columns = (
    DocumentColumns | PassageColumns | TermColumns | PropositionColumns | EntityColumns | TopicColumns | SummaryColumns
)


@dataclass(frozen=True)
class IndexData(
    DocumentColumns,
    PassageColumns,
    TermColumns,
    PropositionColumns,
    EntityColumns,
    TopicColumns,
    SummaryColumns,
    AssembledWhenRead,
):
    """One generation of an index. Each CSR block contains one kind of edge; blocks are combined only at query time."""

    @classmethod
    def of(cls, *groups: Columns) -> "IndexData":
        """The index with the columns of all groups."""
        return cls(**{name: column for group in groups for name, column in vars(group).items()})


def no_data() -> IndexData:
    """The data of an empty index."""
    none = np.zeros(0, np.int64)
    empty: dict[Any, Any] = {
        Block: block(none, none, (0, 0)),
        Strings: Strings.of([]),
        Vectors: Vectors.of(np.zeros((0, 0), np.float32)),
        sp.csr_array: block(none, none, (0, 0)),
    }
    hints = get_type_hints(IndexData)
    values: dict[str, Any] = {field.name: empty.get(hints[field.name], none) for field in fields(IndexData)}
    values["cosine_quantiles_Z"] = cosine_quantiles(np.zeros((0, 0), np.float32))
    return IndexData(**values)


VECTOR_FIELDS = {
    "passages": ("passage_ids", "passage_vectors_PD"),
    "propositions": ("proposition_ids", "proposition_vectors_ND"),
    "entities": ("entity_ids", "entity_vectors_ED"),
    "summaries": ("summary_ids", "summary_vectors_SD"),
}
"""For each kind of item that has vectors: the names of the columns of its ids and of its vectors."""


def block(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> sp.csr_array:
    """A CSR block that counts how many times each (row, column) pair occurs."""
    ones = np.ones(len(rows), np.float32)
    return sp.csr_array(sp.coo_array((ones, (rows, columns)), shape=shape))
