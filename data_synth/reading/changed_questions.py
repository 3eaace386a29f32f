"""Answerable questions made unanswerable by changing a name or a number, or by replacing a word with its opposite or with another word of its kind.

They are made by rules, modelled on the unanswerable questions of SQuAD 2.0 (Rajpurkar et al. 2018, arXiv:1806.03822: entity swap, number swap, antonym,
mutual exclusion). The model is trained on the original and the changed question over the same passages, so that the question alone does not reveal
whether it can be answered."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from graph.text.word_forms import FOREIGN_FUNCTION_WORDS, FUNCTION_WORDS, OPPOSITES

_KINDS = """
first second third fourth fifth sixth seventh eighth ninth tenth, one two three four five six seven eight nine ten twelve twenty, hundred thousand million billion,
January February March April May June July August September October November December, Monday Tuesday Wednesday Thursday Friday Saturday Sunday,
spring summer autumn winter, morning afternoon evening night, north south east west, northern southern eastern western, northwest northeast southwest southeast,
upper lower, biggest tiniest, earliest latest, fastest slowest, strongest weakest, richest poorest, main minor, before during after, since until, always never,
positive negative mixed, local national international, ancient modern, direct indirect, grow shrink, grew shrank, gain lose, win lose, start stop, started stopped,
founded dissolved, joined left, included excluded, supported opposed, praised criticised, born married buried, died married retired, wrote directed produced sang edited,
written directed produced sung edited, write direct produce edit, invented banned sold, discovered lost forgot, attacked defended, defeated joined, appointed dismissed,
elected appointed impeached, released cancelled, created destroyed, caused prevented, succeeded preceded, king queen prince emperor, boys girls, parents children siblings, uncle aunt,
president governor mayor senator treasurer, director producer editor composer actor singer, author painter sculptor architect, teacher student professor, coach player captain referee,
album song film book play novel poem painting, books films songs albums, movie series game, award prize medal title, band orchestra choir, magazine newspaper journal,
river lake mountain island sea desert, rivers lakes mountains islands, city village state county province country, bridge tower castle church temple museum, university hospital, school prison,
army navy police, war battle treaty siege, church state court, species genus family, gold silver bronze copper, red blue green yellow black white, water oil gas coal,
Africa Asia Europe Australia, France Germany Italy Spain Russia China Japan India Canada Mexico Brazil Egypt Greece, French German Italian Spanish Russian Chinese Japanese Indian Canadian Mexican,
London Paris Berlin Rome Vienna Madrid Moscow Tokyo Chicago Boston, Texas California Florida Ohio Virginia Georgia, Catholic Protestant Muslim Jewish Hindu Buddhist, English Latin Greek Arabic
"""


def _alternatives() -> dict[str, frozenset[str]]:
    found = dict(OPPOSITES)
    for kind in _KINDS.split(","):
        words = frozenset(kind.split())
        for word in words:
            found[word] = found.get(word, frozenset()) | words - {word}
    return found


ALTERNATIVES = _alternatives()
"""Maps a word to its opposites and to other words of its kind."""
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][\w.-]{2,}\w(?: (?:(?:of|the|de|von|van) )*[A-Z][\w.-]*\w)*")
"""Capitalised words inside a sentence, without a genitive ending."""
_NUMBER = re.compile(r"(?<![\w.,])\d{1,4}(?![\w.,]\w|\w)")
_ALTERNATIVE = re.compile(r"(?<![Hh]ow )\b(" + "|".join(ALTERNATIVES) + r")\b")
"""Not after “how”: “How few …?” has the same answer as “How many …?”."""


def changed_question(question: str, gold: str, passages: Sequence[str], rng: random.Random) -> str | None:
    """The question with a name, number or word replaced by one that is not in `gold`, the text that answers it; None if there is no such replacement.

    Also None for a question that offers a choice ("… or …"). A new name comes from the passages, has as many words as the old one, and shares no word of
    three letters or more with the question or `gold`; a new word is in none of the passages. Words are replaced in English questions only.

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
        for pattern, others in ((_NAME, _other_names), (_NUMBER, _other_numbers), (_ALTERNATIVE, _other_words))
        for match in pattern.finditer(question)
        for other in others(match[0], question, gold, passages, rng)
    ]
    if not changes:
        return None
    match, other = rng.choice(changes)
    return question[: match.start()] + other + question[match.end() :]


def _is_english(question: str) -> bool:
    """Whether a question has more English function words than foreign ones; “war” and “son” are words in other languages, too.

    >>> _is_english("Who won the war?"), _is_english("Was war die Brücke?"), _is_english("Wo ist Tarn?")
    (True, False, False)
    """
    words = re.findall(r"\w+", question.casefold())
    return sum(word in FUNCTION_WORDS for word in words) > sum(word in FOREIGN_FUNCTION_WORDS for word in words)


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
    spread = max(3, int(number) // 100, int(number) if int(number) < 100 else 20)
    other = str(max(1, int(number) + rng.choice((-1, 1)) * rng.randint(1, spread)))
    return [] if re.search(rf"\b{other}\b", f"{question} {gold}") else [other]


def _other_words(word: str, question: str, gold: str, passages: Sequence[str], rng: random.Random) -> list[str]:
    if not _is_english(question):
        return []
    known = set(re.findall(r"\w+", " ".join([question, gold, *passages]).casefold()))
    others = sorted(other for other in ALTERNATIVES[word] if other.casefold() not in known)
    return rng.sample(others, min(1, len(others)))
