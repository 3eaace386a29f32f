"""How well an answer is grounded in its context: PankRAG's Eq. 6-8 (App. A.2.2) and RAGChecker's claim recall, as formulas, and variants without a
language model, whose names end in `_by_encoder`; and ranked sources against gold ones (`ranked` contains no source twice, `gold` is not empty).

Legend: C claims (sentences of an answer), N sentences of the context, P its passages, G gold claims, D dimensions. Each row is a unit vector.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graph.answer.citations import check_citations
from graph.text.sentences import split_units
from graph.types import Encode, Floats


def recall_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """The share of the gold sources that are among the first `k` of `ranked`."""
    return len(set(ranked[:k]) & set(gold)) / len(set(gold))


def all_gold_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """1.0 if every gold source is among the first `k`, as a multi-hop question requires; 0.0 if not."""
    return float(set(gold) <= set(ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], gold: Sequence[str]) -> float:
    """1 / rank of the first gold source, 0.0 when none is ranked; its mean over questions is the MRR."""
    relevant = set(gold)
    return next((1.0 / rank for rank, source in enumerate(ranked, start=1) if source in relevant), 0.0)


def average_precision(relevant: Sequence[bool], total_relevant: int) -> float:
    """The sum of precision at k over the ranks k of relevant items, divided by the number of relevant items, ranked or not.

    >>> average_precision([True, False, True], 2)
    0.8333333333333333
    >>> average_precision([True], 2)
    0.5
    """
    ranks = [rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant]
    return sum(hits / rank for hits, rank in enumerate(ranks, start=1)) / total_relevant


def ndcg_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """Normalised discounted cumulative gain, binary gains: Σ 1/log2(rank + 1), divided by the same sum for a perfect ranking."""
    relevant = set(gold)
    gain = sum(1.0 / math.log2(rank + 1) for rank, source in enumerate(ranked[:k], start=1) if source in relevant)
    return gain / sum(1.0 / math.log2(rank + 1) for rank in range(1, min(len(relevant), k) + 1))


Bools = NDArray[np.bool_]
MIN_SUPPORT = 0.45
MIN_RELEVANCE = 0.3
"""Cosines of all-MiniLM-L6-v2 on 150 items of PubMedQA. Support: 88 % of the sentences of a conclusion reach .45 with a sentence of their abstract, 1 %
with one of another abstract; relevance: 72 % of the sentences of a question's abstract reach .30, 3 % of those of another abstract."""
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


@dataclass(frozen=True)
class Grounding:
    """The five figures of one answer; a figure is None if there is nothing to judge for it."""

    faithfulness: float | None
    answer_relevance: float | None
    context_precision: float | None
    context_recall: float | None
    claim_recall: float | None


def share(true_X: Bools | Sequence[bool]) -> float | None:
    """|true| / |all|, the form of Eq. 7 (verified claims), Eq. 8 (relevant sentences) and of claim recall; None without values."""
    return float(np.mean(true_X)) if len(true_X) else None


def answer_relevance(question_D: Floats, generated_ND: Floats) -> float | None:
    """Eq. 6: the mean cosine between the question and N questions generated from the answer."""
    return float((generated_ND @ question_D).mean()) if len(generated_ND) else None


def context_precision(relevant_P: Sequence[bool]) -> float | None:
    """Σ_k precision@k · v_k / Σ_k v_k over the ranked passages, v_k = 1 if passage k is relevant, else 0 (from Ragas, which PankRAG uses).

    0 when none is relevant, None without passages.

    >>> context_precision([True, False, True])
    0.8333333333333333
    """
    return average_precision(relevant_P, max(sum(relevant_P), 1)) if relevant_P else None


def claims_of(text: str) -> list[str]:
    """The sentences of a text, citations removed; they serve as claims if no model extracts any."""
    return [unit.text for unit in split_units(check_citations(text, 0).text)]


def supported_by_encoder(
    claims: Sequence[str], claims_CD: Floats, sentences: Sequence[str], sentences_ND: Floats
) -> Bools:
    """bool[C]: whether a sentence of the context is similar to the claim (cosine ≥ 0.45) and every number of the claim occurs in the context.

    With cosines alone, a claim with 1921 would count as supported by a sentence with 1911.
    """
    if not len(claims) or not len(sentences):
        return np.zeros(len(claims), np.bool_)
    similar_C = (claims_CD @ sentences_ND.T).max(axis=1) >= MIN_SUPPORT
    known = {number for sentence in sentences for number in _NUMBER.findall(sentence)}
    numbers_C = np.array([set(_NUMBER.findall(claim)) <= known for claim in claims], np.bool_)
    return np.asarray(similar_C & numbers_C, np.bool_)


def grounding_by_encoder(
    question: str, answer: str, golds: Sequence[str], passages: Sequence[str], encode: Encode
) -> Grounding:
    """All five figures without a language model: sentences replace claims; cosines replace entailment and generated questions.

    `answer` is the full text with its reasoning; only the first gold answer counts. A short gold answer makes a poor claim, so the
    gold answer is appended to the question.
    """
    claims, gold = claims_of(answer), claims_of(f"{question} {golds[0]}") if golds else []
    units = [claims_of(passage) for passage in passages]
    sentences = [sentence for unit in units for sentence in unit]
    vectors = encode([question, *claims, *gold, *sentences])
    question_D, claims_CD = vectors[0], vectors[1 : 1 + len(claims)]
    gold_GD, sentences_ND = vectors[1 + len(claims) :][: len(gold)], vectors[1 + len(claims) + len(gold) :]
    relevant_N: Bools = sentences_ND @ question_D >= MIN_RELEVANCE
    return Grounding(
        faithfulness=share(supported_by_encoder(claims, claims_CD, sentences, sentences_ND)),
        answer_relevance=answer_relevance(question_D, claims_CD),
        context_precision=context_precision(relevant_passages(relevant_N, units)),
        context_recall=share(relevant_N),
        claim_recall=share(supported_by_encoder(gold, gold_GD, sentences, sentences_ND)),
    )


def relevant_passages(relevant_N: Bools, units: Sequence[Sequence[str]]) -> list[bool]:
    """For each passage, given as its sentences: whether any of them is relevant."""
    ends = np.cumsum([len(unit) for unit in units])
    return [bool(relevant_N[end - len(unit) : end].any()) for unit, end in zip(units, ends, strict=True)]
