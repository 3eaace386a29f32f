"""What a question mentions: documents by title, entities of the index (keywords, HLG Eq. 1–3), or the whole collection.

Legend: N propositions, E entities, T names of documents, W keywords."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cache

import numpy as np
import scipy.sparse as sp

from graph.extract.entities import entity_key
from graph.extract.terms import bare_form
from graph.index.index import Index
from graph.retrieve.parts.ranking import top_rows
from graph.text.word_forms import is_caseless, unspaced_runs
from graph.types import Floats, Ints

MAX_TITLE_WORDS, MAX_TITLE_CHARACTERS = 10, 12
EDGES = "?!.,;:…\"“”„'‘’‚«»‹›*_`()[]؟،؛।"
"""Punctuation to strip from both ends of a phrase."""
DocumentsOf = Callable[[str], list[int]]
"""The key of a title -> the documents whose title, or its part before a comma, has this key."""


def title_lookup(index: Index) -> DocumentsOf:
    """A lookup in the sorted title keys of an index, cached by first word for the many phrases of one question."""
    keys, document_T = index.data.title_keys, index.data.title_document_T

    @cache
    def rows_with_prefix(prefix: str) -> tuple[int, int]:
        low = bisect_left(keys, prefix)
        return low, bisect_right(keys, prefix, low, key=lambda key: key[: len(prefix)])

    def documents_of(key: str) -> list[int]:
        low, high = rows_with_prefix(key.split(" ", 1)[0])
        first = bisect_left(keys, key, low, high)
        return [int(document) for document in document_T[first : bisect_right(keys, key, first, high)]]

    return documents_of


def named_documents(index: Index, question: str) -> list[tuple[str, int]]:
    """(name, document) for every document whose title, or its part before a comma, is in the question; the longest names first, those in unspaced runs last.

    Each word belongs to one name: "West Quill" is not also "Quill". A single word can be a name if it is capitalised and not the
    question's first, or if its script has no case; a name with spaces cannot begin with "the".
    """
    words = re.findall(r"\S+", question)
    documents_of = title_lookup(index)
    used: set[int] = set()
    pairs: list[tuple[str, int]] = []
    for length in range(min(MAX_TITLE_WORDS, len(words)), 0, -1):
        for start in range(len(words) - length + 1):
            positions = set(range(start, start + length))
            phrase = " ".join(words[start : start + length]).strip(EDGES)
            caseless = is_caseless(phrase) and not unspaced_runs(phrase)
            like_a_name = length > 1 or caseless or (start > 0 and phrase[:1].isupper())
            opens_with_article = length > 1 and words[start].casefold() == "the"
            if positions & used or not like_a_name or opens_with_article:
                continue
            for key in dict.fromkeys(form for whole in _keys_of(phrase) for form in (whole, bare_form(whole))):
                if documents := documents_of(key):
                    used |= positions
                    pairs += [(phrase, document) for document in documents]
                    break
    return pairs + [pair for run in unspaced_runs(question) for pair in _named_in_run(documents_of, run)]


def _keys_of(phrase: str) -> tuple[str, str]:
    """The `entity_key` of a phrase as it is written, and with composed accents (NFC)."""
    key = entity_key(phrase.strip(EDGES))
    return key, unicodedata.normalize("NFC", key)


def _named_in_run(documents_of: DocumentsOf, run: str) -> list[tuple[str, int]]:
    """`named_documents` for a run of characters without spaces."""
    used: set[int] = set()
    pairs: list[tuple[str, int]] = []
    for length in range(min(MAX_TITLE_CHARACTERS, len(run)), 1, -1):
        for start in range(len(run) - length + 1):
            positions, phrase = set(range(start, start + length)), run[start : start + length]
            if not positions & used and (documents := documents_of(entity_key(phrase))):
                used |= positions
                pairs += [(phrase, document) for document in documents]
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
    words = re.findall(r"\S+", question)
    phrases = [" ".join(each) for each in _runs(words, MAX_KEYWORD_WORDS)]
    phrases += ["".join(each) for run in unspaced_runs(question) for each in _runs(list(run), MAX_KEYWORD_CHARACTERS)]
    keys = dict.fromkeys(key for phrase in phrases for key in _keys_of(phrase))
    rows = index.entity_rows(list(keys))
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


def _runs(units: list[str], longest: int) -> list[list[str]]:
    return [
        units[start : start + length] for length in range(1, longest + 1) for start in range(len(units) - length + 1)
    ]
