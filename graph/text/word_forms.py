"""Words of a text and their forms: stems, function words, negators, opposites; scripts without spaces between words, and letters without case."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations

UNSPACED = (
    r"\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"  # Han
)
"""Characters of scripts that put no space between words, for use inside [ ] of a regular expression."""
MARKS = r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
"""Marks inside words that `re` does not count as letters (accents, points, Indic vowels). The ranges also contain Indic letters."""
WORD_PART = rf"[^\W_{UNSPACED}]+(?:[{MARKS}]+[^\W_{UNSPACED}]*)*"
"""A run of letters, digits and their marks in a script with spaces."""
WORD = re.compile(rf"[{UNSPACED}]|{WORD_PART}")
"""A word; in scripts without spaces, a character."""
SENTENCE_ENDS = "。｡！？؟۔।॥"
"""Marks that end a sentence in scripts other than Latin."""
CHARACTERS_PER_WORD = 2
"""In unspaced scripts, this many characters count as a word."""
UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")


def unspaced_runs(text: str) -> list[str]:
    """The maximal runs of characters of unspaced scripts, in order.

    >>> unspaced_runs("Tokyo is 東京 (とうきょう).")
    ['東京', 'とうきょう']
    """
    return _UNSPACED_RUN.findall(text)


def count_words(text: str) -> int:
    """The number of words of a text; in scripts without spaces, CHARACTERS_PER_WORD characters count as one.

    >>> count_words("It burned in 1911 [2]."), count_words("東京都 1868")
    (5, 2)
    """
    spaced, characters = UNSPACED_CHARACTER.subn(" ", text)
    return len(spaced.split()) + characters // CHARACTERS_PER_WORD


def composed(text: str) -> str:
    """A text with composed accents (NFC) and without soft hyphens, so that every encoding of a word is equal.

    >>> composed("Jose\u0301 sailed the Lan\u00adtern.")
    'José sailed the Lantern.'
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text.replace("\u00ad", ""))


def is_caseless(text: str) -> bool:
    """Whether most letters of a text have no upper and lower case, so that case cannot mark a name.

    >>> is_caseless("東京塔は高い (Tokyo)"), is_caseless("Tokyo (東京)"), is_caseless("1958")
    (True, False, False)
    """
    if text.isascii():
        return False
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character.lower() == character.upper() for character in letters) > len(letters)


