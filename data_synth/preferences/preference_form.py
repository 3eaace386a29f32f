"""The format of preference rows: columns, counts, problems of a row, and how easily the two sides are distinguished.

Sides that differ in length, vocabulary or overlap with the prompt can be distinguished without reading them; a model would learn that difference,
not which answer is better."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from data_synth.preferences.hard_negatives import INVENTED, REFUSED, UNSUPPORTED, WORSE, WRONG
from data_synth.preferences.reasons import normalise_answer
from data_synth.rows import (
    Form,
    PreferenceRow,
    messages_type,
    plain_preference_to_json,
    preference_from_json,
    preference_to_json,
    prompt_problems,
    row_schema,
    split_problems,
)
from graph.answer.citations import check_citations
from graph.answer.prompt import parse_answer
from graph.text.bm25 import terms_of
from graph.text.word_forms import UNSPACED, count_words
from graph.types import Floats

if TYPE_CHECKING:
    import pyarrow as pa


SEPARATING_ACCURACY = 0.75
"""A rule with this accuracy or more distinguishes the two sides too well."""
FOLDS = 5
MIN_ROWS = 20


def measure_separation(rows: Sequence[PreferenceRow]) -> dict[str, float]:
    """How accurately each of several simple rules distinguishes the sides of these pairs; empty below MIN_ROWS rows or FOLDS questions."""
    questions = [row.question_id for row in rows]
    if len(rows) < MIN_ROWS or len(set(questions)) < FOLDS:
        return {}
    chosen_first = [random.Random(row.id).random() < 0.5 for row in rows]
    pairs = zip(rows, chosen_first, strict=True)
    sides = [(row.chosen, row.rejected) if first else (row.rejected, row.chosen) for row, first in pairs]
    return {
        "accuracy of length alone (the longer side, or the shorter)": length_accuracy(rows),
        "accuracy of a decision tree on both lengths": both_lengths_accuracy(sides, chosen_first, questions),
        "accuracy of a bag of words": word_accuracy(sides, chosen_first, questions),
        "accuracy of the share of words that also occur in the prompt": overlap_accuracy(rows),
    }


def separating_measures(measures: Mapping[str, float]) -> list[str]:
    """The name and accuracy of each rule that distinguishes the sides with an accuracy of SEPARATING_ACCURACY or more."""
    return [f"{name} {value:.2f}" for name, value in measures.items() if value >= SEPARATING_ACCURACY]


def overlap_accuracy(rows: Sequence[PreferenceRow]) -> float:
    """Accuracy of "the side with the larger share of words from the prompt is the chosen one", or of its opposite, whichever is higher."""
    gaps = []
    for row in rows:
        known = set(terms_of(" ".join(turn.content for turn in row.prompt)))
        gaps.append(_share_in(known, row.chosen) - _share_in(known, row.rejected))
    return _accuracy_by_sign(gaps)


def _share_in(known: Collection[str], text: str) -> float:
    terms = terms_of(text)
    return sum(term in known for term in terms) / len(terms) if terms else 0.0


def length_accuracy(rows: Sequence[PreferenceRow]) -> float:
    """Accuracy of "the side with more words is the chosen one", or of its opposite, whichever is higher."""
    return _accuracy_by_sign([count_words(row.chosen) - count_words(row.rejected) for row in rows])


def _accuracy_by_sign(gaps: Sequence[float]) -> float:
    """The share of positive gaps, or of negative ones if that is larger; gaps of 0 count half."""
    positive = sum(0.5 + 0.5 * float(np.sign(gap)) for gap in gaps) / len(gaps)
    return max(positive, 1 - positive)


def both_lengths_accuracy(
    sides: Sequence[tuple[str, str]], chosen_first: Sequence[bool], questions: Sequence[str]
) -> float:
    """Cross-validated accuracy of a small decision tree on both lengths: it can also learn "a side of three words is never the chosen one"."""
    from sklearn.tree import DecisionTreeClassifier

    lengths = np.array([[count_words(first), count_words(second)] for first, second in sides], np.float32)
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=5, random_state=0)
    return _cross_validated(tree, np.column_stack([lengths, lengths[:, 0] - lengths[:, 1]]), chosen_first, questions)


def word_accuracy(sides: Sequence[tuple[str, str]], chosen_first: Sequence[bool], questions: Sequence[str]) -> float:
    """Cross-validated accuracy of a logistic regression on which words occur in one side and not in the other."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    counter = CountVectorizer(binary=True, token_pattern=rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
    counter.fit([text for pair in sides for text in pair])
    first, second = (counter.transform([pair[side] for pair in sides]).astype(np.float32) for side in (0, 1))
    rule = LogisticRegression(max_iter=200, fit_intercept=False)
    return _cross_validated(rule, first - second, chosen_first, questions)


