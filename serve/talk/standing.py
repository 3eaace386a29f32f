"""Whether a question of a conversation stands by itself, by rules of English; of other languages only the length is judged.

A question leans on what was said before when it is a fragment ("And the second one?", "From whom?"), when a pronoun has nothing before
it to stand for ("Who bred it?"), or when it says little and names nothing ("Which yard built the ship?"). When in doubt it stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from graph.text.scripts import unspaced_runs
from serve.talk import words as kinds

Standing = Literal["alone", "leans", "unknown"]
"""`unknown`: in another language."""

FEW_WORDS = 3
"""So many words of its own make a search by keywords; with no more of them and no name a definite noun leans."""
LONG_CHARACTERS = 400
"""A longer question says enough."""
SHORT_WORDS, SHORT_CHARACTERS = 4, 8
"""The longest question of another language that may lean: in words, or in characters where a script puts no space between words."""
_WORD = re.compile(r"[^\W_]+(?:['’.&/-][^\W_]+)*|[,;:?!]")
_OPENING = re.compile(
    r"^(?:(?:also|and|but|great|no|now|oh|ok|okay|or|please|so|thanks|thank you|then|well|yes)\b[\s,.!:]*)+",
    re.IGNORECASE,
)
_WHAT_ABOUT = re.compile(r"(?:what|how) about\b", re.IGNORECASE)
_DEFINITION = re.compile(
    r"what (?:is|are) (?:an? )?(?!done\b|known\b|left\b|new\b|next\b|said\b)\w+(?<!ed)\W*", re.IGNORECASE
)
_EXPLETIVE = re.compile(r"(?:is|was|would|will) it \w+\b.* (?:for|if|that|to|when)\b", re.IGNORECASE)


def standing(question: str) -> Standing:
    """Whether the question can be searched for without what was said before it.

    >>> [standing(each) for each in ("When was that?", "And in 2023?", "When was the Marlow Yard founded?", "Wann war das?")]
    ['leans', 'leans', 'alone', 'unknown']
    """
    if len(question) > LONG_CHARACTERS:
        return "alone"
    asked = _OPENING.sub("", question.strip())
    spelt = _WORD.findall(asked.replace("’", "'"))
    words = [word.casefold() for word in spelt]
    if kinds.ENGLISH.isdisjoint(_WORD.findall(question.casefold())):
        return "unknown"
    own = [place for place, word in enumerate(words) if word[0].isalnum() and word not in kinds.EMPTY]
    if _WHAT_ABOUT.match(asked) or _is_fragment(words, len(own), asked != question.strip()):
        return "leans"
    if _EXPLETIVE.match(asked) or _DEFINITION.fullmatch(asked):
        return "alone"
    capital = [place for place in own if spelt[place][0].isupper()]
    names = frozenset(place for place in capital if place or 1 in capital or not spelt[0][1:].islower())
    if any(_dangles(words, place, names) for place in range(len(words))):
        return "leans"
    if names or any(words[place][0].isdigit() for place in own):
        return "alone"
    said = {words[place] for place in own} - kinds.MEASURES - kinds.TELLING
    if not kinds.COLLECTION.isdisjoint(said):
        return "alone"
    return "leans" if len(said) <= 1 or (len(said) <= FEW_WORDS and _has_bare_noun(words)) else "alone"


def is_short(question: str) -> bool:
    """Whether a question of an unknown language says so little that it is likely to lean."""
    unspaced = "".join(unspaced_runs(question))
    return len(unspaced) <= SHORT_CHARACTERS if unspaced else len(question.split()) <= SHORT_WORDS


def _is_fragment(words: Sequence[str], own: int, opened: bool) -> bool:
    """Whether there is no verb, as far as the words tell, nor, where nothing opens the question, enough for keywords."""
    if not kinds.AUXILIARY.isdisjoint(words) or (words and words[0] in kinds.TELLING):
        return False
    if own >= FEW_WORDS and not opened:
        return False
    asking = next((word for word in words if word in kinds.ASKING), None)
    if not kinds.AMOUNTS.isdisjoint(words):
        return own <= 1
    return asking is None or asking in kinds.ASKING_HOW or sum(word[0].isalnum() for word in words) <= 2


def _dangles(words: Sequence[str], place: int, names: frozenset[int]) -> bool:
    """Whether the word in `place` is a pronoun and nothing before it in the question is what it stands for."""
    word, previous = words[place], words[place - 1] if place else ""
    following = words[place + 1] if place + 1 < len(words) else "?"
    ends = not following[0].isalnum()
    if word == "that" and place and previous not in kinds.AUXILIARY | kinds.PREPOSITIONS:
        return False
    if word in kinds.POINTING:
        return following not in kinds.PREPOSITIONS and following not in kinds.ASKING
    if word == "there":
        return previous not in kinds.AUXILIARY and following not in kinds.AUXILIARY
    if word == "then":
        return ends
    if word in ("one", "ones"):
        chosen = previous in kinds.CHOOSING or previous.endswith("est")
        return (
            chosen and (ends or following in kinds.AUXILIARY) and not _has_noun(words, place - 2, names, asked_too=True)
        )
    if word in kinds.OWNERS and following not in kinds.EMPTY and not ends:
        return not _has_noun(words, place, names, asked_too=True)
    if word in kinds.OBJECTS and ends and kinds.SUBORDINATE.isdisjoint(words[1:place]):
        return True
    return word in kinds.SUBJECTS | kinds.OBJECTS and not _has_noun(
        words, place, names, previous not in kinds.AUXILIARY
    )


def _has_noun(words: Sequence[str], end: int, names: frozenset[int], asked_too: bool) -> bool:
    """Whether before `end` there is a name, or a noun after an article (if `asked_too`, after "which" or "how many", too)."""
    before = kinds.ARTICLES | (kinds.ASKING | {"many", "much"} if asked_too else set())
    return any(place < end for place in names) or any(
        words[place] in before and words[place + 1] not in kinds.EMPTY for place in range(end - 1)
    )


def _has_bare_noun(words: Sequence[str]) -> bool:
    """Whether a noun phrase begins with "the" and does not say of what: "the engineer", not "the boiling point of ethanol"."""
    for place, word in enumerate(words):
        if word == "the":
            end = next((end for end in range(place + 1, len(words)) if words[end] in kinds.EMPTY), len(words))
            if words[end : end + 1] != ["of"] or words[end + 1 : end + 2] == ["the"]:
                return True
    return False
