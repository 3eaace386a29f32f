"""The trained hop at query time: boosted trees rerank the results of `hops` and the passages that these lead to. No language model is called.

`modegraph train selector` with `size: hop` writes the file with `save_hop`; the trees read HOP_FEATURES. A candidate passage
has a row of features for each way that leads to it (hop_features.py defines ways), and one row without a way; its score is the highest log odds of
these rows. Passages without a row follow in the order of `hops`. The package includes a hop for MiniLM (see README.md in this folder); indexes of
that encoder use it by default.

Legend: P passages, C candidates, X rows, F features."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graph.index.index import Index
from graph.models.encoder import find_model
from graph.retrieve.hops.hop_features import HOP_FEATURES, hop_rows
from graph.retrieve.parts.passage_scores import OwnScores
from graph.retrieve.parts.query import BUILT_IN_SELECTORS, SELECTOR_FILE, Query
from graph.trees import Forest, check_encoder, forest_logits, read_forest, save_forest, trained_file
from graph.types import Floats, Ints

HOP_FILE = "hop.safetensors"
FORMAT = "modegraph selector, hop, 1"
HEADER = "hop"
"""The only key of the file's metadata. Its value is one JSON object with everything but the arrays, so that equal hops give equal bytes."""


@dataclass(frozen=True)
class Hop:
    """A forest that predicts log odds, and the fingerprint of the encoder whose vectors it was trained on."""

    forest: Forest
    encoder: str


@dataclass(frozen=True)
class HopRanking:
    """The scores of all passages, as log odds if a trained hop gave them, and the number of `rows` that it scored.

    `ways` gives, for each passage whose best row has a way, the rows of that way's proposition and entity.
    """

    scores_P: Floats
    ways: Mapping[int, tuple[int, int]]
    rows: int


def rank_by_hop(hop: Hop, index: Index, query: Query, alone: OwnScores, reached_P: Floats) -> HopRanking:
    """The reranked passages; UserError for an index made with another encoder."""
    check_encoder("selector", hop.encoder, index, "questions")
    if not len(reached_P):
        return HopRanking(reached_P, {}, 0)
    rows = hop_rows(index, query, alone, reached_P)
    logits_X = forest_logits(hop.forest, rows.features_XF)
    best_C = best_rows(logits_X, rows.candidate_X, len(rows.candidates_C))
    way_to = {
        candidate: (int(rows.ways.proposition_K[way]), int(rows.ways.entity_K[way]))
        for candidate, way in zip(rows.candidates_C.tolist(), rows.way_X[best_C].tolist(), strict=True)
        if way >= 0
    }
    return HopRanking(scores_of_all_passages(reached_P, rows.candidates_C, logits_X[best_C]), way_to, len(logits_X))


def best_rows(logits_X: NDArray[np.float64], candidate_X: Ints, candidates: int) -> Ints:
    """For each candidate (all have at least one row), the row with the highest logit, the first if several are equal: [C].

    >>> best_rows(np.array([0.5, 2.0, 1.0, 2.0]), np.array([0, 1, 0, 1]), 2).tolist()
    [2, 1]
    """
    order_X = np.lexsort((-logits_X, candidate_X))
    return order_X[np.searchsorted(candidate_X[order_X], np.arange(candidates))]


def scores_of_all_passages(reached_P: Floats, candidates_C: Ints, logits_C: NDArray[np.float64]) -> Floats:
    """The candidates' log odds; for all other passages, their scores, shifted so that the highest shifted score equals the lowest log odds: float32[P].

    >>> scores_of_all_passages(np.array([1, 0.5, 0.75], np.float32), np.array([1]), np.array([-2.0])).tolist()
    [-2.0, -2.0, -2.25]
    """
    others_P = np.ones(len(reached_P), np.bool_)
    others_P[candidates_C] = False
    best = reached_P[others_P].max(initial=-np.inf)
    scores_P: Floats = (reached_P - best + logits_C.min()).astype(np.float32)
    scores_P[candidates_C] = logits_C
    return scores_P


def save_hop(folder: Path, hop: Hop) -> None:
    """Write HOP_FILE into `folder`."""
    metadata = {"format": FORMAT, "features": HOP_FEATURES, "encoder": hop.encoder}
    save_forest(folder / HOP_FILE, HEADER, metadata, hop.forest)


def find_hop(spec: str, encoder: str) -> Hop | None:
    """The hop in folder or hub model `spec`, else the package's for this encoder, if any; None for `none`.

    UserError for a missing folder, a folder without a selector, or a broken file.
    """
    if spec not in BUILT_IN_SELECTORS:
        file = find_model(spec, "selector") / HOP_FILE
        if file.is_file():
            return _load(file, file.stat().st_mtime_ns)
        trained_file(spec, "selector", SELECTOR_FILE)
    return shipped_hops().get(encoder) if spec != "none" else None


@cache
def shipped_hops() -> Mapping[str, Hop]:
    """The hops that the package includes, by their encoder's fingerprint."""
    hops = (_load(file, 0) for file in sorted(Path(__file__).parent.glob("*.safetensors")))
    return {hop.encoder: hop for hop in hops}


@lru_cache(maxsize=4)
def _load(file: Path, changed_ns: int) -> Hop:
    del changed_ns
    with read_forest(file, HEADER, FORMAT, HOP_FEATURES) as (forest, header, _):
        return Hop(forest, str(header["encoder"]))
