"""Documents that a question calls by name."""

import re
from bisect import bisect_left, bisect_right

from graph.extract.entities import entity_key
from graph.extract.terms import bare_form
from graph.index.index import Index
from graph.store.columns.strings import Strings
from graph.text.scripts import is_caseless, unspaced_runs

MAX_TITLE_WORDS, MAX_TITLE_CHARACTERS = 10, 12
EDGES = "?!.,;:\"“”'()[]؟،؛।"
"""What stands around a word and is no part of it."""


class Titles:
    """The sorted keys of an index's titles, for the many phrases of one question: most begin with a word that no title begins with."""

    def __init__(self, index: Index) -> None:
        self._keys: Strings = index.data.title_keys
        self._document_T = index.data.title_document_T
        self._rows_of: dict[str, tuple[int, int]] = {}

    def called(self, key: str) -> list[int]:
        """The documents whose title, or its short form, has this key."""
        low, high = self._beginning_with(key.split(" ", 1)[0])
        row = bisect_left(self._keys, key, low, high)
        documents = []
        while row < high and self._keys[row] == key:
            documents.append(int(self._document_T[row]))
            row += 1
        return documents

    def _beginning_with(self, start: str) -> tuple[int, int]:
        """The rows of the keys that begin so: first, and one past the last."""
        if start not in self._rows_of:
            low = bisect_left(self._keys, start)
            high = bisect_right(self._keys, start, low, key=lambda each: each[: len(start)])
            self._rows_of[start] = (low, high)
        return self._rows_of[start]


def named_documents(index: Index, question: str) -> list[tuple[str, int]]:
    """(name, document) for every document whose title, or its short form, stands in the question; longest names first.

    A word counts once: "West Quill" is not also "Quill". A single word counts only if it is written like a name, and not for
    opening the question, where every word is; one in letters without case always does.
    """
    words = re.findall(r"\S+", question)
    titles = Titles(index)
    taken: set[int] = set()
    found: list[tuple[str, int]] = []
    for length in range(min(MAX_TITLE_WORDS, len(words)), 0, -1):
        for start in range(len(words) - length + 1):
            places = set(range(start, start + length))
            phrase = " ".join(words[start : start + length]).strip(EDGES)
            caseless = is_caseless(phrase) and not unspaced_runs(phrase)
            like_a_name = length > 1 or caseless or (start > 0 and phrase[:1].isupper())
            opens_with_article = length > 1 and words[start].casefold() == "the"
            if places & taken or not like_a_name or opens_with_article:
                continue
            whole = entity_key(phrase)
            for key in dict.fromkeys((whole, bare_form(whole))):
                if documents := titles.called(key):
                    taken |= places
                    found += [(phrase, document) for document in documents]
                    break
    return found + [pair for run in unspaced_runs(question) for pair in _named_in_run(titles, run)]


def _named_in_run(titles: Titles, run: str) -> list[tuple[str, int]]:
    """The same for a run of characters that no space cuts into words."""
    taken: set[int] = set()
    found: list[tuple[str, int]] = []
    for length in range(min(MAX_TITLE_CHARACTERS, len(run)), 1, -1):
        for start in range(len(run) - length + 1):
            places, phrase = set(range(start, start + length)), run[start : start + length]
            if not places & taken and (documents := titles.called(entity_key(phrase))):
                taken |= places
                found += [(phrase, document) for document in documents]
    return found
