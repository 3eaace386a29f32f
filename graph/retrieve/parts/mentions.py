"""What a question mentions: documents by title, entities of the index (keywords, HLG Eq. 1–3), or the whole collection.

Legend: N propositions, E entities, T names of documents, W keywords."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from graph.extract.entities import entity_key
from graph.extract.terms import bare_form
from graph.index.index import Index
from graph.retrieve.parts.ranking import top_rows
from graph.text.word_forms import (
    FOREIGN_FUNCTION_WORDS,
    FUNCTION_WORDS,
    IMPERATIVES,
    WORD,
    composed,
    is_caseless,
    unspaced_runs,
)
from graph.types import Floats, Ints

T = TypeVar("T")

MAX_TITLE_WORDS = 10
"""Longer phrases are looked up only where their first MAX_TITLE_WORDS words begin a title."""
EDGES = " \u00a0\u202f?!.,;:…\"“”„'‘’‚«»‹›*_`()[]؟،؛।"
"""Spaces and punctuation to strip from both ends of a phrase."""
MAX_EDGES = 3
"""This many of the EDGES at either end may belong to a title, as in “Heroes” and __init__."""
LEFT_OUT = ("", " !", " ?", "!", "?")
"""What a question may leave out at the end of a title, ascending, so that the search only moves on."""
_WORD = re.compile(r"(?<!\w)[^\w\s]*(?:[cdjlmnst]|qu|un|(?:d?a|[dn]e|su)ll)['’](?=\w)|[^\s—–/]+", re.IGNORECASE)
"""A word of a question; dashes and slashes separate words, and so does the apostrophe after an elided one (“d'Ellery”)."""
_NOT_NAMES = FUNCTION_WORDS | FOREIGN_FUNCTION_WORDS | IMPERATIVES
"""Words that are no names at the beginning of a line or sentence, though capitalised."""
_SENTENCE_ENDS = frozenset(".!?…")
Words = Sequence[re.Match[str]]


class _Titles:
    """Look-ups in the sorted title keys of an index, cached by first word for the many phrases of one question."""

    def __init__(self, index: Index) -> None:
        self._keys, self._document_T = index.data.title_keys, index.data.title_document_T
        self._rows_with_prefix: dict[str, tuple[int, int]] = {}

    def _rows(self, key: str) -> tuple[int, int]:
        """The rows of the keys that begin with the first word of `key`: first, and one past the last."""
        prefix = key.split(" ", 1)[0]
        if prefix not in self._rows_with_prefix:
            low = bisect_left(self._keys, prefix)
            high = bisect_right(self._keys, prefix, low, key=lambda key: key[: len(prefix)])
            self._rows_with_prefix[prefix] = low, high
        return self._rows_with_prefix[prefix]

    def begin_with(self, start: str) -> bool:
        """Whether a key begins with `start`."""
        low, high = self._rows(start)
        first = bisect_left(self._keys, start, low, high)
        return first < high and self._keys[first].startswith(start)

    def documents(self, keys: Iterable[str]) -> list[int]:
        """The documents whose title, or its part before a comma, has one of these keys, or one that ends with a mark more (LEFT_OUT)."""
        rows: list[int] = []
        for key in filter(self.begin_with, keys):
            low, high = self._rows(key)
            for title in (key + mark for mark in LEFT_OUT):
                low = bisect_left(self._keys, title, low, high)
                rows += range(low, bisect_right(self._keys, title, low, high))
        return list(dict.fromkeys(int(self._document_T[row]) for row in rows))

    def in_unspaced(self, text: str) -> Iterator[tuple[int, str, str]]:
        """(start, name, key) for the keys in unspaced scripts that a text contains, of any length; no word in other scripts is cut."""
        text = composed(text)
        folded = text.casefold().replace("’", "'")
        written = text if len(text) == len(folded) else folded
        words = list(WORD.finditer(folded)) if unspaced_runs(folded) else []
        inside = {position for word in words for position in range(word.start() + 1, word.end())}
        for start in (word.start() for word in words):
            rest = folded[start:]
            while row := bisect_right(self._keys, rest):
                key = self._keys[row - 1]
                same = takewhile(lambda pair: pair[0] == pair[1], zip(rest, key, strict=False))
                rest = rest[: len(list(same))]  # No key that begins the text here is longer.
                if rest != key:
                    continue
                end = start + len(key)
                if end not in inside and unspaced_runs(key):
                    yield start, written[start:end], key
                rest = key[:-1]


def named_documents(index: Index, question: str) -> list[tuple[str, int]]:
    """(name, document) for every document whose title, or its part before a comma, is in the question; the longest names first, those in unspaced scripts last.

    Each word belongs to one name: "West Quill" is not also "Quill". A single word can be a name if it is capitalised and is neither the first
    word nor a function word or an imperative that begins a line or sentence (unless brackets follow), if its script has no case, or if the title
    begins with punctuation; a name with spaces cannot begin with "the". Punctuation at the ends of a title may be missing in the question.
    """
    words = list(_WORD.finditer(question))
    titles = _Titles(index)
    used: set[int] = set()
    pairs: list[tuple[str, int]] = []
    for length, start in _phrases(titles, question, words):
        if not used.isdisjoint(range(start, start + length)):
            continue
        written = _written(question, words[start : start + length])
        phrase = written.strip(EDGES)
        spaced = len(phrase.split(maxsplit=1)) > 1
        if spaced and words[start][0].casefold() == "the":
            continue
        edged = _edged_keys_of(written)
        if spaced or _may_be_name(question, words, start, phrase):
            key = entity_key(phrase)
            documents = titles.documents([key, *edged]) or titles.documents({bare_form(key)} - {key})
        else:
            documents = titles.documents(key for key in edged if key[0] in EDGES)
        if documents:
            used.update(range(start, start + length))
            pairs += [(phrase, document) for document in documents]
    return pairs + _named_in_unspaced(titles, question, [words[position] for position in used])


def _phrases(titles: _Titles, question: str, words: Words) -> list[tuple[int, int]]:
    """(number of words, first word) for every phrase that may be a title; the longest first."""
    phrases: list[tuple[int, int]] = []
    for start in range(len(words)):
        longest = len(words) - start
        if longest > MAX_TITLE_WORDS:
            opening = _written(question, words[start : start + MAX_TITLE_WORDS])
            keys = (entity_key(opening.strip(EDGES)), *_edged_keys_of(opening))
            if not any(titles.begin_with(key.partition(" (")[0]) for key in keys):
                longest = MAX_TITLE_WORDS
        phrases += [(-length, start) for length in range(1, longest + 1)]
    return [(-length, start) for length, start in sorted(phrases)]


def _written(question: str, words: Words) -> str:
    """The words as in the question, with single spaces."""
    return " ".join(question[words[0].start() : words[-1].end()].split())


def _edged_keys_of(phrase: str) -> list[str]:
    """The keys of a phrase with some of the EDGES around it, as the keys of titles contain them."""
    inner = phrase.strip(EDGES)
    if not inner or inner == phrase:
        return []
    before, _, after = phrase.partition(inner)
    before, after, plain = before[-MAX_EDGES:], after[:MAX_EDGES], entity_key(inner)
    starts, ends = range(len(before) + 1), range(len(after), -1, -1)
    keys = dict.fromkeys(entity_key(before[start:] + inner + after[:end]) for start in starts for end in ends)
    return [key for key in keys if key != plain and key.strip(EDGES) == plain]


def _may_be_name(question: str, words: Words, start: int, phrase: str) -> bool:
    """Whether a phrase without spaces, beginning with the word `start`, is written like a name."""
    if is_caseless(phrase) and not unspaced_runs(phrase):
        return True
    if start + 1 < len(words) and words[start + 1][0].startswith("("):
        return phrase[:1].isupper()
    is_name = start > 0 and (entity_key(phrase) not in _NOT_NAMES or not _opens_sentence(question, words, start))
    return phrase[:1].isupper() and is_name


def _opens_sentence(question: str, words: Words, start: int) -> bool:
    """Whether a word after the first begins a line or sentence, or follows punctuation alone, such as the dash of a list."""
    before = words[start - 1]
    after_marks = before[0][len(before[0].rstrip(EDGES)) :]
    is_punctuation = not any(map(str.isalnum, before[0]))
    in_new_line = "\n" in question[before.end() : words[start].start()]
    return in_new_line or is_punctuation or not _SENTENCE_ENDS.isdisjoint(after_marks)


def _named_in_unspaced(titles: _Titles, question: str, used: Words) -> list[tuple[str, int]]:
    """`named_documents` in scripts without spaces; not in the words that are `used`."""
    for word in used:
        question = question[: word.start()] + "\n" * len(word[0]) + question[word.end() :]
    pairs: list[tuple[str, int]] = []
    taken: set[int] = set()
    for start, name, key in sorted(titles.in_unspaced(question), key=lambda found: (-len(found[2]), found[0])):
        positions = range(start, start + len(key))
        if taken.isdisjoint(positions):
            taken.update(positions)
            pairs += [(name, document) for document in titles.documents([key])]
    return pairs


_BROAD = re.compile(
    r"\b(themes|topics|trends|patterns|overview|overall|summar(?:y|i[sz]e)|in general|recurring"
    r"|(?:main|key) (?:ideas?|points?|findings|messages?|arguments?|lessons?|takeaways?))\b",
    re.IGNORECASE,
)


def broad_words(index: Index, question: str) -> str:
    """The words that mark a question about the whole collection; "" if the question contains none, or names a document."""
    match = _BROAD.search(question)
    return match[0] if match and not named_documents(index, question) else ""


MAX_KEYWORD_WORDS, MAX_KEYWORD_CHARACTERS = 6, 12


def keywords_of(index: Index, question: str) -> Ints:
    """The rows of the entities in the question, each once, including those within longer ones."""
    words = list(_WORD.finditer(question))
    parts = len(words) - len(question.split())
    longest = MAX_KEYWORD_WORDS + min(max(parts, 0), MAX_KEYWORD_WORDS)
    phrases = [_written(question, each) for each in _runs(words, longest)]
    phrases += ["".join(each) for run in unspaced_runs(question) for each in _runs(list(run), MAX_KEYWORD_CHARACTERS)]
    keys = [entity_key(phrase.strip(EDGES)) for phrase in phrases]
    keys += [bare_form(key) for key in keys if not key.isascii()]
    keys += [key for _, _, key in _Titles(index).in_unspaced(question)]
    rows = index.entity_rows(list(dict.fromkeys(keys)))
    return rows[rows >= 0]


def count_keywords(index: Index, entities_W: Ints) -> Floats:
    """|K_s| (Eq. 2): how many of the keywords each proposition mentions, directly or by a synonym: float32[N]."""
    data, keywords = index.data, len(entities_W)
    entries = (np.ones(keywords, np.float32), (np.arange(keywords), entities_W))
    exact_WE = sp.csr_array(entries, (keywords, len(data.entity_ids)))
    widened_WE = exact_WE + exact_WE @ data.synonym_EE
    named_WN = sp.csr_array(widened_WE @ index.entity_proposition_EN)
    named_WN.data[:] = 1
    return np.asarray(named_WN.sum(axis=0), np.float32).ravel()


def keyword_propositions(index: Index, entities_W: Ints, similarity_N: Floats, count: int) -> Ints:
    """The `count` propositions with the most keywords, ties broken by similarity (Eq. 3); only propositions with a keyword."""
    keywords_N = count_keywords(index, entities_W)
    ranked_N = np.asarray(keywords_N + (similarity_N.clip(-1, 1) + 1) / 4, np.float32)
    return top_rows(ranked_N, min(count, int((keywords_N > 0).sum())))


def _runs(units: list[T], longest: int) -> list[list[T]]:
    return [
        units[start : start + length] for length in range(1, longest + 1) for start in range(len(units) - length + 1)
    ]
