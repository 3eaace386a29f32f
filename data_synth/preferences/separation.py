"""How far the sides of preference pairs can be told apart without reading them: by length, words, or words of the prompt alone.

A model that is trained on pairs which length separates learns length. Each figure is the accuracy of telling which of two
texts, shown in random order, is the chosen one: .5 is a guess. Learned rules are tested on questions that they were not fitted on.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from data_synth.types import PreferenceRow
from graph.shared.types import Floats
from graph.text.bm25 import terms_of

TOLD_APART = 0.75
"""From so much accuracy on, a pair is learned by what has nothing to do with its answers."""
FOLDS = 5
MIN_ROWS = 20


def measure_separation(rows: Sequence[PreferenceRow]) -> dict[str, float]:
    """The figures of a sample of pairs; none for fewer than MIN_ROWS rows or fewer than FOLDS questions."""
    questions = [row.question_id for row in rows]
    if len(rows) < MIN_ROWS or len(set(questions)) < FOLDS:
        return {}
    chosen_first = [random.Random(row.id).random() < 0.5 for row in rows]
    shown = [
        (row.chosen, row.rejected) if first else (row.rejected, row.chosen)
        for row, first in zip(rows, chosen_first, strict=True)
    ]
    return {
        "accuracy of length alone (the longer side, or the shorter)": length_alone(rows),
        "accuracy of any rule on both lengths": by_both_lengths(shown, chosen_first, questions),
        "accuracy of a bag of words": by_words(shown, chosen_first, questions),
        "accuracy of the share of words that the prompt has": by_overlap(rows),
    }


def told_apart(measures: Mapping[str, float]) -> list[str]:
    """The rules that tell the sides apart with an accuracy of TOLD_APART or more, in words."""
    return [f"{name} {value:.2f}" for name, value in measures.items() if value >= TOLD_APART]


def by_overlap(rows: Sequence[PreferenceRow]) -> float:
    """Accuracy of "the side with more of its words in the prompt is the chosen one", or of its opposite if that is better; ties count half."""
    gaps = []
    for row in rows:
        known = set(terms_of(" ".join(turn.content for turn in row.prompt)))
        gaps.append(_share_in(known, row.chosen) - _share_in(known, row.rejected))
    more = sum(0.5 + 0.5 * float(np.sign(gap)) for gap in gaps) / len(gaps)
    return max(more, 1 - more)


def _share_in(known: Collection[str], text: str) -> float:
    terms = terms_of(text)
    return sum(term in known for term in terms) / len(terms) if terms else 0.0


def length_alone(rows: Sequence[PreferenceRow]) -> float:
    """Accuracy of "the side with more words is the chosen one", or of its opposite if that is better; ties count half."""
    gaps = [len(row.chosen.split()) - len(row.rejected.split()) for row in rows]
    longer = sum(0.5 + 0.5 * float(np.sign(gap)) for gap in gaps) / len(gaps)
    return max(longer, 1 - longer)


def by_both_lengths(shown: Sequence[tuple[str, str]], chosen_first: Sequence[bool], questions: Sequence[str]) -> float:
    """Accuracy of a small decision tree on both lengths: it also finds "a side of three words is never the chosen one"."""
    from sklearn.tree import DecisionTreeClassifier

    lengths = np.array([[len(first.split()), len(second.split())] for first, second in shown], np.float32)
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=5, random_state=0)
    return _tested(tree, np.column_stack([lengths, lengths[:, 0] - lengths[:, 1]]), chosen_first, questions)


def by_words(shown: Sequence[tuple[str, str]], chosen_first: Sequence[bool], questions: Sequence[str]) -> float:
    """Accuracy of a logistic regression on which words stand in one side and not in the other."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    counter = CountVectorizer(binary=True, token_pattern=r"\S+")
    counter.fit([text for pair in shown for text in pair])
    first, second = (counter.transform([pair[side] for pair in shown]).astype(np.float32) for side in (0, 1))
    return _tested(LogisticRegression(max_iter=200, fit_intercept=False), first - second, chosen_first, questions)


def _tested(rule: object, features: Floats, chosen_first: Sequence[bool], questions: Sequence[str]) -> float:
    from sklearn.model_selection import GroupKFold, cross_val_score

    folds = GroupKFold(FOLDS)
    return float(np.mean(cross_val_score(rule, features, np.array(chosen_first), groups=questions, cv=folds)))
