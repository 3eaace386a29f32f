"""Two sentences of a passage about the same thing said in one, as an answer says what it found in several places."""

from __future__ import annotations

import random
import re

_SUBJECT = r"(?:(?:He|She|It|They)\b(?!')|(?:The )?{title}(?: \([^()]*\))?(?:, [^,.;]{{3,60}},)?)"
_CLAUSE = r" (?P<told>[a-z][^.;:()]{5,90}?)(?:\.(?!\d)|[;:]|,? (?:and|but|which|who|where|while|although|until|after|before)\b|, )"
_IS = re.compile(r"(?:is|was|are|were) (?=(?:an?|the|one|two|three|four|five|six|seven|eight|nine|ten)\b)")
_PRONOUN = re.compile(r"(?:He|She|It|They)(?P<rest> [a-z].*)", re.DOTALL)
_OWN = re.compile(
    r"(?:His|Her|Its|Their) (?P<part>[a-z][\w'’ -]{2,40}?)(?P<rest> (?:is|was|are|were|has|had|have)\b.*)", re.DOTALL
)


def fuse(first: str, second: str, title: str, draw: random.Random) -> str | None:
    """A sentence that speaks of its title by a pronoun, with what an earlier one says of it put in; None where that cannot be told.

    >>> fuse("Lantern is a ferry built in Tarn.", "Its crew was small.", "Lantern", random.Random(0))
    'The crew of the ferry built in Tarn was small.'
    >>> fuse("Lantern sank in 1911.", "It had carried coal.", "Lantern", random.Random(0))
    'Lantern, which sank in 1911, had carried coal.'
    """
    before = re.match(_SUBJECT.format(title=re.escape(title)) + _CLAUSE, first) if title else None
    here = _PRONOUN.match(second) or _OWN.match(second)
    if before is None or here is None:
        return None
    told, which = before["told"], "who" if second.startswith(("He", "She", "His")) else "which"
    copula = _IS.match(told)
    if copula is None:
        subject = f"{title}, {which} {told},"
    else:
        what = told[copula.end() :]
        subject = f"{title}, {what}," if draw.random() < 0.5 else re.sub(r"^(?:an?|the)? ?", "the ", what, count=1)
    if here.re is _OWN:
        return f"The {here['part']} of {subject}{here['rest']}"
    return f"{subject[:1].upper()}{subject[1:]}{here['rest']}"
