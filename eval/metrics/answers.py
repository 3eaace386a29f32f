"""Measures of an answer's text: the choice it makes (yes/no/maybe, MIRAGE's letters) with accuracy by class, and ROUGE, BLEU and METEOR against references.

The libraries of the last three are imported at the first call: a comparison of short answers needs none of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from graph.answer.match import match_words, normalise
from graph.documents.questions import Question
from graph.errors import UserError

CHOICES = ("yes", "no", "maybe")
_MIRAGE_PATTERNS = (
    r"^\s*({})$",
    r"^\s*({}) or",
    r"^\s*({}) and",
    r"^\s*({})/",
    r"^\s*({}),",
    r"[Oo]ption ({})",
    r":\s*({})",
    r"^\s*({})\.",
    r"^\s*({})\"",
    r"^\s*({}):",
)
"""The patterns of `locate_answer` in MIRAGE's src/utils.py (Xiong et al. 2024), in its order."""
_OWN_PATTERNS = (r"^\s*\(?({})\)", r":\s*\(({})\)", r"[Aa]nswer is \(?({})")
"""Not from MIRAGE: "(B)" as in our prompts, "B)", and a letter after "answer is"."""
_LEAD_IN = re.compile(r":\s+|\banswer is\s+")


def read_choice(answer: str) -> str:
    """The choice that an answer opens with, or "" when its first word is not a choice (counted as wrong).

    >>> read_choice("Yes, since 1911."), read_choice("yesterday")
    ('yes', '')
    """
    first = (normalise(answer).split() or [""])[0]
    return first if first in CHOICES else ""


def find_letter(answer: str, letters: Sequence[str]) -> str:
    """The letter in an answer: alone, in either case, or where one of MIRAGE's patterns or of ours finds it as a whole word; "" for none.

    >>> find_letter("B. The skin", "ABCD"), find_letter("b", "ABCD"), find_letter("The answer is: Doxycycline", "ABCD")
    ('B', 'B', '')
    """
    alone = re.sub(r"\W", "", answer).casefold()
    whole_words = f"(?:{'|'.join(map(re.escape, letters))})(?![\\w-])"
    found = (letter for letter in letters if letter.casefold() == alone)
    return next(found, "") or _first_match((*_MIRAGE_PATTERNS, *_OWN_PATTERNS), whole_words, answer)


def _first_match(patterns: Sequence[str], letters: str, answer: str) -> str:
    """The letter of the first pattern that matches, "" for none; `letters` is a regular expression."""
    return next((str(found[0]) for pattern in patterns if (found := re.findall(pattern.format(letters), answer))), "")


def read_option(answer: str, options: Mapping[str, str]) -> str:
    """The letter of the option that an answer names: by its text, alone or after "answer is" or a colon, or by its letter; "" for none (counted as wrong).

    >>> read_option("Answer: hole", {"A": "mouse", "B": "Hole"}), read_option("(A) mouse", {"A": "mouse", "B": "hole"})
    ('B', 'A')
    """
    starts = [0, *(match.end() for match in _LEAD_IN.finditer(answer))]
    named = (letter for start in starts if (letter := _option_with_text(answer[start:], options)))
    return next(named, "") or find_letter(answer, list(options))


def _option_with_text(text: str, options: Mapping[str, str]) -> str:
    """The letter of the option with a text: without regard to case, else as in `normalise`; "" for none, or if normalised options with different texts fit."""
    plain, normalised = _plain(text), normalise(text)
    equal = [letter for letter, option in options.items() if plain and plain == _plain(option)]
    similar = [
        letter
        for letter, option in options.items()
        if normalised and normalised in (normalise(option), normalise(f"{letter} {option}"))
    ]
    letters = equal or similar
    return letters[0] if len({_plain(options[letter]) for letter in letters}) == 1 else ""


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def mirage_letter(answer: str) -> str:
    """The letter that MIRAGE reads from an answer to four options; as published, an answer that no pattern matches counts as "A"."""
    return _first_match(_MIRAGE_PATTERNS, "A|B|C|D", answer) or "A"


