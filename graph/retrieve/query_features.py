"""What a router knows of a question before any mode is run for it: its words, what the index knows of them, how near the best lies.

Legend: P passages, N propositions, F features.
"""

import re

import numpy as np

from graph.extract.names import find_names
from graph.index import Index
from graph.retrieve.auto import broad_sign
from graph.retrieve.keywords import keywords_of
from graph.retrieve.query import Query
from graph.retrieve.rank import top_rows
from graph.retrieve.titles import named_documents
from graph.retrieve.walk import UNSEEN, score_propositions
from graph.types import Floats

QUESTION_WORDS = ("who", "what", "which", "when", "where", "how", "why")
QUERY_FEATURES = (
    "words",
    "names",
    "known_names",
    "documents_named",
    "broad",
    "yes_no",
    "compares",
    *(f"asks_{word}" for word in QUESTION_WORDS),
    "best_passage",
    "passage_gap",
    "passage_spread",
    "best_proposition",
    "proposition_gap",
    "documents_near",
)
"""The columns, in order: counts, truth values as 0 or 1 (`asks_…` for the first question word), and cosines."""
NEAR = 10
_YES_NO = re.compile(r"\W*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b", re.IGNORECASE)
_COMPARES = re.compile(
    r"\b(?:both|same|or|than|first|earlier|later|older|younger|more|less|between|common|compared?|differ\w*)\b",
    re.IGNORECASE,
)


def query_features(index: Index, query: Query) -> Floats:
    """The QUERY_FEATURES of one question: float32[F], all finite; zeros where the index has nothing to compare with."""
    cosines_P = index.data.passage_vectors_PD @ query.vector_D
    scores_N = score_propositions(index, cosines_P, query.vector_D)
    best_P = top_rows(cosines_P, NEAR)
    near_P = cosines_P[best_P]
    near_N = scores_N[top_rows(scores_N, NEAR)]
    words = re.findall(r"\w+", query.text.casefold())
    asks = next((word for word in words if word in QUESTION_WORDS), "")
    columns = {
        "words": len(query.text.split()),
        "names": len(find_names(query.text)),
        "known_names": len(keywords_of(index, query.text)),
        "documents_named": len({document for _, document in named_documents(index, query.text)}),
        "broad": bool(broad_sign(index, query.text)),
        "yes_no": bool(_YES_NO.match(query.text)),
        "compares": bool(_COMPARES.search(query.text)),
        **{f"asks_{word}": word == asks for word in QUESTION_WORDS},
        "best_passage": near_P.max(initial=0),
        "passage_gap": gap(near_P),
        "passage_spread": near_P.std() if len(near_P) else 0,
        "best_proposition": near_N.max(initial=0),
        "proposition_gap": gap(near_N[near_N != UNSEEN]),
        "documents_near": len(np.unique(index.data.passage_document_P[best_P])),
    }
    return np.array([float(columns[name]) for name in QUERY_FEATURES], np.float32)


def gap(best: Floats) -> np.float32:
    """How far the last of the best scores lies below the first; 0 for none.

    >>> float(gap(np.array([1.0, 0.75, 0.5])))
    0.5
    """
    return np.float32(best[0] - best[-1] if len(best) else 0)
