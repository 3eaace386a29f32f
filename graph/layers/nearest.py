"""Candidates for the nearest neighbours of every node, where nodes are too many to compare each with all.

Nodes lie in lists around centroids (an inverted file of faiss, two dimensions in four bits), and a node is compared with those of the lists nearest to it. So a node
costs as much as the square root of their number. The same vectors give the same candidates.

Legend: N nodes, D dimensions, B nodes of a batch, K found for each.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from graph.shared.types import Floats, Ints
from graph.store.vectors.ann import LISTS_PER_ROOT, TRAINING_ROUNDS, train_lists, training_rows
from graph.store.vectors.matrix import Rows

PROBED_LISTS, PROBED_WHERE_NEAR, NEAR = 32, 8, 0.8
"""Lists that a node is compared with, and how many of them where only cosines from NEAR up count, as what is so near lies in few. Of the edges of 10k propositions
they hold .995, of those of 22k entities .9999 (docs/log.md)."""
ROUGH = 0.2
"""More than a cosine of these codes is too small by, but for one in thousands."""
TRAINED_PER_CODE = 64
"""Vectors among which each of the 16 codes of two dimensions is found."""
BATCH_ROWS = 8_192


def likely_neighbours(vectors_ND: Rows, count: int, min_similarity: float) -> Iterator[tuple[Ints, Ints]]:
    """Pairs (node, one that is likely to be among its `count` nearest and no less than `min_similarity` near), batch by batch of nodes, in order."""
    inverted, nodes = _inverted_file(vectors_ND), len(vectors_ND)
    probed = PROBED_WHERE_NEAR if min_similarity >= NEAR else PROBED_LISTS
    inverted.nprobe = min(probed, inverted.nlist)
    for start in range(0, nodes, BATCH_ROWS):
        rows_B = np.arange(start, min(start + BATCH_ROWS, nodes))
        cosines_BK, found_BK = inverted.search(_contiguous(vectors_ND[rows_B]), min(nodes, count + 1))
        rows_BK = np.broadcast_to(rows_B[:, None], found_BK.shape)
        likely_BK = (found_BK >= 0) & (found_BK != rows_BK) & (cosines_BK >= min_similarity - ROUGH)
        yield rows_BK[likely_BK], found_BK[likely_BK]


def _inverted_file(vectors_ND: Rows) -> Any:
    import faiss

    nodes, dimensions = vectors_ND.shape
    codes = dimensions // 2 if dimensions % 2 == 0 else dimensions
    lists = math.isqrt(LISTS_PER_ROOT**2 * nodes)
    inverted = faiss.IndexIVFPQFastScan(
        faiss.IndexFlatIP(dimensions), dimensions, lists, codes, 4, faiss.METRIC_INNER_PRODUCT
    )
    codebooks = inverted.pq.cp
    codebooks.niter, codebooks.max_points_per_centroid = TRAINING_ROUNDS, TRAINED_PER_CODE
    train_lists(inverted, _contiguous(vectors_ND[training_rows(nodes, lists)]))
    for start in range(0, nodes, BATCH_ROWS):
        inverted.add(_contiguous(vectors_ND[start : start + BATCH_ROWS]))
    return inverted


def _contiguous(vectors_BD: Floats) -> Floats:
    return np.ascontiguousarray(vectors_BD, np.float32)
