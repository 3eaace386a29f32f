"""The nearest of many vectors: by the ANN indexes of large kinds (graph/store/vectors/ann.py), else among all."""

from graph.retrieve.parts.rank import top_rows
from graph.shared.types import Floats, Ints
from graph.store.vectors.matrix import Vectors


def nearest(vectors_ND: Vectors, query_D: Floats, count: int) -> tuple[Ints, Floats]:
    """The `count` rows of highest cosine, best first, equal ones by row, and their cosines. Cosines are exact however rows are found."""
    candidates = vectors_ND.candidates(query_D[None], count)
    found = None if candidates is None else candidates[0]
    cosines = vectors_ND @ query_D if found is None else vectors_ND[found] @ query_D
    best = top_rows(cosines, count)
    return (best if found is None else found[best]), cosines[best]
