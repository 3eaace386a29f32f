"""The texts of rows in any script: made safe for a completion, and searched for an answer."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from graph.answer.citations import check_citations
from graph.answer.prompt import REASON
from graph.text.bm25 import terms_of
from graph.text.prompting import quote
from graph.text.word_forms import UNSPACED_CHARACTER

CACHED_PASSAGES = 2048
"""How many passages are cached in the form in which they are searched, since every question about a document searches all of its passages."""


def plain(text: str) -> str:
    """Text made safe for use in a completion: one line, no special tokens, no citations, no form markers.

    >>> plain("[###9] of ##[9]#Tarn")
    'of Tarn'
    """
    previous, text = "", quote(text)
    while text != previous:
        # Removing a marker may join the characters around it into a new one.
        previous, text = text, check_citations(text.replace(REASON[:3], ""), 0).text
    return " ".join(text.split())


@lru_cache(maxsize=CACHED_PASSAGES)
def one_line(text: str) -> str:
    """A text with single spaces instead of other white space."""
    return " ".join(text.split())


def words_of(text: str) -> str:
    """A text as its terms, with a space at both ends, so that a substring search matches whole words; in scripts without spaces, every character is a term.

    >>> words_of("Built in 1911."), words_of("1868年")
    (' built in 1911 ', ' 1868 年 ')
    """
    apart = UNSPACED_CHARACTER.sub(r" \g<0> ", unicodedata.normalize("NFKC", text))
    return f" {' '.join(terms_of(apart))} "


_words_of_answer = lru_cache(maxsize=1024)(words_of)


def occurs_in(answer: str, words: str) -> bool:
    """Whether an answer occurs in `words`, made by `words_of`.

    >>> occurs_in("1911", words_of("Built in 1911.")), occurs_in("19", words_of("Built in 1911."))
    (True, False)
    >>> occurs_in("1868年", words_of("1868年建成"))
    True
    """
    answer_words = _words_of_answer(answer)
    return answer_words.strip() != "" and answer_words in words
