"""Keywords of a question: the entities of the index that stand in it, and their synonyms (HLG Eq. 1–3).

Legend: N propositions, E entities, W keywords.
"""

import re

import numpy as np
import scipy.sparse as sp

from graph.extract.entities import entity_key
from graph.index.index import Index
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.titles import EDGES
from graph.shared.types import Floats, Ints
from graph.text.scripts import unspaced_runs

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
