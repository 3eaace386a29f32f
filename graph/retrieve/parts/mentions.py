"""What a question mentions: documents by title, entities of the index (keywords, HLG Eq. 1–3), or the whole collection.

Legend: N propositions, E entities, W keywords."""

import re
from bisect import bisect_left, bisect_right

import numpy as np
import scipy.sparse as sp

from graph.extract.entities import entity_key
from graph.extract.terms import bare_form
from graph.index.index import Index
from graph.retrieve.parts.ranking import top_rows
from graph.store.columns.strings import Strings
from graph.text.scripts import is_caseless, unspaced_runs
from graph.types import Floats, Ints

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


_BROAD = re.compile(
    r"\b(themes|topics|trends|patterns|overview|overall|summar(?:y|i[sz]e)|in general|recurring"
    r"|(?:main|key) (?:ideas?|points?|findings|messages?|arguments?|lessons?|takeaways?))\b",
    re.IGNORECASE,
)


def broad_sign(index: Index, question: str) -> str:
    """The words by which a question asks about the whole collection; "" when it has none, or names a document."""
    found = _BROAD.search(question)
    return found[0] if found and not named_documents(index, question) else ""


MAX_KEYWORD_WORDS, MAX_KEYWORD_CHARACTERS = 6, 12


def keywords_of(index: Index, question: str) -> Ints:
    """Rows of the entities that stand in the question, each once; one within a longer one counts too."""
    words = re.findall(r"\S+", question)
    phrases = [" ".join(each) for each in _runs(words, MAX_KEYWORD_WORDS)]
    phrases += ["".join(each) for run in unspaced_runs(question) for each in _runs(list(run), MAX_KEYWORD_CHARACTERS)]
    keys = dict.fromkeys(entity_key(phrase.strip(EDGES)) for phrase in phrases)
    rows = index.entity_rows(list(keys))
    return rows[rows >= 0]


def count_keywords(index: Index, entities_W: Ints) -> Floats:
    """|K_s| (Eq. 2): how many of the keywords each proposition names, by themselves or by a synonym: float32[N]."""
    data = index.data
    own_WE = sp.csr_array(
        (np.ones(len(entities_W), np.float32), (np.arange(len(entities_W)), entities_W)),
        (len(entities_W), len(data.entity_ids)),
    )
    meant_WE = own_WE + own_WE @ data.synonym_EE
    named_WN = sp.csr_array(meant_WE @ index.entity_proposition_EN)
    named_WN.data[:] = 1
    return np.asarray(named_WN.sum(axis=0), np.float32).ravel()


def keyword_propositions(index: Index, entities_W: Ints, near_N: Floats, count: int) -> Ints:
    """The `count` propositions with the most keywords, ties by nearness (Eq. 3); only those that have one."""
    keywords_N = count_keywords(index, entities_W)
    ranked_N = np.asarray(keywords_N + (near_N + 1) / 4, np.float32)
    return top_rows(ranked_N, min(count, int((keywords_N > 0).sum())))


def _runs(units: list[str], longest: int) -> list[list[str]]:
    return [
        units[start : start + length] for length in range(1, longest + 1) for start in range(len(units) - length + 1)
    ]
