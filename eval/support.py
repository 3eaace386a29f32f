"""`modegraph eval support`: measures a verifier on labelled sentences and compares it with the plain overlap of words and of stems.

Measures: AUC (the probability that a supported sentence scores above an unsupported one; 0.5 is chance), and the shares of supported and of
unsupported sentences that the verifier marks as unsupported at its threshold. Legend: n sentences, B resamples."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from eval.statistics import Interval
from eval.tables import Table, figure_or_dash
from graph.answer.support import Statement, SupportChecker, SupportRow, refuses, support_row
from graph.answer.verifier import Premise, Verifier
from graph.errors import UserError
from graph.shared.console import track
from graph.shared.jsonl import read_jsonl
from graph.text.bm25 import terms_of
from graph.text.word_forms import FUNCTION_WORDS, form_of
from graph.types import Excerpt

Floats64 = NDArray[np.float64]
RESAMPLES = 1000


@dataclass(frozen=True)
class SupportFigures:
    """How well a scorer separates supported from unsupported sentences; a scorer without a threshold has only `auc`.

    The shares include sentences that cannot be checked, which are never marked; `not_checked` is their share.
    """

    auc: Interval
    supported_marked: float | None = None
    unsupported_marked: float | None = None
    balanced_accuracy: float | None = None
    not_checked: float | None = None
    ms_a_sentence: float | None = None


def read_support(file: Path, split: str | None = None, limit: int | None = None, seed: int = 0) -> list[SupportRow]:
    """The rows of a file, optionally of one split, at most `limit` sampled at random; UserError for a malformed row, or if one of the two labels is missing."""
    rows = [
        support_row(row, f"{file} line {line}") for line, row in read_jsonl(file) if split in (None, row.get("split"))
    ]
    if limit is not None and limit < len(rows):
        rows = random.Random(seed).sample(rows, limit)
    labels = {row.supported for row in rows}
    if len(labels) < 2:
        found = f"{file}: {len(rows):,} rows" + (f" of split {split}" if split else "")
        remedy = "choose another file or split, or a larger --limit"
        raise UserError(found, "both supported and unsupported sentences", remedy)
    return rows


def measure_support(rows: Sequence[SupportRow], verifier: Verifier, seed: int = 0) -> dict[str, SupportFigures]:
    """The figures of each scorer by name: the verifier, the overlap of words, and the overlap of stems."""
    supported_n = np.array([row.supported for row in rows])
    start = time.process_time()
    probability_n = np.array([unsupported_probability(row, verifier) for row in track(rows, "sentences", len(rows))])
    milliseconds = (time.process_time() - start) * 1000 / len(rows)
    checked_n = np.array([is_checked(row) for row in rows])
    marked_n = checked_n & (probability_n >= verifier.threshold)
    shares = float(marked_n[supported_n].mean()), float(marked_n[~supported_n].mean())
    balanced = (1 - shares[0] + shares[1]) / 2
    interval, not_checked = auc_interval(-probability_n, supported_n, seed), 1 - float(checked_n.mean())
    figures = {"verifier": SupportFigures(interval, *shares, balanced, not_checked, milliseconds)}
    for name, form in (("share of words", str), ("share of stems", form_of)):
        overlap_n = np.array([word_overlap(row, form) for row in rows])
        figures[name] = SupportFigures(auc_interval(overlap_n, supported_n, seed))
    return figures


def is_checked(row: SupportRow) -> bool:
    """Whether `ask` checks a row's sentence."""
    excerpts = [Excerpt("", "", passage) for passage in row.passages]
    sentence = Statement(row.sentence, 0, len(row.sentence), row.sentence, row.claim, ())
    return SupportChecker(excerpts, None).obstacle(sentence) is None and not refuses(row.sentence)


def unsupported_probability(row: SupportRow, verifier: Verifier) -> float:
    """The verifier's probability that the passages do not support the claim."""
    premise = Premise.of([("", passage) for passage in row.passages])
    return float(verifier.judge([row.claim], premise, with_question=row.is_fragment)[0])


def word_overlap(row: SupportRow, form: Callable[[str], str]) -> float:
    """The share of the claim's distinct words, without function words, whose `form` occurs in its passages; 1 for a claim without such words.

    >>> word_overlap(SupportRow(("The boats left Tarn.",), "A boat left Quill.", False), str)
    0.3333333333333333
    >>> round(word_overlap(SupportRow(("The boats left Tarn.",), "A boat left Quill.", False), form_of), 2)
    0.67
    """
    passage_words = {form(term) for passage in row.passages for term in terms_of(passage)}
    claim_words = [form(term) for term in dict.fromkeys(terms_of(row.claim)) if term not in FUNCTION_WORDS]
    return sum(term in passage_words for term in claim_words) / len(claim_words) if claim_words else 1.0


def auc(scores_n: Floats64, supported_n: NDArray[np.bool_]) -> float:
    """The area under the ROC curve by ranks, ties counting half (Mann and Whitney 1947).

    >>> auc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    positive, negative = int(supported_n.sum()), int((~supported_n).sum())
    ranks = float(rankdata(scores_n)[supported_n].sum())
    return (ranks - positive * (positive + 1) / 2) / (positive * negative)


def auc_interval(scores_n: Floats64, supported_n: NDArray[np.bool_], seed: int = 0) -> Interval:
    """The AUC and its 95 % interval: each class resampled separately (stratified bootstrap)."""
    rng = np.random.default_rng(seed)
    classes = scores_n[supported_n], scores_n[~supported_n]
    labels_n = np.repeat([True, False], [len(each) for each in classes])
    values_B = [
        auc(np.concatenate([rng.choice(each, len(each)) for each in classes]), labels_n) for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(values_B, (0.025, 0.975))
    return Interval(auc(scores_n, supported_n), float(low), float(high))


def support_table(title: str, figures: dict[str, SupportFigures]) -> Table:
    """One row per scorer."""
    marked = ("supported marked", "unsupported marked", "balanced accuracy", "not checked")
    header = ("scorer", "AUC", *marked, "ms per sentence")
    rows = []
    for name, scorer in figures.items():
        shares = (scorer.supported_marked, scorer.unsupported_marked, scorer.balanced_accuracy, scorer.not_checked)
        cells = (figure_or_dash(value, ".2f") for value in (*shares, scorer.ms_a_sentence))
        rows.append((name, f"{scorer.auc:.3f}", *cells))
    note = (
        "AUC with its 95 % interval; 0.5 is chance. Marked: the share of supported or of unsupported sentences that the verifier marks as unsupported. "
        "ms of processor time."
    )
    return Table(title, header, tuple(rows), note)


def support_json(figures: dict[str, SupportFigures]) -> dict[str, Any]:
    """The figures as JSON."""
    return {name: asdict(scorer) for name, scorer in figures.items()}