def gold_letters(question: Question) -> list[str]:
    """The letters of the options whose text is an accepted answer, or else the letters that are accepted answers; UserError when there are none."""
    options, answers = question.options or {}, question.answers
    by_text = [letter for letter, text in options.items() if text in answers]
    if letters := by_text or [letter for letter in options if letter in answers]:
        return letters
    found = f"question {question.id!r}: the answers {list(answers)} are none of the options {dict(options)}"
    raise UserError(found, "the text or the letter of an option", "fix the question")


def majority_class(train_labels: Sequence[str]) -> str:
    """The most common label of the TRAIN split, to be applied to the test split; ties go to the alphabetically first.

    Taking the majority of the test split itself would let the baseline see the answers. "" when there are no labels.
    """
    counts = Counter(train_labels)
    return min(counts, key=lambda label: (-counts[label], label)) if counts else ""


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of equal labels; nan for no labels."""
    pairs = list(zip(predicted, gold, strict=True))
    return sum(p == g for p, g in pairs) / len(pairs) if pairs else math.nan


def accuracy_per_class(predicted: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """For each gold label (sorted), the share of its rows predicted correctly: a majority guesser shows 1 for one label and 0 for the others."""
    pairs = list(zip(predicted, gold, strict=True))
    return {label: fmean(p == label for p, g in pairs if g == label) for label in sorted(set(gold))}


def rouge_f(answer: str, references: Sequence[str], kind: str) -> float:
    """ROUGE-1, -2 or -L F-measure with Porter stemming: rouge-score's `score_multi`, which reads only a to z and digits.

    If most letters of the references are others, the words are those of `match_words`, unstemmed.
    """
    letters = [character for reference in references for character in reference if character.isalpha()]
    in_ascii = 2 * sum(map(str.isascii, letters)) >= len(letters)
    return float(_rouge(kind, in_ascii).score_multi(list(references), answer)[kind].fmeasure)


def bleu(answer: str, references: Sequence[str]) -> float:
    """Sentence BLEU-4 of sacrebleu: tokenizer 13a, exponential smoothing, effective order (so that short answers are not all 0)."""
    return float(_bleu().sentence_score(answer, list(references)).score) / 100


def meteor(answer: str, references: Sequence[str]) -> float:
    """METEOR (Lavie & Agarwal 2007; α .9, β 3, γ .5) of nltk with its exact and Porter-stem stages.

    The third stage, WordNet synonyms, is left out because it needs extra data: figures are a little lower than with it.
    Words are those of nltk's Treebank-like tokenizer over the whole text.
    """
    tokenise, score, no_synonyms = _meteor()
    return float(score([tokenise(text) for text in references], tokenise(answer), wordnet=no_synonyms))


@cache
def _rouge(kind: str, in_ascii: bool) -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise _not_installed("ROUGE", "rouge-score") from None
    tokenizer = None if in_ascii else SimpleNamespace(tokenize=match_words)
    return RougeScorer([kind], use_stemmer=True, tokenizer=tokenizer)


@cache
def _bleu() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise _not_installed("BLEU", "sacrebleu") from None
    return BLEU(effective_order=True)


@cache
def _meteor() -> tuple[Any, Any, Any]:
    try:
        from nltk.tokenize import NLTKWordTokenizer  # type: ignore[import-untyped, unused-ignore]
        from nltk.translate.meteor_score import meteor_score  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise _not_installed("METEOR", "nltk") from None
    no_synonyms = SimpleNamespace(synsets=lambda _word: ())
    return NLTKWordTokenizer().tokenize, meteor_score, no_synonyms


def _not_installed(metric: str, package: str) -> UserError:
    return UserError(f"{metric}: {package} is not installed", "the extra `eval`", "pip install 'modegraph[eval]'")
