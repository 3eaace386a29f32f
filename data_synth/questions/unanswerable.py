"""Questions that an index does not answer, each beside one that it does: of a thing that is not in it, or of what it does not say."""

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from data_synth.questions.check import id_of
from data_synth.questions.facts import Sentences, stems_of
from data_synth.questions.phrases import kind_by_name
from data_synth.questions.types import QuestionRow
from data_synth.questions.words import PLACES
from graph.extract.entities import MONTHS, find_entities

UNANSWERABLE = "unanswerable"
_BESIDE = """
accident book|burglary book|fire book
adopted|repealed
annual leave|compassionate leave|maternity leave|parental leave|paternity leave|sabbatical leave|study leave|sick leave
apprentice|intern|volunteer|pensioner
archived|shredded
assembly|packing|finishing
backup|printout
bicycle|caravan|motorcycle|tractor|truck|van
bonus|commission|dividend|gratuity
boots|goggles|gloves|harnesses|visors
breakfast|dinner|lunch|supper
built|demolished
canteen|crèche|gymnasium|laundry|sauna|chapel
car park|coach park
collected|shredded
daily allowance|clothing allowance
data protection|radiation protection
emptied|painted
expense claim|insurance claim
fire drill|flood drill
fire extinguisher|defibrillator
founded|dissolved|nationalised
front office|back office
hotel|hostel
how deep is|how heavy is|how thick is|how wide is|how long is|how high is
inspected|repainted
installed|dismantled
introduced|abolished
laptop|projector|scanner|tablet
launched|scrapped
library|aquarium|planetarium|museum|observatory
main dish|side dish
main gate|northern gate|western gate
managing director|technical director
mileage rate|exchange rate
monthly|fortnightly|quarterly
opened|demolished
parked|washed
parking permit|work permit
pension fund|investment fund
reviewed|frozen
safety officer|noise officer|training officer
sick pay|holiday pay
soup|dessert|salad
stored|burned
telephone number|fax number
trial period|qualifying period
wages|royalties
works council|supervisory board
written|translated
"""
BESIDE = tuple(line.split("|") for line in _BESIDE.strip().splitlines())
"""Words that can stand in each other's place: what is plain for with one of them is near what is plain for with another."""
_DATED = re.compile(rf"(?:{MONTHS}|\w+days?|Christmas|Easter|New Year)\b")
_INVENTED = """
Aldermoor Brennick Caldray Dunmere Eskerly Farrowdale Gillamont Hestwick Ivelstone Jarrowmere Keldrith Lorimer Maddock Northolme
Ostwin Penhallow Quarrendon Rushwick Silverdene Thornbury Ulverscroft Vennick Wexcombe Yarnfield
"""
INVENTED = tuple(_INVENTED.split())
_TITLE = re.compile(r", according to “.*$")


def near_miss(row: QuestionRow, sentences: Sentences, rng: Random) -> QuestionRow | None:
    """The question of a row with one thing in it changed so that the index does not answer it; None where nothing can be.

    Another name is taken, which the index lacks, or else a word beside one of the question's that neither its document nor any
    sentence about its subject has.
    """
    changes = [*_other_names(row, sentences, rng), *_other_words(row, sentences, rng)]
    if not changes:
        return None
    text = changes[0]
    near = tuple(replace(step, given="", found="") for step in row.steps)
    return replace(
        row, id=id_of(text), text=text, answers=(), kind=UNANSWERABLE, hops=0, chains=(), bridges=(), near=near
    )


def _other_names(row: QuestionRow, sentences: Sentences, rng: Random) -> Iterator[str]:
    plain = _TITLE.sub("", row.text)
    for name in find_entities(f"x {plain[0].lower()}{plain[1:]}"):
        if name not in plain or any(map(str.isdigit, name)) or _DATED.match(name):
            continue
        other = _other_name(name, sentences, rng)
        if other is not None:
            yield row.text.replace(name, other)


def _other_name(name: str, sentences: Sentences, rng: Random) -> str | None:
    """A name of the same shape that no sentence has: its last word stays if it says what the thing is."""
    words = name.split()
    free = [word for word in INVENTED if word.casefold() not in sentences.text]
    if not free or not words[0][:1].isupper():
        return None
    invented = rng.choice(free)
    last = words[-1].casefold()
    if len(words) == 1:
        other = invented
    elif last in PLACES or kind_by_name(name).noun:
        other = " ".join([invented, words[-1]])
    else:
        other = " ".join([*words[:-1], invented])
    return other if other.casefold() not in sentences.text else None


def _other_words(row: QuestionRow, sentences: Sentences, rng: Random) -> Iterator[str]:
    plain = _TITLE.sub("", row.text)
    for group in rng.sample(BESIDE, len(BESIDE)):
        for words in group:
            found = re.search(rf"(?<!\w){words}(?P<many>s?)(?!\w)", plain, re.IGNORECASE)
            others = [other for other in group if other != words and not _stands(other, sentences)]
            if found is not None and others:
                other = rng.choice(others)
                other = other.capitalize() if found[0][0].isupper() else other
                changed = f"{_with_article(plain[: found.start()], other)}{other}{found['many']}{plain[found.end() :]}"
                if not sentences.documents_saying(stems_of(changed), ""):
                    yield changed + row.text[len(plain) :]


def _stands(words: str, sentences: Sentences) -> bool:
    """Whether any sentence has the words: all of several, one in any of its forms."""
    return words in sentences.text if " " in words else sentences.has_word(words)


def _with_article(before: str, word: str) -> str:
    """What stands before a word, with the article that it wants."""
    found = re.search(r"(?<!\w)([Aa])n? $", before)
    return before if found is None else f"{before[: found.start()]}{found[1]}{'n' if word[0] in 'aeio' else ''} "
