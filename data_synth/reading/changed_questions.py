"""Answerable questions made unanswerable by changing a name or a number, or replacing a word by its opposite.

After the unanswerable questions of SQuAD 2.0 (Rajpurkar et al. 2018, arXiv:1806.03822, table 3: entity swap, number swap, antonym), by rules.
The model is trained on both questions over the same passages, so that the question alone does not reveal whether it can be answered."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

OPPOSITES = {
    word: other
    for one, another in (
        ("first", "last"),
        ("most", "least"),
        ("largest", "smallest"),
        ("highest", "lowest"),
        ("oldest", "youngest"),
        ("longest", "shortest"),
        ("before", "after"),
        ("more", "less"),
        ("won", "lost"),
        ("north", "south"),
        ("northern", "southern"),
        ("east", "west"),
        ("eastern", "western"),
        ("increase", "decrease"),
        ("increased", "decreased"),
        ("best", "worst"),
        ("biggest", "tiniest"),
        ("earliest", "latest"),
        ("joined", "left"),
        ("opened", "closed"),
        ("bought", "sold"),
        ("included", "excluded"),
        ("allowed", "forbidden"),
        ("male", "female"),
        ("father", "mother"),
        ("brother", "sister"),
        ("husband", "wife"),
        ("son", "daughter"),
    )
    for word, other in ((one, another), (another, one))
}
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][\w.-]{2,}\w(?: (?:(?:of|the|de|von|van) )*[A-Z][\w.-]*\w)*")
"""Capitalised words inside a sentence, without a genitive ending."""
_NUMBER = re.compile(r"(?<![\w.,])\d{1,4}(?![\w.,]\w|\w)")
_OPPOSITE = re.compile(r"\b(" + "|".join(OPPOSITES) + r")\b")


def changed_question(question: str, gold: str, passages: Sequence[str], rng: random.Random) -> str | None:
    """The question with a name, number or word replaced by one that `gold`, the text that answers it, does not contain; None if there is no such change.

    A new name comes from the passages, has as many words, and shares no word of three letters or more with the question or `gold`.
    None for a choice ("… or …").

    >>> passages = ["She met Bram Oakes in Rill.", "Later that year Adam Finch sailed to Tarn."]
    >>> changed_question("When did Bram Oakes arrive?", passages[0], passages, random.Random(0))
    'When did Adam Finch arrive?'
    >>> changed_question("Who owns 12 boats?", "Ann owns 12 boats.", [], random.Random(1))
    'Who owns 2 boats?'
    >>> changed_question("Who owns the boat?", "Ann owns the boat.", [], random.Random(0)) is None
    True
    """
    if " or " in question:
        return None
    changes = [
        (match, other)
        for pattern, others in ((_NAME, _other_names), (_NUMBER, _other_numbers), (_OPPOSITE, _opposites))
        for match in pattern.finditer(question)
        for other in others(match[0], question, gold, passages, rng)
    ]
    if not changes:
        return None
    match, other = rng.choice(changes)
    return question[: match.start()] + other + question[match.end() :]


def _other_names(name: str, question: str, gold: str, passages: Sequence[str], rng: random.Random) -> list[str]:
    known = set(re.findall(r"\w+", f"{question} {gold}".casefold()))
    names = {
        other[0]
        for passage in passages
        for other in _NAME.finditer(passage)
        if other[0].count(" ") == name.count(" ") and not known & set(re.findall(r"\w{3,}", other[0].casefold()))
    }
    return rng.sample(sorted(names), min(2, len(names)))


def _other_numbers(number: str, question: str, gold: str, passages: Sequence[str], rng: random.Random) -> list[str]:
    del passages
    spread = max(3, int(number) // 100, int(number) if int(number) < 100 else 20)
    other = str(max(1, int(number) + rng.choice((-1, 1)) * rng.randint(1, spread)))
    return [] if re.search(rf"\b{other}\b", f"{question} {gold}") else [other]


def _opposites(word: str, question: str, gold: str, passages: Sequence[str], rng: random.Random) -> list[str]:
    del question, passages, rng
    return [] if re.search(rf"\b{OPPOSITES[word]}\b", gold, re.IGNORECASE) else [OPPOSITES[word]]
