"""Extractive summaries: the few sentences nearest the middle of their text that do not repeat one another.

Selection is maximal marginal relevance (Carbonell & Goldstein 1998) around the centroid; it needs no model.
"""

from collections.abc import Callable, Sequence

import numpy as np

from graph.shared.types import Floats

RELEVANCE = 0.7
REPEATS = 0.95
"""Cosine from which a sentence says what a chosen one says."""
MAX_CANDIDATES = 200


def choose_sentences(vectors_SD: Floats, count_tokens: Callable[[int], int], max_tokens: int) -> list[int]:
    """Rows of the chosen sentences, ascending, together at most `max_tokens` long; at least one, whatever its length.

    `count_tokens(row)` is the length of a sentence. A sentence that is too long for the room left is skipped, it does
    not end the choice. Ties go to the earlier row.
    """
    centre_D = vectors_SD.mean(axis=0)
    centre_D /= np.linalg.norm(centre_D) or 1.0
    relevance_S = vectors_SD @ centre_D
    candidates = np.argsort(-relevance_S, kind="stable")[:MAX_CANDIDATES]
    vectors_CD, relevance_C = vectors_SD[candidates], relevance_S[candidates]
    nearest_C = np.zeros(len(candidates), np.float32)
    open_C = np.ones(len(candidates), bool)
    chosen: list[int] = []
    room = max_tokens
    while open_C.any():
        gain_C = np.where(open_C, RELEVANCE * relevance_C - (1 - RELEVANCE) * nearest_C, -np.inf)
        best = int(gain_C.argmax())
        open_C[best] = False
        length = count_tokens(int(candidates[best]))
        if chosen and length > room:
            continue
        chosen.append(int(candidates[best]))
        room -= length
        if room <= 0:
            break
        nearest_C = np.maximum(nearest_C, vectors_CD @ vectors_CD[best])
        open_C &= nearest_C < REPEATS
    return sorted(chosen)


def join_sentences(sentences: Sequence[str]) -> str:
    """Sentences as one running text, each closed by a mark."""
    return " ".join(text if text.endswith((".", "!", "?", "…", '"', "”", "。")) else text + "." for text in sentences)
