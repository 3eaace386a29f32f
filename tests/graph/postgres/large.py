"""An index made from arrays, so large that PostgreSQL's planner uses the database indexes; columns that no test reads are empty or constant."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.shared.ids import content_id
from graph.store.columns.strings import Strings
from graph.store.data import IndexData, block
from graph.store.vectors import QUANTILE_LEVELS_Z, Vectors
from graph.types import Floats

DIMENSIONS, COLOURS, MENTIONS = 16, 20, 3


def random_unit_vectors(random: np.random.Generator, count: int) -> Floats:
    vectors = random.normal(size=(count, DIMENSIONS)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ids_of(kind: str, count: int) -> Strings:
    return Strings.of(sorted(content_id(kind, str(row)) for row in range(count)))


def texts_of(kind: str, count: int) -> Strings:
    return Strings.of([f"{kind} {row} " + "of many words " * 8 for row in range(count)])


def large_index(index: Index, documents: int, passages: int, entities: int) -> Index:
    """`index` with other contents: every passage states one proposition, which mentions up to MENTIONS entities; every document has one of COLOURS colours."""
    random = np.random.default_rng(0)
    rows = np.arange(passages)
    document_P = np.sort(rows % documents)
    mentioned = random.integers(0, entities, (passages, MENTIONS))
    no_texts = Strings.of([])
    data = IndexData(
        document_sources=Strings.of(sorted(f"document-{row}" for row in range(documents))),
        document_titles=texts_of("document", documents),
        document_metadata=Strings.of([f'{{"colour": {row % COLOURS}}}' for row in range(documents)]),
        title_keys=no_texts,
        title_document_T=np.array([], np.int64),
        passage_ids=ids_of("passage", passages),
        passage_texts=texts_of("passage", passages),
        passage_document_P=document_P,
        passage_order_P=rows - np.searchsorted(document_P, document_P),
        passage_start_P=rows * 100,
        passage_end_P=rows * 100 + 100,
        passage_vectors_PD=Vectors.of(random_unit_vectors(random, passages)),
        passage_next_PP=sp.csr_array((passages, passages), dtype=np.float32),
        term_texts=no_texts,
        term_count_WP=sp.csr_array((0, passages), dtype=np.float32),
        term_passages_W=np.zeros(0, np.int64),
        passage_terms_P=np.ones(passages, np.int64),
        term_idf_W=np.array([], np.float32),
        term_norm_P=np.ones(passages),
        proposition_ids=ids_of("proposition", passages),
        proposition_texts=texts_of("proposition", passages),
        proposition_vectors_ND=Vectors.of(random_unit_vectors(random, passages)),
        cosine_quantiles_Z=np.zeros(len(QUANTILE_LEVELS_Z), np.float32),
        occurrence_proposition_M=rows,
        occurrence_passage_M=rows,
        occurrence_start_M=rows * 100,
        occurrence_end_M=rows * 100 + 50,
        passage_proposition_PN=block(rows, rows, (passages, passages)),
        entity_ids=ids_of("entity", entities),
        entity_texts=texts_of("entity", entities),
        entity_vectors_ED=Vectors.of(random_unit_vectors(random, entities)),
        proposition_entity_NE=block(rows.repeat(MENTIONS), mentioned.ravel(), (passages, entities)),
        entity_document_EU=sp.csr_array((entities, documents), dtype=np.float32),
        synonym_EE=sp.csr_array((entities, entities), dtype=np.float32),
        topic_ids=no_texts,
        topic_texts=no_texts,
        topic_proposition_KN=sp.csr_array((0, passages), dtype=np.float32),
        summary_ids=no_texts,
        summary_texts=no_texts,
        summary_layer_S=np.array([], np.int64),
        summary_vectors_SD=Vectors.of(np.zeros((0, DIMENSIONS), np.float32)),
        summary_member_SX=sp.csr_array((0, passages), dtype=np.float32),
        similarity_XX=sp.csr_array((passages, passages), dtype=np.float32),
    )
    return replace(index, data=data)
