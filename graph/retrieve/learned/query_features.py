"""What a router knows of a question before any mode is run for it: its words, what the index knows of them, what lies nearest.

Cheap on purpose (the nearest passages by cosine and look-ups, no scores of all propositions): what a router spends before it
chooses is added to what the chosen mode costs.

Legend: P passages, K nearest passages, X propositions in them, F features.
"""

import re

import numpy as np

from graph.extract.entities import find_entities
from graph.index.index import Index
from graph.retrieve.parts.broad import broad_sign
from graph.retrieve.parts.gather import expand_rows
from graph.retrieve.parts.keywords import keywords_of
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.shared.types import Floats

QUESTION_WORDS = ("who", "what", "which", "when", "where", "how", "why")
QUERY_FEATURES = (
    "words",
    "entities",
    "known_entities",
    "documents_named",
    "links",
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
    "named_near",
    "entities_near",
)
"""The columns, in order: counts, truth values as 0 or 1 (`asks_…` for the first question word), cosines, and two shares: of the
documents that the question calls by name, those that one of the nearest passages is of; of its entities, those that one mentions."""
NEAR = 10
_YES_NO = re.compile(r"\W*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b", re.IGNORECASE)
_COMPARES = re.compile(
    r"\b(?:both|same|or|than|first|earlier|later|older|younger|more|less|between|common|compared?|differ\w*)\b",
    re.IGNORECASE,
)
_LINKS = re.compile(r"\b(?:of|that|which|who|whose|whom|where|when|by)\b|['’]s\b", re.IGNORECASE)
"""Words by which a question hangs one thing on another: "the mother of the director of …"."""


def query_features(index: Index, query: Query) -> Floats:
    """The QUERY_FEATURES of one question: float32[F], all finite; zeros where the index has nothing to compare with."""
    data = index.data
    cosines_P = np.asarray(data.passage_vectors_PD) @ query.vector_D
    near_K = top_rows(cosines_P, NEAR)
    cosines_K = cosines_P[near_K]
    stated_X = expand_rows(data.passage_proposition_PN, near_K)[1]
    cosines_X = np.sort(np.asarray(data.proposition_vectors_ND)[stated_X] @ query.vector_D)[::-1][:NEAR]
    entities = set(keywords_of(index, query.text).tolist())
    mentioned = set(expand_rows(data.proposition_entity_NE, stated_X)[1].tolist())
    named = set(expand_rows(data.entity_document_EU, np.array(sorted(entities), np.int64))[1].tolist())
    near = set(np.asarray(data.passage_document_P)[near_K].tolist())
    words = re.findall(r"\w+", query.text.casefold())
    asks = next((word for word in words if word in QUESTION_WORDS), "")
    columns = {
        "words": len(query.text.split()),
        "entities": len(find_entities(query.text)),
        "known_entities": len(entities),
        "documents_named": len(named),
        "links": len(_LINKS.findall(query.text)),
        "broad": bool(broad_sign(index, query.text)),
        "yes_no": bool(_YES_NO.match(query.text)),
        "compares": bool(_COMPARES.search(query.text)),
        **{f"asks_{word}": word == asks for word in QUESTION_WORDS},
        "best_passage": cosines_K.max(initial=0),
        "passage_gap": gap(cosines_K),
        "passage_spread": cosines_K.std() if len(cosines_K) else 0,
        "best_proposition": cosines_X.max(initial=0),
        "proposition_gap": gap(cosines_X),
        "documents_near": len(near),
        "named_near": share_in(named, near),
        "entities_near": share_in(entities, mentioned),
    }
    return np.array([float(columns[name]) for name in QUERY_FEATURES], np.float32)


def gap(best: Floats) -> np.float32:
    """How far the last of the best scores lies below the first; 0 for none.

    >>> float(gap(np.array([1.0, 0.75, 0.5])))
    0.5
    """
    return np.float32(best[0] - best[-1] if len(best) else 0)


def share_in(wanted: set[int], found: set[int]) -> float:
    """The share of `wanted` that is among `found`; 0 for none wanted.

    >>> share_in({1, 2, 3, 4}, {4, 2, 9})
    0.5
    """
    return len(wanted & found) / len(wanted) if wanted else 0.0
