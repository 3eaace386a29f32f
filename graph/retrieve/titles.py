"""Documents that a question calls by name."""

import re
from bisect import bisect_left

from graph.arrays import Strings
from graph.extract.names import name_key
from graph.index import Index
from graph.scripts import is_caseless, unspaced_runs
from graph.terms import bare_form

MAX_TITLE_WORDS, MAX_TITLE_CHARACTERS = 10, 12
EDGES = "?!.,;:\"“”'()[]؟،؛।"
"""What stands around a word and is no part of it."""


def named_documents(index: Index, question: str) -> list[tuple[str, int]]:
    """(name, document) for every document whose title, or its short form, stands in the question; longest names first.

    A word counts once: "West Quill" is not also "Quill". A single word counts only if it is written like a name, and not for
    opening the question, where every word is; one in letters without case always does.
    """
    words = re.findall(r"\S+", question)
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
            for key in dict.fromkeys((name_key(phrase), bare_form(name_key(phrase)))):
                if documents := _documents_called(index, key):
                    taken |= places
                    found += [(phrase, document) for document in documents]
                    break
    return found + [pair for run in unspaced_runs(question) for pair in _named_in_run(index, run)]


def _named_in_run(index: Index, run: str) -> list[tuple[str, int]]:
    """The same for a run of characters that no space cuts into words."""
    taken: set[int] = set()
    found: list[tuple[str, int]] = []
    for length in range(min(MAX_TITLE_CHARACTERS, len(run)), 1, -1):
        for start in range(len(run) - length + 1):
            places, phrase = set(range(start, start + length)), run[start : start + length]
            if not places & taken and (documents := _documents_called(index, name_key(phrase))):
                taken |= places
                found += [(phrase, document) for document in documents]
    return found


def _documents_called(index: Index, key: str) -> list[int]:
    keys: Strings = index.data.title_keys
    row = bisect_left(keys, key, 0, len(keys))
    documents = []
    while row < len(keys) and keys[row] == key:
        documents.append(int(index.data.title_document_T[row]))
        row += 1
    return documents
