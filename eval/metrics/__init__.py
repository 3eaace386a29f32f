"""Measures as pure functions, one kind per file; comparisons print means of these over questions."""

from eval.metrics.answers import CHOICES, accuracy, accuracy_per_class, majority_class, read_choice
from eval.metrics.ranking import all_gold_at, ndcg_at, recall_at, reciprocal_rank
from graph.answer.match import contains_answer, exact_match, normalise, token_f1
from graph.answer.prompt import parse_answer

__all__ = [
    "CHOICES",
    "accuracy",
    "accuracy_per_class",
    "all_gold_at",
    "contains_answer",
    "exact_match",
    "majority_class",
    "ndcg_at",
    "normalise",
    "read_choice",
    "recall_at",
    "reciprocal_rank",
    "token_f1",
    "well_formed",
]


def well_formed(text: str) -> float:
    """1.0 when a text reads "###Reason: … ###Answer: …" (graph.answer.prompt.parse_answer); its mean is the share that does."""
    return float(parse_answer(text).well_formed)
