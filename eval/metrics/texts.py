"""Longer answers against reference texts: ROUGE by rouge-score, BLEU by sacrebleu, METEOR by nltk. Shares of 1; the best over references.

The libraries are imported at the first call: a comparison of short answers needs none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from graph.shared.errors import UserError

ROUGE = ("rouge1", "rouge2", "rougeL")


def rouge_f(answer: str, references: Sequence[str], kind: str) -> float:
    """ROUGE-1, -2 or -L F-measure with Porter stemming, as in QASPER's and GraphMPA's tables: rouge-score's `score_multi`."""
    return float(_rouge(kind).score_multi(list(references), answer)[kind].fmeasure)


def bleu(answer: str, references: Sequence[str]) -> float:
    """Sentence BLEU-4 of sacrebleu: tokenizer 13a, exponential smoothing, effective order (so that short answers are not all 0)."""
    return float(_bleu().sentence_score(answer, list(references)).score) / 100


def meteor(answer: str, references: Sequence[str]) -> float:
    """METEOR (Lavie & Agarwal 2007; α .9, β 3, γ .5) of nltk with its exact and Porter-stem stages.

    The third stage, WordNet synonyms, is left out because it needs data of its own: figures are a little lower than with it.
    Words are those of nltk's Treebank-like tokenizer over the whole text.
    """
    tokenise, score, no_synonyms = _meteor()
    return float(score([tokenise(text) for text in references], tokenise(answer), wordnet=no_synonyms))


class NoSynonyms:
    """In place of nltk's WordNet reader: no word has a synonym, so that METEOR's third stage finds nothing."""

    def synsets(self, word: str) -> tuple[()]:
        """No meanings of `word`."""
        del word
        return ()


@cache
def _rouge(kind: str) -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise _missing("ROUGE", "rouge-score") from None
    return RougeScorer([kind], use_stemmer=True)


@cache
def _bleu() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise _missing("BLEU", "sacrebleu") from None
    return BLEU(effective_order=True)


@cache
def _meteor() -> tuple[Any, Any, Any]:
    try:
        from nltk.tokenize import NLTKWordTokenizer  # type: ignore[import-untyped, unused-ignore]
        from nltk.translate.meteor_score import meteor_score  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise _missing("METEOR", "nltk") from None
    return NLTKWordTokenizer().tokenize, meteor_score, NoSynonyms()


def _missing(metric: str, package: str) -> UserError:
    return UserError(
        f"{metric}: {package} is not installed", "the packages of the extra", "pip install 'modegraph[eval]'"
    )
