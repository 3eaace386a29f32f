"""A part of an index (restrict.py) for readers who may not know of the rest: what only the rest tells is taken out of it.

A filter leaves names of entities and topics, and weights of terms, as they are in the whole index. Here they are those of the part.
What still rests on the whole is the shape of it: which passages are each other's neighbours, and which of them one summary stands for.

Legend: N propositions, E entities, K topics, M occurrences, W terms, U documents.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.shared.types import Ints
from graph.store.columns.blocks import entries_of_rows
from graph.store.columns.moved import whole as put_together
from graph.store.columns.strings import rows_among
from graph.store.data import IndexData
from graph.store.vectors.quantiles import cosine_quantiles
from graph.text.bm25 import term_weights


def seal(whole: IndexData, part: IndexData) -> IndexData:
    """`part` without the entities, topics and terms that nothing in it has; terms weigh what they weigh in it alone, and nearness is measured by it alone.

    A proposition that stands outside too keeps the entities that its own words name, and no topic: others may have been read there.
    """
    shared_N = stands_outside(whole, part)
    entity_NE = without(part.proposition_entity_NE, unnamed(part, np.flatnonzero(shared_N)))
    topic_KN = without(part.topic_proposition_KN, shared_N[part.topic_proposition_KN.indices])
    named_E = np.flatnonzero(np.diff(part.entity_document_EU.indptr))
    kept_E = np.union1d(entity_NE.indices, named_E).astype(np.int64)
    kept_K = np.flatnonzero(np.diff(topic_KN.indptr))
    counts_WP = put_together(part.term_count_WP)
    kept_W = np.flatnonzero(np.diff(counts_WP.indptr))
    count_WP = sp.csr_array(counts_WP[kept_W, :])
    passages_W = entries_of_rows(count_WP)
    idf_W, norm_P = term_weights(passages_W, part.passage_terms_P)
    return replace(
        part,
        cosine_quantiles_Z=cosine_quantiles(part.proposition_vectors_ND),
        term_texts=part.term_texts.take(kept_W),
        term_count_WP=count_WP,
        term_passages_W=passages_W,
        term_idf_W=idf_W,
        term_norm_P=norm_P,
        entity_ids=part.entity_ids.take(kept_E),
        entity_texts=part.entity_texts.take(kept_E),
        entity_vectors_ED=part.entity_vectors_ED.only(kept_E),
        proposition_entity_NE=sp.csr_array(entity_NE[:, kept_E]),
        entity_document_EU=sp.csr_array(part.entity_document_EU[kept_E, :]),
        synonym_EE=sp.csr_array(part.synonym_EE[kept_E, :][:, kept_E]),
        topic_ids=part.topic_ids.take(kept_K),
        topic_texts=part.topic_texts.take(kept_K),
        topic_proposition_KN=sp.csr_array(topic_KN[kept_K, :]),
    )


def stands_outside(whole: IndexData, part: IndexData) -> NDArray[np.bool_]:
    """bool[N]: which propositions of the part stand in passages outside it too."""
    rows_N = rows_among(whole.proposition_ids, part.proposition_ids)
    all_N = np.bincount(whole.occurrence_proposition_M, minlength=len(whole.proposition_ids))[rows_N]
    own_N = np.bincount(part.occurrence_proposition_M, minlength=len(part.proposition_ids))
    return np.asarray(own_N < all_N)


def unnamed(data: IndexData, rows: Ints) -> NDArray[np.bool_]:
    """bool: which entries of `proposition_entity_NE` are, in the given rows, entities that the proposition does not spell."""
    block = data.proposition_entity_NE
    found = np.zeros(len(block.indices), bool)
    for row in rows.tolist():
        text = data.proposition_texts[row].casefold()
        for entry in range(block.indptr[row], block.indptr[row + 1]):
            found[entry] = data.entity_texts[int(block.indices[entry])] not in text
    return found


def without(block: sp.csr_array, gone: NDArray[np.bool_]) -> sp.csr_array:
    """The block without the entries that are marked."""
    left = block.copy()
    left.data[gone] = 0
    left.eliminate_zeros()
    return left
