"""Answers that choose: yes/no/maybe, and the letter of a multiple-choice question as MIRAGE reads it; accuracy, also by class."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from graph.prompt.match import normalise

CHOICES = ("yes", "no", "maybe")
MIRAGE_FALLBACK = "A"
_MIRAGE = (
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
_BRACKETED = r"^\s*\(({})\)"
"""Not MIRAGE's: the form in which our own prompts show options."""


def read_choice(answer: str, choices: Sequence[str] = CHOICES) -> str:
    """The choice that an answer opens with, or "" when its first word is none of them (counted as wrong).

    >>> read_choice("Yes, since 1911."), read_choice("yesterday")
    ('yes', '')
    """
    first = (normalise(answer).split() or [""])[0]
    return first if first in choices else ""


def find_letter(answer: str, letters: Sequence[str]) -> str:
    """The letter that MIRAGE's patterns, or one in brackets at the start, find in an answer; "" for none.

    >>> find_letter("B. The skin", "ABCD"), find_letter("The answer is: C", "ABCD"), find_letter("no idea", "ABCD")
    ('B', 'C', '')
    """
    either = "|".join(re.escape(letter) for letter in letters)
    for pattern in (*_MIRAGE, _BRACKETED):
        found = re.findall(pattern.format(either), answer)
        if found:
            return str(found[0])
    return ""


def read_option(answer: str, options: Mapping[str, str]) -> str:
    """The letter of the option that an answer names: by its whole text, or by its letter; "" for none (counted as wrong).

    >>> read_option("hole", {"A": "mouse", "B": "Hole"}), read_option("(A) mouse", {"A": "mouse", "B": "hole"})
    ('B', 'A')
    """
    told = normalise(answer)
    for letter, text in options.items():
        if told and told in (normalise(text), normalise(f"{letter} {text}")):
            return letter
    return find_letter(answer, list(options))


def mirage_letter(answer: str) -> str:
    """MIRAGE's own reading of four options: as published, what no pattern finds counts as "A"."""
    for pattern in _MIRAGE:
        found = re.findall(pattern.format("A|B|C|D"), answer)
        if found:
            return str(found[0])
    return MIRAGE_FALLBACK


def gold_letter(answers: Sequence[str], options: Mapping[str, str]) -> str:
    """The letter whose option is one of the accepted answers; ValueError when there is none."""
    for letter, text in options.items():
        if text in answers:
            return letter
    raise ValueError(f"none of the options {list(options.values())} is an accepted answer {list(answers)}")


def majority_class(train_labels: Sequence[str]) -> str:
    """The commonest label of the TRAIN split, to be applied to the test split; ties go to the alphabetically first.

    Taking the majority of the test split itself would let the baseline see the answers. "" when there are no labels.
    """
    counts = Counter(train_labels)
    return min(counts, key=lambda label: (-counts[label], label)) if counts else ""


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of equal labels; nan for no labels."""
    pairs = list(zip(predicted, gold, strict=True))
    return sum(p == g for p, g in pairs) / len(pairs) if pairs else math.nan


def accuracy_per_class(predicted: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """For each gold label (sorted), the share of its rows predicted right: a majority guesser shows 1, 0, 0."""
    found: dict[str, float] = {}
    for label in sorted(set(gold)):
        own = [p for p, g in zip(predicted, gold, strict=True) if g == label]
        found[label] = accuracy(own, [label] * len(own))
    return found
