"""The similarity graph of one layer: k nearest neighbours by cosine, from τ up (GraphMPA §3.1, Eq. 1 and 3)."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from graph.shared.types import Floats, Ints

FLAT_LIMIT = 100_000


def similarity_graph(vectors_ND: Floats, neighbours: int, min_similarity: float) -> sp.csr_array:
    """Symmetric float32 CSR[N, N] of cosines: i–j where either is among the other's k nearest and cosine ≥ τ.

    `vectors_ND` are unit rows. No node neighbours itself, however many duplicates it has; an edge stands once in each
    direction with one weight.
    """
    count = len(vectors_ND)
    if count < 2:
        return sp.csr_array((count, count), dtype=np.float32)
    found_NK, cosines_NK = _nearest(vectors_ND, min(neighbours + 1, count))
    rows_NK = np.broadcast_to(np.arange(count)[:, None], found_NK.shape)
    others_NK = found_NK != rows_NK
    # A row whose duplicates pushed it out of its own list has one neighbour too many: the farthest goes.
    rank_NK = np.cumsum(others_NK, axis=1)
    keep_NK = (
        others_NK & (rank_NK <= neighbours) & (found_NK >= 0) & (cosines_NK >= min_similarity - 1e-6) & (cosines_NK > 0)
    )
    edges = sp.coo_array((cosines_NK[keep_NK], (rows_NK[keep_NK], found_NK[keep_NK])), shape=(count, count)).tocsr()
    return sp.csr_array(edges.maximum(edges.T))


def _nearest(vectors_ND: Floats, count: int) -> tuple[Ints, Floats]:
    """Exact up to FLAT_LIMIT rows, without a copy of them; HNSW from there on."""
    import faiss

    contiguous_ND = np.ascontiguousarray(vectors_ND, np.float32)
    if len(contiguous_ND) <= FLAT_LIMIT:
        cosines_NK, found_NK = faiss.knn(contiguous_ND, contiguous_ND, count, metric=faiss.METRIC_INNER_PRODUCT)
    else:
        index: Any = faiss.IndexHNSWFlat(contiguous_ND.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 80, 64
        index.add(contiguous_ND)
        cosines_NK, found_NK = index.search(contiguous_ND, count)
    return found_NK, np.clip(cosines_NK, -1, 1)
