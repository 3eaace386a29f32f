"""A cross-encoder that reranks the results of any mode: the mode returns more results than were requested; the cross-encoder scores them against the
question and decides their order.

Whatever the mode's scores are (cosines, PageRank mass, ranks), the cross-encoder scores passages, propositions and summaries on the same scale.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from threading import Lock
from typing import TypeVar

import numpy as np

from graph.answer.context import of_passage
from graph.answer.prompt import with_title
from graph.errors import UserError, first_line
from graph.models.encoder import find_model
from graph.models.load import UNREADABLE, WEIGHT_OPTIONS, check_weights
from graph.shared.hub import quiet_loading
from graph.types import Evidence, Floats, Proposition, Scored

ScoreTexts = Callable[[str, Sequence[str]], Floats]
"""(question, N texts) -> float32[N], higher for a better match."""

RERANK_FACTOR = 5
"""For reranking, a mode retrieves this many times the requested number of items."""
BATCH_SIZE = 32
_loading = Lock()
T = TypeVar("T")


def rerank(evidence: Evidence, score: ScoreTexts, top_k: int) -> Evidence:
    """The `top_k` best by `score`, ties in their previous order: propositions if the mode ranked any, else passages and summaries together.

    With propositions, the first passage of each remains, with the score of its best proposition.
    """
    count = len(evidence.passages)
    texts = [each.item.text for each in evidence.propositions]
    if not texts:
        texts = [with_title(of_passage(each.item)) for each in evidence.passages]
        texts += [each.item.text for each in evidence.summaries]
    if not texts:
        return evidence
    scores = score(evidence.query, texts)
    best: list[int] = np.argsort(-scores, kind="stable")[:top_k].tolist()
    step = f"{len(texts)} results reranked"
    found = replace(evidence, trace=replace(evidence.trace, steps=(*evidence.trace.steps, step)))
    if evidence.propositions:
        return _with_propositions(found, _pick(evidence.propositions, best, scores))
    summaries = _pick(evidence.summaries, [row - count for row in best if row >= count], scores[count:])
    return _with_passages(replace(found, summaries=summaries), {row: float(scores[row]) for row in best if row < count})


def _with_propositions(evidence: Evidence, propositions: tuple[Scored[Proposition], ...]) -> Evidence:
    """The evidence with only these propositions, best first, and the first of its passages that contains each."""
    row_of = {each.item.id: row for row, each in enumerate(evidence.passages)}
    score_of: dict[int, float] = {}
    for each in propositions:
        rows = [row_of[span.passage_id] for span in each.item.spans if span.passage_id in row_of]
        for row in rows[:1]:
            score_of.setdefault(row, each.score)
    return _with_passages(replace(evidence, propositions=propositions), score_of)


def _with_passages(evidence: Evidence, score_of: Mapping[int, float]) -> Evidence:
    """The evidence with only these of its passages, given the score of each."""
    passages = tuple(Scored(evidence.passages[row].item, score) for row, score in score_of.items())
    paths = tuple(evidence.paths[row] for row in score_of) if evidence.paths else ()
    return replace(evidence, passages=passages, paths=paths)


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
    device, label = "cuda" if torch.cuda.is_available() else "cpu", f"reranker {spec!r}"
    try:
        model = CrossEncoder(str(folder), device=device, model_kwargs=WEIGHT_OPTIONS)
    except torch.OutOfMemoryError:
        raise
    except UNREADABLE as problem:
        found = f"{label}: cannot be loaded ({first_line(problem)})"
        expected = "the folder of a sentence-transformers CrossEncoder"
        raise UserError(found, expected, "name another reranker") from None
    check_weights(model, label)
    if model.num_labels != 1:
        found = f"{label}: {model.num_labels} labels"
        raise UserError(found, "a cross-encoder with a single output", "name another reranker")

    def score(question: str, texts: Sequence[str]) -> Floats:
        pairs = [(question, text) for text in texts]
        scores: Floats = model.predict(pairs, batch_size=BATCH_SIZE, show_progress_bar=False)
        return np.asarray(scores, np.float32)

    return score


def _pick(items: Sequence[Scored[T]], rows: Sequence[int], scores: Floats) -> tuple[Scored[T], ...]:
    return tuple(Scored(items[row].item, float(scores[row])) for row in rows)