def _cross_validated(rule: Any, features: Floats, chosen_first: Sequence[bool], questions: Sequence[str]) -> float:
    """The mean accuracy over folds that share no questions: 0.5 for a fold whose training rows all have the same label, to which no rule can be fitted."""
    from sklearn.model_selection import GroupKFold

    labels, scores = np.array(chosen_first), []
    for train, test in GroupKFold(FOLDS).split(features, groups=questions):
        can_fit = len(set(labels[train])) > 1
        scores.append(rule.fit(features[train], labels[train]).score(features[test], labels[test]) if can_fit else 0.5)
    return float(np.mean(scores))


ABOUT = """\
Pairs (prompt, chosen, rejected) over growing contexts, after GraphMPA §3.2.
Chosen: `###Reason: … ###Answer: …` with the gold answer, citing only passages that its prompt shows. Rejected: an answer
without reasoning (the gold answer or, in rows from feedback, the one that readers found worse). In rows with a `hard_negative`, the rejected side has
reasoning, and is one of: an answer that is wrong or not supported by the context, of about the same length as the chosen side; a refusal; an answer that
no passage contains (then "not in the documents" is chosen, and the reasoning may be missing); an answer that readers found worse (from feedback; the
answer that they found better is chosen and is the only gold answer). The passages of a prompt are shuffled.
Gold passages that retrieval missed are not added; `gold_in_context` is the share of gold documents that a context quotes.
Reasoning written by a model is used only if it has the right form, ends in the gold answer (case and outer punctuation aside), is
supported by its context, does not copy the question and does not mention that the gold answer was provided."""


def preference_problems(row: PreferenceRow) -> list[str]:
    """The problems that make a pair unusable for training, in words; empty for a good pair."""
    problems = prompt_problems(row)
    problems += [f"{side} is empty" for side, text in sides_of(row) if not text.strip()]
    if row.chosen == row.rejected:
        problems.append("chosen and rejected are the same text")
    problems += split_problems(row)
    parsed = parse_answer(row.chosen)
    if not parsed.well_formed:
        problems.append("chosen is not of the form ###Reason: … ###Answer: …")
    chosen, rejected = (normalise_answer(each.answer) for each in (parsed, parse_answer(row.rejected)))
    if chosen not in {normalise_answer(answer) for answer in row.answers}:
        expected = f"expected one of {list(row.answers)}"
        problems.append(f"chosen answers {parsed.answer!r}, which is not a gold answer; {expected}")
    if row.hard_negative == WRONG and rejected == chosen:
        problems.append(f"hard_negative is {WRONG!r}, but rejected gives the chosen answer")
    for side, text in sides_of(row):
        if missing := check_citations(text, row.context_size).removed:
            problems.append(f"{side} cites [{missing[0]}] of {row.context_size} passages")
        if "<|" in text:
            problems.append(f"{side} contains a special token ('<|')")
    if len(row.context_ids) != row.context_size:
        problems.append(f"context_size is {row.context_size}, but there are {len(row.context_ids)} context_ids")
    kinds = ("", UNSUPPORTED, WRONG, REFUSED, WORSE, INVENTED)
    if row.hard_negative not in kinds:
        problems.append(f"unknown hard negative {row.hard_negative!r}; expected one of {list(kinds)}")
    return problems


def sides_of(row: PreferenceRow) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("chosen", row.chosen), ("rejected", row.rejected)


def preference_schema(plain: bool = False) -> pa.Schema:
    """The columns of `preference_to_json` (`plain`: of `plain_preference_to_json`) with their types, which a file with only empty lists would not show."""
    import pyarrow as pa

    turns = pa.string() if plain else messages_type()
    return row_schema(PreferenceRow, prompt=turns, chosen=turns, rejected=turns)


PREFERENCES: Form[PreferenceRow] = Form(
    name="preferences",
    title="Preference pairs",
    about=ABOUT,
    to_json=preference_to_json,
    from_json=preference_from_json,
    schema=preference_schema,
    problems=preference_problems,
    counts=lambda row: {
        "kind of question": row.kind or "unspecified",
        "context size": str(row.context_size),
        "rejected side": row.hard_negative or "answer alone",
        "reasoner": row.reasoner,
    },
    lengths=lambda row: {side: count_words(text) for side, text in sides_of(row)},
    texts=lambda row: [*(turn.content for turn in row.prompt), row.chosen, row.rejected],
    measures=measure_separation,
)
PLAIN_PREFERENCES = replace(
    PREFERENCES, to_json=plain_preference_to_json, schema=partial(preference_schema, plain=True)
)
