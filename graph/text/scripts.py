"""Properties of writing systems: scripts without spaces between words, letters without case."""

import re

UNSPACED = (
    r"\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"  # Han
)
"""Characters of scripts that put no space between words, for use inside [ ] of a regular expression."""
MARKS = r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
"""Marks inside words that `re` does not count as letters (accents, points, Indic vowels). The ranges also contain Indic letters."""
SENTENCE_ENDS = "。｡！？؟۔।॥"
"""Marks that end a sentence outside the Latin script."""
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")


def unspaced_runs(text: str) -> list[str]:
    """The maximal runs of characters of unspaced scripts, in order.

    >>> unspaced_runs("Tokyo is 東京 (とうきょう).")
    ['東京', 'とうきょう']
    """
    return _UNSPACED_RUN.findall(text)


def is_caseless(text: str) -> bool:
    """Whether most letters of a text have no upper and lower case, so that case cannot mark a name.

    >>> is_caseless("東京塔は高い (Tokyo)"), is_caseless("Tokyo (東京)"), is_caseless("1958")
    (True, False, False)
    """
    if text.isascii():
        return False
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character.lower() == character.upper() for character in letters) > len(letters)
