"""A cross-encoder that reranks the results of any mode: the mode returns more results than were requested; the cross-encoder scores them against the
question and decides their order.

Whatever the mode's scores are (cosines, PageRank mass, ranks), the cross-encoder scores passages, propositions and summaries on the same scale.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from threading import Lock
from typing import TypeVar

import numpy as np

from graph.answer.context import of_passage
from graph.answer.prompt import with_title
from graph.errors import UserError, first_line
from graph.models.encoder import find_model
from graph.shared.hub import quiet_loading
from graph.types import Evidence, Floats, Scored

ScoreTexts = Callable[[str, Sequence[str]], Floats]
"""(question, N texts) -> float32[N], higher for a better match."""

RERANK_FACTOR = 5
"""For reranking, a mode retrieves this many times the requested number of items."""
BATCH_SIZE = 32
_loading = Lock()
T = TypeVar("T")


def rerank(evidence: Evidence, score: ScoreTexts, top_k: int) -> Evidence:
    """The evidence in the order of `score`, ties in their previous order: at most `top_k` passages and summaries together, and at most `top_k` propositions."""
    texts = [with_title(of_passage(each.item)) for each in evidence.passages]
    texts += [each.item.text for each in evidence.summaries] + [each.item.text for each in evidence.propositions]
    if not texts:
        return evidence
    scores = score(evidence.query, texts)
    nodes = len(evidence.passages) + len(evidence.summaries)
    best = np.argsort(-scores[:nodes], kind="stable")[:top_k]
    passages = [int(row) for row in best if row < len(evidence.passages)]
    summaries = [int(row) - len(evidence.passages) for row in best if row >= len(evidence.passages)]
    propositions = [int(row) for row in np.argsort(-scores[nodes:], kind="stable")[:top_k]]
    step = f"{len(texts)} results reranked"
    return replace(
        evidence,
        passages=_pick(evidence.passages, passages, scores),
        summaries=_pick(evidence.summaries, summaries, scores[len(evidence.passages) :]),
        propositions=_pick(evidence.propositions, propositions, scores[nodes:]),
        paths=tuple(evidence.paths[row] for row in passages) if evidence.paths else (),
        trace=replace(evidence.trace, steps=(*evidence.trace.steps, step)),
    )


def open_reranker(spec: str) -> ScoreTexts:
    """The cross-encoder in a folder or on the hub, loaded once per process; UserError if there is none."""
    with _loading:
        return _open(spec)


@cache
def _open(spec: str) -> ScoreTexts:
    folder = find_model(spec, "reranker")
    import torch
    from sentence_transformers import CrossEncoder

    quiet_loading()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = CrossEncoder(str(folder), device=device, model_kwargs={"use_safetensors": True})
    except (OSError, ValueError) as problem:
        found = f"reranker {spec!r}: cannot be loaded ({first_line(problem)})"
        expected = "the folder of a sentence-transformers CrossEncoder"
        raise UserError(found, expected, "name another reranker") from None
    if model.num_labels != 1:
        found = f"reranker {spec!r}: {model.num_labels} labels"
        raise UserError(found, "a cross-encoder with a single output", "name another reranker")

    def score(question: str, texts: Sequence[str]) -> Floats:
        pairs = [(question, text) for text in texts]
        scores: Floats = model.predict(pairs, batch_size=BATCH_SIZE, show_progress_bar=False)
        return np.asarray(scores, np.float32)

    return score


def _pick(items: Sequence[Scored[T]], rows: Sequence[int], scores: Floats) -> tuple[Scored[T], ...]:
    return tuple(Scored(items[row].item, float(scores[row])) for row in rows)