_FUNCTION = """
a about after all also among an and any are as at be because been before being between both but by can could did do
does during each for from had has have he her here hers him his how if in into is it its itself may might more most
much must of on only or other others our over own same shall she should since so some such than that the their theirs
them then there these they this those through to too under until up was we were what when where which while who whom
whose why will with within would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION.split())
_FOREIGN = """
auf das dem den der des die ein eine einen er es für ist mit nicht sich sie und von war werden wird wurde zu zum zur
aux avec ce dans du elle en est et il la le les par pas pour qui sur un une
al como con del el fue las los para por que se su una y
che da dal della di gli lo nel non per sono
ao com da do dos em foi na não no os pelo
aan dat de door een het niet op te van voor werd
av att det ett för med och på som
af blev ble eller er ikke jeg og til ved være
bir bu çok daha gibi için ile olan olarak ve
"""
FOREIGN_FUNCTION_WORDS = frozenset(_FOREIGN.split()) - FUNCTION_WORDS - {"no"}
"""Function words of German, French, Spanish, Italian, Portuguese, Dutch, Swedish, Danish, Norwegian and Turkish, without English ones and “no”."""
_IMPERATIVE = "compare describe explain find give list name say show summarise summarize tell"
IMPERATIVES = frozenset(_IMPERATIVE.split())
_NEGATORS = "not no never without neither nor none nobody nothing cannot hardly fail failed fails lack lacks lacked"
NEGATORS = frozenset(_NEGATORS.split())
_PAIRS = """
increase decrease, increased decreased, increases decreases, increasing decreasing, higher lower, highest lowest, high low, more less,
more fewer, most least, before after, first last, earlier later, early late, larger smaller, largest smallest, large small, greater less,
longer shorter, long short, older younger, oldest youngest, old new, positive negative, better worse, best worst, improved worsened,
above below, northern southern, north south, eastern western, east west, won lost, wins loses, opened closed, opens closes, born died,
same different, similar different, common rare, effective ineffective, significant insignificant, significantly insignificantly, many few,
all none, beginning end, began ended, begins ends, reduced raised, safe unsafe, male female, men women, man woman, brother sister,
father mother, son daughter, husband wife, king queen, left right, top bottom, inside outside, success failure, succeeded failed,
gained lost, rose fell, strong weak, fast slow, heavy light, hot cold, public private, morning evening, day night, summer winter,
buys sells, bought sold, arrived left, accepted rejected, allowed forbidden, built destroyed, enemy friend
"""


def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for pair in _PAIRS.split(","):
        for word, opposite in permutations(pair.split()):
            found.setdefault(word, set()).add(opposite)
    return {word: frozenset(opposites) for word, opposites in found.items()}


OPPOSITES = _opposites()
"""Maps a word to its opposites."""

_WORD = re.compile(rf"[{UNSPACED}]|{WORD_PART}(?:['’.,/-]{WORD_PART})*")
_ENDINGS = ("ing", "edly", "ed", "es", "ly", "s")
_SHORTEST_STEM = 4
_SHARED_LETTERS = 5
"""Words whose stems share this many initial letters count as forms of one word; shorter stems must be equal."""


@dataclass(frozen=True)
class Words:
    """The words of a text in order. `content` and `negators` are the positions of the content words and of the negators."""

    words: tuple[str, ...]
    lower: tuple[str, ...]
    stems: tuple[str, ...]
    content: tuple[int, ...]
    negators: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Words:
        """The words of a text.

        >>> Words.of("It was not Ada's ferry.").stems, Words.of("It was not Ada's ferry.").content
        (('it', 'was', 'not', 'ada', 'ferry'), (3, 4))
        """
        words = tuple(match[0] for match in _WORD.finditer(composed(text)))
        lower = tuple(word.lower().replace("’", "'") for word in words)
        negates = [word in NEGATORS or word.endswith("n't") for word in lower]
        return cls(
            words,
            lower,
            tuple(map(stem, lower)),
            tuple(at for at, word in enumerate(lower) if word not in FUNCTION_WORDS and not negates[at]),
            tuple(at for at, word in enumerate(lower) if negates[at]),
        )

    @cached_property
    def stem_set(self) -> frozenset[str]:
        """The stems, each once."""
        return frozenset(self.stems)

    def is_number(self, at: int) -> bool:
        """Whether there is a digit in the word."""
        return any(character.isdigit() for character in self.words[at])

    def is_name(self, at: int) -> bool:
        """Whether the word begins with a capital letter and is not the first word, which is capitalised anyway."""
        return at > 0 and self.words[at][0].isupper()

    def neighbours(self, at: int, before: int, after: int) -> set[str]:
        """The stems of the nearest content words: `before` of them before a position, `after` of them from it onwards."""
        middle = bisect_left(self.content, at)
        return {self.stems[near] for near in self.content[max(0, middle - before) : middle + after]}


def stem(word: str) -> str:
    """A lower-case word without a final 's and, if four letters or more are left, without an ending such as -ing, -ed, -ly or -s.

    >>> [stem(word) for word in ("sailed", "ferries", "ada's", "bus")]
    ['sail', 'ferri', 'ada', 'bus']
    """
    word = word.removesuffix("'s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word


def form(stem: str) -> str:
    """The part that the stems of a word's forms share: the first five letters, or the whole of a shorter stem.

    >>> form("observ") == form("observation"), form("ada") == form("adam")
    (True, False)
    """
    return stem[:_SHARED_LETTERS]


@lru_cache(maxsize=65_536)
def form_of(term: str) -> str:
    """The `form` of a term's stem; cached, as passages share most of their terms."""
    return form(stem(term))


def is_name(word: str) -> bool:
    """Whether a word contains a capital, a digit, or a full stop between letters or digits.

    >>> [word for word in ("Ada's", "B12", "fool.com", "café", "end.", "кот") if is_name(word)]
    ["Ada's", 'B12', 'fool.com']
    """
    return re.search(r"\w\.\w", word) is not None or any(one.isupper() or one.isdigit() for one in word)
