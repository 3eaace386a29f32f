"""Which numbers a bracket cites, by what stands in it: the grammar behind graph/prompt/citations.py."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

MAX_RANGE = 100
"""[a-b] stands for all its numbers up to so many, beyond that for its ends: no context holds more passages."""
MAX_NUMBER = 999_999_999
_NAMES = (
    *("p", "pp", "page", "pages", "passage", "passages", "source", "sources", "ref", "refs", "reference", "references"),
    *("doc", "docs", "document", "documents", "citation", "citations", "cite", "cited", "note", "notes", "fn", "n"),
    *("no", "nr", "number", "see", "cf"),
)
"""Words that may stand before a number that cites."""
_JOINTS = ("and", "to", "und", "bis", "et")
_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_PREFIX = rf"(?:(?:{_NAME})(?![^\W\d_])[.:]? ?){{0,3}}[\^#№§@†‡]? ?"
_ITEM = rf"{_PREFIX}\d+(?: ?(?:[-‐-―−~〜]|\.{{2,3}}|to|bis) ?{_PREFIX}\d+)?"
_LIST = re.compile(rf"{_ITEM}(?:(?: ?[,;、/|&+] ?| (?:(?:and|und|et) )?){_ITEM})*[.,;:]?")
_SPAN = re.compile(r"(\d+)(?: ?(?:[-‐-―−~〜]|\.{2,3}|to|bis) ?[^\d,;]*?(\d+))?")
_LOCATOR = re.compile(r"(?<=\d)(?: ?: ?\d+)? ?[†‡].*", re.DOTALL)
"""Where in a source, as some assistants write it: 【9:0†source】."""
_TAG = re.compile(r"<[^<>]*>")
_MARKUP = str.maketrans("", "", "*_`\\$\"'")
_IGNORED = frozenset({"Cf", "Cc", "Cn", "Co", "Mn", "Me"})
_WORD = re.compile(r"[^\W\d_]+")


@lru_cache(maxsize=4096)
def cited_numbers(body: str) -> tuple[int, ...]:
    """The numbers that a bracket with `body` in it cites, in order; none where it is no citation.

    >>> cited_numbers("1, ９"), cited_numbers("p. 2–4"), cited_numbers("9†source"), cited_numbers("x1"), cited_numbers("2019-05-03")
    ((1, 9), (2, 3, 4), (9,), (), ())
    """
    bare = _LOCATOR.sub("", _bare(body))
    return tuple(_numbers(bare)) if _LIST.fullmatch(bare) else ()


def may_cite(beginning: str) -> bool:
    """Whether a bracket that begins so could still cite something, whatever follows."""
    bare = _bare(beginning)
    word = _WORD.search(bare)
    if word is None or any(mark in beginning for mark in "<&†‡"):
        return True
    told = word[0]
    known = (*_NAMES, *_JOINTS)
    return told in known if word.end() < len(bare) else any(name.startswith(told) for name in known)


def _bare(body: str) -> str:
    """What a reader sees of `body`: entities and wide forms resolved, tags, emphasis and invisible characters left out, spaces single."""
    plain = unicodedata.normalize("NFKC", _TAG.sub("", html.unescape(body))).translate(_MARKUP).replace("~~", "")
    seen = "".join(
        " " if each.isspace() else each
        for each in plain
        if each.isspace() or unicodedata.category(each) not in _IGNORED
    )
    return " ".join(seen.split()).casefold()


def _numbers(bare: str) -> Iterator[int]:
    for first, last in _SPAN.findall(bare):
        low, high = _value(first), _value(last or first)
        yield from range(low, high + 1) if low <= high < low + MAX_RANGE else (low, high)


def _value(digits: str) -> int:
    return min(int(digits), MAX_NUMBER)
